"""Runs as stories with one line for each event, and sources whose timing a test controls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import anyio
import anyio.lowlevel

from streamtools.calls import ToolCall
from streamtools.events import Done, Error, FollowUp, Partial, SourceEvent, TextDelta, Thinking, UIEvent

_LINES = {
    "start": "start",
    "step-start": "step {0.step}",
    "step-end": "step {0.step} ends: {0.finish_reason}",
    "step-superseded": "step {0.step} is superseded",
    "text": "text {0.text!r}",
    "reasoning": "reasoning {0.text!r}",
    "call-start": "{0.call_id} is {0.name}",
    "call-delta": "{0.call_id} has {0.text}",
    "call": "call {0.call.id}",
    "warning": "warning {0.code}",
    "approval-requested": "may {0.call.id} run?",
    "executing": "executing {0.call.id}",
    "progress": "progress {0.call_id}: {0.data}",
    "executed": "executed {0.call.id}: {0.result}",
    "usage": "usage {0.usage.input}",
    "raw": "raw {0.data}",
}


def tell(event: UIEvent) -> str:
    """Return an event as a line of a story."""
    match event:
        case Partial(path, value, complete):
            return f"partial {'.'.join(map(str, path))} {value!r}{' complete' if complete else ''}"
        case Thinking(active, call_id):
            return f"{'' if active else 'not '}thinking {call_id}"
        case Error(code, _, call_id):
            return f"error {call_id} {code}" if call_id else f"error {code}"
        case FollowUp(messages):
            return f"follow-up of {len(messages)}"
        case Done(reason, finish, raw, pending, conversation):
            left = f", pending {names(pending)}" if pending else ""
            return f"done {reason}: {finish} ({raw}){left}" + (f", in {conversation}" if conversation else "")
    return _LINES[event.type].format(event)


def names(calls: Sequence[ToolCall]) -> str:
    return " ".join(call.id for call in calls)


def texts(*deltas: str) -> list[SourceEvent]:
    """Return deltas of text."""
    return [TextDelta(delta) for delta in deltas]


def batches(*pieces: str) -> list[list[TextDelta]]:
    """Return a batch for each piece of text."""
    return [[TextDelta(piece)] for piece in pieces]


class Script:
    """A source that yields these batches, and then ends.

    It waits for an `anyio.Event` among them, and raises an exception. With `hold`, it waits after the last batch. Calls
    of its methods are counted.
    """

    def __init__(self, *items: Sequence[SourceEvent] | anyio.Event | Exception, hold: bool = False) -> None:
        self._items = iter(items)
        self._item: Sequence[SourceEvent] | anyio.Event | Exception | None = None
        self._hold = hold
        self.read = 0
        self.closed = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[SourceEvent]:
        await anyio.lowlevel.checkpoint()
        while True:
            self._item = self._item or next(self._items, None)
            match self._item:
                case None if self._hold:
                    await anyio.sleep_forever()
                case None:
                    raise StopAsyncIteration
                case anyio.Event():
                    await self._item.wait()
                case Exception():
                    raise self._item
                case _:
                    batch, self._item = self._item, None
                    self.read += 1
                    return batch
            self._item = None

    async def aclose(self) -> None:
        self.closed += 1


class WaitingTool:
    """A tool that waits until it is cancelled, and records how it ended."""

    def __init__(self) -> None:
        self.running = anyio.Event()
        self.stopped = 0

    async def wait(self) -> None:
        """Wait until cancelled."""
        self.running.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.stopped += 1
            raise


def story(events: Iterable[UIEvent]) -> list[str]:
    """Return a line for each event."""
    return [tell(event) for event in events]
