"""Normalizes event sequences, so that tests can compare two runs over the same stream.

Two such runs may differ in the number of events, because the stream was divided into other chunks. Ids, times, and the
order of events from concurrent tools also differ. `coalesce` removes these differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import (
    ApprovalRequested,
    CallDelta,
    Error,
    Event,
    Executed,
    Executing,
    Markup,
    Partial,
    Progress,
    Reasoning,
    Text,
    Warning,
)

EventT = TypeVar("EventT", bound=Event)
_JOINED = (Text, Reasoning, CallDelta, Markup, Partial)  # adjacent events of one of these types are joined
_CONSTANT_FIELDS: dict[str, Any] = {"seq": 0, "elapsed": 0, "expires": None}  # the values that replace all others
_REPORTS = (ApprovalRequested, Executing, Progress, Executed)  # events about the execution of a call


def coalesce(events: Iterable[EventT]) -> list[EventT]:
    """Return events in a normalized form, which is equal for all runs over the same stream.

    Adjacent texts are joined. So are argument pieces of one call, and reasoning up to a signature. `seq` and times are
    removed. Run and call ids are replaced with numbers in the order of their first event. Events of concurrent tools
    are sorted by call.

    >>> coalesce([Text("a", seq=1), Text("b", seq=2)])
    [Text(text='ab', seq=0)]
    """
    names: dict[str, str] = {}

    def rename(kind: str, name: str | None) -> str | None:
        return None if name is None else names.setdefault(kind + name, f"{kind}_{len(names) + 1}")

    signed = 0  # the number of reasoning blocks that a signature has ended

    def identity(event: Event) -> tuple[type[Event], Any]:
        """Return the key of an event. Adjacent events with equal keys are joined."""
        nonlocal signed
        match event:
            case CallDelta(call_id):
                return CallDelta, call_id
            case Partial(path, value):
                return (Partial, (event.call_id, path)) if isinstance(value, str) else (Partial, id(event))
            case Reasoning(signature=signature):
                block = signed
                signed += signature is not None
                return Reasoning, block
        return type(event), None

    merged: list[EventT] = []
    for (kind, _), group in itertools.groupby(_in_call_order(events), identity):
        members = list(group)
        field = "value" if kind is Partial else "text"
        pieces: list[Any] = [getattr(member, field, None) for member in members]
        if kind not in _JOINED or not isinstance(pieces[0], str):  # a partial value that is not a string is complete
            merged += members
            continue
        last, changes = members[-1], dict[str, Any]({field: "".join(pieces)})
        is_empty = kind in (Text, Markup) and not changes["text"]
        if isinstance(last, Reasoning):
            changes["own"] = next((own for member in reversed(members) if (own := getattr(member, "own", None))), None)
            is_empty = not (last.signature or last.id or any(changes.values()))
        if not is_empty:
            merged.append(msgspec.structs.replace(last, **changes))
    return [_normalized(event, rename) for event in merged]


def _in_call_order(events: Iterable[EventT]) -> Iterable[EventT]:
    """Yield events, with adjacent events of tools sorted by call. The events of one call keep their order."""
    order: dict[str, int] = {}
    for is_report, group in itertools.groupby(events, lambda event: isinstance(event, _REPORTS) or _is_of_call(event)):
        members = list(group)
        if not is_report:  # move `partial` events after the texts around them: their position depends on the chunks
            runs = itertools.groupby(members, lambda event: isinstance(event, Text | CallDelta) or _is_of_output(event))
            members = [event for grow, part in runs for event in (sorted(part, key=_is_of_output) if grow else part)]
        for event in members:
            order.setdefault(_call_id(event), len(order))
        yield from sorted(members, key=lambda event: order[_call_id(event)]) if is_report else members


def _is_of_output(event: Event) -> bool:
    return isinstance(event, Partial) or (isinstance(event, Warning) and event.code is Code.INVALID_OUTPUT)


def _is_of_call(event: Event) -> bool:  # errors of the stream and of malformed calls have no `call`
    return isinstance(event, Error) and event.call is not None


def _call_id(event: Event) -> str:
    call = getattr(event, "call", None)
    return call.id if isinstance(call, ToolCall) else getattr(event, "call_id", None) or ""


def _normalized(event: EventT, rename: Callable[[str, str | None], str | None]) -> EventT:
    changes = {name: value for name, value in _CONSTANT_FIELDS.items() if hasattr(event, name)}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name == "run_id":
            changes[name] = rename("run", value)
        elif name == "call_id":
            changes[name] = rename("call", value)
        elif isinstance(value, ToolCall):
            changes[name] = msgspec.structs.replace(value, id=rename("call", value.id))
        elif name == "pending":
            changes[name] = [msgspec.structs.replace(call, id=rename("call", call.id)) for call in value]
    return msgspec.structs.replace(event, **changes)
