"""Serializes the end of a run as JSON, so that another process can read it.

The JSON holds the `TurnResult`, the suspension, and the history of a chat. `output` is stored as plain data, because
the other process may not have its type. Dialects are stored by id. Custom dialects are not stored, so the other process
cannot write results in these dialects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.history.parts import (
    Assistant,
    CallResult,
    Message,
    Origin,
    ProviderItem,
    Results,
    Step,
    System,
    TextPart,
    Thought,
    User,
)
from streamtools.parsing.dialects import DIALECTS, Dialect, choose_dialects
from streamtools.stream.result import TurnResult
from streamtools.tools.approvals import Suspension
from streamtools.tools.results import write

_Kind = Literal["TextPart", "Thought", "ToolCall", "ProviderItem", "System", "User", "Results", "other"]
_KINDS: dict[str, Any] = dict(
    zip(get_args(_Kind), (TextPart, Thought, ToolCall, ProviderItem, System, User, Results, Any), strict=True)
)
_Tagged = tuple[_Kind, Any]
"""A pair: the name of a class in `_KINDS`, and an object of this class. "other" stands for all other classes."""


class StoredEnd(NamedTuple):
    """The end of a run: its result, its suspension, and the history of the chat, which is needed to resume the run."""

    result: TurnResult
    suspension: Suspension | None
    history: list[Any]


class _Answer(NamedTuple):
    """The fields of an `Assistant` message in the stored form."""

    parts: list[_Tagged]
    in_text: list[ToolCall]
    origin: Origin
    response_id: str | None


class _Stored(msgspec.Struct, omit_defaults=True):
    result: dict[str, Any]
    steps: list[tuple[_Answer, list[CallResult], str | None]] = []
    dialects: list[str] = []
    suspension: Suspension | None = None
    history: list[_Answer | dict[_Kind, Any]] = []


_FIELD_NAMES = [field.name for field in fields(TurnResult) if field.name not in ("output", "steps", "dialects")]
_PlainFields: Any = msgspec.defstruct(
    "_PlainFields", [(name, kind) for name, kind in get_type_hints(TurnResult).items() if name in _FIELD_NAMES]
)
_encode = msgspec.json.Encoder(enc_hook=repr).encode  # a custom tool may return values that JSON cannot represent
_decode = msgspec.json.Decoder(_Stored).decode


def dump(result: TurnResult, suspension: Suspension | None = None, history: Iterable[Any] = ()) -> bytes:
    """Serialize the end of a run as JSON. Raises ValueError for invalid text, such as half a surrogate pair."""
    plain = {name: getattr(result, name) for name in _FIELD_NAMES}
    plain["outcomes"] = [replace(outcome, exception=None) for outcome in result.outcomes]
    try:
        plain["output"] = write(result.output).value
    except Exception:  # the custom type cannot be serialized; `text` still holds the answer
        plain["output"] = None
    stored = _Stored(
        plain,
        [(_write_answer(step.turn), step.results, step.response_id) for step in result.steps],
        [dialect.id for dialect in result.dialects],
        suspension,
        [_write_message(message) for message in history],
    )
    return _encode(stored)


def load(data: bytes) -> StoredEnd:
    """Parse JSON that `dump` returned. Raises ValueError for any other data."""
    stored = _decode(data)
    plain = msgspec.convert(stored.result, _PlainFields)
    result = TurnResult(
        **{name: getattr(plain, name) for name in _FIELD_NAMES},
        output=stored.result["output"],
        steps=[Step(_read_answer(answer), results, id) for answer, results, id in stored.steps],
        dialects=_dialects_of(stored.dialects),
    )
    return StoredEnd(result, stored.suspension, [_read_message(message) for message in stored.history])


def _write_answer(message: Assistant) -> _Answer:
    parts: list[Any] = [(type(part).__name__, part) for part in message.parts]
    return _Answer(parts, list(message.in_text), message.origin, message.response_id)


def _read_answer(answer: _Answer) -> Assistant:
    parts, in_text, origin, response_id = answer
    read_parts = [msgspec.convert(data, _KINDS[kind]) for kind, data in parts]
    return Assistant(parts=read_parts, in_text=in_text, origin=origin, response_id=response_id)


def _write_message(message: Message | Any) -> Any:
    if isinstance(message, Assistant):
        return _write_answer(message)
    name = type(message).__name__
    return {name if name in _KINDS else "other": message}


def _read_message(message: _Answer | dict[_Kind, Any]) -> Any:
    if isinstance(message, dict):
        ((kind, data),) = message.items()
        return msgspec.convert(data, _KINDS[kind])
    return _read_answer(message)


def _dialects_of(ids: list[str]) -> tuple[Dialect, ...]:
    """Return the built-in dialects with these ids.

    If these are the ids of `"auto"`, return the dialects of `"auto"`, which lack some of their openers.
    """
    if "llama3_json" in ids and ids == [dialect.id for dialect in choose_dialects("auto")]:
        return choose_dialects("auto")
    return tuple(DIALECTS[id] for id in ids if id in DIALECTS)
