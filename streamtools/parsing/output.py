"""The events of the current `feed`, numbered, and what the turn has come to."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from itertools import repeat

from streamtools.calls import IdFactory, ToolCall, new_call_id
from streamtools.events import CallDelta, Error, Text, UIEvent
from streamtools.parsing.repair import MOST_IN_TURN

_IDS = 16  # that are made of one block of random bytes: to ask the system for it is what an id costs
_unnumbered = repeat(0).__next__


class Output:
    """The events of the current `feed`, and what the turn has come to."""

    __slots__ = (
        "_new_id",
        "calls",
        "count",
        "errors",
        "events",
        "make_delta",
        "make_text",
        "new_id",
        "number",
        "repairs",
    )

    def __init__(self, number: Callable[[], int] | None, new_id: IdFactory = new_call_id) -> None:
        """Number events by `number`, or not at all, which the two most frequent kinds of events make use of."""
        self._new_id = new_id
        self.number = number or _unnumbered
        self.make_text: Callable[[str], Text] = Text
        self.make_delta: Callable[[str, str], CallDelta] = CallDelta
        if number is not None:
            self.make_text = lambda text: Text(text, number())
            self.make_delta = lambda call_id, text: CallDelta(call_id, text, number())
        self.events: list[UIEvent] = []
        self.begin()

    def begin(self) -> None:
        """Begin a turn."""
        self.calls: list[ToolCall] = []
        self.errors: list[Error] = []
        # No block of ids outlives its turn, in which nobody forks a process that would make the same.
        self.new_id = _call_ids().__next__ if self._new_id is new_call_id else self._new_id
        self.count = 0  # calls that were begun
        self.repairs = MOST_IN_TURN  # characters that may still be put right

    def add(self, event: Callable[..., UIEvent], *fields: object, **named: object) -> None:
        """Add an event and number it."""
        self.events.append(event(*fields, **named, seq=self.number()))


def _call_ids() -> Iterator[str]:
    """Yield ids like those of `new_call_id`."""
    while True:
        block = secrets.token_urlsafe(_IDS * 9)  # nine bytes are twelve characters, and no two ids share one
        for at in range(0, len(block), 12):
            yield "call_" + block[at : at + 12]
