"""A native call that is being streamed: its start, its pieces and its end, each as a source event. Sans-IO."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from streamtools.errors import Code
from streamtools.events import NativeToolCall, SourceEvent, ToolCallDelta, ToolCallStart
from streamtools.sources.surrogates import PairJoiner

CallT = TypeVar("CallT", bound="OpenCall")


@dataclass(slots=True, eq=False)
class OpenCall:
    """A native call that is being streamed."""

    key: str
    id: str | None = None
    name: str | None = None
    given: Any = None  # the arguments, if they arrive as a whole
    signature: str | None = None
    own: dict[str, Any] | None = None  # data for the next request, by the format of the provider's messages
    executed: bool = False  # the provider runs the tool itself
    fault: Code | None = None  # a piece could not be read, so that the call may mean something else
    pairs: PairJoiner = field(default_factory=PairJoiner)

    def start(self, events: list[SourceEvent]) -> None:
        """Append that the call begins, or that its id or name is known now."""
        events.append(ToolCallStart(self.key, self.id, self.name))

    def add(self, text: str, events: list[SourceEvent]) -> None:
        """Append a piece of the arguments. It may be cut in mid-character."""
        if text := self.pairs.join(text) if text else "":
            events.append(ToolCallDelta(self.key, text))

    def end(self, given: Any, events: list[SourceEvent], fault: Code | None = None) -> None:
        """Append the end. `given` are arguments that arrived as a whole."""
        fault, who = self.fault or fault, (self.id, self.executed, self.signature)
        events.append(NativeToolCall(self.key, self.name, given, *who, fault=fault, own=self.own))

    def close(self, events: list[SourceEvent]) -> None:
        """Append the end of a call that the provider has completed."""
        self.add(self.pairs.close(), events)
        self.end(self.given, events)

    def refuse(self, events: list[SourceEvent]) -> None:
        """Append the start and the end of a call over the limit of open calls.

        It is not kept, because each unreadable piece costs a search of all open calls.
        """
        if not self.executed:  # calls of the provider are only reported at their end
            self.start(events)
        self.end(None, events, Code.TOO_MANY_CALLS)


def end_doubtful(calls: dict[Any, CallT], place: object, events: list[SourceEvent]) -> None:
    """End the open `calls` that an unreadable piece may belong to, because without it they may mean something else.

    These are the call in its `place` and the call without a place, or all calls if the piece has no place. An item
    without a key is no call.
    """
    for at in [*calls] if place is None else (None, place):
        if at in calls and calls[at].key:
            calls.pop(at).end(None, events, Code.INVALID_ARGUMENTS)
