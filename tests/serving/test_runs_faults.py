"""Runs whose streams fail or are not `ToolStream`s, and applications that end during a run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
import structlog.testing

from streamtools import ToolStream, replay
from streamtools.errors import ClosedError, RecordingError, RunNotFound
from streamtools.events import Done, ProviderCompleted, Start, StepEnd, Text, UIEvent
from streamtools.outputs import asgi
from streamtools.runs import MemoryEventLog, Run, Runs
from tests.serving.test_runs import WAIT, held, read
from tests.support.stories import Script, WaitingTool, story, texts

STOP = ProviderCompleted(finish_reason="stop")
BROKEN = ["start", "error stream_interrupted", "done failed: None (None)"]
LEFT = ["start", "text 'a'", "done cancelled: None (None)"]


@asynccontextmanager
async def giving(*events: UIEvent, hold: bool = False, error: BaseException | None = None) -> AsyncIterator[Any]:
    """An asynchronous generator of these events."""

    async def generate() -> AsyncIterator[UIEvent]:
        for event in events:
            yield event
        if error is not None:
            raise error
        if hold:
            await anyio.sleep_forever()

    yield generate()


# Streams that fail.


async def test_a_stream_that_cannot_be_entered() -> None:
    """`start` raises the exception. There is no run, even for a reader that has found it, and other runs continue."""

    async def follow(run: Run) -> None:
        with pytest.raises(RunNotFound):
            await read(run.attach())

    @asynccontextmanager
    async def answer() -> AsyncIterator[Any]:
        group.start_soon(follow, (await runs.list("ann"))[0])
        await anyio.wait_all_tasks_blocked()
        async with replay("there/is/none.jsonl") as replayed:
            yield replayed

    async with Runs() as runs, anyio.create_task_group() as group:
        other = await runs.start(held("a"), owner="ann")
        with pytest.raises(RecordingError):
            await runs.start(answer(), owner="ann")
        assert [other] == list(await runs.list("ann"))
        assert not other.ended


@pytest.mark.parametrize("in_group", [True, False])
async def test_the_error_of_a_run_is_logged(in_group: bool) -> None:
    """The error in the log has the type of the exception, the line and the traceback. If the context manager cannot be
    entered, `start` raises the exception instead, and there is no run.
    """

    def look_up(notes: dict[str, str]) -> str:
        return notes["of whoever it was"]

    @asynccontextmanager
    async def answer(enters: bool) -> AsyncIterator[ToolStream]:
        if enters:
            async with ToolStream(Script([STOP])) as events:
                yield events
        if in_group:
            async with anyio.create_task_group():
                look_up({})
        look_up({})

    async with Runs() as runs:
        with structlog.testing.capture_logs() as logs:
            with pytest.raises(ExceptionGroup if in_group else KeyError):
                await runs.start(answer(enters=False), owner="ann", conversation="a", exclusive=True)
            assert [] == list(await runs.list("ann"))
            assert await runs.latest("a", owner="ann") is None
            run = await runs.start(answer(enters=True), owner="ann", conversation="a", exclusive=True)
            with pytest.raises(ExceptionGroup if in_group else KeyError):
                await run.wait()
    (entry,) = logs
    place = f"{__file__}:{look_up.__code__.co_firstlineno + 1}"
    assert ("run_failed", "KeyError", place) == (entry["event"], entry["error"], entry["raised_at"])
    assert "KeyError: 'of whoever it was'" in entry["exception"]
    assert "error" == entry["log_level"]


async def test_a_run_is_not_abandoned_while_its_context_manager_is_entered() -> None:
    """Before `start` returns, the run can have no reader."""

    @asynccontextmanager
    async def answer() -> AsyncIterator[ToolStream]:
        await anyio.sleep(0.1)  # longer than the run may be without a reader
        async with ToolStream(Script([STOP])) as events:
            yield events

    async with Runs(stop_when_abandoned=0.05) as runs:
        run = await runs.start(answer(), owner="ann")
        assert "finished" == (await run.wait()).reason


async def test_a_failed_entry_is_logged_if_the_caller_has_left() -> None:
    entering, failing = anyio.Event(), anyio.Event()

    @asynccontextmanager
    async def answer() -> AsyncIterator[ToolStream]:
        entering.set()
        await failing.wait()
        if failing.is_set():
            raise OSError("no database")
        yield ToolStream(Script())

    async with Runs() as runs, anyio.create_task_group() as group:
        with structlog.testing.capture_logs() as logs:
            group.start_soon(partial(runs.start, answer(), owner="ann"))
            await entering.wait()
            (run,) = await runs.list("ann")
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
                failing.set()
                with pytest.raises(OSError, match="no database"):
                    await run.wait()
    assert ["run_failed"] == [entry["event"] for entry in logs]


@pytest.mark.parametrize("is_yielded", [False, True])
async def test_a_source_that_raises(is_yielded: bool) -> None:
    """Readers get the events of the `ToolStream`, with one error, and each `wait` raises the exception."""

    @asynccontextmanager
    async def answer() -> AsyncIterator[ToolStream]:
        async with ToolStream(Script(texts("a"), KeyError("mine"))) as events:
            yield events

    async with Runs() as runs:
        stream = answer() if is_yielded else ToolStream(Script(texts("a"), KeyError("mine")))
        run = await runs.start(stream, owner="ann")
        events = await read(run.attach())
        for _ in range(2):
            with pytest.raises(KeyError, match="mine"):
                await run.wait()
    told = story(events)
    assert 1 == told.count("error stream_interrupted")
    assert told[-1].startswith("done failed")
    assert "mine" not in str(events)
    server = httpx.ASGITransport(asgi.event_stream_response(answer()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=server, base_url="http://test") as client:
        assert 1 == (await client.get("/")).text.count("event: error")


async def test_an_exception_after_the_last_event() -> None:
    """Readers get `done` after the code of the context manager has run, so they are told."""

    @asynccontextmanager
    async def answer() -> AsyncIterator[ToolStream]:
        async with ToolStream(Script([*texts("a"), STOP])) as events:
            yield events
        raise OSError("not saved")

    async with Runs() as runs:
        run = await runs.start(answer(), owner="ann")
        told = story(await read(run.attach()))
        assert ("error stream_interrupted", True) == (told[-2], told[-1].startswith("done failed"))
        with pytest.raises(OSError, match="not saved"):
            await run.wait()
        assert ("failed", "a") == (run.result.reason, run.result.text)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_stray_cancellation_fails_the_run(anyio_backend: str) -> None:
    """A stream that awaits a cancelled task has failed; it was not stopped."""
    async with Runs() as runs:
        run = await runs.start(giving(error=asyncio.CancelledError()), owner="ann")
        assert BROKEN == story(await read(run.attach()))


async def test_an_exception_for_the_program() -> None:
    """It ends the program, and the run has its end."""

    class Interrupt(BaseException):
        """Like `KeyboardInterrupt`."""

    started = list[Run]()

    async def app() -> None:
        async with Runs() as runs:
            started.append(await runs.start(giving(Text("a"), error=Interrupt()), owner="ann"))
            await anyio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await app()
    assert caught.group_contains(Interrupt)
    assert LEFT == story(await read(started[0].attach()))


# Other streams.


async def test_the_events_of_any_iterator() -> None:
    """The run starts with a `start` with its id, has seqs from 1, and has a result."""
    told: list[UIEvent] = [
        *(Text("a"), Text("b", seq=7), Start("other", seq=7)),
        *(Done("finished", "stop", None, []), Text("late")),
    ]
    async with Runs() as runs:
        run = await runs.start(giving(*told), owner="ann")
        events = await read(run.attach())
        result = await run.wait()
    assert [Start(run.id, seq=1), Text("a", seq=2), Text("b", seq=3)] == events[:3]
    assert [1, 2, 3, 4, 5] == [event.seq for event in events]
    assert ("ab", "finished", "stop") == (result.text, result.reason, result.finish_reason)
    assert result == run.result


async def test_an_end_without_done() -> None:
    """The run has failed, because it may be incomplete. Nothing is raised."""
    async with Runs() as runs:
        run = await runs.start(giving(Text("a")), owner="ann")
        told = story(await read(run.attach()))
        assert ["start", "text 'a'", "error stream_interrupted", "done failed: None (None)"] == told
        assert "failed" == (await run.wait()).reason


async def test_a_stream_that_never_waits() -> None:
    """It yields to other tasks and can be stopped, with a limit for its last events."""

    @asynccontextmanager
    async def answer() -> AsyncIterator[AsyncIterator[UIEvent]]:
        class Endless:
            def __aiter__(self) -> Endless:
                return self

            async def __anext__(self) -> UIEvent:
                return Text("x")

        yield Endless()

    async with Runs(MemoryEventLog(max_events=100)) as runs:
        run = await runs.start(answer(), owner="ann")
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        await run.stop()
        assert "done cancelled: None (None)" == story(await read(run.attach()))[-1]


async def test_a_stream_that_is_closed_on_exit() -> None:
    """A stream that is closed on exit has no more events, which is not an error."""

    @asynccontextmanager
    async def answer() -> AsyncIterator[AsyncIterator[UIEvent]]:
        send, receive = anyio.create_memory_object_stream[UIEvent](1)
        async with send, receive:
            await send.send(Text("a"))
            yield receive

    async with Runs() as runs:
        run = await runs.start(answer(), owner="ann")
        await anyio.wait_all_tasks_blocked()
        await run.stop()
        assert LEFT == story(await read(run.attach()))
        assert "cancelled" == (await run.wait()).reason


@pytest.mark.parametrize("wrong", [None, [Text("a")], object()])
async def test_an_object_that_is_no_stream(wrong: Any) -> None:
    """It raises TypeError."""
    async with Runs() as runs:
        with pytest.raises(TypeError, match="the stream must be a run or a stream"):
            await runs.start(wrong, owner="ann")


async def test_stop_while_the_stream_opens() -> None:
    """Entering is cancelled, and the run has its end."""
    entering = anyio.Event()

    @asynccontextmanager
    async def answer() -> AsyncIterator[ToolStream]:
        entering.set()
        await anyio.sleep_forever()
        yield held("a")

    async with Runs() as runs, anyio.create_task_group() as group:
        group.start_soon(partial(runs.start, answer(), owner="ann"))
        await entering.wait()
        (run,) = await runs.list("ann")
        await run.stop()
        assert ["start", "done cancelled: None (None)"] == story(await read(run.attach()))


# Starting.


async def test_a_start_that_is_cancelled() -> None:
    """There is no run, and the stream is closed."""
    source = Script([STOP])
    async with Runs() as runs:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await runs.start(ToolStream(source), owner="ann")
        assert scope.cancelled_caught
        assert (0, 0, 1) == (runs.running, source.read, source.closed)


async def test_a_refused_stream_that_does_not_close() -> None:
    """Its exception is logged, and the caller gets the reason of the refusal."""

    class Stubborn(Script):
        async def aclose(self) -> None:
            raise OSError("no")

    async with Runs() as runs:
        await runs.aclose()
        with structlog.testing.capture_logs() as logs, pytest.raises(ClosedError):
            await runs.start(ToolStream(Stubborn()), owner="ann")
        assert [("stream_not_closed", "OSError")] == [(each["event"], each["error"]) for each in logs]


# The end of the application.


async def test_the_application_ends_during_a_run() -> None:
    """All runs are stopped and closed, and their readers get `done`."""
    tools, scripts = (
        [WaitingTool() for _ in range(3)],
        [Script([*texts("a ", WAIT), STOP], hold=True) for _ in range(3)],
    )
    taken = list[UIEvent]()
    async with anyio.create_task_group() as group:
        async with Runs() as runs:
            for tool, script in zip(tools, scripts, strict=True):
                run = await runs.start(ToolStream(script, tools=[tool.wait]), owner="ann")
                await tool.running.wait()
            group.start_soon(read, run.attach(), taken)
        assert [1, 1, 1] == [tool.stopped for tool in tools]
        assert [1, 1, 1] == [script.closed for script in scripts]
        assert 0 == runs.running
    assert "done cancelled: stop (None)" == story(taken)[-1]


async def test_the_application_is_cancelled() -> None:
    """The runs end in order, and the exception of the application is raised unchanged."""
    source = Script(texts("a"), hold=True)
    with anyio.CancelScope() as scope:
        async with Runs() as runs:
            run = await runs.start(ToolStream(source), owner="ann")
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.sleep_forever()
    assert 1 == source.closed
    assert "done cancelled: None (None)" == story(await read(run.attach()))[-1]

    async def app() -> None:
        async with Runs() as runs:
            await runs.start(held("a"), owner="ann")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await app()


@pytest.mark.parametrize("reason", ["cancelled", "failed"])
async def test_a_slow_exit_is_cancelled_after_the_grace(reason: str) -> None:
    """Its exit is cancelled after the grace. A whole answer has then failed, because it may not be stored."""
    cancelled = list[str]()

    @asynccontextmanager
    async def answer() -> AsyncIterator[ToolStream]:
        try:
            async with held("a") if reason == "cancelled" else ToolStream(Script([STOP])) as events:
                yield events
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append("cancelled")
            raise

    async with Runs(grace=0.01) as runs:
        run = await runs.start(answer(), owner="ann")
        await anyio.wait_all_tasks_blocked()
        await runs.aclose()
        assert ["cancelled"] == cancelled
    assert story(await read(run.attach()))[-1].startswith(f"done {reason}: ")
    assert reason == run.result.reason


@pytest.mark.filterwarnings("ignore:coroutine 'Runs?\\..* was never awaited")  # asyncio cancelled these tasks
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_tasks_that_are_cancelled_before_their_first_step(anyio_backend: str) -> None:
    """Each run has its end, even if closing another stream raises."""

    class Unclosable:
        def __init__(self, run_id: str) -> None:
            self.run_id = run_id

        async def __aenter__(self) -> AsyncIterator[UIEvent]:
            raise AssertionError("it is never entered")

        async def __aexit__(self, *told: object) -> None:
            raise AssertionError("it is never left")

        async def aclose(self) -> None:
            raise asyncio.CancelledError

    started: list[Run] = []
    others = asyncio.all_tasks()

    async def app() -> None:
        async with Runs() as runs:
            started.extend([await runs.start(Unclosable(each), owner="ann") for each in "ab"])
            for task in asyncio.all_tasks() - others:
                task.cancel()

    task = asyncio.create_task(app())
    await asyncio.wait([task])

    gc.collect()  # what was never begun
    assert (True, [True, True]) == (task.cancelled(), [run.ended for run in started])
    assert 2 * [["start", "done cancelled: None (None)"]] == [story(await read(run.attach())) for run in started]


async def test_readers_get_done_after_the_stream_is_closed() -> None:
    """They get the other events before. State that the stream sets when it is closed is there with `done`."""
    kept: list[str] = []
    may_keep = anyio.Event()

    @asynccontextmanager
    async def answer() -> AsyncIterator[ToolStream]:
        async with ToolStream(Script([*texts("a"), STOP])) as events:
            yield events
        await may_keep.wait()
        kept.append("the history")

    async with Runs() as runs:
        run = await runs.start(answer(), owner="ann")
        async for event in run.attach():
            if isinstance(event, StepEnd):
                assert ([], False) == (kept, run.ended)
                may_keep.set()
        assert (Done, ["the history"]) == (type(event), kept)
        await run.wait()
        assert run.ended
