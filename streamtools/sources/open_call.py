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
    """A native call that is being streamed: it starts, grows and ends, and each of these is an event."""

    key: str
    id: str | None = None
    name: str | None = None
    given: Any = None  # the arguments, where they come whole
    signature: str | None = None
    own: dict[str, Any] | None = None  # what goes back beside it, by the format of the provider's messages
    executed: bool = False  # the provider runs the tool itself
    fault: Code | None = None  # a piece could not be read, and without it the call says something else
    pairs: PairJoiner = field(default_factory=PairJoiner)

    def start(self, events: list[SourceEvent]) -> None:
        """Append that the call begins, or what more is known of it now."""
        events.append(ToolCallStart(self.key, self.id, self.name))

    def add(self, text: str, events: list[SourceEvent]) -> None:
        """Append a piece of the arguments, which may be cut in mid-character."""
        if text := self.pairs.join(text) if text else "":
            events.append(ToolCallDelta(self.key, text))

    def end(self, given: Any, events: list[SourceEvent], fault: Code | None = None) -> None:
        """Append the end; `given` are arguments that came whole."""
        fault, who = self.fault or fault, (self.id, self.executed, self.signature)
        events.append(NativeToolCall(self.key, self.name, given, *who, fault=fault, own=self.own))

    def close(self, events: list[SourceEvent]) -> None:
        """Append the end of a call that its provider has completed."""
        self.add(self.pairs.close(), events)
        self.end(self.given, events)

    def refuse(self, events: list[SourceEvent]) -> None:
        """Append the beginning and the end of a call that begins while as many are open as a turn may have.

        It is not kept: each piece that nobody can read costs a look at all calls that are open.
        """
        if not self.executed:  # which is nobody's to run, and only ends
            self.start(events)
        self.end(None, events, Code.TOO_MANY_CALLS)


def end_doubtful(calls: dict[Any, CallT], place: object, events: list[SourceEvent]) -> None:
    """End those of the open `calls` that a piece may belong to which nobody can read: without it they say something
    else. These are the one in its place, or all of them where it, or they, have none; what has no key is no call.
    """
    for at in [*calls] if place is None else (None, place):
        if at in calls and calls[at].key:
            calls.pop(at).end(None, events, Code.INVALID_ARGUMENTS)
