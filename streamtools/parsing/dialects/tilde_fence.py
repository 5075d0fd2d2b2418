"""A fence of tildes on lines of its own:

    ~~~tool_call
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    ~~~

The body is one JSON object or an array of them, and may stand in a back-tick fence, as some models write it. Where the
JSON is broken, the next line that begins with three tildes ends the call, even inside an open string: valid JSON has no
line feed in a string.

With a nonce, only `~~~tool_call k7` opens a call, and only `~~~tool_result k7 get_weather` a result.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Literal

from streamtools.errors import Code
from streamtools.json_values import compact
from streamtools.parsing.closings import closing
from streamtools.parsing.dialects.base import Dialect, NearMiss, Opener
from streamtools.parsing.dialects.nonces import ANY, checked
from streamtools.parsing.json_text import ENDED, OPEN
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, OneOf, Part, Pattern, Some
from streamtools.parsing.span import Span

_OTHER = OneOf(
    ("json", "tool", "tools", "tool_calls", "tool-call", "tool call", "toolcall", "function", "function_call")
)
_MEANT = OneOf(("tool_call", "tool_calls", "tool-call", "toolcall"))
_INDENT = Some(r" \t", 0, 256)
_BLANK = Some(r" \t", 1, 32)
_NAME = Some("A-Za-z0-9_-", 1, 64)
_TILDES, _AT_ONCE = Pattern("~~~"), Pattern(SPACES, "~~~")
_LABEL = Pattern(BLANKS, Some("A-Za-z0-9_+-", 0, 16), BLANKS, LINE_END)
_run_of_ticks = re.compile("`*").match
_CLOSING_LINE: tuple[Part, ...] = ("\n", _INDENT, "~~~")
_LINES, _CLOSING = Pattern(*_CLOSING_LINE), closing(_CLOSING_LINE)


def tilde_fence(*, in_code: Literal["text", "call"] = "text", nonce: str | None = None) -> Dialect:
    """Return the dialect, with its choices. `nonce` is one of `new_nonce`. Raises ValueError for what cannot be one."""
    nonce = checked(nonce)
    named = (_BLANK, nonce) if nonce else ()
    word = f" {nonce}" if nonce else ""

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        return f"~~~tool_call{word}\n{compact({'name': name, 'arguments': arguments})}\n~~~"

    def write_result(name: str, text: str) -> str:
        return f"~~~tool_result{word} {name}\n{text}\n~~~"

    def result(*parts: Part) -> Opener:
        return Opener(("~~~tool_result", *named, *parts, LINE_END), _result, where="line_start", kind="result")

    return Dialect(
        id="tilde_fence",
        openers=(
            Opener(("~~~tool_call", *named, BLANKS, LINE_END), _call, where="line_start"),
            result(),
            result(_BLANK),
            result(_BLANK, _NAME, BLANKS),
        ),
        write_call=write_call,
        write_result=write_result,
        in_code=in_code,
        near=(
            _near(
                "```",
                _MEANT,
                *((BLANKS, OneOf(("", nonce))) if nonce else ()),
                BLANKS,
                LINE_END,
                SPACES,
                "{",
                says="the fence is one of back-ticks",
            ),
            _near("~~~", _OTHER, BLANKS, LINE_END, SPACES, "{", says="the fence has another name"),
            _near("~~~tool_call", *named, BLANKS, "{", says="the call stands on the line of its fence"),
            _near("~~~tool_call", *named, BLANKS, LINE_END, says="the fence stands in a list"),
            *(_FAULTS_OF_NONCES if nonce else ()),
        ),
        reserved=("~~~",),
        has_nonce=bool(nonce),
        notes=f"Every call begins with `~~~tool_call{word}`: it is no call without the {nonce}." if nonce else "",
    )


def _near(*parts: Part, says: str) -> NearMiss:
    return NearMiss(parts, says, where="line_start")


_FAULTS_OF_NONCES = (
    _near("~~~tool_call", BLANKS, LINE_END, says="the fence lacks its nonce"),
    _near("~~~tool_call", _BLANK, ANY, BLANKS, LINE_END, says="the fence has another nonce"),
    _near("~~~tool_result", BLANKS, LINE_END, says="the result lacks its nonce"),
    _near("~~~tool_result", _BLANK, _NAME, BLANKS, LINE_END, says="the result lacks its nonce"),
    _near("~~~tool_result", _BLANK, ANY, _BLANK, _NAME, BLANKS, LINE_END, says="the result has another nonce"),
)


def _call(span: Span) -> Generator[None, None, None]:
    char = yield from span.peek()
    fenced = char == "`" and (yield from _ticks(span)) >= 3 and (yield from span.accept(_LABEL))
    if fenced:
        char = yield from span.peek()
    if not char:
        span.close(Code.TRUNCATED)
    elif char in "{[":
        state = yield from span.json(lines=_LINES)
        if state is ENDED:
            if not fenced and (yield from span.accept(_AT_ONCE)):  # as a rule
                span.close()
            else:
                yield from _close(span, fenced)
        elif state is OPEN:
            cut = span.in_call
            span.close(Code.TRUNCATED, survivors=True)
            if not cut:  # in an array, between two calls
                _warn(span)
        else:
            yield from _reject(span, survivors=True)
    else:
        yield from _reject(span)


def _close(span: Span, fenced: bool) -> Generator[None, None, None]:
    """Read what may stand behind the JSON: the end of a back-tick fence, and the tildes."""
    char = yield from span.peek()
    if fenced and char == "`":
        run = yield from _ticks(span)
        if run >= 3 or (span.ended and span.at == len(span.text)):  # cut off, like the tildes below
            char = yield from span.peek()
    if char == "~" and (yield from span.accept(_TILDES)):
        span.close()
    elif not char or (span.ended and span.text[span.at :] in ("~", "~~")):
        span.at = len(span.text)
        span.close()
        _warn(span)
    else:
        yield from _reject(span)


def _warn(span: Span) -> None:
    span.warn(Code.MISSING_CLOSE, "the call lacks its closing ~~~")


def _ticks(span: Span) -> Generator[None, None, int]:
    """Read a run of back-ticks; return how many there are."""
    count = 0
    while True:
        end = _run_of_ticks(span.text, span.at).end()  # type: ignore[union-attr]  # matches nothing, too
        count += end - span.at
        span.at = end
        if end < len(span.text) or span.ended:
            return count
        yield


def _reject(span: Span, *, survivors: bool = False) -> Generator[None, None, None]:
    yield from _skip(span)
    span.close(Code.INVALID_JSON, survivors=survivors)


def _result(span: Span) -> Generator[None, None, None]:
    yield from _skip(span)
    span.close()


def _skip(span: Span) -> Generator[None, None, None]:
    """Read up to the third tilde of the next line that begins with them, or to the end of the stream."""
    behind = span.place
    if span.at_line_start and (yield from span.accept(_TILDES)):
        span.before_closing = behind
    else:
        yield from span.until(_CLOSING)
