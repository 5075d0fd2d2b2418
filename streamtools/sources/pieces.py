"""Joins text and native calls that arrive in pieces. Sans-IO.

JSON may escape a character above U+FFFF as two surrogates. A server that streams token by token may send these in two
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
    """Joins surrogate pairs that were cut, in the text of one channel.

    `half` is the buffered first half of a pair, or empty. If the second half does not follow, it becomes U+FFFD.
    """

    __slots__ = ("half",)

    def __init__(self) -> None:
        self.half = ""

    def join(self, text: str) -> str:
        """Return the buffered half followed by `text`, as valid Unicode. A half at the end of `text` is buffered."""
        if not self.half and text.isascii():
            return text
        text = self.half + text
        self.half = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self.half = text[-1]
            text = text[:-1]
        return whole(text)

    def close(self) -> str:
        """Return U+FFFD if a half is buffered, else an empty string."""
        left, self.half = self.half and "\ufffd", ""
        return left

    def reset(self) -> None:
        """Drop the buffered half. Called when the provider repeats the whole text."""
        self.half = ""


@dataclass(slots=True, eq=False)
class OpenCall:
    """A native call that is being streamed."""

    key: str
    id: str | None = None
    name: str | None = None
    given: Any = None  # the whole arguments, or None if they arrive in pieces
    signature: str | None = None
    own: dict[str, Any] | None = None  # fields for the next request; the key is the message format
    executed: bool = False  # the provider runs the tool
    fault: Code | None = None  # why the call must not run, for example because a piece could not be read
    pair_joiner: PairJoiner = field(default_factory=PairJoiner)

    def start(self, events: list[SourceEvent]) -> None:
        """Append the start of the call. Called again when its id or name becomes known."""
        events.append(ToolCallStart(self.key, self.id, self.name))

    def add(self, text: str, events: list[SourceEvent]) -> None:
        """Append a piece of the arguments. The provider may have cut it in mid-character."""
        if text := self.pair_joiner.join(text) if text else "":
            events.append(ToolCallDelta(self.key, text))

    def end(self, given: Any, events: list[SourceEvent], fault: Code | None = None) -> None:
        """Append the end of the call. `given` holds whole arguments, or None if they arrived in pieces."""
        fault, who = self.fault or fault, (self.id, self.executed, self.signature)
        events.append(NativeToolCall(self.key, self.name, given, *who, fault=fault, own=self.own))

    def close(self, events: list[SourceEvent]) -> None:
        """Append the buffered text and the end of a complete call."""
        self.add(self.pair_joiner.close(), events)
        self.end(self.given, events)

    def refuse(self, events: list[SourceEvent]) -> None:
        """Append the start and the end of a call over the limit of open calls.

        The number of stored calls is limited, because each unreadable piece requires a search of all open calls.
        """
        if not self.executed:  # a call that the provider runs is reported only at its end
            self.start(events)
        self.end(None, events, Code.TOO_MANY_CALLS)


def end_doubtful(calls: dict[Any, CallT], place: object, events: list[SourceEvent]) -> None:
    """End the open `calls` that an unreadable piece may belong to, because their arguments are incomplete without it.

    `place` is the position of the piece. These calls end: the call with this position and the call without a position.
    If `place` is None, all calls end. Entries of `calls` with an empty `key` are not calls and are skipped.
    """
    for at in [*calls] if place is None else (None, place):
        if at in calls and calls[at].key:
            calls.pop(at).end(None, events, Code.INVALID_ARGUMENTS)
