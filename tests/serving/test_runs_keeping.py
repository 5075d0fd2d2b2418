"""Which runs exist: found by their owners alone, limited in number, kept for a time."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from streamtools import ToolStream, chat
from streamtools.conversation import ScriptedModel
from streamtools.errors import ClosedError, RunNotFound, StreamToolsError, TooManyRuns
from streamtools.events import ProviderCompleted
from streamtools.runs import MemoryEventLog, Runs
from streamtools.tools import MemoryLedger
from tests.serving.test_runs import held, read
from tests.support.approvals import QUESTION, Bank, block
from tests.support.options import grouped
from tests.support.stories import Script, story, texts

STOP = ProviderCompleted(finish_reason="stop")
PAID = '{"to":"Ann","amount":5}'


async def test_another_owners_run_is_not_found() -> None:
    """The error is the same as for a run that never existed."""
    async with Runs() as runs:
        run = await runs.start(held("a"), owner="ann")
        told = list[str]()
        for run_id, owner in (
            *((run.id, "bob"), ("run_never", "bob"), (run.id, ""), (f"ann/{run.id}", ""), (f"/{run.id}", "ann")),
            ("", "ann"),
        ):
            with pytest.raises(RunNotFound) as caught:
                await runs.find(run_id, owner=owner)
            assert isinstance(caught.value, StreamToolsError | LookupError)
            told.append(str(caught.value).replace(repr(run_id), "ID"))
        assert {"There is no run ID."} == set(told)
        assert run is await runs.find(run.id, owner="ann")


async def test_the_conversation_of_another_owner() -> None:
    """Only the owner finds the last run of a conversation."""
    now = 0.0
    async with Runs(keep=10, clock=lambda: now) as runs:
        first = await runs.start(held("a"), owner="ann", conversation="c", note=7)
        theirs = await runs.start(held("b"), owner="bob", conversation="c")
        await runs.start(held("d"), owner="ann")
        assert (first, theirs) == (await runs.latest("c", owner="ann"), await runs.latest("c", owner="bob"))
        for conversation, owner in (("c", "eve"), ("ann/c", ""), ("/c", "ann"), (first.id, "ann")):
            assert await runs.latest(conversation, owner=owner) is None
        assert ("c", 7) == (first.conversation, first.note)

        await first.stop()
        assert first is await runs.latest("c", owner="ann")
        second = await runs.start(held("e"), owner="ann", conversation="c")
        await second.stop()
        now = 9.0
        assert second is await runs.latest("c", owner="ann")
        now = 10.0
        assert await runs.latest("c", owner="ann") is None
        assert theirs is await runs.latest("c", owner="bob")
        assert 2 == len(runs._runs)


async def test_a_suspension_is_kept_with_its_run() -> None:
    """The suspension and the history are kept with the run."""
    bank = Bank()
    async with Runs() as runs:
        streams = [
            chat(ScriptedModel([answer]), [QUESTION], tools=bank.tools) for answer in (block("pay", PAID), "No.")
        ]
        asks, says = [await runs.start(each, owner="ann", conversation="c") for each in streams]
        assert [None, None] == [asks.suspension, says.suspension]
        await asks.wait()
        await says.wait()
        assert asks.suspension is not None
        assert (["pay"], streams[0].history) == ([call.name for call in asks.suspension.calls], asks.history)
        assert (None, []) == (says.suspension, says.history)

        (call,) = asks.suspension.calls
        options: Any = {"resume": asks.suspension, "decisions": {call.id: True}, "ledger": MemoryLedger()}
        again = chat(ScriptedModel(["Done."]), asks.history, tools=bank.tools, **grouped(**options))
        await (await runs.start(again, owner="ann", conversation="c")).wait()
    assert [("Ann", 5)] == bank.paid


async def test_run_ids_are_unique_for_each_owner() -> None:
    """One owner may not, and the second stream is closed."""
    async with Runs() as runs:
        for name in ("ann", "bob"):
            await runs.start(ToolStream(Script([*texts(name), STOP]), run_id="r"), owner=name)
        for name in ("ann", "bob"):
            result = await (await runs.find("r", owner=name)).wait()
            assert name == result.text
        source = Script([STOP])
        with pytest.raises(ValueError, match="The owner already has a run 'r'"):
            await runs.start(ToolStream(source, run_id="r"), owner="ann")
        assert (0, 1) == (source.read, source.closed)


@pytest.mark.parametrize("owner", [None, 5, b"ann", ""])
async def test_an_owner_must_be_a_string_that_is_not_empty(owner: Any) -> None:
    """A refused stream is closed."""
    source = Script([STOP])
    async with Runs() as runs:
        with pytest.raises(ValueError if owner == "" else TypeError, match="`owner` must"):
            await runs.start(ToolStream(source), owner=owner)
    assert (0, 1, 0) == (source.read, source.closed, runs.running)


async def test_ids_cannot_be_guessed() -> None:
    """They are unique and have at least 96 random bits. A stream in a context manager has the id of its run."""
    entered = set[str]()

    @asynccontextmanager
    async def answer() -> AsyncIterator[ToolStream]:
        async with ToolStream(Script([STOP])) as events:
            entered.add(events.run_id)
            yield events

    async with Runs() as runs:
        ids = {(await runs.start(ToolStream(Script([STOP])), owner="ann")).id for _ in range(20)}
        others = [await runs.start(answer(), owner="ann") for _ in range(20)]
        for run in others:
            await run.wait()
    assert (entered, 40) == ({run.id for run in others}, len(ids | entered))
    assert all(re.fullmatch(r"run_[\w-]{16,}", each) for each in ids | entered)


async def test_too_many_runs() -> None:
    """The next run is refused and its stream closed. An ended run makes room."""
    async with Runs(max_running=2, max_per_owner=1) as runs:
        first = await runs.start(held("a"), owner="ann")
        await runs.start(held("a"), owner="bob")
        for owner, code in (("cy", "too_many_runs"), ("bob", "too_many_runs_of_owner")):
            source = Script([STOP])
            with pytest.raises(TooManyRuns, match="reached max_") as refused:
                await runs.start(ToolStream(source), owner=owner)
            assert (code, 0, 1) == (refused.value.code, source.read, source.closed)
        await first.stop()
        await runs.start(held("a"), owner="cy")
        assert 2 == runs.running


async def test_ended_runs_are_kept_for_a_time() -> None:
    """Afterwards they and their events are gone. A running one is always kept."""
    clock = [0.0]
    log = MemoryEventLog()
    async with Runs(log, keep=10, clock=lambda: clock[0]) as runs:
        going = await runs.start(held("a"), owner="ann")
        ended = await runs.start(ToolStream(Script([STOP])), owner="ann")
        await ended.wait()
        clock[0] = 9.9
        assert ended is await runs.find(ended.id, owner="ann")
        clock[0] = 10.0
        with pytest.raises(RunNotFound):
            await runs.find(ended.id, owner="ann")
        with pytest.raises(RunNotFound):
            await read(ended.attach())
        assert going is await runs.find(going.id, owner="ann")
        assert 1 == len(log)
        again = ToolStream(Script([STOP]), run_id=ended.id)
        assert "finished" == (await (await runs.start(again, owner="ann")).wait()).reason


async def test_only_some_ended_runs_are_kept() -> None:
    """The last ones are kept."""
    async with Runs(max_kept=2) as runs:
        ended = []
        for _ in range(4):
            ended.append(await runs.start(ToolStream(Script([STOP])), owner="ann"))
            await ended[-1].wait()
        for run in ended[:2]:
            with pytest.raises(RunNotFound):
                await runs.find(run.id, owner="ann")
        for run in ended[2:]:
            assert run is await runs.find(run.id, owner="ann")


async def test_a_run_is_forgotten() -> None:
    """It is stopped, and its events are gone; only its owner can do that."""
    log = MemoryEventLog()
    async with Runs(log) as runs:
        run = await runs.start(held("a"), owner="ann", conversation="c")
        with pytest.raises(RunNotFound):
            await runs.forget(run.id, owner="eve")
        await runs.forget(run.id, owner="ann")
        assert (0, 0) == (runs.running, len(log))
        assert ([], None) == (await runs.list("ann"), await runs.latest("c", owner="ann"))
        with pytest.raises(RunNotFound):
            await runs.forget(run.id, owner="ann")


@pytest.mark.parametrize(
    "bounds", [{"max_running": 0}, {"keep": -1}, {"max_kept": -1}, {"grace": -1}, {"stop_when_abandoned": -1}]
)
def test_invalid_limits(bounds: dict[str, Any]) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=f"{next(iter(bounds))} must be .*got {next(iter(bounds.values()))}"):
        Runs(**bounds)


async def test_runs_start_only_inside_the_context() -> None:
    """Otherwise `start` raises and closes the stream. Ended runs can still be read."""
    runs, sources = Runs(), [Script([STOP]) for _ in range(3)]
    with pytest.raises(ClosedError):
        await runs.start(ToolStream(sources[0]), owner="ann")
    async with runs:
        with pytest.raises(ClosedError):
            await runs.__aenter__()
        run = await runs.start(ToolStream(sources[1]), owner="ann")
        await run.wait()
    with pytest.raises(ClosedError):
        await runs.start(ToolStream(sources[2]), owner="ann")
    with pytest.raises(ClosedError):
        await runs.__aenter__()
    assert [1, 1, 1] == [source.closed for source in sources]
    assert "done finished: stop (None)" == story(await read((await runs.find(run.id, owner="ann")).attach()))[-1]
    unused = Runs()
    await unused.aclose()
