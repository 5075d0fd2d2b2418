"""Text and native calls that arrive in pieces. Sans-IO.

JSON writes a character beyond U+FFFF as two escapes, and a server that streams token by token may send them in two
deltas. `PairJoiner` joins them. `OpenCall` reports the start, the pieces and the end of a call as source events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from streamtools.errors import Code
from streamtools.events import NativeToolCall, SourceEvent, ToolCallDelta, ToolCallStart
from streamtools.json_values import whole

CallT = TypeVar("CallT", bound="OpenCall")


class PairJoiner:
    """Joins the text of one channel. A first `half` waits here for the second half, and becomes U+FFFD without it."""

    __slots__ = ("half",)

    def __init__(self) -> None:
        self.half = ""

    def join(self, text: str) -> str:
        """Return `text` after the waiting half, in what UTF-8 can encode. A half at its end is buffered."""
        if not self.half and text.isascii():
            return text
        text = self.half + text
        self.half = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self.half = text[-1]
            text = text[:-1]
        return whole(text)

    def close(self) -> str:
        """Return U+FFFD if a half is left, or an empty string."""
        left, self.half = self.half and "\ufffd", ""
        return left

    def reset(self) -> None:
        """Forget a half, because the text is given again as a whole."""
        self.half = ""


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
