"""Calls in the syntax of a language: as Python writes them, or in the notation of the Gemma models.

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
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.bodies.keyword_calls import (
    FUNCTION_GEMMA,
    GEMMA,
    GEMMA_NAME,
    NAME,
    call_line,
    gemma_call,
    pythonic_calls,
    readable,
)
from streamtools.parsing.bodies.syntax import Syntax
from streamtools.parsing.dialects.base import (
    ALONE,
    Dialect,
    Opener,
    Tag,
    as_object,
    both_tags,
    closed_again,
    ends_of_turn,
)
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, OneOf


def pythonic() -> Dialect:
    """Return the dialect without a tag, of meta-llama/Llama-3.2, by its model card, and ToolACE.

    Only a list at the start of a message that begins with a declared name is one. Peers read the tags of Llama 4 under
    this name as well.
    """
    return replace(
        pythonic_llama4(),
        id="pythonic",
        write_call=lambda name, arguments: f"[{_write(name, arguments, _python)}]",
        auto=False,
    )


def pythonic_llama4() -> Dialect:
    """Return the dialect of meta-llama/Llama-4, by its model card.

    The tags, as those of LFM 2, are tokens, which the model forgets, or a tokenizer drops: a list without them is read
    where `pythonic` reads it. Where the prompt has JSON, the model writes that between the tags.
    """
    ends = ("<|eot|>", "<|eom|>", "<|eot_id|>", "<|eom_id|>")
    dialect = _tagged("pythonic_llama4", "<|python_start|>", "<|python_end|>", ends=ends)
    return replace(dialect, openers=(*dialect.openers, *_json("<|python_start|>", "<|python_end|>")))


def olmo3_pythonic() -> Dialect:
    """Return the dialect of allenai/Olmo-3, by its chat template.

    One call stands on each line, with JSON's words in the place of Python's.
    """
    opening, close = "<function_calls>", "</function_calls>"
    dialect = _tagged("olmo3_pythonic", opening, close, ends=("<|im_end|>", "<|endoftext|>"))
    return replace(
        dialect,
        openers_for=None,
        write_call=lambda name, arguments: f"{opening}{_write(name, arguments, compact)}{close}",
        reserved=both_tags("function_calls"),
    )


def lfm2_pythonic() -> Dialect:
    """Return the dialect of LiquidAI/LFM2, by its chat template; it writes JSON between its tags as well.

    It writes Python loosely: months that begin with a zero, sets, and quotes in commands that it does not escape.
    """
    opening, close = "<|tool_call_start|>", "<|tool_call_end|>"
    begin, end = "<|tool_response_start|>", "<|tool_response_end|>"
    dialect = _tagged("lfm2_pythonic", opening, close, ends=("<|im_end|>",), loose=True)
    return replace(
        dialect,
        openers=(
            *dialect.openers,
            *_json(opening, close),
            Opener((begin,), forged_result(end), kind="result"),
        ),
        tags=(
            *(Tag((opening, SPACES, *inside, close)) for inside in ((), ("[", SPACES, "]", SPACES))),  # around nothing
            *dialect.tags,
        ),
        write_result=lambda name, text: f"{begin}{text}{end}",
        reserved=(opening, close, begin, end),
    )


def minicpm4_python() -> Dialect:
    """Return the dialect of openbmb/MiniCPM3-4B and MiniCPM4-8B, by their chat templates: Python between tokens.

    The calls stand in a fence, which models leave out, one on each line, and thoughts between tokens before them.
    """
    opening, close = "<|tool_call_start|>", "<|tool_call_end|>"
    fenced, bare = pythonic_calls(opening, close, fenced=True), pythonic_calls(opening, close)
    return Dialect(
        id="minicpm4_python",
        openers=(
            Opener((opening, SPACES, "```", OneOf(("python", "")), SPACES), fenced, ahead=(NAME, "(")),
            Opener((opening, SPACES), bare, ahead=(NAME, "("), unless="lfm2_pythonic"),
        ),
        write_call=lambda name, arguments: f"{opening}\n```python\n{_write(name, arguments, _python)}\n```\n{close}",
        reserved=(opening, close),
        tags=(
            Tag(("<|thought_start|>",), closings=("<|thought_end|>",)),
            *closed_again(close),
            *ends_of_turn("<|im_end|>"),
        ),
        notes="Arguments are literals and always have names.",
    )


def tool_code() -> Dialect:
    """Return the dialect that Google's guide to function calling teaches to Gemma 3: a fence of its own.

    Other answers hold such fences as well, so only calls of declared tools count.
    """

    def openers_for(names: tuple[str, ...]) -> tuple[Opener, ...]:
        known, body = OneOf(tuple(filter(readable, names))), pythonic_calls("```tool_code", "```")
        begin = ("```tool_code", BLANKS, LINE_END, SPACES)
        return (Opener(begin, body, ahead=(known, "("), where="line_start"),) if known.words else ()

    return Dialect(
        id="tool_code",
        openers=(),
        openers_for=openers_for,
        write_call=lambda name, arguments: f"```tool_code\n{_write(name, arguments, _python)}\n```",
        write_result=lambda name, text: f"```tool_output\n{text}\n```",
        reserved=("```tool_",),
        tags=ends_of_turn("<end_of_turn>"),
        auto=False,
        notes="Arguments are literals and always have names.",
    )


def granite_lines() -> Dialect:
    """Return what Granite 3.3 and 4.0 write in the place of their own dialects: a call on each line, without a tag.

    Source: a parser for them in a pull request of vLLM. Code looks like that, too, so only lines at the start of a
    message count that begin with a declared tool and an argument with a name.
    """
    return Dialect(
        id="granite_lines",
        openers=(),
        openers_for=_lines_of,
        write_call=lambda name, arguments: f"{_write(name, arguments, _python)}\n",
        unmarked=((f"(?<![{_WORD}])[{_WORD}]", rf"[{_WORD}]{{0,127}}\([ \t\r\n]{{0,32}}(?:\)|{_KEY}=)"),),
        tags=ends_of_turn("<|end_of_text|>"),
        auto=False,
        notes=f"{ALONE} Each has a line to itself, and its arguments always have names.",
    )


_WORD = NAME.characters
_KEY = rf"[{_WORD}]{{1,128}}[ \t\r\n]{{0,32}}"


def _lines_of(names: tuple[str, ...]) -> tuple[Opener, ...]:
    """Return the openers; names take time to compile, so all that begin alike stand in one."""
    known = [name for name in names if readable(name)]
    argument = (NAME, SPACES, "=")
    return tuple(
        Opener((first,), call_line, ahead=(rest, "(", SPACES, *behind), where="start")
        for first in dict.fromkeys(name[0] for name in known)
        for rest in [OneOf(tuple(name[1:] for name in known if name[0] == first))]
        for behind in ((")", BLANKS, LINE_END), argument)
    )


def _tagged(id: str, opening: str, close: str, *, ends: tuple[str, ...], loose: bool = False) -> Dialect:
    """Return a dialect with a list of calls, or calls without one, between two tags, or a list without tags."""
    body = pythonic_calls(opening, close, loose=loose)
    return Dialect(
        id=id,
        openers=(
            Opener((opening, SPACES), body, ahead=(NAME, "(")),
            Opener((opening, SPACES), body, ahead=("[", SPACES, NAME, "(")),
        ),
        openers_for=_list_of,
        write_call=lambda name, arguments: f"{opening}[{_write(name, arguments, _python)}]{close}",
        reserved=(opening, close),
        unmarked=((r"\[", r"[ \t\r\n]{0,32}[^\s()\[\]{}<>\"'`=,;]{1,128}\("),),
        tags=(*closed_again(close), *ends_of_turn(*ends)),
        notes="Arguments are literals and always have names.",
    )


def _json(opening: str, close: str) -> tuple[Opener, ...]:
    """Return the openers of JSON between the same tags."""
    body = json_calls(close)
    return tuple(Opener((opening, SPACES), body, ahead=each) for each in (("{",), ("[", SPACES, "{")))


def _list_of(names: tuple[str, ...]) -> tuple[Opener, ...]:
    known = OneOf(tuple(filter(readable, names)))
    return (Opener(("[",), pythonic_calls(), ahead=(SPACES, known, "("), where="start"),) if known.words else ()


def _write(name: str, arguments: dict[str, Any], literal: Callable[[Any], str]) -> str:
    if all(map(readable, arguments)):
        return f"{name}({', '.join(f'{key}={literal(value)}' for key, value in arguments.items())})"
    return f"{name}(**{literal(arguments)})"  # no other form has room for such a name


def _python(value: Any) -> str:
    """Return a JSON value as Python writes it, with strings in double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_python(key)}: {_python(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_python, value)) + "]"
    if value is None or isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def gemma4() -> Dialect:
    """Return the dialect of google/gemma-4, by its chat template: strings stand between tokens of their own.

    So do its thoughts. A message ends with the tag that opens a result, for the backend to go on from.
    """
    return _gemma(
        "gemma4",
        GEMMA,
        ("<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>"),
        Tag(("<|channel>", OneOf(("thought\n", ""))), closings=("<channel|>",)),
        Tag(("<channel|>",)),
        *ends_of_turn("<turn|>"),
    )


