"""Dialects of calls in Python syntax, and in the notation of the Gemma models.

The first example is Python, and the second one is Gemma's notation:

    [get_weather(city="Paris"), get_time()]
    <|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies import forged_result
from streamtools.parsing.bodies.gemma_calls import HEAD, GemmaCalls
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.bodies.keyword_calls import NAME, call_line, is_writable, python_dicts, pythonic_calls
from streamtools.parsing.dialects.base import ALONE, NO_JSON, Dialect, Opener, Tag, closing_tags
from streamtools.parsing.dialects.writing import as_object, both_tags
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, TURN_ENDS, Maybe, OneOf, Some

_LITERALS_ONLY = "Arguments are literals and always have names."


def pythonic() -> Dialect:
    """Return the dialect of ToolACE. Calls have no tags.

    The model card of meta-llama/Llama-3.2 also describes this form. A list is read as calls only at the start of a
    message or after another call, unless the parser has `calls_at="anywhere"`. The first call of the list must name a
    declared tool. The tags of Llama 4 are also read, because the parsers named `pythonic` in inference servers read
    them.
    """
    return replace(
        pythonic_llama4(),
        id="pythonic",
        write_call=lambda name, arguments: f"[{_write(name, arguments, _python)}]",
        auto=False,
    )


def pythonic_llama4() -> Dialect:
    """Return the dialect of meta-llama/Llama-4, as its model card describes it.

    The tags around calls are tokens. The model may forget them, and a tokenizer may remove them. A list without tags is
    read as in `pythonic`. If the prompt contains calls in JSON, the model writes JSON between the tags.
    """
    opening, close = "<|python_start|>", "<|python_end|>"
    return _tagged("pythonic_llama4", opening, close, _json_opener(opening, close))


def olmo3_pythonic() -> Dialect:
    """Return the dialect of allenai/Olmo-3, as its chat template defines it.

    Each call is on a separate line. The model writes `true`, `false` and `null`, as in JSON.
    """
    opening, close = "<function_calls>", "</function_calls>"
    dialect = _tagged("olmo3_pythonic", opening, close)
    return replace(
        dialect,
        openers_for=None,
        write_call=lambda name, arguments: f"{opening}{_write(name, arguments, compact)}{close}",
        reserved=both_tags("function_calls"),
    )


def lfm2_pythonic() -> Dialect:
    """Return the dialect of LiquidAI/LFM2, as its chat template defines it.

    The model also writes JSON between the tags. Its Python is not always valid: numbers may begin with a zero, and
    strings may contain unescaped quotes.
    """
    opening, close = "<|tool_call_start|>", "<|tool_call_end|>"
    begin, end = "<|tool_response_start|>", "<|tool_response_end|>"
    result = Opener((begin,), forged_result(end), kind="result")
    dialect = _tagged("lfm2_pythonic", opening, close, _json_opener(opening, close), result, loose=True)
    return replace(
        dialect,
        tags=(Tag((opening, SPACES, close)), Tag((opening, SPACES, "[", SPACES, "]", SPACES, close)), *dialect.tags),
        write_result=lambda name, text: f"{begin}{text}{end}",
        reserved=(opening, close, begin, end),
    )


def sarashina_list() -> Dialect:
    """Return the dialect of SB Intuitions' Sarashina, as smg's parser reads it: a list of Python dicts after a token.

    Servers remove the token. So a list is also read at the start of a message, if it calls a declared tool.
    """
    opening, begin = "<|tool_calls|>", (SPACES, "{", SPACES, _quoted("name"), SPACES, ":", SPACES)
    return Dialect(
        id="sarashina_list",
        openers=(
            *(Opener((opening, SPACES), python_dicts, ahead=ahead) for ahead in (("[", SPACES, "{"), ("{",))),
            Opener((opening, SPACES), python_dicts, ahead=(NO_JSON,), auto=False),
        ),
        openers_for=lambda names: (Opener(("[",), python_dicts, (*begin, _quoted(*names)), where="start"),),
        write_call=lambda name, arguments: f"{opening}{[{'name': name, 'arguments': arguments}]}",
        reserved_patterns=(("['\"]", "name['\"]"),),
        auto="marked",
    )


def _quoted(*words: str) -> OneOf:
    return OneOf(tuple(quote + word + quote for word in words for quote in "'\""))


def minicpm4_python() -> Dialect:
    """Return the dialect of openbmb/MiniCPM3-4B and MiniCPM4-8B, as their chat templates define it.

    The calls are Python in a fence of back-ticks between tokens, one call on each line. Models sometimes omit the
    fence. Reasoning precedes the calls, between other tokens.
    """
    opening, close = "<|tool_call_start|>", "<|tool_call_end|>"
    fenced, bare = pythonic_calls(opening, close, fenced=True), pythonic_calls(opening, close)
    return Dialect(
        id="minicpm4_python",
        openers=(
            Opener((opening, SPACES, "```", OneOf(("python", "")), SPACES), fenced, ahead=(NAME, "(")),
            Opener((opening, SPACES), bare, ahead=(NAME, "("), unless_enabled="lfm2_pythonic"),
        ),
        write_call=lambda name, arguments: f"{opening}\n```python\n{_write(name, arguments, _python)}\n```\n{close}",
        reserved=(opening, close),
        tags=(Tag(("<|thought_start|>",), closings=("<|thought_end|>",)), *closing_tags(close)),
        notes=_LITERALS_ONLY,
    )


def tool_code() -> Dialect:
    """Return the dialect that Google's guide to function calling teaches to Gemma 3: a fence named `tool_code`.

    Ordinary answers may also contain this fence. So it is read as calls only if it begins with a call of a declared
    tool.
    """

    def openers_for(names: tuple[str, ...]) -> tuple[Opener, ...]:
        known, body = OneOf(tuple(filter(is_writable, names))), pythonic_calls("```tool_code", "```")
        begin = ("```tool_code", BLANKS, LINE_END, SPACES)
        return (Opener(begin, body, ahead=(known, "("), where="line_start"),) if known.words else ()

    return Dialect(
        id="tool_code",
        openers=(),
        openers_for=openers_for,
        write_call=lambda name, arguments: f"```tool_code\n{_write(name, arguments, _python)}\n```",
        write_result=lambda name, text: f"```tool_output\n{text}\n```",
        reserved=("```tool_",),
        auto=False,
        notes=_LITERALS_ONLY,
    )


def granite_lines() -> Dialect:
    """Return a dialect that Granite 3.3 and 4.0 sometimes write: a call on each line, without tags.

    Lines of code look similar. So a line is read as a call only at the start of a message or after another call. The
    line must call a declared tool with named arguments, or without arguments. Source: a parser in a pull request of
    vLLM.
    """
    word = NAME.characters
    key = rf"[{word}]{{1,128}}[ \t\r\n]{{0,32}}"
    return Dialect(
        id="granite_lines",
        openers=(),
        openers_for=_line_openers,
        write_call=lambda name, arguments: f"{_write(name, arguments, _python)}\n",
        # The beginning of a call: `get_weather(city=`, or `get_time()`.
        reserved_patterns=((f"(?<![{word}])[{word}]", rf"[{word}]{{0,127}}\([ \t\r\n]{{0,32}}(?:\)|{key}=)"),),
        auto=False,
        notes=f"{ALONE} Each has a line to itself, and its arguments always have names.",
    )


def _line_openers(names: tuple[str, ...]) -> tuple[Opener, ...]:
    """Return the openers of calls. Names with the same first letter share openers, because compiling takes time."""
    known = [name for name in names if is_writable(name)]
    argument = (NAME, SPACES, "=")
    return tuple(
        Opener((first,), call_line, ahead=(rest, "(", SPACES, *following), where="start")
        for first in dict.fromkeys(name[0] for name in known)
        for rest in [OneOf(tuple(name[1:] for name in known if name[0] == first))]
        for following in ((")", BLANKS, LINE_END), (")", BLANKS, OneOf(TURN_ENDS)), argument)
    )


def _tagged(id: str, opening: str, close: str, *more: Opener, loose: bool = False) -> Dialect:
    """Return a dialect of Python calls between two tags, in a list or alone. Also reads lists without tags.

    `more` are other openers. With `loose=True`, values may deviate from Python, as in LFM2.
    """
    body = pythonic_calls(opening, close, loose=loose)
    return Dialect(
        id=id,
        openers=(Opener((opening, SPACES), body, ahead=(Maybe(("[", SPACES)), NAME, "(")), *more),
        openers_for=_list_openers,
        write_call=lambda name, arguments: f"{opening}[{_write(name, arguments, _python)}]{close}",
        reserved=(opening, close),
        # The beginning of a list: `[get_weather(`.
        reserved_patterns=((r"\[", r"[ \t\r\n]{0,32}[^\s()\[\]{}<>\"'`=,;]{1,128}\("),),
        tags=closing_tags(close),
        notes=_LITERALS_ONLY,
    )


def _json_opener(opening: str, close: str) -> Opener:
    """Return the opener of calls in JSON between the two tags."""
    return Opener((opening, SPACES), json_calls(close), ahead=(Maybe(("[", SPACES)), "{"))


def _list_openers(names: tuple[str, ...]) -> tuple[Opener, ...]:
    known = OneOf(tuple(filter(is_writable, names)))
    return (Opener(("[",), pythonic_calls(), ahead=(SPACES, known, "("), where="start"),) if known.words else ()


def _write(name: str, arguments: dict[str, Any], literal: Callable[[Any], str]) -> str:
    """Return a call like `get_weather(city="Paris")`. `literal` writes a value."""
    if all(map(is_writable, arguments)):
        return f"{name}({', '.join(f'{key}={literal(value)}' for key, value in arguments.items())})"
    return f"{name}(**{literal(arguments)})"  # only this form allows any key


def _python(value: Any) -> str:
    """Return a JSON value as a Python literal, with strings in double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_python(key)}: {_python(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_python, value)) + "]"
    if value is None or isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def gemma4() -> Dialect:
    """Return the dialect of google/gemma-4, as its chat template defines it: tokens surround strings and reasoning.

    After its calls, the model writes the opening tag of a result, and the message ends. The result follows in the next
    request.
    """
    around = ("<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>")
    reasoning = (
        Tag(("<|channel>", OneOf(("thought\n", ""))), closings=("<channel|>",)),
        Tag(("thought\n",), closings=("<channel|>",), where="start", auto=False),
        Tag(("<channel|>",)),
        Tag(("<turn|>",), auto=False),
    )
    return _gemma("gemma4", '<|"|>', around, *reasoning, quotes=True)


