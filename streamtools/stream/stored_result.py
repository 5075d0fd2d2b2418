"""Serializes the end of a run as JSON, so that another process can read it.

The JSON holds the `TurnResult`, the suspension, the history of a chat, and the decisions that the run received.
`output` is stored as plain data, because the other process may not have its type. Dialects are stored by id. Custom
dialects are not stored, so the other process cannot write results in these dialects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

import msgspec
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.history.parts import (
    Assistant,
    CallResult,
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
from streamtools.tools.approvals import Decision, Suspension
from streamtools.tools.results import write

_Tagged = tuple[str, Any]
"""A pair: the name of a class, and an object of this class."""


class StoredEnd(NamedTuple):
    """The end of a run. The `history` of the chat is needed to resume the run.

    `decisions` has the decisions that the run received before its end, by call id.
    """

    result: TurnResult
    suspension: Suspension | None = None
    history: Sequence[Any] = ()
    decisions: Mapping[str, Decision] = {}


class _Answer(NamedTuple):
    """The fields of an `Assistant` message in the stored form."""

    parts: list[_Tagged]
    in_text: list[ToolCall]
    origin: Origin


class _Stored(msgspec.Struct, omit_defaults=True):
    result: dict[str, Any]
    steps: list[tuple[_Tagged, list[CallResult], str | None]] = []
    dialects: list[str] = []
    suspension: Suspension | None = None
    history: list[_Tagged] = []
    decisions: Mapping[str, Decision] = {}


_KINDS = {kind.__name__: kind for kind in (_Answer, TextPart, Thought, ToolCall, ProviderItem, System, User, Results)}
"""The classes by name. Objects of all other classes are read as plain data."""

_NOT_PLAIN = "output", "steps", "dialects"
_PLAIN = {name: kind for name, kind in get_type_hints(TurnResult).items() if name not in _NOT_PLAIN}
"""The types of the other fields of `TurnResult`, by name."""
_encode = msgspec.json.Encoder(enc_hook=repr).encode  # a custom tool may return values that JSON cannot represent
_decode = msgspec.json.Decoder(_Stored).decode


def dump(end: StoredEnd) -> bytes:
    """Serialize the end of a run as JSON. Raises ValueError for invalid text, such as half a surrogate pair."""
    result = end.result
    plain = {name: getattr(result, name) for name in _PLAIN}
    plain["outcomes"] = [replace(outcome, exception=None) for outcome in result.outcomes]
    try:
        plain["output"] = write(result.output).value
    except Exception:  # the custom type cannot be serialized; `text` still holds the answer
        plain["output"] = None
    stored = _Stored(
        plain,
        [(_with_name(step.turn), step.results, step.response_id) for step in result.steps],
        [dialect.id for dialect in result.dialects],
        end.suspension,
        [_with_name(message) for message in end.history],
        end.decisions,
    )
    return _encode(stored)


def load(data: bytes) -> StoredEnd:
    """Parse JSON that `dump` returned. Raises ValueError for any other data."""
    stored = _decode(data)
    result = TurnResult(
        **{name: msgspec.convert(stored.result.get(name), kind) for name, kind in _PLAIN.items()},
        output=stored.result.get("output"),
        steps=[Step(_read(*turn), results, id) for turn, results, id in stored.steps],
        dialects=_dialects_of(stored.dialects),
    )
    history = [_read(*message) for message in stored.history]
    return StoredEnd(result, stored.suspension, history, stored.decisions)


def _with_name(value: Any) -> _Tagged:
    """Return the name of the class of a message or a part, and the value in its stored form."""
    if isinstance(value, Assistant):
        value = _Answer([*map(_with_name, value.parts)], [*value.in_text], value.origin)
    return type(value).__name__, value


def _read(name: str, data: Any) -> Any:
    value = msgspec.convert(data, _KINDS.get(name, Any))
    if not isinstance(value, _Answer):
        return value
    parts = [_read(*part) for part in value.parts]
    return Assistant(parts=parts, in_text=value.in_text, origin=value.origin)


def _dialects_of(ids: list[str]) -> tuple[Dialect, ...]:
    """Return the built-in dialects with these ids.

    If these are the ids of `"auto"`, return the dialects of `"auto"`, some of which have fewer openers.
    """
    if "llama3_json" in ids and ids == [dialect.id for dialect in choose_dialects("auto")]:
        return choose_dialects("auto")
    return tuple(DIALECTS[id] for id in ids if id in DIALECTS)
