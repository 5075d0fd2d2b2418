"""Runs on Redis whose process crashes or closes. Another process continues them, and their readers stay connected."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from streamtools import ApprovalOptions, RunnerOptions, chat
from streamtools import events as kinds
from streamtools.conversation import Chat, ScriptedModel
from streamtools.errors import Code, OwnerUnreachable
from streamtools.outputs import validate
from streamtools.runs import LostRun, RedisStore, Run, Runs
from streamtools.serving import redis_store
from streamtools.stream.reading import awaited
from streamtools.tools import Approve, MemoryLedger, Tool, ToolContext
from streamtools.tools.redis_client import open_client
from tests.chat.test_continued_chat import ANSWERS, ASK, Interruptible, forecast, native, text_of, weather
from tests.serving.test_asgi_websockets import conversing, hear, say, talking
from tests.support.approvals import ANN, QUESTION, Bank, calls
from tests.support.collected import collecting
from tests.support.cut_client import CutClient
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.asyncio_only, pytest.mark.servers]

LEASE = 1.0  # seconds, so long that a process on a busy machine renews it in time


class Site:
    """Two processes that share runs. The first one, `here`, can be cut off. `losses` are the runs that were lost."""

    def __init__(self, server: RedisServer, prefix: str, make: Callable[..., Any], **options: Any) -> None:
        self.make = make
        self.losses: list[LostRun] = []
        self._shared = {name: options.pop(name, None) for name in ("resume", "ledger")}
        self._server = server
        self._options: dict[str, Any] = {"prefix": prefix, "lease": LEASE, "recover": self.recover, **options}

    async def recover(self, lost: LostRun) -> Any:
        self.losses.append(lost)
        return await awaited(self.make(continue_from=lost))

    @asynccontextmanager
    async def processes(self) -> AsyncIterator[tuple[Runs, Runs]]:
        async with open_client(self._server.url) as client:
            self.cut = CutClient(client)
            async with self.store(self._server.url) as there, self.store(self.cut) as here:
                yield here, there

    def store(self, client: object) -> Runs:
        return Runs(RedisStore(client, **self._options), **self._shared)

    async def read(self, is_at: Callable[[kinds.UIEvent, Run], Awaitable[bool]]) -> list[kinds.UIEvent]:
        """Start a run, and cut its process off at an event. Returns the events that a reader in the other gets."""
        events: list[kinds.UIEvent] = []
        async with self.processes() as (here, there):
            run = await here.start(self.make(), owner="ann", conversation="c", note={"asked": "Hello?"})
            found = await there.find(run.id, owner="ann")
            with anyio.fail_after(20):
                async for event in found.attach():
                    events.append(event)
                    if not self.losses and await is_at(event, run):
                        self.cut.cut()
                self.cut.restore()
                await run.stop()
            assert events == [event async for event in (await there.find(run.id, owner="ann")).attach()]
            assert (await found.wait()).text == text_of(events)
        validate(events)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        return events


def weather_chat(name: str, most: float = math.inf) -> Callable[..., Any]:
    """Return a function that makes a chat. The model of the first chat stops after `most` events."""

    def make(**more: Any) -> Any:
        model = Interruptible(ANSWERS[name], "vllm", most=math.inf if more else most)
        return chat(model, ASK, tools=[weather, forecast], **more)

    return make


@asynccontextmanager
async def managed(make: Any, *given: Any, **options: Any) -> Any:
    async with make(*given, **options) as events:
        yield events


def takeovers(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the values of the log records about runs that were taken over, without those of the old process."""
    found = [record.__dict__ for record in caplog.records if record.getMessage().startswith("run_taken_over ")]
    return [each["streamtools"] for each in found if "gap" in each["streamtools"]]


async def is_last(event: kinds.UIEvent, run: Run) -> bool:
    return event.seq == run._journal.last


