"""Runs with custom logs: read through generators, failing for a time or forever, or hanging."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog.testing

from streamtools import ToolStream
from streamtools.errors import Code, RunNotFound
from streamtools.events import ProviderCompleted, Text, UIEvent, Warning
from streamtools.runs import MemoryEventLog, Runs, log_key
from streamtools.serving import journal
from tests.serving.test_runs import held, read
from tests.support.stories import Script, story, texts

pytestmark = pytest.mark.anyio

STOP = ProviderCompleted(finish_reason="stop")


class Log:
    """A log that can fail, and reads through a generator."""

    def __init__(self) -> None:
        self.inner = MemoryEventLog()
        self.fails: Callable[[UIEvent], bool] = lambda event: False
        self.hangs = False
        self.opened = 0
        self.closed = 0

    async def append(self, key: str, event: UIEvent, /) -> int:
        await anyio.lowlevel.checkpoint()
        if self.fails(event):
            if self.hangs:
                await anyio.sleep_forever()
            raise ConnectionError("the log is away")
        return await self.inner.append(key, event)

    async def read(self, key: str, /, after: int = 0) -> AsyncIterator[UIEvent]:
        self.opened += 1
        try:
            async for event in self.inner.read(key, after):
                yield event
        finally:
            self.closed += 1


async def test_a_log_that_reads_through_a_generator() -> None:
    """A cancelled read takes nothing although the generator ends. Each generator is closed."""
    gates = [anyio.Event() for _ in range(3)]
    batches = [each for gate, letter in zip(gates, "abc", strict=True) for each in (gate, texts(letter))]
    log, taken = Log(), list[UIEvent]()
    async with Runs(log, max_kept=0) as runs:
        run = await runs.start(ToolStream(Script(*batches, [STOP])), owner="ann")
        async with run.attach() as events:
            taken.append(await anext(events))
            for gate in gates:
                with anyio.move_on_after(0):
                    taken.append(await anext(events))
                gate.set()
                taken.append(await anext(events))
            await read(events, taken)
        whole = await read(run.attach())
        async with run.attach() as events:
            await anext(events)
        assert 3 < log.opened == log.closed
        assert [] == await read(run.attach(whole[-1].seq))
        lost = run.attach()
        log.inner.forget(log_key("ann", run.id))
        with pytest.raises(RunNotFound):
            await anext(lost)
    assert whole == taken
    assert list(range(1, len(taken) + 1)) == [event.seq for event in taken]


async def test_a_log_that_forgets_a_running_run() -> None:
    """Readers reach an end without `done`."""
    async with Runs() as runs, anyio.create_task_group() as group:
        taken = list[UIEvent]()
        run = await runs.start(held("a"), owner="ann")
        group.start_soon(read, run.attach(), taken)
        await anyio.wait_all_tasks_blocked()
        assert isinstance(runs.log, MemoryEventLog)
        runs.log.forget(log_key("ann", run.id))
        await anyio.wait_all_tasks_blocked()
        assert "text 'a'" == story(taken)[-1]
        await run.stop()
        assert "cancelled" == (await run.wait()).reason


@pytest.mark.parametrize(("letters", "away"), [("a", [3]), ("b", [4]), ("bc", [4, 5]), ("cde", [5, 6, 7])])
async def test_a_log_that_fails_for_a_while(letters: str, away: list[int]) -> None:
    """The run continues. Readers get one warning for missing events; the result is complete."""
    log = Log()
    calls = itertools.count(1)
    log.fails = lambda event: next(calls) in away
    with structlog.testing.capture_logs() as logs:
        async with Runs(log) as runs:
            run = await runs.start(ToolStream(Script([*texts(*"abcde"), STOP])), owner="ann")
            taken = await read(run.attach())
            assert taken == await read(run.attach())
    told = "".join(
        event.text if isinstance(event, Text) else "!" for event in taken if isinstance(event, Text | Warning)
    )
    assert "abcde".replace(letters, "!") == told
    assert ("abcde", "finished") == (run.result.text, run.result.reason)
    assert [("events_not_logged", "ConnectionError")] == [(each["event"], each["error"]) for each in logs]
    numbers = [event.seq for event in taken]
    assert sorted(set(numbers)) == numbers
    assert {Code.RESYNC} == {event.code for event in taken if isinstance(event, Warning)}


async def test_a_log_that_fails_after_storing() -> None:
    """The log has the event, and the warning in its place changes nothing."""
    away = [4, 5]

    class Forgetful(MemoryEventLog):
        async def append(self, key: str, event: UIEvent, /) -> int:
            seq = await super().append(key, event)
            if seq in away:
                away.remove(seq)
                raise ConnectionError("the log is away")
            return seq

    with structlog.testing.capture_logs():
        async with Runs(Forgetful()) as runs:
            run = await runs.start(ToolStream(Script([*texts(*"abcd"), STOP])), owner="ann")
            taken = await read(run.attach())
    assert [f"text {letter!r}" for letter in "abcd"] == story(taken)[2:6]
    assert list(range(1, len(taken) + 1)) == [event.seq for event in taken]


@pytest.mark.parametrize("first", [1, 4, 7])
async def test_a_log_that_fails_until_the_end(first: int) -> None:
    """The run ends, and all readers get its end from this process."""
    log = Log()
    log.fails = lambda event: event.seq >= first
    taken, gate = list[UIEvent](), anyio.Event()
    with structlog.testing.capture_logs():
        async with Runs(log) as runs, anyio.create_task_group() as group:
            source = Script(texts(*"ab"), gate, [*texts("c"), STOP])
            run = await runs.start(ToolStream(source), owner="ann")
            group.start_soon(read, run.attach(), taken)
            await anyio.wait_all_tasks_blocked()
            gate.set()
            await run.wait()
    kept = ["start", "step 1", "text 'a'", "text 'b'", "text 'c'", "step 1 ends: stop"][: first - 1]
    gap = [] if first == 7 else ["warning resync"]
    assert [*kept, *gap, "done finished: stop (None)"] == story(taken)
    assert taken == await read(run.attach())
    assert taken[-1:] == await read(run.attach(taken[-2].seq))
    assert "abc" == run.result.text


async def test_a_log_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run waits once, then continues, and tries again at its end."""
    monkeypatch.setattr(journal, "_LOG_TIMEOUT_S", 0.01)
    log = Log()
    log.hangs, log.fails = True, lambda event: event.seq == 3
    with structlog.testing.capture_logs():
        async with Runs(log) as runs:
            run = await runs.start(ToolStream(Script([*texts(*"abc"), STOP])), owner="ann")
            await run.wait()
            told = story(await read(run.attach()))
    assert ["start", "step 1", "warning resync"] == told[:3]
    assert "done finished: stop (None)" == told[-1]


async def test_a_log_whose_reading_fails() -> None:
    """The reader gets the exception and may try again. The run continues."""

    class Unreadable(MemoryEventLog):
        fails = True

        def read(self, key: str, /, after: int = 0) -> Any:
            if self.fails:
                self.fails = False
                raise ConnectionError("the log is away")
            return super().read(key, after)

    async with Runs(Unreadable()) as runs:
        run = await runs.start(ToolStream(Script([*texts("a"), STOP])), owner="ann")
        events = run.attach()
        with pytest.raises(ConnectionError):
            await anext(events)
        assert "done finished: stop (None)" == story(await read(events))[-1]