def functiongemma() -> Dialect:
    """Return the dialect of google/functiongemma-270m-it, by its chat template; its messages end as Gemma's do.

    `<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>`
    """
    return _gemma(
        "functiongemma",
        FUNCTION_GEMMA,
        ("<start_function_call>", "<end_function_call>", "<start_function_response>", "<end_function_response>"),
        *ends_of_turn("<end_of_turn>"),
    )


def _gemma(id: str, syntax: Syntax, between: tuple[str, str, str, str], *tags: Tag) -> Dialect:
    """Return a dialect whose calls and results stand `between` two tags each."""
    opening, close, result, end_of_result = between
    mark = syntax.quotes[0].mark
    literal = _gemma_writer(mark)
    return Dialect(
        id=id,
        openers=(Opener((opening, SPACES, "call:"), gemma_call(syntax, opening, close), ahead=(GEMMA_NAME, "{")),),
        write_call=lambda name, arguments: f"{opening}call:{name}{literal(arguments)}{close}",
        write_result=lambda name, text: f"{result}response:{name}{literal(as_object(text, 'value'))}{end_of_result}",
        reserved=(*between, mark),
        tags=(Tag((close,)), Tag((result,)), *tags),
        notes=f"Strings stand between two {mark}, keys without quotes.",
    )


_plain_key = re.compile(r"[^\W\d][\w.-]*").fullmatch


def _gemma_writer(mark: str) -> Callable[[Any], str]:
    """Return what writes values with strings between two marks; what the form has no room for is written as JSON."""

    def write(value: Any) -> str:
        if isinstance(value, dict):
            members = ((key if _plain_key(key) else compact(key), write(each)) for key, each in value.items())
            return "{" + ",".join(f"{key}:{text}" for key, text in members) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(write, value)) + "]"
        if isinstance(value, str) and mark not in value + mark[:-1]:
            return mark + value + mark
        return compact(value)

    return write