@pytest.mark.parametrize(("idempotent", "is_known"), [(False, True), (True, True), (True, False)])
async def test_a_tool_of_a_crashed_process(
    server: RedisServer, prefix: str, idempotent: bool, is_known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs again only if it is idempotent, with the same id. Otherwise, or without it, its outcome is unknown."""
    ids: list[str] = []
    begun = anyio.Event()

    async def slow(context: ToolContext) -> str:
        """Work."""
        ids.append(context.call_id)
        begun.set()
        if len(ids) == 1:
            await anyio.sleep_forever()
        return "done"

    async def is_running(event: kinds.UIEvent, run: Run) -> bool:
        if is_executing := isinstance(event, kinds.Executing):
            await begun.wait()
        return is_executing

    def make(**more: Any) -> Any:
        model = ScriptedModel(["Done."] if more else [calls(("slow", {}))])
        return chat(model, ASK, tools=[Tool(slow, idempotent=idempotent)] if is_known or not more else [], **more)

    with collecting() as collected, caplog.at_level("INFO", "streamtools.serving"):
        events = await Site(server, prefix, make).read(is_running)

    runs_again = idempotent and is_known
    assert ids == ["n0"] * (2 if runs_again else 1)
    for name in ("runs.lost", "runs.recovered", "calls.unknown"):
        assert 1 == collected.total(f"streamtools.{name}")
    (logged,) = takeovers(caplog)
    assert LEASE <= logged["gap"]
    assert {"handed_over": False, "steps": 1, "unknown_calls": ["slow:n0"]}.items() <= logged.items()
    assert logged["owner_hash"] == hashlib.sha256(b"ann").hexdigest()[:16]
    (end,) = [event for event in events if isinstance(event, kinds.Executed | kinds.Error)]
    assert isinstance(end, kinds.Executed) == runs_again
    assert isinstance(end, kinds.Executed) or end.code is Code.OUTCOME_UNKNOWN
    assert text_of(events) == "Done."


async def test_a_tool_that_ended_after_the_crash(server: RedisServer, prefix: str) -> None:
    """The ledger has its outcome: under the id of the run, although a context manager makes the chat."""
    ran, may_end = list[int](), anyio.Event()

    async def slow() -> str:
        """Work."""
        ran.append(1)
        await may_end.wait()
        return "done"

    async def is_running(event: kinds.UIEvent, run: Run) -> bool:
        while isinstance(event, kinds.Executing) and not ran:
            await anyio.lowlevel.checkpoint()
        return bool(ran)

    def make(**more: Any) -> Any:
        if more:
            may_end.set()
        return chat(ScriptedModel(["Done."] if more else [calls(("slow", {}))]), ASK, tools=[slow], **more)

    events = await Site(server, prefix, partial(managed, make), ledger=MemoryLedger()).read(is_running)
    assert (["done"], [1]) == ([event.result for event in events if isinstance(event, kinds.Executed)], ran)


@pytest.mark.parametrize("approved", [True, False])
async def test_a_decision_counts_in_the_next_process(server: RedisServer, prefix: str, approved: bool) -> None:
    """The process crashes before the decided call starts, while another call takes the only place."""
    bank, begun = Bank(), anyio.Event()

    async def slow() -> None:
        """Work."""
        begun.set()
        await anyio.sleep_forever()

    def make(**more: Any) -> Any:
        model = ScriptedModel(["Paid."] if more else [calls(("slow", {}), ("pay", ANN))])
        options: dict[str, Any] = {"approvals": ApprovalOptions(ask="now"), "runner": RunnerOptions(concurrency=1)}
        return chat(model, [QUESTION], tools=[Tool(slow), *bank.tools], **options, **more)

    site = Site(server, prefix, make)
    async with site.processes() as (here, there):
        run = await here.start(make(), owner="ann")
        found = await there.find(run.id, owner="ann")
        with anyio.fail_after(20):
            await begun.wait()
            while not (questions := await found.questions()):
                await anyio.lowlevel.checkpoint()
            await found.decide(questions[0].call.id, approved)
            site.cut.cut()
            events = [event async for event in found.attach()]
        site.cut.restore()
        await run.stop()
    validate(events)
    assert text_of(events) == "Paid."
    assert len(bank.paid) == approved
    assert 1 == sum(isinstance(event, kinds.ApprovalRequested) for event in events)
    errors = {event.call_id: event.code for event in events if isinstance(event, kinds.Error)}
    assert {"n0": Code.OUTCOME_UNKNOWN, **({} if approved else {"n1": Code.TOOL_DENIED})} == errors


TWO_STEPS: list[list[str | kinds.SourceEvent]] = [
    [kinds.ReasoningDelta("Both? "), "Let me look. ", native("a", "Oslo"), native("b", "Rome", "sign")],
    [kinds.ReasoningDelta("Now. "), "It is sunny in Oslo, and in Rome as well."],
]


def two_steps(ran: Callable[[str], object], **more: Any) -> Any:
    """Return a chat with text, reasoning, two calls and a question. `ran` is called with the city of each call."""

    async def look(city: str) -> None:
        """Look."""
        ran(city)

    tools = [Tool(look, name="weather"), Tool(look, name="sign", requires_approval=True)]
    return chat(Interruptible(TWO_STEPS, "vllm"), ASK, tools=tools, approvals=ApprovalOptions(ask="now"), **more)


async def test_a_log_can_be_continued_after_each_event(server: RedisServer, prefix: str) -> None:
    """No tool runs again, because the log has its start before the tool starts."""
    started: dict[str, int] = {}  # by city: how many events the log had when the tool started
    log: list[kinds.UIEvent] = []
    decided: dict[str, Any] = {}
    async with Runs(RedisStore(server.url, prefix=prefix, recover=lambda lost: None)) as runs:
        run = await runs.start(two_steps(lambda city: started.setdefault(city, leased.written)), owner="ann")
        leased: Any = run._journal.driven
        async for event in run.attach():
            assert event.seq <= leased.written
            log.append(event)
            if isinstance(event, kinds.ApprovalRequested):
                await run.approve(event.call.id)
                decided, decided_at = {event.call.id: Approve()}, leased.written
    for cut in range(len(log)):
        ran = [city for city, seq in started.items() if seq <= cut]
        lost = LostRun(run.id, "ann", None, None, 1, log[:cut], decisions=decided if cut >= decided_at else {})
        async with two_steps(ran.append, continue_from=lost) as stream:
            events = log[:cut]
            while not (events and isinstance(events[-1], kinds.Done)):
                for question in await stream.questions():
                    stream.approve(question.call.id)
                events.append(await anext(stream))
        validate(events)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert text_of(events) == text_of(log) == stream.result.text
        assert len(ran) == len(set(ran))


@pytest.mark.parametrize("crashes", [True, False])
async def test_websockets_get_one_answer(server: RedisServer, prefix: str, crashes: bool) -> None:
    """One is connected to the process that crashes or closes, and one to the next, where its client approves a call."""
    ran: list[str] = []
    site = Site(server, prefix, partial(two_steps, ran.append), lease=LEASE if crashes else 60.0)
    async with site.processes() as (here, there):
        run = await here.start(site.make(), owner="ann")
        first, second = (
            conversing(lambda *message: None, runs=runs, owner="ann", exclude=()) for runs in (here, there)
        )
        async with talking(first) as one, talking(second) as other:
            for client in (one, other):
                await say(client, {"resume": 0, "run_id": run.id})
            seen = await hear(one, "approval-requested")
            assert seen == await hear(other, "approval-requested")
            if crashes:
                site.cut.cut()
            else:
                await here.aclose()
            frames = [*seen, *await hear(other, "warning")]
            assert (Code.OWNER_LOST, "Rome") == (frames[-1]["code"], seen[-1]["call"]["arguments"]["city"])
            await say(other, {"call_id": seen[-1]["call"]["id"], "decision": "approve"})
            frames += await hear(other)
            site.cut.restore()
            assert frames == [*seen, *await hear(one)]
    validate(events := [kinds.read_ui_event(json.dumps(frame)) for frame in frames])
    assert text_of(events) == "Let me look. It is sunny in Oslo, and in Rome as well."
    assert ["Oslo", "Rome"] == ran


async def test_a_process_that_has_lost_its_run(server: RedisServer, prefix: str) -> None:
    """It accepts no decision. It stops the run in the process that continues it, and waits for its end there."""
    bank = Bank()

    def make(**more: Any) -> Any:
        model = ScriptedModel([calls(("pay", ANN))])
        return chat(model, [QUESTION], tools=bank.tools, approvals=ApprovalOptions(ask="now"), **more)

    site = Site(server, prefix, make)
    async with site.processes() as (here, there):
        run = await here.start(make(), owner="ann")
        found = await there.find(run.id, owner="ann")
        with anyio.fail_after(20):
            async for event in found.attach():
                if isinstance(event, kinds.ApprovalRequested):
                    site.cut.cut()
                if isinstance(event, kinds.Warning):
                    break
            with pytest.raises(OwnerUnreachable):
                await run.approve("n0")
            site.cut.restore()
            await run.stop()
            assert ("cancelled", "cancelled") == ((await run.wait()).reason, (await found.wait()).reason)
            assert "cancelled" == (await here.find(run.id, owner="ann")).result.reason
    assert [] == bank.paid


async def test_a_run_that_waits_in_another_process(server: RedisServer, prefix: str) -> None:
    """The process that has lost it accepts the decision."""
    bank = Bank()

    def make(model: Any = None, messages: Any = (QUESTION,), continue_from: LostRun | None = None, **more: Any) -> Any:
        if model is None:
            model = ScriptedModel([calls(("pay", ANN))]) if continue_from else Interruptible([[]], None, most=0)
        return chat(model, messages, tools=bank.tools, continue_from=continue_from, **more)

    def resume(run: Run) -> Any:
        return make(ScriptedModel(["Paid."]), run.history, resume=run)

    site = Site(server, prefix, make, resume=resume, ledger=MemoryLedger())
    async with site.processes() as (here, there):
        run = await here.start(make(), owner="ann")
        with anyio.fail_after(20):
            site.cut.cut()
            await (await there.find(run.id, owner="ann")).wait()
            site.cut.restore()
            assert "waiting" == (await run.wait()).reason
            next_run = await here.decide(run.id, "n0", True, owner="ann")
            assert "Paid." == (await next_run.wait()).text
    assert [("Ann", 5)] == bank.paid


async def test_a_process_that_cannot_write_the_end_of_its_run(
    server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the end from the process that has taken the run over."""
    monkeypatch.setattr(redis_store, "END_TIMEOUT_S", LEASE)
    site = Site(server, prefix, weather_chat("text", 3))
    async with site.processes() as (here, there):
        run = await here.start(site.make(), owner="ann")
        await anext(run.attach(2))
        site.cut.cut()
        run._cancel()
        with anyio.fail_after(20):
            assert "cancelled" == (await run.wait()).reason
            assert "finished" == (await (await there.find(run.id, owner="ann")).wait()).reason
            site.cut.restore()
            assert "finished" == (await here.find(run.id, owner="ann")).result.reason


class NotEntered(Chat):
    async def __aenter__(self) -> Any:
        raise OSError("gone")

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


class NotRead(NotEntered):
    async def __aenter__(self) -> Any:
        async def events() -> AsyncIterator[kinds.UIEvent]:
            for event in list[kinds.UIEvent]():
                yield event
            raise OSError("gone")

        return events()


HOW = ["raises", "is cancelled", "none", "other run", "fails", "not entered", "not read", "never returns"]


@pytest.mark.parametrize("most", [3, 10])
@pytest.mark.parametrize("how", HOW)
async def test_a_run_that_cannot_be_continued_fails(
    server: RedisServer, prefix: str, how: str, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    def make(continue_from: LostRun | None = None) -> Any:
        if continue_from is None:
            return weather_chat("native calls", most)()
        if how == "raises":
            raise ValueError("no model")
        if how == "is cancelled":
            raise asyncio.CancelledError
        if how == "never returns":
            return anyio.sleep_forever()
        if how == "none":
            return None
        kind = {"not entered": NotEntered, "not read": NotRead}.get(how, Chat)
        more = {"run_id": "other"} if how == "other run" else {"continue_from": continue_from}
        return kind(ScriptedModel([OSError("gone")]), ASK, tools=[weather], **more)

    done = (await Site(server, prefix, make, max_outage=LEASE, ledger=MemoryLedger()).read(is_last))[-1]
    assert isinstance(done, kinds.Done)
    assert done.reason == "failed"
    assert ("run_not_continued" in caplog.text) == (how not in ("fails", "not entered", "not read"))
    assert ("`recover` returned None" in caplog.text) == (how == "none")


@pytest.mark.parametrize("lacks", ["no `resume`", "the first events"])
async def test_the_log_says_why_a_decided_run_is_not_continued(
    server: RedisServer, prefix: str, lacks: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its process crashes in a decided tool. `recover` is not called."""
    begun = anyio.Event()

    async def pay() -> None:
        """Pay."""
        begun.set()
        await anyio.sleep_forever()

    def make(answer: Any, messages: Any = (QUESTION,), **more: Any) -> Any:
        return chat(ScriptedModel([answer]), messages, tools=[Tool(pay, requires_approval=True)], **more)

    def resume(run: Run) -> Any:
        return make("Paid.", run.history, resume=run)

    site = Site(server, prefix, make, resume=resume, ledger=MemoryLedger())
    async with site.processes() as (here, there), open_client(server.url) as client:
        waiting = await here.start(make(calls(("pay", {}))), owner="ann")
        await waiting.wait()
        run = await here.decide(waiting.id, "n0", True, owner="ann")
        with anyio.fail_after(20):
            await begun.wait()
            site.cut.cut()
            if lacks == "no `resume`":
                there._resume = None
            else:
                await client.execute("XTRIM", f"{prefix}:{{{run._journal.key}}}:log", "MINID", "2")
            assert "failed" == (await (await there.find(run.id, owner="ann")).wait()).reason
        site.cut.restore()
        await run.stop()
    assert [] == site.losses
    assert "run_not_continued" in caplog.text
    assert lacks in caplog.text


async def test_a_stop_is_final_without_the_process_of_the_run(server: RedisServer, prefix: str) -> None:
    """The process that takes the run over cancels it. The old process does not."""
    site = Site(server, prefix, weather_chat("text", 3))
    async with site.processes() as (here, there):
        run = await here.start(site.make(), owner="ann")
        found = await there.find(run.id, owner="ann")
        with anyio.fail_after(20):
            async for event in found.attach():
                if await is_last(event, run):
                    site.cut.cut()
                    break
            await found.stop()
            site.cut.restore()
            assert ("cancelled", []) == (found.result.reason, site.losses)
            await run.wait()
            assert (await (await here.find(run.id, owner="ann")).wait()).reason == "cancelled"


@pytest.mark.parametrize("crash", ["before its first event", "before the answer", "in the answer"])
async def test_a_run_that_continues_waiting_runs_is_continued(server: RedisServer, prefix: str, crash: str) -> None:
    """Its process crashes. `recover` gets the calls of all runs that the run continues."""
    bank, third = Bank(), list[Interruptible]()

    def make(model: Any = None, messages: Any = (QUESTION,), **more: Any) -> Any:
        model = model or Interruptible([[], [], *ANSWERS["text"]], "vllm")
        return chat(model, messages, tools=bank.tools, **more)

    def resume(run: Run) -> Any:
        if not run.id.endswith("~"):
            return make(ScriptedModel([calls(("pay", {"to": "Bob", "amount": 7}))]), run.history, resume=run)
        most = math.inf if third else 3 if crash == "in the answer" else 0
        third.append(Interruptible([[], [], *ANSWERS["text"]], "vllm", most=most))
        return make(third[-1], run.history, resume=run)

    async def begin_and_crash(begin: Any, run: Run, **options: Any) -> None:
        await begin(run, **options)
        site.cut.cut()

    site = Site(server, prefix, partial(managed, make), resume=partial(managed, resume), ledger=MemoryLedger())
    async with site.processes() as (here, there):
        run = await here.start(make(ScriptedModel([calls(("pay", ANN))])), owner="ann")
        for _ in range(2):
            await run.wait()
            assert run.suspension is not None
            if crash == "before its first event" and run.id.endswith("~"):
                assert here._store is not None
                here._store.begin = partial(begin_and_crash, here._store.begin)  # type: ignore[method-assign]
            run = await here.decide(run.id, run.suspension.calls[0].id, True, owner="ann")
        events = list[kinds.UIEvent]()
        with anyio.fail_after(20):
            async for event in (await there.find(run.id, owner="ann")).attach():
                events.append(event)
                if event.type == ("text" if crash == "in the answer" else "follow-up") and await is_last(event, run):
                    site.cut.cut()
            site.cut.restore()
            await run.stop()
    validate(events)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [("Ann", 5), ("Bob", 7)] == bank.paid
    assert text_of(events) == "It is sunny in Oslo, and it is sunny in Rome as well."
    assert isinstance(events[-1], kinds.Done)
    assert "finished" == events[-1].reason
    if crash == "in the answer":
        (lost,) = site.losses
        assert ["pay", "pay"] == [entry.call.name for entry in lost.recorded.values() if entry.outcome]


async def test_a_run_is_continued_a_limited_number_of_times(server: RedisServer, prefix: str) -> None:
    """Two of its processes crash, one more than allowed."""
    recovered = anyio.Event()

    def make(**more: Any) -> Any:
        if more:
            recovered.set()
        return chat(Interruptible(ANSWERS["text"], "vllm", most=2), ASK, **more)

    site = Site(server, prefix, make, max_recoveries=1)
    async with open_client(server.url) as client:
        first, second = CutClient(client), CutClient(client)
        with anyio.fail_after(20):
            async with site.store(second), site.store(first) as here:
                run = await here.start(make(), owner="ann")
                first.cut()
                await recovered.wait()
                async with site.store(client) as last:
                    second.cut()
                    result = await (await last.find(run.id, owner="ann")).wait()
                for cut in (first, second):
                    cut.restore()
                await run.stop()
    assert result.reason == "failed"
    assert [1] == [lost.attempt for lost in site.losses]


async def test_a_closing_process_hands_its_runs_over(
    server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without waiting for the lease. This does not count as a crash."""
    site = Site(server, prefix, weather_chat("native calls", 6), lease=60.0, ledger=MemoryLedger())
    with collecting() as collected, caplog.at_level("INFO", "streamtools.serving"):
        async with site.store(server.url) as there:
            async with site.store(server.url) as here:
                run = await here.start(site.make(), owner="ann")
                attachment = (await there.find(run.id, owner="ann")).attach()
                events = [await anext(attachment) for _ in range(5)]
            with anyio.fail_after(20):
                events += [event async for event in attachment]
    assert [run.id] * 2 == [(span.attributes or {})["streamtools.run.id"] for span in collected.named("invoke_agent")]
    counts = [collected.total(f"streamtools.runs.{name}") for name in ("handed_over", "recovered", "lost")]
    assert [1, 1, 0] == counts
    (logged,) = takeovers(caplog)
    assert {"handed_over": True, "unknown_calls": []}.items() <= logged.items()
    assert 0 <= logged["gap"] < 60, "not the lease"
    validate(events)
    assert text_of(events) == "Let me look that up for you. It is sunny in Oslo, and in Rome."
    assert [0] == [lost.attempt for lost in site.losses]


async def test_an_expired_lease_is_noticed_between_two_renewals(server: RedisServer, prefix: str) -> None:
    """Leases are renewed every hundred seconds here."""
    site = Site(server, prefix, weather_chat("text", 3), lease=300.0)
    async with site.processes() as (here, there), open_client(server.url) as client:
        run = await here.start(site.make(), owner="ann")
        attachment = (await there.find(run.id, owner="ann")).attach()
        events = [await anext(attachment) for _ in range(3)]
        await client.execute("ZADD", f"{prefix}:running", 0, run._journal.key)
        with anyio.fail_after(20):
            events += [event async for event in attachment]
        await run.stop()
    assert text_of(events) == "It is sunny in Oslo, and it is sunny in Rome as well."


async def test_a_run_waits_for_a_process(server: RedisServer, prefix: str) -> None:
    """It was handed over while no other process was running."""
    site = Site(server, prefix, weather_chat("text", 3), lease=60.0)
    async with site.store(server.url) as here:
        run = await here.start(site.make(), owner="ann")
        attachment = run.attach()
        for _ in range(3):
            await anext(attachment)
    async with site.store(server.url) as there:
        with anyio.fail_after(20):
            result = await (await there.find(run.id, owner="ann")).wait()
    assert result.text == "It is sunny in Oslo, and it is sunny in Rome as well."


async def test_a_run_that_no_process_takes_over_expires(server: RedisServer, prefix: str) -> None:
    """It then no longer counts as a running run of its user."""
    site = Site(server, prefix, weather_chat("text", 3), keep=0.1)
    async with site.store(server.url) as here:
        run = await here.start(site.make(), owner="ann")
        await anext(run.attach())
    async with open_client(server.url) as client:
        with anyio.fail_after(20):
            while await client.execute("EXISTS", f"{prefix}:{{{run._journal.key}}}:meta"):
                await anyio.lowlevel.checkpoint()
            async with site.store(server.url):
                while await client.execute("EXISTS", f"{prefix}:running"):
                    await anyio.lowlevel.checkpoint()
                while await client.execute("KEYS", f"{prefix}:{{*"):
                    await anyio.lowlevel.checkpoint()