def functiongemma() -> Dialect:
    """Return the dialect of google/functiongemma-270m-it, as its chat template defines it.

    `<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>`
    """
    around = ("<start_function_call>", "<end_function_call>", "<start_function_response>", "<end_function_response>")
    return _gemma("functiongemma", "<escape>", around, Tag(("<end_of_turn>",), auto=False))


def _gemma(id: str, mark: str, around: tuple[str, str, str, str], *tags: Tag, quotes: bool = False) -> Dialect:
    """Return a dialect in Gemma's notation. `around` holds the tags around a call, and then those around a result.

    `mark` stands around strings. With `quotes`, it also means a quote in a string. If the caller names the dialect, any
    text after the opening tag is a call, unless it begins with a back-tick. A call of a declared tool then needs no
    tag.
    """
    opening, close, result, end_of_result = around
    calls, literal = GemmaCalls(mark, opening, close, quotes=quotes), _gemma_writer(mark)

    def openers_for(names: tuple[str, ...]) -> tuple[Opener, ...]:
        namespace, known = Maybe((Some(r"^\s{}()\[\]<>\"'`:", 1, 64), ":")), OneOf(names)
        return (Opener(("call:",), calls.bare, ahead=(namespace, namespace, known, BLANKS, "{"), where="line_start"),)

    return Dialect(
        id=id,
        openers=(
            Opener((opening, SPACES), calls, ahead=(HEAD, "{")),
            Opener((opening, SPACES), calls, ahead=(OneOf(("call", ":", "{")),)),
            Opener((opening, SPACES), calls, ahead=(Some(r"^ \t\r\n`", 1, 1),), auto=False),
        ),
        openers_for=openers_for,
        write_call=lambda name, arguments: f"{opening}call:{name}{literal(arguments)}{close}",
        write_result=lambda name, text: f"{result}response:{name}{literal(as_object(text, 'value'))}{end_of_result}",
        reserved=(*around, mark),
        # The beginning of a call without its tag.
        reserved_patterns=(("c", r"all:[^\s{}]{1,256}[ \t]{0,32}\{"),),
        auto="marked",
        tags=(Tag((close,)), Tag((result,)), *tags),
        strays=(((mark,), ()),),
        notes=f"Each string stands between two {mark}. Keys have no quotes.",
    )


# A key that needs no quotes, such as "city" or "max-days".
_plain_key = re.compile(r"[^\W\d][\w.-]*").fullmatch


def _gemma_writer(mark: str) -> Callable[[Any], str]:
    """Return a function that writes a value.

    A string is written between two marks. A string that contains the mark is written as JSON.
    """

    def write(value: Any) -> str:
        if isinstance(value, dict):
            members = ((key if _plain_key(key) else write(key), write(member)) for key, member in value.items())
            return "{" + ",".join(f"{key}:{text}" for key, text in members) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(write, value)) + "]"
        if isinstance(value, str) and mark not in value:
            return mark + value + mark
        return compact(value)

    return write
