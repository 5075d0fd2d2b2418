"""`###:{"toolName": "getWeather", "parameters": {"city": "Paris"}}`

Three hashes are a Markdown heading more often than not; the colon, the brace and the quote behind them are what makes a
call. There is no closing mark: the call ends where its JSON object ends.

With a nonce, only `###k7:{…}` is a call, and only `###result k7 getWeather: {…}` a result.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal

from streamtools.errors import Code
from streamtools.json_values import compact
from streamtools.parsing.dialects.base import Dialect, NearMiss, Opener
from streamtools.parsing.dialects.nonces import ANY, checked
from streamtools.parsing.dialects.writing import as_object
from streamtools.parsing.json_text import BROKEN, ENDED
from streamtools.parsing.markers import SPACES, Part, Some
from streamtools.parsing.span import Span

_BLANK = Some(r" \t", 1, 32)
_NAME = Some("A-Za-z0-9_-", 1, 64)
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
    mark, named = f"###{nonce}", (_BLANK, nonce) if nonce else ()

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        return f"{mark}:{compact({'toolName': name, 'parameters': arguments})}"

    def write_result(name: str, text: str) -> str:
        return f"###result {nonce}{' ' * bool(nonce)}{name}: {compact(as_object(text, 'result'))}"

    def opener(*parts: Part, ahead: tuple[Part, ...], kind: Literal["call", "result"]) -> Opener:
        return Opener((*parts, SPACES), _object, ahead=ahead, where=marker_at, not_after=_JOINED, kind=kind)

    return Dialect(
        id="hash_marker",
        openers=(
            opener(f"{mark}:", ahead=("{", SPACES, '"'), kind="call"),
            opener("###result", *named, _BLANK, _NAME, ":", ahead=("{",), kind="result"),
        ),
        write_call=write_call,
        write_result=write_result,
        in_code=in_code,
        near=(*_faults(nonce), *(_FAULTS_OF_NONCES if nonce else ())),
        reserved=(f"{mark}:", "###result"),
        has_nonce=bool(nonce),
        notes=f"`{mark}:` is the marker of this conversation: it is no call without the {nonce}." if nonce else "",
    )


def _faults(nonce: str) -> tuple[NearMiss, ...]:
    mark = f"###{nonce}"
    return (
        _near(mark, says=f"`{mark}` lacks its colon"),
        _near(mark, _BLANK, ":", says=f"`{mark}` stands apart from its colon"),
        _near(f"##{nonce}:", says=f"`{mark}:` lacks a hash"),
        _near(f"####{nonce}:", says=f"`{mark}:` has too many hashes"),
    )


def _near(*parts: Part, says: str) -> NearMiss:
    return NearMiss((*parts, *_BODY), says, not_after=_JOINED)


_FAULTS_OF_NONCES = (
    _near("###:", says="the marker lacks its nonce"),
    _near("###", ANY, ":", says="the marker has another nonce"),
    NearMiss(("###result", _BLANK, _NAME, ":", SPACES, "{"), "the result lacks its nonce", not_after=_JOINED),
    NearMiss(
        ("###result", _BLANK, ANY, _BLANK, _NAME, ":", SPACES, "{"), "the result has another nonce", not_after=_JOINED
    ),
)


def _object(span: Span) -> Generator[None, None, None]:
    state = yield from span.json()
    if state is BROKEN:
        yield from span.recover()
        span.close(Code.INVALID_JSON)
    else:
        span.close(None if state is ENDED else Code.TRUNCATED)
