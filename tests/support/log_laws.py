"""The laws of an event log, the log of runs.

    async def test_my_log():
        await assert_log_laws(lambda: my_log())  # an asynchronous context manager that returns an empty log

A broken law raises AssertionError with its name, and the actual and expected values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio
import anyio.lowlevel

from streamtools.errors import Code, RunNotFound
from streamtools.events import Done, Start, Text, UIEvent, Warning
from streamtools.serving.event_log import MemoryEventLog, ReadableLog

_TIMEOUT_S = 30.0  # a log that has lost an event would wait forever
_KEY = "ann/run%201"


class EventLog(ReadableLog, Protocol):
    """A log that tests write to."""

    async def append(self, key: str, event: UIEvent, /) -> int: ...


class MemoryLog(MemoryEventLog):
    """The log in memory, with the method of `EventLog`."""

    async def append(self, key: str, event: UIEvent, /) -> int:
        self.add(key, event)
        return event.seq


async def assert_log_laws(make_log: Callable[[], AbstractAsyncContextManager[EventLog]]) -> None:
    """Check a log against its laws. Each law gets an empty log.

    The laws: appended events are read in order, from every position. Waiting readers each get all new events. An event
    that is appended again changes nothing. A cancelled read takes nothing. A position that the run never reached gets
    one `warning(resync)` and then all events. Nothing is found under another key. A reader ends after `done`.
    """
    for law in (_order, _live, _append_again, _cancelled, _resync, _unknown):
        async with make_log() as log:
            with anyio.move_on_after(_TIMEOUT_S) as scope:
                await law(log)
            _check(not scope.cancelled_caught, law, "it waits forever", "")


def _run(texts: int) -> list[UIEvent]:
    middle = [Text(f"text {number}: ü\x00\n", seq=number) for number in range(2, texts + 2)]
    return [Start("run 1", seq=1), *middle, Done("finished", "stop", None, [], seq=texts + 2)]


async def _append(log: EventLog, events: list[UIEvent], key: str = _KEY) -> None:
    for event in events:
        seq = await log.append(key, event)
        _check(seq == event.seq, _append, seq, event.seq)


async def _read(log: EventLog, after: int = 0, key: str = _KEY) -> list[UIEvent]:
    return [event async for event in log.read(key, after)]


async def _order(log: EventLog) -> None:
    events = _run(300)
    await _append(log, events)
    for after in (0, 1, 2, 150, 299, 301, 302):
        got = await _read(log, after)
        _check(got == events[after:], _order, got, events[after:])


async def _live(log: EventLog) -> None:
    events = _run(40)
    await _append(log, events[:5])
    taken: list[list[UIEvent]] = [[] for _ in range(4)]

    async def follow(after: int) -> None:
        taken[after] += await _read(log, after)

    async with anyio.create_task_group() as group:
        for after in range(4):
            group.start_soon(follow, after)
        for event in events[5:]:
            await _append(log, [event])
            await anyio.lowlevel.checkpoint()
    for after, got in enumerate(taken):
        _check(got == events[after:], _live, got, events[after:])


async def _append_again(log: EventLog) -> None:
    events = _run(4)
    await _append(log, events[:4])
    await _append(log, [Text("another", seq=3), *events[3:]])
    got = await _read(log)
    _check(got == events, _append_again, got, events)


async def _cancelled(log: EventLog) -> None:
    events = _run(6)
    got, position = list[UIEvent](), 0
    await _append(log, events[:1])
    for event in [*events[1:], None]:
        reading = log.read(_KEY, position)
        with anyio.move_on_after(0.02):
            async for received in reading:
                got.append(received)
                position = received.seq
        if event is not None:
            await _append(log, [event])
    got += await _read(log, position)
    _check(got == events, _cancelled, got, events)


async def _resync(log: EventLog) -> None:
    events = _run(3)
    await _append(log, events)
    for position in (-1, 6, 10**18):
        first, *rest = await _read(log, position)
        is_resync = isinstance(first, Warning) and (first.code, first.seq) == (Code.RESYNC, 0)
        _check(is_resync, _resync, first, "resync at 0")
        _check(rest == events, _resync, rest, events)


async def _unknown(log: EventLog) -> None:
    await _append(log, _run(1))
    for key in ("ann/run%202", "eve/run%201", "ann/run%201x"):
        try:
            got = await _read(log, 0, key)
        except RunNotFound:
            continue
        _check(False, _unknown, got, "RunNotFound")


def _check(holds: bool, law: Callable[..., Awaitable[object]], got: object, expected: object) -> None:
    if not holds:
        raise AssertionError(
            f"the law {law.__name__.strip('_')!r} does not hold: got {got!r}, expected {expected!r}"[:2000]
        )
