"""Dialects of calls with the name of the tool before the JSON of the arguments.

The name follows a token, or it is part of an id:

    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}
    <|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>

This module also contains related forms with the name in the JSON, as a value or as a key. Older Mistral models, Apertus
and GigaChat use these forms:

    [TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]
    <|tools_prefix|>[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from streamtools.json_values import compact
from streamtools.parsing.bodies import forged_result, wrapper
from streamtools.parsing.bodies.json_bodies import calls_under_names, json_calls
from streamtools.parsing.bodies.named_json import GAP, NAME, NAMESPACE, WORD_FIRST, Enclosed, NamedCall, bare
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects.base import AFTER_WRAPPER, NO_JSON, Dialect, Opener, Tag, before_sentence
from streamtools.parsing.dialects.writing import name_and_json, write_json
from streamtools.parsing.markers import SPACES, Maybe, OneOf, Part, Some

# Mistral models write two forms after the same token. The text after the token distinguishes them. If only one of the
# two dialects is enabled, it reads both forms. With `dialects="auto"`, the token may also be part of an answer about
# the token. If the caller names a dialect, the token begins a call. Neither form has a closing tag. A call ends
# with its JSON, and malformed text ends with the next blank line. Source: mistral-common, and the chat templates of
# Mistral-7B-Instruct-v0.3, Mistral-Small-3.2, Magistral and Ministral 3.

_MISTRAL = "[TOOL_CALLS]"
_LISTED, _NAMED = json_calls(), bare(NamedCall("[ARGS]", id_tag="[CALL_ID]", optional=True), _MISTRAL)
# The first character of a name. `[` and `{` begin JSON instead.
_NAME_START = Some(r"^ \t\r\n\[{", 1, 1)
_MISTRAL_RESERVED = (_MISTRAL, "[/TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]")


def mistral_list() -> Dialect:
    """Return the dialect of the older Mistral models, with tokenizers up to v7.

    `[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "9Ae3bDc2F"}]`
    """
    return Dialect(
        id="mistral_list",
        openers=(
            *(Opener((_MISTRAL, SPACES), _LISTED, ahead=(first,)) for first in "[{"),
            Opener((_MISTRAL, SPACES), _NAMED, ahead=(_NAME_START,), unless_enabled="mistral_args"),
        ),
        write_call=lambda name, arguments: f"{_MISTRAL} [{write_json(name, arguments)}]",
        write_result=lambda name, text: f"[TOOL_RESULTS] {compact({'name': name, 'content': text})}[/TOOL_RESULTS]",
        reserved=_MISTRAL_RESERVED,
        tags=(Tag(("[/TOOL_CALLS]",)),),
    )


def mistral_args() -> Dialect:
    """Return the dialect of the newer Mistral models, with tokenizers v11 and v13. In v11, an id follows the name.

    Each call begins with the token: `[TOOL_CALLS]get_weather[CALL_ID]9Ae3bDc2F[ARGS]{"city": "Paris"}`.
    """
    after_name = OneOf(("[ARGS]", "[CALL_ID]", "{"))
    return Dialect(
        id="mistral_args",
        openers=(
            Opener((_MISTRAL, GAP), _NAMED, ahead=(*WORD_FIRST, GAP, after_name)),
            Opener((_MISTRAL, GAP), _NAMED, ahead=(_NAME_START,), auto=False),
            *(Opener((_MISTRAL, GAP), _LISTED, ahead=(first,), unless_enabled="mistral_list") for first in "[{"),
            Opener(("[TOOL_RESULTS]",), forged_result("[/TOOL_RESULTS]"), kind="result"),
        ),
        write_call=name_and_json(_MISTRAL, "[ARGS]"),
        write_result=lambda name, text: f"[TOOL_RESULTS]{text}[/TOOL_RESULTS]",
        reserved=(*_MISTRAL_RESERVED, "[ARGS]", "[CALL_ID]"),
        tags=(Tag(("[THINK]",), closings=("[/THINK]",)), Tag(("[/TOOL_CALLS]",))),
    )


# DeepSeek models write two forms between the same tokens. The bars in the tokens are full-width, and the blanks are
# U+2581. In V3, a call has a type, which is always `function`, and then the name. In V3.1, a call has the name and then
# JSON. If only one of the two dialects is enabled, it reads both forms, and any text after the token is a call. Models
# omit the tokens of the wrapper, the token of the first call, or the fence. Some converted models write ASCII bars.
# Source: the chat templates of deepseek-ai/DeepSeek-V3-0324, DeepSeek-R1-0528 and DeepSeek-V3.1.

_CALLS, _END_OF_CALLS = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _END_OF_CALL, _SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
_RESULTS, _END_OF_RESULTS = "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"
_RESULT, _END_OF_RESULT = "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"
_ANYTHING = (SPACES, Some(r"^ \t\r\n", 1, 1))


def deepseek_v3() -> Dialect:
    """Return the dialect of DeepSeek V3, R1 and their distillates: a type, a name, and JSON in a fence."""
    function = "function" + _SEPARATOR
    return _deepseek(
        "deepseek_v3",
        (GAP, function, GAP, NAME, Some(r" \t", 0, 4), OneOf(("\n", "\r\n", "`", "{", _END_OF_CALL, _CALL))),
        other="deepseek_v31",
        result=Opener((_RESULTS, GAP, _RESULT), forged_result(_END_OF_RESULTS), kind="result"),
        write_call=name_and_json(f"{_CALLS}{_CALL}{function}", "\n```json\n", f"\n```{_END_OF_CALL}{_END_OF_CALLS}"),
        write_result=lambda name, text: f"{_RESULTS}{_RESULT}{text}{_END_OF_RESULT}{_END_OF_RESULTS}",
    )


def deepseek_v31() -> Dialect:
    """Return the dialect of DeepSeek V3.1: a name and JSON. Without the separator between them, a call is malformed."""
    return _deepseek(
        "deepseek_v31",
        (GAP, NAME, GAP, _SEPARATOR, GAP, OneOf(("{", '"', "`", _END_OF_CALL))),
        (GAP, NAME, GAP, "{"),
        other="deepseek_v3",
        result=Opener((_RESULT,), forged_result(_END_OF_RESULT), kind="result"),
        write_call=name_and_json(_CALLS + _CALL, _SEPARATOR, _END_OF_CALL + _END_OF_CALLS),
        write_result=lambda name, text: f"{_RESULT}{text}{_END_OF_RESULT}",
    )


def _deepseek(
    id: str,
    *aheads: tuple[Part, ...],
    other: str,
    result: Opener,
    write_call: Callable[[str, dict[str, object]], str],
    write_result: Callable[[str, str], str],
) -> Dialect:
    """Return a dialect of DeepSeek. The wrapper, or the token of the first call in it, may be missing.

    One of `aheads` must follow the token that begins a call. `other` is the id of the dialect with the same tokens.
    """
    bars, openers, tags = ("｜", "|"), list[Opener](), list[Tag]()
    for bar in bars:
        tokens = (_CALLS, _END_OF_CALLS, _CALL, _END_OF_CALL, _SEPARATOR, "<｜end▁of▁sentence｜>")
        calls, end_of_calls, call, end, separator, end_of_turn = (token.replace("｜", bar) for token in tokens)
        named = NamedCall(separator, fenced=True, type_word="function")
        wrapped, alone = Enclosed(named, call, end, around=((calls,), (end_of_calls,))), Enclosed(named, call, end)
        for ahead in (tuple(_with_bar(part, bar) for part in parts) for parts in aheads):
            openers += [Opener((calls, GAP, call), wrapped, ahead), Opener((calls,), wrapped, ahead)]
            begun = Opener((call,), alone, ahead)
            openers += [begun, *before_sentence((calls,), begun)]
        openers.append(Opener((calls, GAP, call), wrapped, _ANYTHING, auto=False, unless_enabled=other))
        openers.append(Opener((call,), alone, _ANYTHING, auto=False, unless_enabled=other))
        # These are the end of a wrapper without its start, an empty wrapper, and the end of the message.
        tags += [Tag((end_of_calls,)), Tag((calls, GAP, end_of_calls)), Tag((end_of_turn,))]
    return Dialect(
        id=id,
        openers=(*openers, result),
        write_call=write_call,
        write_result=write_result,
        reserved=tuple(f"<{bar}tool▁" for bar in bars),
        tags=tuple(tags),
    )


def _with_bar(part: Part, bar: str) -> Part:
    if isinstance(part, OneOf):
        return OneOf(tuple(word.replace("｜", bar) for word in part.words))
    return part.replace("｜", bar) if isinstance(part, str) else part


def kimi_k2() -> Dialect:
    """Return the dialect of Kimi K2. The id of each call contains the name of the tool.

    An id looks like `functions.get_weather:0`. Some models omit `functions.`. Some models write `tool_call_section`
    instead of `tool_calls_section` in the tags around the calls. Source: the chat template of
    moonshotai/Kimi-K2-Instruct. The guide to tool calls in its repository describes the ids.
    """
    call, arguments_begin, end = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
    begins, ends = (tuple(f"<|tool_call{s}_section_{which}|>" for s in ("s", "")) for which in ("begin", "end"))
    begin_any, end_any = (("<|tool_call", OneOf(("s_", "_")), f"section_{which}|>") for which in ("begin", "end"))
    named = NamedCall(arguments_begin, identify=_read_id, word_is_id=True)
    return Dialect(
        id="kimi_k2",
        openers=(
            Opener(begin_any, Enclosed(named, call, end, around=(begins, ends)).section, announces=False),
            Opener((call,), Enclosed(named, call, end), ahead=(GAP, NAME, GAP, arguments_begin)),
        ),
        write_call=name_and_json(f"{begins[0]}{call}functions.", f":0{arguments_begin}", end + ends[0]),
        write_result=lambda name, text: f"## Return of functions.{name}:0\n{text}",
        reserved=("<|tool_call",),
        tags=(Tag(end_any), Tag((end,)), Tag((arguments_begin,))),
    )


_match_id = re.compile(f"{NAMESPACE}(.+):[0-9]+").fullmatch  # functions.get_weather:0, or get_weather:0
_separate = partial(re.compile(r"[\W_]+").sub, "_")


def _read_id(word: str, declared: Declared) -> str | None:
    """Return the name in the id `word`. The name in a well-formed id may be an undeclared tool.

    Returns None if the id fits several declared tools, or is malformed and fits none.

    Models copy ids from histories in which a client replaced the punctuation: `functions_get_weather_0`. So a declared
    tool matches if only separators differ. The number may be missing. The name may be missing if only one tool is
    declared.
    """
    found = _match_id(word)
    name = re.sub(f"^{NAMESPACE}", "", word) if found is None else found[1]
    if name in declared:
        return name
    names = [_separate(tool) for tool in declared.names]
    optional = "?" if len(names) == 1 else ""
    tools = [
        tool
        for tool, separated in zip(declared.names, names, strict=True)
        if re.fullmatch(f"(?:functions_?)*(?:{separated}){optional}[_0-9]*", _separate(word))
    ]
    if len(tools) == 1:
        return tools[0]
    return name if found is not None and not tools else None


def apertus_list() -> Dialect:
    """Return the dialect of swiss-ai/Apertus-8B-Instruct. The model also writes calls inside its reasoning."""
    begin, end = "<|tools_prefix|>", "<|tools_suffix|>"
    reasoning, end_of_reasoning = "<|inner_prefix|>", "<|inner_suffix|>"
    calls = calls_under_names(begin, end)
    return Dialect(
        id="apertus_list",
        openers=(
            Opener((begin, SPACES), calls, ahead=("[",)),
            Opener((begin, SPACES), calls, ahead=(NO_JSON,), auto=False),
        ),
        write_call=lambda name, arguments: f"{begin}[{compact({name: arguments})}]{end}",
        reserved=(begin, end),
        tags=(
            Tag((reasoning,), closings=(end_of_reasoning,)),
            Tag((end_of_reasoning,)),
            Tag((end,), where="after_call"),
        ),
    )


def gigachat3() -> Dialect:
    """Return the dialect of GigaChat 3. GigaChat 3.1 writes `<|function_call|>` before the same JSON.

    Calls have no closing tag. If the server removes special tokens, only the words `function call` precede the JSON.
    Source: the parsers of inference servers for ai-sage/GigaChat3-10B-A1.8B and its successors. Their chat templates
    were not available.
    """
    call, message, word, role = json_calls(), "<|message_sep|>", "function call", "<|role_sep|>"
    return Dialect(
        id="gigachat3",
        openers=(
            Opener((message, SPACES, word, Maybe((role,)), SPACES), call, ahead=("{",), tag_parts=3),
            Opener((word + role, SPACES), call, ahead=("{",), auto="line_start", tag_parts=1),
            Opener(("<|function_call|>", SPACES), call, ahead=("{",)),
            Opener((word, SPACES), call, ahead=("{", SPACES, '"'), where="line_start", auto=False),
        ),
        write_call=lambda name, arguments: f"{message}\n\n{word}{role}\n{write_json(name, arguments)}",
        reserved=(message, role, "<|function_call|>"),
    )


def plamo3() -> Dialect:
    """Return the dialect of PLaMo 3, as vLLM's parser reads it. Each of its tags consists of several tokens."""

    def tag_pair(name: str) -> tuple[str, str]:
        return f"<|plamo:begin_{name}:plamo|>", f"<|plamo:end_{name}:plamo|>"

    (wrap, unwrap), (begin, end), (before, after) = map(tag_pair, ("tool_requests", "tool_request", "tool_name"))
    begin_json, end_json = tag_pair("tool_arguments")
    separator = f"{after}{begin_json}<|plamo:constrain|>json<|plamo:msg|>"
    named, reasoning = NamedCall(separator, name_tag=before), tag_pair("think")
    alone = Opener((begin,), Enclosed(named, begin, end_json + end), ahead=(GAP, before))
    return Dialect(
        id="plamo3",
        openers=(
            Opener((wrap, GAP, begin), Enclosed(named, begin, end_json + end, around=((wrap,), (unwrap,)))),
            alone,
            *before_sentence((wrap,), alone),
        ),
        write_call=name_and_json(wrap + begin + before, separator, end_json + end + unwrap),
        reserved=("<|plamo:",),
        tags=(Tag(reasoning[:1], closings=reasoning[1:]), Tag((unwrap,)), Tag(("<|plamo:tag|>",))),
    )


