"""The end of a run as JSON, for another process.

It holds the `TurnResult`, the suspension, and the history of a chat. `output` is plain data, because another process
need not know its type. Dialects are stored by id. A custom dialect is left out; results of its calls then have no form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.events import DoneReason, Error, Usage, Warning
from streamtools.history.parts import (
    Assistant,
    CallResult,
    Message,
    Origin,
    Part,
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
from streamtools.tools import ToolOutcome
from streamtools.tools.approvals import Suspension
from streamtools.tools.results import write


class StoredEnd(NamedTuple):
    """The end of a run: its result, its suspension, and the history to resume it with."""

    result: TurnResult
    suspension: Suspension | None
    history: list[Any]


class _Part(msgspec.Struct, omit_defaults=True):
    text: TextPart | None = None
    thought: Thought | None = None
    call: ToolCall | None = None
    item: ProviderItem | None = None


class _Said(msgspec.Struct, omit_defaults=True):
    parts: list[_Part]
    in_text: list[ToolCall] = []
    origin: Origin = Origin()
    response_id: str | None = None


class _Step(msgspec.Struct, omit_defaults=True):
    said: _Said
    results: list[CallResult] = []
    response_id: str | None = None


class _Message(msgspec.Struct, omit_defaults=True):
    system: str | None = None
    user: str | list[dict[str, Any]] | None = None
    own: ProviderItem | None = None  # of either
    said: _Said | None = None
    results: list[CallResult] | None = None
    other: Any = None


class _Stored(msgspec.Struct, omit_defaults=True):
    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = []
    outcomes: list[ToolOutcome] = []
    errors: list[Error] = []
    warnings: list[Warning] = []
    pending: list[ToolCall] = []
    usage: Usage | None = None
    usage_by_model: dict[str, Usage] = {}
    reason: DoneReason | None = None
    finish_reason: str | None = None
    conversation_id: str | None = None
    response_id: str | None = None
    model: str | None = None
    output: Any = None
    resumed: list[ToolCall] = []
    steps: list[_Step] = []
    dialects: list[str] = []
    suspension: Suspension | None = None
    history: list[_Message] = []


_MEMBERS: dict[type[Part], str] = {TextPart: "text", Thought: "thought", ToolCall: "call", ProviderItem: "item"}
_PLAIN = (
    *("text", "reasoning", "calls", "outcomes", "errors", "warnings", "pending", "usage", "usage_by_model", "reason"),
    *("finish_reason", "conversation_id", "response_id", "model", "resumed"),
)
_encode = msgspec.json.Encoder(enc_hook=repr).encode  # a custom handler may return values that JSON cannot hold
_decode = msgspec.json.Decoder(_Stored).decode


def store(result: TurnResult, suspension: Suspension | None = None, history: Iterable[Any] = ()) -> bytes:
    """Return the end of a run as JSON. Raises ValueError for invalid text, such as half a surrogate pair."""
    outcomes = [replace(outcome, exception=None) for outcome in result.outcomes]
    stored = _Stored(
        **{name: getattr(result, name) for name in _PLAIN} | {"outcomes": outcomes},
        output=_plain(result.output),
        steps=[_Step(_take_apart(step.said), step.results, step.response_id) for step in result.steps],
        dialects=[dialect.id for dialect in result.dialects],
        suspension=suspension,
        history=[_write(message) for message in history],
    )
    return _encode(stored)


def read(data: bytes) -> StoredEnd:
    """Return the end of a run that `store` wrote. Raises ValueError for anything else."""
    stored = _decode(data)
    result = TurnResult(
        output=stored.output,
        **{name: getattr(stored, name) for name in _PLAIN},
        steps=[Step(_put_together(step.said), step.results, step.response_id) for step in stored.steps],
        dialects=_dialects_of(stored.dialects),
    )
    return StoredEnd(result, stored.suspension, [_read(message) for message in stored.history])


def _plain(output: Any) -> Any:
    try:
        return write(output).value
    except Exception:  # a custom type that cannot be written; the text is stored
        return None


def _take_apart(said: Assistant) -> _Said:
    parts: Iterator[dict[str, Any]] = ({_MEMBERS[type(part)]: part} for part in said.parts)
    return _Said([_Part(**part) for part in parts], list(said.in_text), said.origin, said.response_id)


def _put_together(said: _Said) -> Assistant:
    found = (part.text or part.thought or part.call or part.item for part in said.parts)
    parts = [part for part in found if part is not None]
    return Assistant(parts=parts, in_text=said.in_text, origin=said.origin, response_id=said.response_id)


def _write(message: Message | Any) -> _Message:
    match message:
        case System(text, own):
            return _Message(system=text, own=own)
        case User(content, own):
            return _Message(user=content, own=own)
        case Assistant():
            return _Message(said=_take_apart(message))
        case Results(results):
            return _Message(results=list(results))
    return _Message(other=message)


def _read(message: _Message) -> Any:
    if message.said is not None:
        return _put_together(message.said)
    if message.results is not None:
        return Results(tuple(message.results))
    if message.user is not None:
        return User(message.user, message.own)
    return message.other if message.system is None else System(message.system, message.own)


def _dialects_of(ids: list[str]) -> tuple[Dialect, ...]:
    """Return the dialects of these ids; those that `"auto"` enables are without what it leaves out of them."""
    if "llama3_json" in ids and ids == [dialect.id for dialect in choose_dialects("auto")]:
        return choose_dialects("auto")
    return tuple(DIALECTS[id] for id in ids if id in DIALECTS)
