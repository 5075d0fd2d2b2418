"""Decisions about runs that have ended waiting: later, from another tab, another process, or after a restart."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, cast

import anyio
import anyio.to_thread
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ApprovalOptions, RunnerOptions, TextOptions, ToolContext, ToolRegistry, chat, outputs
from streamtools.conversation import Chat, Fallback, ScriptedModel
from streamtools.errors import ConversationBusy, DecisionRefused, InvalidDecision, RunNotFound
from streamtools.events import Done, Error, NativeToolCall, ProviderCompleted, TextDelta, UIEvent, Usage
from streamtools.history import Assistant, write_messages
from streamtools.outputs import validate
from streamtools.outputs.asgi import Shutdown, serve_websocket
from streamtools.rules import Vault
from streamtools.runs import RedisStore, Run, Runs, log_key
from streamtools.serving import leased_run
from streamtools.serving.event_reader import EventReader
from streamtools.serving.websockets import _MAX_WAITING
from streamtools.stream import ToolStream
from streamtools.tools import (
    Answer,
    Approve,
    Deny,
    Guards,
    MemoryLedger,
    PostgresLedger,
    Question,
    SQLiteLedger,
    Tool,
    ToolResult,
)
from streamtools.tools.approvals import Approvals, parse_decision
from streamtools.tools.redis_client import open_client
from tests.serving.test_asgi_by_hand import Socket
from tests.support.approvals import ANN, QUESTION, Bank, block, calls
from tests.support.examples import examples
from tests.support.patching import with_clock
from tests.support.postgres import postgres_server
from tests.support.redis_server import RedisServer
from tests.support.stories import Script

pytestmark = pytest.mark.trio_deep

PAY = calls(("pay", ANN))
BOTH = calls(("pay", ANN), ("sign", {"text": "Dear Ann"}))


class Site:
    """An application. `open` starts a process of it; all processes share its store, its ledger and its bank."""

    def __init__(self, path: Path, url: str | None) -> None:
        self.bank, self.continued, self.path, self.url = Bank(), 0, path, url
        self.approvals, self.lease = ApprovalOptions(), 5.0
        self.answers: list[Any] = ["Done."]  # of the model, in a continuation
        self.gate: anyio.Event | None = None  # if set, the model waits for it
        self.later = 0.0  # how far the clocks of the application are ahead
        self.opened: list[PostgresLedger] = []

    @property
    def is_redis(self) -> bool:
        return self.url is not None and self.url.startswith("redis:")

    def chat(self, model: ScriptedModel, messages: Any, **options: Any) -> Chat:
        return chat(model, messages, tools=self.bank.tools, approvals=self.approvals, **options)

    def ledger(self) -> Any:
        if self.url is not None and self.url.startswith("postgres"):
            self.opened.append(PostgresLedger(self.url, schema=self.path.name, lease=self.lease))
            return self.opened[-1]
        ledger = SQLiteLedger(self.path / "calls.sqlite", lease=self.lease)
        return with_clock(ledger, lambda: time.time() + self.later)

    def resume(self, run: Run) -> Chat:  # it may be asynchronous, too
        return self.chat(self.model(), run.history, resume=run)

    def model(self) -> ScriptedModel:
        site = self

        class Counted(ScriptedModel):
            def stream(self, *args: Any, **more: Any) -> Any:
                site.continued += 1
                return super().stream(*args, **more)

            @asynccontextmanager
            async def _open(self, deltas: Any) -> AsyncIterator[Any]:
                if site.gate is not None:
                    await site.gate.wait()
                async with super()._open(deltas) as source:
                    yield source

        return Counted(self.answers)

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Runs]:
        store = RedisStore(self.url, prefix=self.path.name, lease=self.lease) if self.is_redis else None
        options.setdefault("clock", lambda: time.monotonic() + self.later)
        async with Runs(store, resume=self.resume, ledger=self.ledger(), **options) as runs:
            yield runs
        for ledger in self.opened:
            await ledger.aclose()

    async def ask(self, runs: Runs, answer: Any = PAY) -> Run:
        stream = self.chat(ScriptedModel([answer]), [QUESTION])
        run = await runs.start(stream, owner="ann", conversation="c", note={"about": "Ann"})
        assert "waiting" == (await run.wait()).reason
        return run


SERVERS = [pytest.param(name, marks=pytest.mark.servers) for name in ("redis", "postgres")]


@pytest.fixture(params=["sqlite", *SERVERS], scope="module")
def url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The URL of Redis or PostgreSQL. With None, runs wait in SQLite."""
    if request.param == "sqlite":
        yield None
    elif request.param == "postgres":
        with postgres_server() as postgres:
            yield postgres.url
    else:
        with RedisServer() as server:
            yield server.url


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for an expired question, and for the end of a run in another process, without a long pause."""
    monkeypatch.setattr("streamtools.serving.runs._RETRY_S", 0.01)
    monkeypatch.setattr("streamtools.serving.waiting_runs._RETRY_S", 0.01)
    monkeypatch.setattr("streamtools.serving.waiting_runs._POLL_S", 0.01)


@pytest.fixture
def site(tmp_path: Path, url: str | None) -> Site:
    return Site(tmp_path, url)


async def read(run: Run) -> str:
    return "".join([event.text async for event in run.attach() if event.type == "text"])


def digest_of(run: Run) -> str:
    assert run.suspension is not None
    return run.suspension.questions[0].digest


async def site_latest(runs: Runs) -> Run:
    latest = await runs.latest("c", owner="ann")
    assert latest is not None
    return latest


async def test_a_forgotten_run_is_gone(site: Site) -> None:
    """No process finds it, so no decision can continue it. The id may be that of a continuation that is not stored."""
    async with site.open() as one, site.open() as two, site.open() as three:
        for suffix in ("", "~"):
            waiting = await site.ask(one)
            while await three.latest("c", owner="ann") is None:  # it is stored after `done`
                await anyio.lowlevel.checkpoint()
            await one.forget(waiting.id + suffix, owner="ann")
            for runs in (one, two):
                with pytest.raises(RunNotFound):
                    await runs.decide(waiting.id, "n0", True, owner="ann")
                assert await runs.latest("c", owner="ann") is None
    assert 0 == site.continued


async def test_a_forgotten_run_uncovers_the_one_before(site: Site) -> None:
    async with site.open() as runs:
        first = await runs.start(site.chat(ScriptedModel(["Hi"]), [QUESTION]), owner="ann", conversation="c")
        await first.wait()
        waiting = await site.ask(runs)
        await (await runs.decide(waiting.id, "n0", True, owner="ann")).wait()
        await runs.forget(waiting.id, owner="ann")
        assert first.id == (await site_latest(runs)).id


async def test_clicks_in_two_processes_start_one_run(site: Site) -> None:
    async with site.open() as one, site.open() as two:
        waiting = await site.ask(one)
        approve, found = Approve(digest_of(waiting)), list[Run]()

        async def click(runs: Runs) -> None:
            found.append(await runs.decide(waiting.id, "n0", approve, owner="ann"))

        async with anyio.create_task_group() as group:
            for runs in (one, two, one, two):
                group.start_soon(click, runs)
        assert 1 == len({waiting.next_id, *(run.id for run in found)})
        async with anyio.create_task_group() as group:
            for run in found:
                group.start_soon(run.wait)
        assert ("Done.", "finished") == (await read(found[0]), found[0].result.reason)
        latest = await site_latest(one)
        assert (waiting.next_id, {"about": "Ann"}) == (latest.id, latest.note)
        with anyio.fail_after(10):
            while two.running or one.running:
                await anyio.lowlevel.checkpoint()
    assert ([("Ann", 5)], 1) == (site.bank.paid, site.continued)


async def test_a_conversation_has_one_run_at_a_time(site: Site) -> None:
    """In each process, an exclusive start needs a conversation in which no run is active or waits for a decision."""

    @asynccontextmanager
    async def broken() -> AsyncIterator[Any]:
        yield 1 / 0

    async with site.open() as one, site.open() as two:
        started, refused = list[Run](), list[str]()

        async def say(runs: Runs, conversation: str | None = "c", **options: Any) -> None:
            stream = site.chat(ScriptedModel([PAY]), [QUESTION], **options)
            try:
                started.append(await runs.start(stream, owner="ann", conversation=conversation, exclusive=True))
            except ConversationBusy as error:
                refused.append(str(error))

        processes = (one, two, one, two) if site.is_redis else (one, one)
        async with anyio.create_task_group() as group:
            for runs in processes:
                group.start_soon(say, runs)
        assert (1, len(processes) - 1) == (len(started), len(refused))
        await started[0].wait()
        while await two.latest("c", owner="ann") is None:  # it is stored after `done`
            await anyio.lowlevel.checkpoint()
        for runs in (one, two):
            refused.clear()
            await say(runs)
            assert ["A call waits for a decision."] == refused
            await say(runs, f"another {len(started)}")
        assert 3 == len(started)
        with pytest.raises(ZeroDivisionError):
            await two.start(broken(), owner="ann", conversation="c")
        assert started[0].id == (await site_latest(two)).id  # the run that could not start hides it in no process
        run = await two.decide(started[0].id, "n0", True, owner="ann")
        await run.wait()
        await say(two)
        await started[-1].wait()
        await started[-1].stop()  # withdraws the question
        await say(two)
        await started[-1].wait()
        await two.forget(started[-1].id, owner="ann")
        storing, stored = anyio.Event(), anyio.Event()

        @asynccontextmanager
        async def store() -> AsyncIterator[Chat]:
            async with chat(ScriptedModel(["Hi"]), [QUESTION]) as events:
                yield events
            storing.set()
            await stored.wait()

        last = await two.start(store(), owner="ann", conversation="c", exclusive=True)
        await storing.wait()
        refused.clear()
        await say(two)
        stored.set()
        assert ["The last answer is still in progress."] == refused
        await last.wait()
        await say(two)
        with pytest.raises(ValueError, match="`exclusive` needs `conversation`"):
            await say(two, None)
    assert 6 == len(started)


async def test_a_question_that_the_application_could_not_save_does_not_wait(site: Site) -> None:
    """The reader gets an error. No decision is accepted, and a new question may start."""

    @asynccontextmanager
    async def unsaved() -> AsyncIterator[Chat]:
        async with site.chat(ScriptedModel([PAY]), [QUESTION]) as events:
            yield events
        raise OSError("not saved")

    async with site.open() as one:
        run = await one.start(unsaved(), owner="ann", conversation="c", exclusive=True)
        types = [event.type async for event in run.attach()]
        with pytest.raises(OSError, match="not saved"):
            await run.wait()
        assert (["error", "done"], "failed", None) == (types[-2:], run.result.reason, run.suspension)
        with pytest.raises(DecisionRefused):
            await one.decide(run.id, "n0", True, owner="ann")
        await one.start(site.chat(ScriptedModel([PAY]), [QUESTION]), owner="ann", conversation="c", exclusive=True)
    assert [] == site.bank.paid


async def test_a_run_that_a_tool_stops_does_not_wait(site: Site) -> None:
    """It is found, decisions are refused, and a new question may start."""
    (tool,) = (each for each in site.bank.tools if each.name == "look")
    vars(tool)["function"] = lambda: ToolResult(model="enough", stop=True)
    async with site.open() as one:
        run = await one.start(
            site.chat(ScriptedModel([calls(("pay", ANN), ("look", {}))]), [QUESTION]), owner="ann", conversation="c"
        )
        assert ("stopped", None) == ((await run.wait()).reason, run.suspension)
        assert ([], run) == (await run.questions(), await one.find(run.id, owner="ann"))
        with pytest.raises(DecisionRefused):
            await one.decide(run.id, "n0", True, owner="ann")
        await one.start(ToolStream(Script([])), owner="ann", conversation="c", exclusive=True)


async def test_a_stop_ends_a_run_whose_continuation_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its conversation is free again, and no later decision continues it. A continuation that has begun stays."""
    async with site.open() as one, site.open() as two:
        waiting = await site.ask(one)
        with monkeypatch.context() as patch:
            patch.setattr(Site, "chat", lambda *args, **options: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await two.decide(waiting.id, "n0", True, owner="ann")
            with pytest.raises(ConversationBusy):
                await one.start(ToolStream(Script([])), owner="ann", conversation="c", exclusive=True)
            await (await two.find(waiting.id, owner="ann")).stop()
        for runs in (one, two):
            assert waiting.id == (await runs.find(waiting.id, owner="ann")).id
            assert waiting.id == (await runs.decide(waiting.id, "n0", True, owner="ann")).id
        await (await one.start(site.chat(ScriptedModel(["Hi"]), [QUESTION]), owner="ann", conversation="c")).wait()

        waiting = await site.ask(one)
        await (await one.decide(waiting.id, "n0", True, owner="ann")).wait()
        await waiting.stop()
        assert waiting.next_id == (await one.find(waiting.id, owner="ann")).id
    assert ([("Ann", 5)], 1) == (site.bank.paid, site.continued)


async def test_a_stop_while_the_continuation_is_made(tmp_path: Path, url: str | None) -> None:
    class Stopping(Site):
        async def resume(self, run: Run) -> Chat:  # type: ignore[override]
            await run.stop()
            return self.chat(self.model(), run.history, resume=run)

    site = Stopping(tmp_path, url)
    async with site.open() as one, site.open() as two:
        waiting = await site.ask(one)
        assert waiting.id == (await two.decide(waiting.id, "n0", True, owner="ann")).id
        assert "cancelled" == (await one.find(waiting.id, owner="ann")).result.reason
    assert ([], 0) == (site.bank.paid, site.continued)


async def test_a_stopped_run_is_cancelled_everywhere(site: Site) -> None:
    """In each list, for a reader that has not received `done` yet, and after a restart."""
    async with site.open() as one, site.open() as two:
        for reading, stopping in ((one, one), (one, two), (two, one)):
            waiting = await site.ask(one)
            assert ["waiting"] * 2 == [(await runs.list("ann"))[0].result.reason for runs in (one, two)]
            async with (await reading.find(waiting.id, owner="ann")).attach() as events:
                assert "start" == (await anext(events)).type
                await (await stopping.find(waiting.id, owner="ann")).stop()
                assert ["cancelled"] == [event.reason async for event in events if isinstance(event, Done)]
            assert ["cancelled"] * 2 == [(await runs.list("ann"))[0].result.reason for runs in (one, two)]
    async with site.open() as runs:
        for run in ((await runs.list("ann"))[0], await site_latest(runs), await runs.find(waiting.id, owner="ann")):
            assert (waiting.id, True, "cancelled") == (run.id, run.ended, run.result.reason)
            assert [] == await run.questions()


async def test_a_question_survives_a_shutdown_with_a_reader(site: Site) -> None:
    """It still waits, although the reader has not received all events."""
    async with site.open() as runs:
        waiting = await site.ask(runs)
        await EventReader(waiting).shut_down()
        assert 1 == len(await waiting.questions())
    async with site.open() as runs:
        assert "waiting" == (await runs.find(waiting.id, owner="ann")).result.reason
        await (await runs.decide(waiting.id, "n0", True, owner="ann")).wait()
    assert [("Ann", 5)] == site.bank.paid


async def test_a_stop_while_the_question_is_saved(site: Site) -> None:
    """The application's code runs to its end. Then no question waits, also after a restart."""
    storing, stored = anyio.Event(), anyio.Event()

    @asynccontextmanager
    async def store() -> AsyncIterator[Chat]:
        async with site.chat(ScriptedModel([PAY]), [QUESTION]) as events:
            yield events
        storing.set()
        await stored.wait()

    async with site.open() as one, site.open() as two, anyio.create_task_group() as group:
        run = await one.start(store(), owner="ann")
        await storing.wait()
        found = await two.find(run.id, owner="ann") if site.is_redis else run
        group.start_soon(found.stop)
        while not run._is_stopped:
            await anyio.lowlevel.checkpoint()
        stored.set()
        events = [event async for event in found.attach()]
        validate(events)
        assert "cancelled" == cast("Done", events[-1]).reason == (await run.wait()).reason
        assert (None, []) == (run.suspension, await run.questions())
    async with site.open() as three:
        assert ["cancelled"] * site.is_redis == [each.result.reason for each in await three.list("ann")]


async def test_a_read_of_done_that_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it asks the ledger for decisions: the next read returns `done`. Without the ledger, the run still waits."""
    site, asked = Site(tmp_path, None), anyio.Event()
    async with site.open() as runs:
        waiting = await site.ask(runs)
        assert runs._waiting is not None

        async def block(*given: Any) -> Any:
            asked.set()
            await anyio.sleep_forever()

        async def fail(*given: Any) -> Any:
            raise OSError("no connection")

        async with waiting.attach() as events:
            monkeypatch.setattr(runs._waiting, "decide", block)
            async with anyio.create_task_group() as group:
                group.start_soon(list_of, events)
                await asked.wait()
                group.cancel_scope.cancel()
            monkeypatch.setattr(runs._waiting, "decide", fail)
            assert ["waiting"] == [cast("Done", event).reason async for event in events]


async def list_of(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


async def test_a_run_cannot_wait_for_itself() -> None:
    """Its context manager gets an error in place of a deadlock."""
    refused = list[str]()
    async with Runs() as runs:

        @asynccontextmanager
        async def store() -> AsyncIterator[Chat]:
            async with chat(ScriptedModel(["Hi"]), [QUESTION], run_id="run_1") as events:
                yield events
            for end in (run.wait, run.stop, lambda: runs.forget(run.id, owner="ann"), runs.aclose):
                try:
                    await end()
                except RuntimeError as error:
                    refused.append(str(error))

        run = await runs.start(store(), owner="ann")
        assert "finished" == (await run.wait()).reason
    assert ["The context manager of a run cannot wait for the end of this run. Use another task."] * 4 == refused


async def test_an_earlier_run_of_a_conversation_refuses_an_exclusive_one(site: Site) -> None:
    """It is active or waits, and a later run has ended."""
    async with site.open() as runs:
        gate = anyio.Event()

        async def say(*model: Any, exclusive: bool = False) -> Run:
            stream = site.chat(ScriptedModel(*model), [QUESTION])
            return await runs.start(stream, owner="ann", conversation="c", exclusive=exclusive)

        @asynccontextmanager
        async def slow() -> AsyncIterator[Chat]:
            async with site.chat(ScriptedModel(["Hi"]), [QUESTION]) as events:
                yield events
            await gate.wait()

        active = await runs.start(slow(), owner="ann", conversation="c")
        await (await say(["Hi"])).wait()
        with pytest.raises(ConversationBusy, match="in progress"):
            await say(["Hi"], exclusive=True)
        gate.set()
        await active.wait()
        waiting = await site.ask(runs)
        await (await say(["Hi"])).wait()
        with pytest.raises(ConversationBusy, match="waits for a decision"):
            await say(["Hi"], exclusive=True)
        await (await runs.decide(waiting.id, "n0", False, owner="ann")).wait()
        assert "finished" == (await (await say(["Hi"], exclusive=True)).wait()).reason


async def test_a_stop_without_resume_frees_the_conversation() -> None:
    async with Runs() as runs:
        run = await runs.start(
            chat(ScriptedModel([PAY]), [QUESTION], tools=Bank().tools), owner="ann", conversation="c"
        )
        await run.wait()
        await run.stop()
        events = [event async for event in run.attach()]
        assert ["cancelled"] == [event.reason for event in events if isinstance(event, Done)]
        await runs.start(chat(ScriptedModel(["Hi"]), [QUESTION]), owner="ann", conversation="c", exclusive=True)


async def test_restarts_before_the_decision_and_after_the_continuation(site: Site) -> None:
    """The events are there again for a reader, and the run is the last of its conversation. A second click returns the
    run that has ended, and it can still be read.
    """
    async with site.open() as runs:
        waiting = await site.ask(runs)
    async with site.open() as runs:
        latest = await site_latest(runs)
        assert [[], [waiting.id]] == [[each.id for each in await runs.list("ann", limit=most)] for most in (0, 9)]
        assert (waiting.id, {"about": "Ann"}, True) == (latest.id, latest.note, latest.ended)
        kinds = [event.type async for event in latest.attach()]
        assert ["approval-requested", "step-end", "done"] == kinds[-3:]
        run = await runs.decide(waiting.id, "n0", Approve(digest_of(latest)), owner="ann")
        assert "Done." == await read(run)
        await run.wait()
    async with site.open() as runs:
        assert {run.id, waiting.id} == {each.id for each in await runs.list("ann")}
        again = await runs.decide(waiting.id, "n0", Approve(), owner="ann")
        assert (run.id, "Done.") == (again.id, await read(again))
    assert ([("Ann", 5)], 1) == (site.bank.paid, site.continued)


async def test_wrong_decisions_are_refused_with_the_reason(site: Site) -> None:
    async with site.open() as runs:
        waiting = await site.ask(runs)
        refused: list[tuple[str, str, Any, str, type[Exception], str]] = [
            ("run_other", "n0", True, "ann", RunNotFound, "There is no run 'run_other'"),
            (waiting.id, "n0", True, "bob", RunNotFound, "There is no run"),
            (waiting.id, "n7", True, "ann", DecisionRefused, "call 'n7' does not wait for a decision"),
            (waiting.id, "n0", Approve("other"), "ann", DecisionRefused, "is not the call that was shown"),
            (waiting.id, "n0", Approve(cast("str", True)), "ann", TypeError, "digest must be a str"),
            (waiting.id, "n0", Deny(cast("str", 1)), "ann", TypeError, "reason must be a str"),
            (waiting.id, "n0", Answer(1), "ann", DecisionRefused, "waits for Approve or Deny, got Answer"),
            (waiting.id, "n0", None, "ann", ValueError, "must be Approve, Deny, Answer, True or False"),
            (waiting.id, "n0", "approve", "ann", ValueError, "JSON of a client, write parse_decision"),
        ]
        for run_id, call_id, decision, owner, kind, words in refused:
            with pytest.raises(kind, match=words):
                await runs.decide(run_id, call_id, decision, owner=owner)
        run = await runs.decide(waiting.id, "n0", Deny("not now"), owner="ann")
        for run_id in (run.id, waiting.id):
            for decision in (True, Approve("other"), Answer(1)):
                with pytest.raises(DecisionRefused, match="call 'n0' was denied; this decision is ignored"):
                    await runs.decide(run_id, "n0", decision, owner="ann")
            assert run.id == (await runs.decide(run_id, "n0", False, owner="ann")).id
            with pytest.raises(DecisionRefused, match="does not wait for a decision"):
                await runs.decide(run_id, "n7", True, owner="ann")
        assert "the call of tool 'pay' was denied: not now" == (await run.wait()).outcomes[0].message
    assert ([], 1) == (site.bank.paid, site.continued)


async def expiry_of(waiting: Run) -> None:
    assert waiting.suspension is not None
    while waiting.suspension.seconds_left(time.time()) > 0:
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_expired_question_continues_the_run_with_what_was_decided(
    site: Site, restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process continues it by itself; after a restart, the next reader does. The expired call says that it is."""
    site.approvals = ApprovalOptions(timeout=60)
    clock = time.time
    async with site.open() as runs:
        waiting = await site.ask(runs, BOTH)
        assert waiting is await runs.decide(waiting.id, "n0", True, owner="ann")
        monkeypatch.setattr(time, "time", lambda: clock() + 60 * (not restarts))
        if not restarts:
            with anyio.fail_after(20):
                while not site.continued:
                    await anyio.lowlevel.checkpoint()
                run = await runs.find(waiting.next_id, owner="ann")
                await run.wait()
    if restarts:
        monkeypatch.setattr(time, "time", lambda: clock() + 60)
        async with site.open() as runs:
            with pytest.raises(DecisionRefused, match="the question about call 'n1' has expired"):
                await runs.decide(waiting.id, "n1", Answer({"page": 1}), owner="ann")
            run = await site_latest(runs)
            await run.wait()
    paid, signed = run.result.outcomes
    assert ("paid 5 to Ann", "tool_denied") == (paid.result, signed.error)
    assert "the call of tool 'sign' was denied: the approval timed out before a decision arrived" == signed.message
    assert ([("Ann", 5)], 1) == (site.bank.paid, site.continued)


async def test_a_question_outlives_keep(site: Site) -> None:
    """A run without questions is kept for `keep`; one that waits until its questions expire."""
    clock = iter(range(0, 10**9, 1000)).__next__
    async with site.open(keep=1, clock=clock) as runs:
        waiting = await site.ask(runs)
        run = await runs.decide(waiting.id, "n0", True, owner="ann")
        await run.wait()
    assert [("Ann", 5)] == site.bank.paid


async def test_a_question_outlives_keep_without_a_ledger(caplog: pytest.LogCaptureFixture) -> None:
    """The runs around it are forgotten in time. The log says that its calls have no ledger."""
    now = 0.0
    async with Runs(keep=60, clock=lambda: now) as runs:
        ended = list[Run]()
        for answer in ("Hi.", PAY, "Hi."):
            ended.append(await runs.start(chat(ScriptedModel([answer]), [QUESTION], tools=Bank().tools), owner="ann"))
            await ended[-1].wait()
        now = 60.0
        assert [ended[1]] == await runs.list("ann")
        now = 86_399.0
        assert ended[1] is await runs.find(ended[1].id, owner="ann")
        now = 86_461.0
        assert [] == await runs.list("ann")
    logged = [record.getMessage().partition(" ")[0] for record in caplog.records]
    assert ["approval_without_ledger"] == logged


async def test_a_chat_with_another_ledger_than_its_run_is_refused() -> None:
    """Its model is not asked. A view of the ledger is no other ledger, and a chat in a tool is no part of the run."""
    ledger, other = MemoryLedger(), MemoryLedger()

    async def delegate(context: ToolContext) -> str:
        """Ask another model."""
        options: Any = {"tools": Bank().tools, "runner": RunnerOptions(ledger=context.state)}
        return (await chat(ScriptedModel([calls(("look", {})), "Looked."]), [QUESTION], **options)).text

    async with Runs(ledger=ledger) as runs:
        for given, inner in ((None, other), (ledger.of("ann"), None)):
            model, runner = ScriptedModel([calls(("delegate", {})), "Done."]), RunnerOptions(ledger=given, state=inner)
            run = await runs.start(chat(model, [QUESTION], tools=[delegate], runner=runner), owner="ann")
            assert ["Looked."] == [each.result for each in (await run.wait()).outcomes]
        found = [(each.call.name, each.owner) for each in [*await ledger.entries(), *await other.entries()]]
        assert [("delegate", ""), ("delegate", "ann"), ("look", "")] == found
        model = ScriptedModel(["Hi."])
        run = await runs.start(chat(model, [QUESTION], runner=RunnerOptions(ledger=other)), owner="ann")
        with pytest.raises(ValueError, match="has another ledger than its `Runs`"):
            await run.wait()
    assert 1 == model.left


@pytest.mark.parametrize("url", [pytest.param("redis", marks=pytest.mark.servers)], indirect=True)
async def test_redis_keeps_a_waiting_run_until_its_questions_expire(site: Site) -> None:
    """A later run of the user does not shorten the time for which the conversation is found."""
    async with site.open() as runs:
        waiting = await site.ask(runs)
        await (await runs.start(site.chat(ScriptedModel(["Hi."]), [QUESTION]), owner="ann", conversation="d")).wait()
        async with open_client(site.url) as client:
            stem = f"{site.path.name}:{{{log_key('ann', waiting.id)}}}:"
            names = [stem + "log", stem + "meta", f"{site.path.name}:{{{log_key('ann', '')}}}:conversations"]
            assert all([86_400_000 < await client.execute("PTTL", name) <= 87_000_000 for name in names])
            await (await runs.decide(waiting.id, "n0", True, owner="ann")).wait()
            assert [True, True] == [0 < await client.execute("PTTL", name) <= 600_000 for name in names[:2]]


async def test_a_run_whose_stream_asks_now_is_decided_itself(site: Site) -> None:
    """A second click has no effect, and a contradiction is refused: while the run waits, and after its end."""
    site.approvals = ApprovalOptions(ask="now")
    async with site.open() as one, site.open() as two:
        other = two if site.is_redis else one

        async def click_twice(digest: str | None) -> None:
            for runs in (one, other):
                assert run.id == (await runs.decide(run.id, "n0", Approve(digest), owner="ann")).id
                with pytest.raises(DecisionRefused, match="call 'n0' was approved; this decision") as refused:
                    await runs.decide(run.id, "n0", False, owner="ann")
                assert "already_decided" == refused.value.code

        run = await one.start(site.chat(ScriptedModel([PAY, "Paid."]), [QUESTION]), owner="ann")
        async for event in run.attach():
            if event.type == "approval-requested":
                await click_twice(event.digest)
        await run.wait()
        await click_twice(None)
    assert [("Ann", 5)] == site.bank.paid


async def test_a_question_that_cannot_be_stored_is_an_error(tmp_path: Path) -> None:
    """If a question cannot be stored, no reader waits for its decision."""

    async def fail(*given: Any) -> None:
        raise OSError("the disk is full")

    site = Site(tmp_path, None)
    async with site.open() as runs:
        vars(runs._ledger)["save_run"] = fail
        run = await runs.start(site.chat(ScriptedModel([PAY]), [QUESTION]), owner="ann")
        read = [event async for event in run.attach()]
        validate(read)
        assert ["step-end", "error", "done"] == [event.type for event in read[-3:]]
        assert "failed" == (await run.wait()).reason
        with pytest.raises(DecisionRefused):
            await runs.decide(run.id, "n0", True, owner="ann")


async def test_a_history_that_json_cannot_hold_is_an_error(site: Site) -> None:
    """No other process could decide about it."""
    async with site.open() as runs:
        stream = site.chat(ScriptedModel([PAY]), [{"role": "user", "content": "Pay \ud800"}])
        run = await runs.start(stream, owner="ann")
        assert ["step-end", "error", "done"] == [event.type async for event in run.attach()][-3:]
        assert "failed" == (await run.wait()).reason


async def test_an_end_that_takes_too_long_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction is undone. The run has ended with an error, so no process may find its question."""
    monkeypatch.setattr("streamtools.serving.run._STORE_TIMEOUT_S", 0.01)
    site, may_end = Site(tmp_path, None), threading.Event()
    async with site.open() as one, site.open() as two:
        assert one._waiting is not None
        ledger, began, left = one._waiting._ledger, threading.Event(), threading.Event()
        transact = ledger._transact  # type: ignore[attr-defined]

        def wait(work: Any, **options: Any) -> Any:
            def waiting(db: Any) -> Any:
                began.set()
                done = work(db)
                may_end.wait()
                return done

            try:
                return transact(waiting if "save_run" in work.__qualname__ else work, **options)
            finally:
                left.set()

        monkeypatch.setattr(ledger, "_transact", wait)
        run = await one.start(site.chat(ScriptedModel([PAY]), [QUESTION]), owner="ann")
        assert "failed" == (await run.wait()).reason
        left.clear()
        may_end.set()
        if began.is_set():  # the transaction is also cancelled if its thread starts too late
            await anyio.to_thread.run_sync(left.wait)
        with pytest.raises(RunNotFound):
            await two.find(run.id, owner="ann")


class Managed:
    """Makes each chat of a continuation in a context manager, which `Runs.start` takes, too."""

    def __init__(self, site: Site, fault: str = "") -> None:
        self.site, self.fault, self.entered, self.stored = site, fault, 0, list[Any]()
        self.runs: Runs | None = None  # finds the continuation before its `yield`, if set

    @asynccontextmanager
    async def __call__(self, run: Run) -> AsyncIterator[Chat]:
        self.entered += 1
        try:
            if self.fault == "early":
                raise RuntimeError("no database")
            if self.runs is not None:
                self.stored.append((await self.runs.find(run.id, owner="ann")).id)
            resumed: Any = {} if self.fault == "wrong" else {"resume": run}
            async with self.site.chat(self.site.model(), run.history, **resumed) as events:
                yield events
            self.stored.append(events.result.text)
        finally:
            self.entered -= 1


@pytest.mark.parametrize("fault", ["wrong", "early"])
async def test_resume_may_return_a_context_manager(site: Site, fault: str) -> None:
    """It is closed if it yields another chat, and the stored decision can be made again."""
    broken, fixed = Managed(site, fault), Managed(site)
    async with site.open() as runs:
        waiting, runs._resume = await site.ask(runs), broken
        kind, text = (TypeError, "must continue the run") if fault == "wrong" else (RuntimeError, "no database")
        for _ in range(2):
            with pytest.raises(kind, match=text):
                await runs.decide(waiting.id, "n0", True, owner="ann")
            assert (0, 0) == (broken.entered, runs.running)
            assert waiting.id == (await runs.find(waiting.next_id, owner="ann")).id
        runs._resume, fixed.runs = fixed, runs
        with anyio.fail_after(20):
            run = await runs.decide(waiting.id, "n0", True, owner="ann")
        assert waiting.next_id == run.id
        await run.wait()
        assert [run.id, "Done."] == fixed.stored
        assert "Done." == await read(await runs.find(waiting.id, owner="ann"))
    assert [("Ann", 5)] == site.bank.paid


async def test_an_expired_question_continues_with_a_context_manager(site: Site) -> None:
    site.approvals = ApprovalOptions(timeout=0.001)
    broken, fixed = Managed(site, "wrong"), Managed(site)
    tried = list[Run]()

    def resume(run: Run) -> Any:
        tried.append(run)
        return (broken if len(tried) < 3 else fixed)(run)

    async with site.open() as runs:
        runs._resume = resume
        await site.ask(runs)
        with anyio.fail_after(20):
            while not fixed.stored:
                await anyio.lowlevel.checkpoint()
        assert ["Done."] == fixed.stored
    assert [] == site.bank.paid


def kill(*given: object, **more: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


async def die(site: Site, when: str) -> None:
    """Kill this process when it has sent `done`, resumes the run, pays, or requests the answer."""

    async def pay(to: str, amount: int) -> str:
        (site.path / "paid").touch()
        return str(kill())

    if when == "tool":
        (tool,) = (each for each in site.bank.tools if each.name == "pay")
        tool.function = pay
    model = ScriptedModel([])
    model.stream = kill  # type: ignore[method-assign]
    for name, breaks in {"resume": kill, "model": lambda: model}.items():
        if when == name:
            setattr(site, name, breaks)
    async with site.open() as runs:
        run = await runs.start(site.chat(ScriptedModel([PAY]), [QUESTION]), owner="ann", conversation="c")
        async for event in run.attach():
            if event.type == "done":
                (site.path / "run").write_text(run.id)
                if when == "done":
                    kill()
        await (await runs.decide(run.id, "n0", True, owner="ann")).wait()


@pytest.mark.parametrize(
    "when", ["done", "tool", *(pytest.param(each, marks=pytest.mark.deep) for each in ("resume", "model"))]
)
async def test_a_killed_process(site: Site, when: str) -> None:
    """After `done`, the question is stored. Later, a reader gets the events of the question, then of one answer.

    The reader may arrive before the lease of the process has expired, and the decision need not be made again.
    """
    program = "import anyio, sys\nfrom pathlib import Path\nfrom tests.serving.test_deciding import Site, die\n"
    program += "path, url, when = sys.argv[1:]\nanyio.run(die, Site(Path(path), url or None), when)"
    command = [sys.executable, "-c", program, str(site.path), site.url or "", when]
    assert -signal.SIGKILL == (await anyio.run_process(command, check=False)).returncode
    run_id = (site.path / "run").read_text()
    async with site.open() as runs:
        if when == "done":
            waiting = await runs.find(run_id, owner="ann")
            assert "waiting" == waiting.result.reason
            run = await runs.decide(run_id, "n0", Approve(digest_of(waiting)), owner="ann")
        else:
            run = await runs.find(run_id + "~", owner="ann")
            site.later = site.lease  # a ledger in SQLite sees that the lease of the dead process has expired
            assert run.id == (await runs.find(run_id, owner="ann")).id
        with anyio.fail_after(30):
            read = [event async for event in run.attach()]
        validate(read)
        kinds = [event.type for event in read]
        assert [1, 1, 1] == [kinds.count(kind) for kind in ("start", "approval-requested", "done")]
        assert ("text", "finished") == (kinds[-3], (await run.wait()).reason)
        assert run.id == (await runs.decide(run_id, "n0", True, owner="ann")).id
        (outcome,) = run.result.outcomes
    paid = (outcome.result, outcome.error)
    assert ((None, "outcome_unknown") if when == "tool" else ("paid 5 to Ann", None)) == paid
    assert (int(when in ("done", "resume")), 1) == (len(site.bank.paid), site.continued)


async def until_executed(run: Run) -> int:
    async with run.attach() as events:
        async for event in events:
            if event.type == "executed":
                return event.seq
    return 0


@pytest.mark.parametrize("is_found", [False, True])
async def test_a_stop_withdraws_the_questions_of_a_waiting_run(site: Site, is_found: bool) -> None:
    """Nothing continues it: no later decision, no lookup, and no deadline."""
    async with site.open(keep=100_000) as one, site.open(keep=100_000) as two:
        waiting = await site.ask(one, BOTH)
        await one.decide(waiting.id, "n0", True, owner="ann")
        await (await two.find(waiting.id, owner="ann") if is_found else waiting).stop()
        for runs in (one, two):
            with pytest.raises(DecisionRefused, match="the run that asked about call 'n1' was stopped"):
                await runs.decide(waiting.id, "n1", Answer({"page": 1}), owner="ann")
            assert waiting.id == (await runs.decide(waiting.id, "n0", True, owner="ann")).id
            site.later += 90_000
            found = await runs.find(waiting.id, owner="ann")
            assert (waiting.id, "cancelled") == (found.id, found.result.reason)
            events = [event async for event in found.attach()]
            validate(events)
            assert ["cancelled"] == [event.reason for event in events if isinstance(event, Done)]
    assert ([], 0) == (site.bank.paid, site.continued)


@pytest.mark.parametrize("by_follower", [False, True])
async def test_a_stop_by_the_user_is_final(site: Site, by_follower: bool) -> None:
    """Here, in another process, and after a restart: the same decision does not continue the run again."""
    site.gate = anyio.Event()
    async with site.open() as one, site.open() as two:
        waiting = await site.ask(one)
        run = await one.decide(waiting.id, "n0", True, owner="ann")
        await until_executed(run)
        stopped = await two.find(waiting.id, owner="ann") if by_follower else run
        assert by_follower == (stopped is not run)
        await stopped.stop()
        assert run.ended or by_follower
        with anyio.fail_after(20):
            assert "cancelled" == (await run.wait()).reason
            found = await two.find(waiting.id, owner="ann")
            assert (run.id, "cancelled") == (found.id, (await found.wait()).reason)
    site.gate.set()
    async with site.open() as runs:
        again = await runs.decide(waiting.id, "n0", True, owner="ann")
        assert (run.id, "cancelled") == (again.id, (await again.wait()).reason)
    assert ([("Ann", 5)], 1) == (site.bank.paid, site.continued)


async def test_a_continuation_that_is_cut_is_continued_elsewhere(site: Site) -> None:
    """A process that closes does not end it. The tool is not run again: the ledger has its result.

    A reader of the first process gets all events again. Its last event is not one of the continued run.
    """
    site.gate, site.lease = anyio.Event(), 1.0
    async with site.open() as runs:
        waiting = await site.ask(runs)
        position = await until_executed(await runs.decide(waiting.id, "n0", True, owner="ann"))
    site.gate.set()
    async with site.open() as runs:
        run = await runs.decide(waiting.id, "n0", True, owner="ann")
        site.later = site.lease
        with anyio.fail_after(20):
            assert (waiting.next_id, "finished") == (run.id, (await run.wait()).reason)
        events = [event async for event in run.attach()]
        validate(events)
        late = [event async for event in run.attach(position)]
        assert site.url or ["resync", *events] == [getattr(late[0], "code", None), *late[1:]]
        assert events[2:] == [event async for event in run.attach(2)]
    assert ([("Ann", 5)], 2) == (site.bank.paid, site.continued)


@pytest.mark.parametrize("url", [pytest.param("redis", marks=pytest.mark.servers)], indirect=True)
async def test_a_process_that_drains_leaves_the_run_to_another(site: Site) -> None:
    site.gate, site.lease = anyio.Event(), 0.6
    shutdown, taken = Shutdown(60.0), list[str]()
    async with site.open(shutdown=shutdown) as two:
        assert two._store is not None
        (process,) = two._store.processes.values()
        claim = process.claim

        async def note(key: str, epoch: int | None = None) -> Any:
            taken.append(key)
            return await claim(key, epoch)

        process.claim = note  # type: ignore[method-assign]
        shutdown.begin()
        async with site.open() as one:
            waiting = await site.ask(one)
            await until_executed(await one.decide(waiting.id, "n0", True, owner="ann"))
        site.gate.set()
        with anyio.fail_after(20):
            async with site.open() as three:
                run = await three.find(waiting.id, owner="ann")
                assert (waiting.next_id, "finished") == (run.id, (await run.wait()).reason)
    assert ([], [("Ann", 5)]) == (taken, site.bank.paid)


async def test_the_calls_of_a_continuation_are_not_repeated(site: Site) -> None:
    """If its process closes after the model has made a call of its own, the run ends with an error."""
    site.lease, site.answers = 1.0, [calls(("look", {})), "Done."]
    blocked = anyio.Event()
    looked = []

    async def look() -> str:
        looked.append(1)
        await blocked.wait()
        return "looked"

    (tool,) = (each for each in site.bank.tools if each.name == "look")
    tool.function = look
    async with site.open() as runs:
        waiting = await site.ask(runs)
        await runs.decide(waiting.id, "n0", True, owner="ann")
        while not looked:
            await anyio.lowlevel.checkpoint()
    blocked.set()
    async with site.open() as runs:
        with anyio.fail_after(20):
            run = await runs.find(waiting.id, owner="ann")
            site.later = site.lease
            assert (waiting.next_id, "failed") == (run.id, (await run.wait()).reason)
        read = [event async for event in run.attach()]
        validate(read)
        assert ["error", "step-end", "done"] == [event.type for event in read[-3:]]
        assert "stream_interrupted" == getattr(read[-3], "code", None)
    assert ([("Ann", 5)], 1, 1) == (site.bank.paid, site.continued, len(looked))


async def test_a_follower_survives_a_failure_of_the_ledger(tmp_path: Path) -> None:
    """The end is that of the process that continues the run. The text of the question is there once."""
    site = Site(tmp_path, None)
    site.gate = anyio.Event()
    async with site.open() as one, site.open() as two:
        waiting = await site.ask(one)
        await until_executed(await one.decide(waiting.id, "n0", True, owner="ann"))
        assert two._waiting is not None
        find_run, failures = two._waiting._ledger.find_runs, list[str]()

        async def fail_twice(*given: Any) -> Any:
            if len(failures) < 2:
                failures.append("failed")
                raise OSError("no connection")
            return await find_run(*given)

        run = await two.find(waiting.id, owner="ann")
        two._waiting._ledger.find_runs = fail_twice  # type: ignore[method-assign,assignment]
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(run.wait)
                while len(failures) < 2:
                    await anyio.lowlevel.checkpoint()
                site.gate.set()
            assert (waiting.next_id, "finished") == (run.id, (await run.wait()).reason)
        there = await one.find(waiting.id, owner="ann")
        assert [event async for event in there.attach()] == [event async for event in run.attach()]
    assert ([("Ann", 5)], 1) == (site.bank.paid, site.continued)


async def test_a_stopped_run_of_a_process_that_hangs_is_cancelled(tmp_path: Path) -> None:
    site = Site(tmp_path, None)
    site.gate, site.lease = anyio.Event(), 0.3

    async def fail(*given: Any) -> Any:
        raise OSError("no connection")

    async with site.open() as one, site.open() as two:
        waiting = await site.ask(one)
        run = await one.decide(waiting.id, "n0", True, owner="ann")
        await until_executed(run)
        vars(one._ledger)["change_run"] = fail
        follower = await two.find(run.id, owner="ann")
        with anyio.fail_after(20):
            await follower.stop()
        assert "cancelled" == follower.result.reason
        site.gate.set()
        await run.wait()
        found = await two.find(waiting.id, owner="ann")
        assert (run.id, "cancelled") == (found.id, (await found.wait()).reason)
    assert ([("Ann", 5)], 1) == (site.bank.paid, site.continued)


async def test_a_run_whose_readers_are_in_another_process_is_not_abandoned(tmp_path: Path) -> None:
    site = Site(tmp_path, None)
    site.gate, site.lease = anyio.Event(), 0.3
    async with site.open() as one, site.open(stop_when_abandoned=0) as two:
        waiting = await site.ask(one)
        run = await two.decide(waiting.id, "n0", True, owner="ann")
        assert "cancelled" == (await run.wait()).reason
        site.gate.set()
        with anyio.fail_after(20):
            found = await one.find(run.id, owner="ann")
            assert (run.id, "finished") == (found.id, (await found.wait()).reason)
    assert [("Ann", 5)] == site.bank.paid


async def test_a_run_that_another_process_forgets_ends(tmp_path: Path) -> None:
    """It is not stored again, and its process makes few requests about the run."""
    site = Site(tmp_path, None)
    site.gate, site.lease = anyio.Event(), 0.3
    async with site.open() as one, site.open() as two:
        waiting = await site.ask(one)
        run = await one.decide(waiting.id, "n0", True, owner="ann")
        await until_executed(run)
        await two.forget(waiting.next_id, owner="ann")
        with anyio.fail_after(20):
            assert "cancelled" == (await run.wait()).reason
        for runs in (one, two):
            for run_id in (waiting.id, waiting.next_id):
                with pytest.raises(RunNotFound):
                    await runs.find(run_id, owner="ann")


@pytest.mark.parametrize("later", [601, 700, 90_000])
async def test_an_ended_continuation_is_not_started_again(tmp_path: Path, later: float) -> None:
    """When it is no longer kept, neither is the run that waited. No process shows the question again."""
    site = Site(tmp_path, None)
    async with site.open() as one, site.open() as two:
        waiting = await site.ask(one)
        assert waiting.id == (await two.find(waiting.id, owner="ann")).id
        await (await one.decide(waiting.id, "n0", True, owner="ann")).wait()
        site.later = later
        for runs in (one, two):
            for run_id in (waiting.next_id, waiting.id):
                with pytest.raises(RunNotFound):
                    await runs.find(run_id, owner="ann")
            with pytest.raises(RunNotFound):
                await runs.decide(waiting.id, "n0", True, owner="ann")
    assert ([("Ann", 5)], 1) == (site.bank.paid, site.continued)


async def test_a_run_is_kept_as_long_as_its_continuation(site: Site) -> None:
    """The continuation waits for a second decision; both ids lead to it."""
    site.answers = [calls(("pay", {"to": "Bob", "amount": 7}))]
    async with site.open(keep=1) as one, site.open(keep=1) as two:
        waiting = await site.ask(one)
        run = await one.decide(waiting.id, "n0", True, owner="ann")
        assert "waiting" == (await run.wait()).reason
        if site.is_redis:
            async with open_client(site.url) as client:
                meta = f"{site.path.name}:{{{log_key('ann', waiting.id)}}}:meta"
                assert 86_000_000 < await client.execute("PTTL", meta)
        site.later = 3_600
        for runs in (one, two):
            for run_id in (waiting.id, run.id):
                assert run.id == (await runs.find(run_id, owner="ann")).id


async def test_a_long_run_is_continued(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its events are written again, although a process may not have so many events that are not written yet."""
    turn: Any = PAY
    async with site.open() as runs:
        waiting = await site.ask(runs, [*(f"word {number} " for number in range(300)), *turn])
        monkeypatch.setattr(leased_run, "_MAX_PENDING_EVENTS", 20)
        run = await runs.decide(waiting.id, "n0", True, owner="ann")
        assert "finished" == (await run.wait()).reason
        assert "Done." == (await read(run))[-5:]


async def test_a_reader_of_the_question_gets_all_events_of_the_continuation(site: Site) -> None:
    """Also in another process, and after a restart: its last event may be one of the waiting run. The continuation is
    the latest run, until another one waits.
    """
    async with site.open() as one, site.open() as two:
        waiting = await site.ask(one)
        last = [event.seq async for event in waiting.attach()][-1]
        await (await one.decide(waiting.id, "n0", True, owner="ann")).wait()
        for runs in (one, two):
            run = await runs.find(waiting.id, owner="ann")
            for after in (last, last - 1, last - 2):
                assert "executed" in [event.type async for event in run.attach(after)]
            assert run.id == (await site_latest(runs)).id
        assert (await site.ask(one)).id == (await site_latest(two)).id


async def test_an_id_that_is_used_again(tmp_path: Path) -> None:
    """The old question and its decisions do not count for the new run, which fails."""
    site = Site(tmp_path, None)
    async with site.open() as one:
        stream = site.chat(ScriptedModel([BOTH]), [QUESTION], run_id="run_1")
        await (await one.start(stream, owner="ann")).wait()
        await one.decide("run_1", "n0", True, owner="ann")
    async with site.open() as two:
        run = await two.start(site.chat(ScriptedModel([BOTH]), [QUESTION], run_id="run_1"), owner="ann")
        assert "failed" == (await run.wait()).reason
    assert [] == site.bank.paid


async def test_an_id_of_many_continuations_costs_two_requests(tmp_path: Path) -> None:
    site = Site(tmp_path, None)
    async with site.open() as runs:
        assert runs._waiting is not None
        find_run, asked = runs._waiting._ledger.find_runs, list[Any]()

        async def count(*given: Any) -> Any:
            asked.append(given)
            return await find_run(*given)

        runs._waiting._ledger.find_runs = count  # type: ignore[method-assign,assignment]
        with pytest.raises(RunNotFound):
            await runs.find("~" * 4_000, owner="ann")
        assert 2 == len(asked)


async def pass_by(*given: object) -> None:
    """Do nothing."""


async def test_a_process_that_cannot_continue_a_run_writes_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, None)
    site.gate, site.lease, site.approvals = anyio.Event(), 60.0, ApprovalOptions(timeout=60)
    async with site.open() as one, site.open() as two:
        waiting = await site.ask(one)
        assert one._waiting is not None
        one._waiting.keep_lease = pass_by  # type: ignore[method-assign,assignment]
        await until_executed(await one.decide(waiting.id, "n0", True, owner="ann"))
        site.later = 10
        with closing(sqlite3.connect(tmp_path / "calls.sqlite")) as db:
            # Without the time of the lease, which the first process may renew meanwhile.
            rows = "SELECT run_id, data, json_extract(CAST(state AS text), '$.holder') FROM waiting_runs"
            before = db.execute(rows).fetchall()
            assert waiting.next_id == (await two.find(waiting.id, owner="ann")).id
            assert before == db.execute(rows).fetchall() != []
        site.gate.set()


