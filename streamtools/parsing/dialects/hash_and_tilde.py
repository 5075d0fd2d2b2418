"""Two dialects of streamtools. No model's chat template uses them. Prompts teach `tilde_fence` by default.

    ###:{"toolName": "getWeather", "parameters": {"city": "Paris"}}

    ~~~tool_call
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    ~~~

Three hashes usually begin a Markdown heading. With a colon, a brace and a quote after them, they begin a call. The
dialect has no closing tag. A call ends where its JSON object ends.

The line `~~~tool_call` contains no other text, except for a nonce. After it is a JSON object or an array of objects,
and then `~~~`. Text after these tildes is shown. Some models put the JSON into a fence of back-ticks. The fence is
accepted. If the JSON is malformed, the call ends with the next three tildes that begin a line. This is true even inside
a string, because JSON strings contain no line feeds.

A nonce is a secret word of the conversation. The markers contain it: `###k7:{…}`, `~~~tool_call k7`. An attacker may
write calls into a web page, and the model may quote the page. The nonce is in the system prompt, so the attacker does
not know it. With the nonce k7, only `###k7:{…}` and `~~~tool_call k7` begin calls. Only `###result k7 getWeather: {…}`
and `~~~tool_result k7`, with or without a name such as `get_weather`, begin results. A marker without the nonce is
text.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Generator
from typing import Literal

from streamtools.errors import Code
from streamtools.json_values import compact
from streamtools.limits import TOOL_NAME
from streamtools.parsing.bodies import read_close
from streamtools.parsing.bodies.json_bodies import close_unfinished, json_calls
from streamtools.parsing.dialects.base import Dialect, NearMiss, Opener
from streamtools.parsing.dialects.writing import as_object, write_json
from streamtools.parsing.json_scanner import ENDED
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, Maybe, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Span

_NONCE_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without letters and digits that look alike
_NONCE_LENGTH = 6  # there are almost 2**30 nonces
_NONCE = re.compile("[A-Za-z0-9]{1,16}")
_ANY_NONCE = Some("A-Za-z0-9", 1, 16)


def new_nonce() -> str:
    """Return a nonce of six random letters and digits. Use one for each conversation, and store it with the history.

    >>> len(new_nonce())
    6
    """
    return "".join(secrets.choice(_NONCE_LETTERS) for _ in range(_NONCE_LENGTH))


def _check_nonce(nonce: str | None) -> str:
    """Return `nonce`, or "" for None. Raises ValueError if it is not 1 to 16 ASCII letters and digits."""
    if nonce is None:
        return ""
    if not _NONCE.fullmatch(nonce):
        raise ValueError(f"`nonce` must be 1 to 16 of the characters A-Z, a-z and 0-9, got {nonce!r}")
    return nonce


_GAP = Some(r" \t", 1, 32)  # at least one blank
_NAME = Some("A-Za-z0-9_-", 1, TOOL_NAME)
_OBJECT = (SPACES, "{", SPACES, '"')  # the beginning of a JSON object
_JSON = json_calls()
_NOT_BEFORE_HASH = r"(?:[^\W_]|#)"  # "a###:" and "####:" are no markers


def hash_marker(*, marker_at: Literal["anywhere", "line_start"] = "anywhere", nonce: str | None = None) -> Dialect:
    """Return the `###:{…}` dialect.

    With `marker_at="line_start"`, the marker must be at the start of a line. `nonce` is the result of `new_nonce`, or
    None. Raises ValueError for an invalid nonce.
    """
    nonce = _check_nonce(nonce)
    mark, nonce_parts, nonce_text = f"###{nonce}", (_GAP, nonce) if nonce else (), f"{nonce} " if nonce else ""

    def opener(*parts: Part, ahead: tuple[Part, ...], kind: Literal["call", "result"]) -> Opener:
        return Opener((*parts, SPACES), _JSON, ahead, where=marker_at, not_after=_NOT_BEFORE_HASH, kind=kind)

    return Dialect(
        id="hash_marker",
        openers=(
            opener(f"{mark}:", ahead=("{", SPACES, '"'), kind="call"),
            opener("###result", *nonce_parts, _GAP, _NAME, ":", ahead=("{",), kind="result"),
        ),
        write_call=lambda name, arguments: f"{mark}:{compact({'toolName': name, 'parameters': arguments})}",
        write_result=lambda name, text: f"###result {nonce_text}{name}: {compact(as_object(text, 'result'))}",
        near=_faulty_hashes(nonce),
        has_nonce=bool(nonce),
        notes=f"`{mark}:` is the marker of this conversation. Text without `{nonce}` is not a call." if nonce else "",
    )


def _faulty_hashes(nonce: str) -> tuple[NearMiss, ...]:
    mark = f"###{nonce}"
    faults: list[tuple[tuple[Part, ...], str]] = [
        ((mark, *_OBJECT), f"`{mark}` lacks its colon"),
        ((mark, _GAP, ":", *_OBJECT), f"`{mark}` is separated from its colon"),
        ((f"##{nonce}:", *_OBJECT), f"`{mark}:` lacks a hash"),
        ((f"####{nonce}:", *_OBJECT), f"`{mark}:` has too many hashes"),
    ]
    if nonce:
        faults += [
            (("###:", *_OBJECT), "the marker lacks its nonce"),
            (("###", _ANY_NONCE, ":", *_OBJECT), "the marker has another nonce"),
            (("###result", _GAP, _NAME, ":", SPACES, "{"), "the result lacks its nonce"),
            (("###result", _GAP, _ANY_NONCE, _GAP, _NAME, ":", SPACES, "{"), "the result has another nonce"),
        ]
    return tuple(NearMiss(parts, fault, not_after=_NOT_BEFORE_HASH) for parts, fault in faults)


_CALL, _RESULT = "~~~tool_call", "~~~tool_result"
# "~~~json" or "```tool_call": faulty forms of "~~~tool_call"
_OTHER_FENCES = OneOf(
    ("json", "tool", "tools", "tool_calls", "tool-call", "tool call", "toolcall", "function", "function_call")
)
_TICK_FENCES = OneOf(("tool_call", "tool_calls", "tool-call", "toolcall"))
_TICKS = Word("`")
_TILDES, _CLOSE = Pattern("~~~"), Pattern(SPACES, "~~~")
_END_OF_FENCE = Pattern(SPACES, "```", Some("`", 0, 64))
_FENCE_LABEL = Pattern(BLANKS, Some("A-Za-z0-9_+-", 0, 16), BLANKS, LINE_END)
_CLOSING_LINE: tuple[Part, ...] = ("\n", Some(r" \t", 0, 256), "~~~")
# The closing line ends a call even inside a JSON string.
_ENDS_STRING, _CLOSING = Pattern(*_CLOSING_LINE), Closing(_CLOSING_LINE)


def tilde_fence(*, nonce: str | None = None) -> Dialect:
    """Return the `~~~tool_call` dialect.

    `nonce` is the result of `new_nonce`, or None. Raises ValueError for an invalid nonce.
    """
    nonce = _check_nonce(nonce)
    nonce_parts = (_GAP, nonce) if nonce else ()
    nonce_text = f" {nonce}" if nonce else ""

    result: tuple[Part, ...] = (_RESULT, *nonce_parts, Maybe((_GAP, _NAME)), BLANKS, LINE_END)
    return Dialect(
        id="tilde_fence",
        openers=(
            Opener((_CALL, *nonce_parts, BLANKS, LINE_END), _read_call, where="line_start"),
            Opener(result, _read_result, where="line_start", kind="result"),
        ),
        write_call=lambda name, arguments: f"{_CALL}{nonce_text}\n{write_json(name, arguments)}\n~~~",
        write_result=lambda name, text: f"{_RESULT}{nonce_text} {name}\n{text}\n~~~",
        near=_faulty_fences(nonce),
        reserved=("~~~",),
        has_nonce=bool(nonce),
        notes=f"Every call begins with `{_CALL}{nonce_text}`. Text without `{nonce}` is not a call." if nonce else "",
    )


def _faulty_fences(nonce: str) -> tuple[NearMiss, ...]:
    nonce_parts = (_GAP, nonce) if nonce else ()
    maybe_nonce = (BLANKS, OneOf(("", nonce))) if nonce else ()
    body = (BLANKS, LINE_END, SPACES, "{")
    faults: list[tuple[tuple[Part, ...], str]] = [
        (("```", _TICK_FENCES, *maybe_nonce, *body), "the fence is one of back-ticks"),
        (("~~~", _OTHER_FENCES, *body), "the fence has another name"),
        ((_CALL, *nonce_parts, BLANKS, "{"), "the call is on the line of its fence"),
        ((_CALL, *nonce_parts, BLANKS, LINE_END), "the fence is in a list"),  # outside a list, it begins a call
    ]
    if nonce:
        faults += [
            ((_CALL, BLANKS, LINE_END), "the fence lacks its nonce"),
            ((_CALL, _GAP, _ANY_NONCE, BLANKS, LINE_END), "the fence has another nonce"),
            ((_RESULT, Maybe((_GAP, _NAME)), BLANKS, LINE_END), "the result lacks its nonce"),
            ((_RESULT, _GAP, _ANY_NONCE, _GAP, _NAME, BLANKS, LINE_END), "the result has another nonce"),
        ]
    return tuple(NearMiss(parts, fault, where="line_start") for parts, fault in faults)


def _read_call(span: Span) -> Generator[None, None, None]:
    char = yield from span.peek()
    fenced = char == "`" and len((yield from span.word(_TICKS))) >= 3 and (yield from span.accept(_FENCE_LABEL))
    if fenced:
        char = yield from span.peek()
    if not char:
        span.close(Code.TRUNCATED)
        return
    if char not in "{[":
        yield from _skip_to_closing(span)
        span.close(Code.INVALID_JSON)
        return
    state = yield from span.json(lines=_ENDS_STRING)
    if state is ENDED:
        if fenced:
            yield from span.accept(_END_OF_FENCE)
        if not (yield from read_close(span, "~~~", _CLOSE, cut=("```",) if fenced else ())):
            yield from _skip_to_closing(span)
            span.close(Code.INVALID_JSON)
    else:
        yield from close_unfinished(span, state, _skip_to_closing(span), "call lacks its closing ~~~")


def _read_result(span: Span) -> Generator[None, None, None]:
    yield from _skip_to_closing(span)
    span.close()


def _skip_to_closing(span: Span) -> Generator[None, None, None]:
    """Skip to the end of the next three tildes that begin a line. The text before them is the body.

    The search begins before the line end of the marker, because the next line may already be the closing one.
    """
    if span.stores:
        span.rewind(len(span.marker) - 1)
    elif (yield from span.accept(_TILDES)):  # a limit was exceeded, so the line end before the tildes is not stored
        return
    yield from span.until(_CLOSING)