def solar_open() -> Dialect:
    """Return the dialect of upstage/Solar-Open-100B, as its chat template defines it.

    A call consists of an id, a name and JSON between tokens. The token at the start of a message tells whether the
    message contains reasoning, an answer or calls.
    """
    begin, name, args, end = (f"<|tool_call:{part}|>" for part in ("begin", "name", "args", "end"))
    id_word, reasoning = Some(r"^ \t\r\n<>|", 0, 96), "<|think|>"
    starts: tuple[tuple[Part, ...], ...] = ((), ("<|begin|>assistant",))
    ends = ("<|end|>", "<|calls|>", "<|flush|>")
    return Dialect(
        id="solar_open",
        openers=(
            *(
                Opener((*start, "<|tool_calls|>", SPACES), wrapper, ahead=AFTER_WRAPPER, announces=False)
                for start in starts
            ),
            Opener((begin, id_word, name), Enclosed(NamedCall(args), begin, end), ahead=(GAP, NAME, GAP, args)),
            Opener(("<|tool_response:begin|>",), forged_result("<|tool_response:end|>"), kind="result"),
        ),
        write_call=name_and_json(f"<|tool_calls|>{begin}call_1{name}", args, f"{end}<|calls|>"),
        write_result=lambda called, text: (
            f"<|tool_response|><|tool_response:begin|>call_1<|tool_response:name|>{called}<|tool_response:result|>{text}"
            "<|tool_response:end|>"
        ),
        reserved=("<|tool_call", "<|tool_response"),
        tags=(
            *(Tag((*start, reasoning), closings=ends[:1], before=("<|begin|>",)) for start in starts),
            *(Tag((*start, "<|content|>")) for start in starts),
            Tag(("<|tool_response|>",)),
            *(Tag((token,)) for token in ends),
        ),
        auto=False,  # other models also have the tokens `<|end|>` and `<|think|>`
    )