async def test_an_expired_question_stays_denied(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose clock is slow refuses the decision, too, so a second attempt has the same decisions."""
    site.approvals = ApprovalOptions(timeout=0.001)
    async with site.open() as one, site.open() as two:
        waiting = await site.ask(one)
        await expiry_of(waiting)
        await (await one.find(waiting.id, owner="ann")).wait()
        monkeypatch.setattr(Question, "has_expired", lambda question, now: False)
        with pytest.raises(DecisionRefused, match="has expired"):
            await two.decide(waiting.id, "n0", True, owner="ann")
    assert [] == site.bank.paid


async def test_a_run_continues_when_its_last_undecided_question_expires(site: Site) -> None:
    """The question that expires last is decided before."""
    async with site.open() as runs:
        waiting = await site.ask(runs, BOTH)
        assert waiting is await runs.decide(waiting.id, "n0", True, owner="ann")
        assert waiting.suspension is not None
        questions: Any = waiting.suspension.questions
        questions[1] = msgspec.structs.replace(questions[1], expires=time.time() - 1)
        with anyio.fail_after(20):
            while not site.continued:
                await anyio.lowlevel.checkpoint()
            found = await runs.find(waiting.next_id, owner="ann")
            assert ["paid 5 to Ann", None] == [each.result for each in (await found.wait()).outcomes]


def test_a_decision_has_no_unknown_fields() -> None:
    for text in ('"approve","digset":"5a"', '"deny","result":1', '"answer","reason":"no"'):
        with pytest.raises(InvalidDecision, match="unknown field"):
            parse_decision('{"decision":' + text + "}")
    for body in (b"", b"{", b"\xff", b'"deny"'):
        with pytest.raises(InvalidDecision, match=r'; write {"decision": "approve"}, "deny" or "answer"'):
            parse_decision(body)


async def test_resume_needs_a_place_for_waiting_runs(tmp_path: Path) -> None:
    site = Site(tmp_path, None)
    with pytest.raises(ValueError, match=r"write Runs\(resume=resume, ledger=ledger\)"):
        Runs(resume=site.resume)
    async with Runs() as runs:
        waiting = await site.ask(runs)
        with pytest.raises(ValueError, match="only `resume` can continue it"):
            await runs.decide(waiting.id, "n0", True, owner="ann")


KINDS = ["pay", "payfail", "payhalt", "look", "halt", "sign", "paysign"]
COST = ProviderCompleted(finish_reason="tool_calls", usage=Usage(input=3))


class Rounds(Site):
    """An application whose model gives the next of `steps`. Its tools and options are random."""

    def __init__(self, path: Path, url: str | None, rng: Random) -> None:
        super().__init__(path, url)
        self.rng, self.ran, self.made = rng, Counter[int](), list[Chat]()
        places, in_text, self.steps = count(), rng.random() < 0.3, list[list[Any]]()
        for step in range(rng.randint(1, 4)):
            kinds = rng.choices(KINDS, (6, 1, 0.4, 3, 0.4, 3, 1), k=rng.choice((1, 1, 2, 3)))
            made = [NativeToolCall(kind, {"place": (n := next(places))}, str(n), f"n{n}") for kind in kinds]
            told = [TextDelta("\n" + block(str(each.name), json.dumps(each.arguments))) for each in made]
            self.steps.append([TextDelta(f"{step} "), *(told if in_text else made), COST])
        self.steps.append([TextDelta("Done."), COST])
        self.bank.tools = ToolRegistry(*map(self.tool, KINDS))
        self.approvals = ApprovalOptions(ask=rng.choice(("later", "later", "now")), timeout=rng.choice((None, 60.0)))
        self.options: Any = {"runner": RunnerOptions(execute=rng.choice(("completed", "eager")))}
        self.options["guards"] = rng.choice((None, None, Guards(calls=2), Guards(tokens=5), Guards(failed_turns=1)))
        self.options |= {"text": TextOptions(vault=rng.choice((None, Vault()))), "max_steps": rng.choice((20, 20, 2))}
        self.broken, self.fails, self.native = rng.choice((0, 1)), rng.choice((0, 0, 0.2)), False if in_text else None

    def tool(self, kind: str) -> Tool[..., Any]:
        async def run(place: int) -> ToolResult:
            self.ran[place] += 1
            await self.pause()
            return ToolResult(model=1 / 0 if kind == "payfail" else f"result {place}.", stop="halt" in kind)

        return Tool(run, name=kind, requires_approval="pay" in kind, client="sign" in kind, trust="text")

    async def pause(self) -> None:
        for _ in range(self.rng.choice((1, 1, 20))):
            await anyio.lowlevel.checkpoint()

    @asynccontextmanager
    async def answer(self, run: Run | None = None) -> AsyncIterator[Chat]:
        """Make a chat, and save its messages, which may fail."""
        one, two = (ScriptedModel([[OSError()]] * 9, native_tool_calls=self.native) for _ in range(2))
        vars(two)["stream"] = lambda ask: two._open(self.steps[sum(isinstance(a, Assistant) for a in ask.history)])
        history, more = (run.history, {"resume": run}) if run else ([QUESTION], {})
        async with self.chat(Fallback(*[one] * self.rng.randrange(2), two), history, **self.options, **more) as events:  # type: ignore[arg-type]
            self.made.append(events)
            yield events
        await self.pause()
        if self.rng.random() < self.fails:
            raise OSError("not saved")

    def resume(self, run: Run) -> Any:
        self.broken -= 1
        return self.answer(run) if self.broken else 1 / 0


async def play(site: Rounds, rng: Random, stack: AsyncExitStack) -> None:
    """Start a run, decide about its calls, and check what its last reader sees."""
    decided, is_stopped = dict[tuple[str, bool], Any](), False
    runs = await stack.enter_async_context(site.open())
    run = await runs.start(site.answer(), owner="ann", conversation="c", exclusive=True)
    first = run.id
    while not run.ended or (run.suspension is not None and not run._is_withdrawn):
        await site.pause()
        act, asked = rng.random(), await run.questions()
        if act < 0.1 and asked and run.ended:
            await stack.aclose()
            runs = await stack.enter_async_context(site.open())
        elif act < 0.12:
            is_stopped = True
            await run.stop()
        elif act < 0.17 and site.approvals.timeout and asked and run.ended:
            decided |= {(each.call.id, each.approval): Deny("late") for each in asked}
            site.later += 61
        elif asked:
            question = rng.choice(asked)
            good = (Approve(question.digest), Deny()) if question.approval else (Answer("result"), Answer(error="no"))
            given = rng.choices((*good, Approve("other")), (6, 2, 1))[0]
            try:
                for _ in range(1 if site.approvals.ask == "now" else rng.choice((1, 2))):
                    with suppress(ZeroDivisionError):
                        await runs.decide(rng.choice((first, run.id)), question.call.id, given, owner="ann")
                decided[question.call.id, question.approval] = given
            except DecisionRefused:
                found = await runs.find(run.id, owner="ann")
                assert given == Approve("other") or found.result.reason in ("failed", "stopped"), found
        run = await runs.find(run.id, owner="ann")
    validate(events := [event async for event in run.attach()])
    after, done = rng.choice(events[:-1]).seq, cast("Done", events[-1])
    begin = run._copied if 0 < run._copied < after <= run._copied + 2 else after
    assert [each for each in events if each.seq > begin] == [each async for each in run.attach(after)]
    assert (await site_latest(runs)).result.reason == run.result.reason == done.reason
    assert len(await runs.list("ann")) == len(run.id) - len(run.id.rstrip("~")) + 1
    text = "".join(event.text for event in events if event.type == "text").replace("\n", "")
    assert "".join(f"{n} " for n in range(len(site.steps) - 1)).startswith(text.replace("Done.", ""))
    used = sum(event.usage.input or 0 for event in events if event.type == "usage")
    assert used == 3 * len(re.findall(r"\d |Done", text)) or is_stopped
    ended = Counter(event.call.id for event in events if event.type in ("executed", "error") and event.call is not None)
    assert {1} >= {*ended.values(), *site.ran.values()}
    for call in (event.call for event in events if event.type == "call"):
        has_result = any(event.type == "executed" and event.call.id == call.id for event in events)
        denied, ran = isinstance(decided.get((call.id, True)), Deny), site.ran[call.arguments["place"]]
        assert ran == 0 if denied else ran == 1 or not has_result or "sign" in call.name
        assert call.id in ended or call in done.pending
    free = site.options["guards"] is None and site.options["max_steps"] > 2 and not is_stopped and not site.fails
    if free and not any("halt" in repr(step) for step in site.steps):
        assert ("finished", [], "Done.") == (done.reason, done.pending, text[-5:])
    for made in site.made[-1:] if not done.pending else ():
        assert all(write_messages(made.history, kind) for kind in ("openai", "anthropic", "gemini"))
    await runs.start(ToolStream(Script([COST])), owner="ann", conversation="c", exclusive=True)


@examples(6)
@given(rng=st.integers(0, 2**40).map(Random))
def test_any_rounds_of_decisions(url: str | None, rng: Random) -> None:
    """Each approved call runs once, a denied one never, and a reader gets each event and text once."""

    async def main() -> None:
        with anyio.fail_after(30), TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
            site, clock = Rounds(Path(path), url, rng), time.time
            patch.setattr(time, "time", lambda: clock() + site.later)
            moved = partial(Approvals, clock=time.time)
            patch.setattr("streamtools.stream.tool_stream.Approvals", moved)
            async with AsyncExitStack() as stack:
                await play(site, rng, stack)

    anyio.run(main, backend="asyncio" if url else rng.choice(("asyncio", "trio")))


async def test_the_last_decision_of_several_starts_the_run(site: Site) -> None:
    """They may arrive in different processes. Before the last one, the waiting run is returned."""
    async with site.open() as one:
        waiting = await site.ask(one, BOTH)
        assert waiting.suspension is not None
        assert waiting.suspension.questions == await waiting.questions()
        with pytest.raises(DecisionRefused, match=r"write `await runs.decide\(run.id"):
            await waiting.approve("n0")
        assert waiting.id == (await one.decide(waiting.id, "n1", Answer({"page": 1}), owner="ann")).id
        with pytest.raises(DecisionRefused, match="was answered; this"):
            await one.decide(waiting.id, "n1", Answer({"page": 2}), owner="ann")
    async with site.open() as two:
        with pytest.raises(DecisionRefused, match=r"'n7' does not wait for a decision; these wait: 'n0'$"):
            await two.decide(waiting.id, "n7", True, owner="ann")
        assert ["n0"] == [each.call.id for each in await (await two.find(waiting.id, owner="ann")).questions()]
        run = await two.decide(waiting.id, "n0", True, owner="ann")
        with pytest.raises(DecisionRefused, match="'n0' was approved; this"):
            await two.decide(waiting.id, "n0", Approve("other"), owner="ann")
        assert ["paid 5 to Ann", {"page": 1}] == [each.result for each in (await run.wait()).outcomes]
    assert ([("Ann", 5)], 1) == (site.bank.paid, site.continued)


class Page(Socket):
    """A websocket whose client waits for frames."""

    heard = anyio.Event()

    async def send(self, message: Any) -> None:
        await super().send(message)
        self.heard.set()

    async def hear(self, last: str) -> list[Any]:
        """Return the frames up to one whose JSON contains `last`, and remove them."""
        while True:
            self.heard = anyio.Event()
            texts = [message["text"] for message in self.sent]
            if count := next((place for place, text in enumerate(texts, 1) if last in text), 0):
                del self.sent[:count]
                return [json.loads(text) for text in texts[:count]]
            await self.heard.wait()


def own(event: UIEvent) -> Any:
    """An own protocol. An error about a frame has its code in `raw`."""
    return {"refused": event.raw, "call": event.call_id} if isinstance(event, Error) else json.loads(event.to_json())


@pytest.mark.parametrize("is_own", [False, True])
async def test_decisions_over_a_websocket(site: Site, is_own: bool) -> None:
    """The client gets the events of the continuation after those that it has, once. A stop also ends a waiting run."""
    async with site.open() as runs, anyio.create_task_group() as group:
        waiting, page = await site.ask(runs, BOTH), Page()
        options: Any = {"runs": runs, "owner": "ann", "format": outputs.custom(own) if is_own else None}

        async def decide(*given: Any, **named: Any) -> Run:
            decided.append(run := await Runs.decide(runs, *given, **named))
            return run

        decided, vars(runs)["decide"] = list[Run](), decide

        def say(call_id: str, decision: str, run_id: str = waiting.id, **fields: Any) -> None:
            page.say(json.dumps({"call_id": call_id, "decision": decision, "run_id": run_id, **fields}))

        def converse(message: Any, session: Any) -> Any:
            return runs.start(site.chat(ScriptedModel([PAY]), [QUESTION]), owner="ann")

        with anyio.fail_after(20):
            group.start_soon(partial(serve_websocket, page, converse, **options))
            say("n1", "answer", result={"page": 1})
            assert ["waiting"] == [frame["reason"] for frame in await page.hear("}")]
            wrong = ("wrong_digest", {"digest": "other"}, "its digest differs")
            for code, more, told in (wrong, ("run_not_found", {"run_id": "other"}, "There is no run 'other'")):
                say("n0", "approve", **more)
                (frame,) = await page.hear(code)
                said = frame if is_own else frame["error"]
                assert is_own or told in said.pop("message")
                assert [code, "n0"] == [*said.values()]
            site.gate = anyio.Event()
            for _ in range(2 * _MAX_WAITING):  # none is dropped
                say("n1", "answer", result={"page": 1})
            for _ in range(2 * _MAX_WAITING):
                assert ["waiting"] == [frame["reason"] for frame in await page.hear('"done"')]
            say("n0", "approve", digest=digest_of(waiting))
            frames = await page.hear('"executed"')
            decided.clear()
            say("n0", "approve", digest=digest_of(waiting))  # while the continuation is being sent
            while not decided:
                await anyio.lowlevel.checkpoint()
            site.gate.set()
            frames += await page.hear('"done"')
            say("n0", "approve", digest=digest_of(waiting))
            run = await runs.find(waiting.id, owner="ann")
            events = [json.loads(event.to_json()) async for event in run.attach(run._copied)]
            events = [event for event in events if event["type"] != "follow-up"]
            assert (waiting.next_id, events) == (run.id, frames)
            assert frames[-1:] == await page.hear('"done"')  # for the second click
            say("n0", "deny")
            assert 1 == len(await page.hear("already_decided"))  # nothing was sent twice
            for known in (frames[2], frames[-1]):
                page.say(json.dumps({"resume": known["seq"], "run_id": waiting.id}))
            assert frames[3:] == await page.hear('"done"')
            assert frames[-1:] == await page.hear('"done"')  # which the client has already
            page.say("{}")
            asked = await page.hear('"waiting"')
            for run_id in ("other", waiting.id, asked[0]["run_id"]):  # the first two stop nothing, without an answer
                page.say(json.dumps({"cancel": True, "run_id": run_id}))
            assert ["cancelled"] == [frame["reason"] for frame in await page.hear('"done"')]
            say("n0", "approve", asked[0]["run_id"])
            assert 1 == len(await page.hear("stopped"))

            site.approvals = ApprovalOptions(ask="now")
            run = await runs.start(site.chat(ScriptedModel([PAY, "Done."]), [QUESTION]), owner="ann")
            while not (questions := await run.questions()):
                await anyio.lowlevel.checkpoint()
            page.say(json.dumps({"resume": 0, "run_id": run.id}))
            say(questions[0].call.id, "approve", run.id)  # in one burst: the run waits for it
            assert "finished" == (await page.hear('"done"'))[-1]["reason"]
            page.say("{}")
            run_id = (await page.hear('"start"'))[0]["run_id"]
            for _ in range(5 * _MAX_WAITING):  # an impatient user
                page.say(json.dumps({"cancel": True, "run_id": run_id}))
            assert "cancelled" == (await page.hear('"done"'))[-1]["reason"]
            page.say("{}")
            await page.hear('"approval-requested"')  # the websocket is open
        group.cancel_scope.cancel()
    assert ([("Ann", 5)] * 2, 1) == (site.bank.paid, site.continued)
