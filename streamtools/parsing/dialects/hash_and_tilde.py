"""The two dialects that are read by default, which no template knows: a prompt teaches them.

    ###:{"toolName": "getWeather", "parameters": {"city": "Paris"}}

    ~~~tool_call
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    ~~~

Three hashes are a Markdown heading more often than not; the colon, the brace and the quote behind them are what makes a
call. There is no closing mark: the call ends where its JSON object ends.

The fence of tildes stands on lines of its own. Its body is one JSON object or an array of them, and may stand in a
back-tick fence, as some models write it. Where the JSON is broken, the next line that begins with three tildes ends the
call, even inside an open string: valid JSON has no line feed in a string.

With a nonce, only `###k7:{…}` and `~~~tool_call k7` open calls, and only `###result k7 getWeather: {…}` and
`~~~tool_result k7 get_weather` results.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Literal

from streamtools.errors import Code
from streamtools.json_values import compact
from streamtools.limits import TOOL_NAME
from streamtools.parsing.dialects.base import ANY, Dialect, NearMiss, Opener, as_object, checked, write_json
from streamtools.parsing.json_text import BROKEN, ENDED, OPEN
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing
from streamtools.parsing.span import Span

_BLANK = Some(r" \t", 1, 32)
_NAME = Some("A-Za-z0-9_-", 1, TOOL_NAME)
_BODY = (SPACES, "{", SPACES, '"')
_JOINED = r"(?:[^\W_]|#)"  # a letter, a digit, or a fourth hash


def hash_marker(
    *,
    marker_at: Literal["anywhere", "line_start"] = "anywhere",
    in_code: Literal["text", "call"] = "text",
    nonce: str | None = None,
) -> Dialect:
    """Return the dialect, with its choices. `nonce` is one of `new_nonce`. Raises ValueError for what cannot be one."""
    nonce = checked(nonce)
    mark, named, word = f"###{nonce}", (_BLANK, nonce) if nonce else (), f"{nonce} " if nonce else ""

    def opener(*parts: Part, ahead: tuple[Part, ...], kind: Literal["call", "result"]) -> Opener:
        return Opener((*parts, SPACES), _object, ahead=ahead, where=marker_at, not_after=_JOINED, kind=kind)

    return Dialect(
        id="hash_marker",
        openers=(
            opener(f"{mark}:", ahead=("{", SPACES, '"'), kind="call"),
            opener("###result", *named, _BLANK, _NAME, ":", ahead=("{",), kind="result"),
        ),
        write_call=lambda name, arguments: f"{mark}:{compact({'toolName': name, 'parameters': arguments})}",
        write_result=lambda name, text: f"###result {word}{name}: {compact(as_object(text, 'result'))}",
        in_code=in_code,
        near=_hash_faults(nonce),
        reserved=(f"{mark}:", "###result"),
        has_nonce=bool(nonce),
        notes=f"`{mark}:` is the marker of this conversation: it is no call without the {nonce}." if nonce else "",
    )


def _hash_faults(nonce: str) -> tuple[NearMiss, ...]:
    mark = f"###{nonce}"
    faults: list[tuple[tuple[Part, ...], str]] = [
        ((mark, *_BODY), f"`{mark}` lacks its colon"),
        ((mark, _BLANK, ":", *_BODY), f"`{mark}` stands apart from its colon"),
        ((f"##{nonce}:", *_BODY), f"`{mark}:` lacks a hash"),
        ((f"####{nonce}:", *_BODY), f"`{mark}:` has too many hashes"),
    ]
    if nonce:
        faults += [
            (("###:", *_BODY), "the marker lacks its nonce"),
            (("###", ANY, ":", *_BODY), "the marker has another nonce"),
            (("###result", _BLANK, _NAME, ":", SPACES, "{"), "the result lacks its nonce"),
            (("###result", _BLANK, ANY, _BLANK, _NAME, ":", SPACES, "{"), "the result has another nonce"),
        ]
    return tuple(NearMiss(parts, says, not_after=_JOINED) for parts, says in faults)


def _object(span: Span) -> Generator[None, None, None]:
    state = yield from span.json()
    if state is BROKEN:
        yield from span.recover()
        span.close(Code.INVALID_JSON)
    else:
        span.close(None if state is ENDED else Code.TRUNCATED)


_OTHER = OneOf(
    ("json", "tool", "tools", "tool_calls", "tool-call", "tool call", "toolcall", "function", "function_call")
)
_MEANT = OneOf(("tool_call", "tool_calls", "tool-call", "toolcall"))
_INDENT = Some(r" \t", 0, 256)
_TILDES, _AT_ONCE = Pattern("~~~"), Pattern(SPACES, "~~~")
_LABEL = Pattern(BLANKS, Some("A-Za-z0-9_+-", 0, 16), BLANKS, LINE_END)
_run_of_ticks = re.compile("`*").match
_CLOSING_LINE: tuple[Part, ...] = ("\n", _INDENT, "~~~")
_LINES, _CLOSING = Pattern(*_CLOSING_LINE), Closing(_CLOSING_LINE)


def tilde_fence(*, in_code: Literal["text", "call"] = "text", nonce: str | None = None) -> Dialect:
    """Return the dialect, with its choices. `nonce` is one of `new_nonce`. Raises ValueError for what cannot be one."""
    nonce = checked(nonce)
    named = (_BLANK, nonce) if nonce else ()
    word = f" {nonce}" if nonce else ""

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
        write_call=lambda name, arguments: f"~~~tool_call{word}\n{write_json(name, arguments)}\n~~~",
        write_result=lambda name, text: f"~~~tool_result{word} {name}\n{text}\n~~~",
        in_code=in_code,
        near=_tilde_faults(nonce),
        reserved=("~~~",),
        has_nonce=bool(nonce),
        notes=f"Every call begins with `~~~tool_call{word}`: it is no call without the {nonce}." if nonce else "",
    )


def _tilde_faults(nonce: str) -> tuple[NearMiss, ...]:
    named = (_BLANK, nonce) if nonce else ()
    ticked = (BLANKS, OneOf(("", nonce))) if nonce else ()
    call, result, object_ = "~~~tool_call", "~~~tool_result", (BLANKS, LINE_END, SPACES, "{")
    faults: list[tuple[tuple[Part, ...], str]] = [
        (("```", _MEANT, *ticked, *object_), "the fence is one of back-ticks"),
        (("~~~", _OTHER, *object_), "the fence has another name"),
        ((call, *named, BLANKS, "{"), "the call stands on the line of its fence"),
        ((call, *named, BLANKS, LINE_END), "the fence stands in a list"),
    ]
    if nonce:
        faults += [
            ((call, BLANKS, LINE_END), "the fence lacks its nonce"),
            ((call, _BLANK, ANY, BLANKS, LINE_END), "the fence has another nonce"),
            ((result, BLANKS, LINE_END), "the result lacks its nonce"),
            ((result, _BLANK, _NAME, BLANKS, LINE_END), "the result lacks its nonce"),
            ((result, _BLANK, ANY, _BLANK, _NAME, BLANKS, LINE_END), "the result has another nonce"),
        ]
    return tuple(NearMiss(parts, says, where="line_start") for parts, says in faults)


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
