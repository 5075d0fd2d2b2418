"""Two forms between the same tokens, in which the bars are full-width and the blanks are U+2581:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
    ```json
    {"city": "Paris"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}
    <｜tool▁call▁end｜><｜tool▁calls▁end｜>

(the latter without the line end). The first is that of V3, R1 and their distillates, the second that of V3.1. A type,
which is always `function`, and a name behind it make a call of the first kind, a name and JSON behind it one of the
second. Models leave out the outer tokens, that of the first call, and the fence; some conversions write ASCII bars.
Source: the chat templates of deepseek-ai/DeepSeek-V3-0324, DeepSeek-R1-0528 and DeepSeek-V3.1.
"""

from __future__ import annotations

from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.forged_results import forged_result
from streamtools.parsing.bodies.named_json import GAP, NAME, Enclosed, NamedCall
from streamtools.parsing.dialects.base import Dialect, Opener, Tag
from streamtools.parsing.markers import OneOf, Part, Some

_CALLS, _END_OF_CALLS = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _END_OF_CALL = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_FUNCTION = "function" + _SEPARATOR
_RESULTS, _END_OF_RESULTS = "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"
_RESULT, _END_OF_RESULT = "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"
_BARS = ("｜", "|")
_BLANKS = Some(r" \t", 0, 4)
_RESERVED = tuple(f"<{bar}tool▁" for bar in _BARS)


def deepseek_v3() -> Dialect:
    """Return the dialect of V3 and R1: a type, a name, and JSON in a fence."""
    openers: list[Opener] = []
    for bar in _BARS:
        function, end = _spell(_FUNCTION, bar), _spell(_END_OF_CALL, bar)
        ahead = (GAP, function, GAP, NAME, _BLANKS, OneOf(("\n", "\r\n", "`", "{", end)))
        openers += _openers(bar, NamedCall(before=function, fenced=True), ahead)
    return Dialect(
        id="deepseek_v3",
        openers=(*openers, Opener((_RESULTS, GAP, _RESULT), forged_result(_END_OF_RESULTS), kind="result")),
        write_call=_write_fenced,
        write_result=lambda name, text: f"{_RESULTS}{_write_result(name, text)}{_END_OF_RESULTS}",
        reserved=_RESERVED,
        tags=_tags(),
        models=(r"deepseek-(?:chat-)?v3(?!\.\d)", "deepseek-r1", "cogito"),
    )


def deepseek_v31() -> Dialect:
    """Return the dialect of V3.1: a name, and JSON. Where nothing separates the two, it is a call gone bad."""
    openers: list[Opener] = []
    for bar in _BARS:
        separator, end = _spell(_SEPARATOR, bar), _spell(_END_OF_CALL, bar)
        named = NamedCall(separator, fenced=True)
        openers += _openers(bar, named, (GAP, NAME, GAP, separator, GAP, OneOf(("{", '"', "`", end))))
        openers += _openers(bar, named, (GAP, NAME, GAP, "{"))
    return Dialect(
        id="deepseek_v31",
        openers=(*openers, Opener((_RESULT,), forged_result(_END_OF_RESULT), kind="result")),
        write_call=_write_call,
        write_result=_write_result,
        reserved=_RESERVED,
        tags=_tags(),
        models=(r"deepseek-v3\.1",),
    )


def _openers(bar: str, named: NamedCall, ahead: tuple[Part, ...]) -> tuple[Opener, ...]:
    """Return the openers of a call: in a wrapper, there without what begins the first one, and without a wrapper."""
    calls, end_of_calls, call, end = (_spell(tag, bar) for tag in (_CALLS, _END_OF_CALLS, _CALL, _END_OF_CALL))
    wrapped = Enclosed(named, call, end, around=((calls,), (end_of_calls,)))
    alone = Enclosed(named, call, end)
    return Opener((calls, GAP, call), wrapped, ahead), Opener((calls,), wrapped, ahead), Opener((call,), alone, ahead)


def _tags() -> tuple[Tag, ...]:
    """Return the tags of wrappers that are empty or were not opened, and of the end of the message."""
    tags = ((_END_OF_CALLS,), (_CALLS, GAP, _END_OF_CALLS), ("<｜end▁of▁sentence｜>",))
    return tuple(
        Tag(tuple(_spell(part, bar) if isinstance(part, str) else part for part in tag))
        for bar in _BARS
        for tag in tags
    )


def _spell(tag: str, bar: str) -> str:
    return tag.replace(_BARS[0], bar)


def _write_fenced(name: str, arguments: dict[str, Any]) -> str:
    return f"{_CALLS}{_CALL}{_FUNCTION}{name}\n```json\n{compact(arguments)}\n```{_END_OF_CALL}{_END_OF_CALLS}"


def _write_call(name: str, arguments: dict[str, Any]) -> str:
    return f"{_CALLS}{_CALL}{name}{_SEPARATOR}{compact(arguments)}{_END_OF_CALL}{_END_OF_CALLS}"


def _write_result(name: str, text: str) -> str:
    return f"{_RESULT}{text}{_END_OF_RESULT}"
