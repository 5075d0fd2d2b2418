"""What is still being written while a stream is read: text that may be cut in mid-character, and calls. Sans-IO."""

from __future__ import annotations

from typing import Any, TypeVar

from streamtools.errors import Code
from streamtools.events import NativeToolCall, SourceEvent, ToolCallDelta, ToolCallStart
from streamtools.json_values import whole

CallT = TypeVar("CallT", bound="OpenCall")


class Pairs:
    """The text of one channel, whose surrogate pairs a provider may cut in two.

    JSON writes a character beyond U+FFFF as two escapes, and a server that streams token by token may send them in two
    deltas. A `half` is no text: it waits here for its other half, and becomes U+FFFD if that does not come.
    """

    __slots__ = ("half",)

    def __init__(self) -> None:
        self.half = ""

    def join(self, text: str) -> str:
        """Return `text` as what UTF-8 can hold, with the half that waited before it and without one at its end."""
        if not self.half and text.isascii():
            return text
        text = self.half + text
        self.half = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self.half = text[-1]
            text = text[:-1]
        return whole(text)

    def close(self) -> str:
        """Return what is left: U+FFFD for a half that waited in vain, else nothing."""
        left, self.half = self.half and "\ufffd", ""
        return left


class OpenCall:
    """A native call that is being streamed: it starts, grows and ends, and each of these is an event."""

    __slots__ = ("executed", "fault", "given", "id", "key", "name", "pairs", "signature")

    def __init__(
        self, key: str, id: str | None = None, name: str | None = None, given: Any = None, signature: str | None = None
    ) -> None:
        self.key = key
        self.id = id
        self.name = name
        self.given = given  # the arguments, where they come whole
        self.signature = signature
        self.executed = False  # the provider runs the tool itself
        self.fault: Code | None = None  # a piece could not be read, and without it the call says something else
        self.pairs = Pairs()

    def start(self, events: list[SourceEvent]) -> None:
        """Append that the call begins, or what more is known of it now."""
        events.append(ToolCallStart(self.key, self.id, self.name))

    def add(self, text: str, events: list[SourceEvent]) -> None:
        """Append a piece of the arguments, which may be cut in mid-character."""
        if text := self.pairs.join(text) if text else "":
            events.append(ToolCallDelta(self.key, text))

    def end(self, given: Any, events: list[SourceEvent], fault: Code | None = None) -> None:
        """Append the end; `given` are arguments that came whole."""
        fault = self.fault or fault
        events.append(NativeToolCall(self.key, self.name, given, self.id, self.executed, self.signature, fault=fault))

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
