"""S16: no call runs twice. Each test covers one attack on the ledger."""

from __future__ import annotations

import math
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from streamtools import RunnerOptions, ToolCall, ToolStream, sources
from streamtools.errors import CallRefused
from streamtools.tools import CallLedger, Claim, Deny, MemoryLedger, SQLiteLedger, Suspension, ToolOutcome
from streamtools.tools.ledger import CLOCK_SLACK, NO_LEASE, Entry
from tests.support.approvals import ANN, Bank, EndedRun, calls, run_chat
from tests.support.patching import with_clock

PAY: Any = calls(("pay", ANN))
CALL = ToolCall(id="n0", name="pay", arguments={"to": "Ann"}, dialect="native")


async def resume(held: EndedRun, bank: Bank, ledger: CallLedger, *answers: Any, **options: Any) -> EndedRun:
    """Return the run that continues after `held`, with the payment approved."""
    given = {"decisions": {"n0": True}, "resume": held.chat.suspension, "ledger": ledger, **options}
    return await run_chat(*(answers or ["Done."]), tools=bank.tools, messages=held.chat.messages(), **given)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a ledger."""
    return tmp_path / "calls.sqlite"


# Entries that a ledger in memory keeps.


async def test_many_calls_delete_no_entry_that_a_decision_may_need() -> None:
    """A repeated decision finds its outcome after any number of other calls."""
    bank, ledger = Bank(), MemoryLedger(3)
    held = await run_chat(PAY, tools=bank.tools)
    first = await resume(held, bank, ledger)
    for number in range(10):
        await run_chat(calls(("look", {})), "Done.", tools=bank.tools, ledger=ledger, run_id=f"run_{number}")
    again = await resume(held, bank, ledger)
    assert [("Ann", 5)] == bank.paid
    assert first.shown == again.shown


async def test_many_calls_delete_no_unfinished_call() -> None:
    """Its effect is unknown, and must stay recorded."""
    bank, ledger = Bank(requires_approval=False), MemoryLedger(2)
    await ledger.begin("run", ToolCall(id="n0", name="pay", arguments=ANN, dialect="native"), Claim(until=0))
    for number in range(10):
        await run_chat(calls(("look", {})), "Done.", tools=bank.tools, ledger=ledger, run_id=f"run_{number}")
    held = await run_chat(PAY, "Oh.", tools=bank.tools, ledger=ledger, run_id="run")
    assert "error n0 outcome_unknown" in held.shown
    assert [] == bank.paid


async def test_only_an_owner_over_the_limit_is_refused() -> None:
    """The error names the limit. The owner's recorded calls are still found."""
    bank, ledger = Bank(), MemoryLedger(per_owner=2)
    ann, bob = ledger.of("ann"), ledger.of("bob")
    held = [await run_chat(PAY, tools=bank.tools) for _ in range(4)]
    for each in held[:2]:
        assert "executed n0: paid 5 to Ann" in (await resume(each, bank, ann)).shown
    refused = await resume(held[2], bank, ann)
    assert "error n0 tool_failed" in refused.shown
    (said,) = [event.message for event in refused.events if event.type == "error"]
    assert "tool 'pay' was not run: its owner already has 2 calls in the ledger; raise `per_owner`" == said
    assert "executed n0: paid 5 to Ann" in (await resume(held[3], bank, bob)).shown
    assert "executed n0: paid 5 to Ann" in (await resume(held[0], bank, ann)).shown
    assert 3 == len(bank.paid)


async def test_a_full_ledger_refuses_and_names_its_limit() -> None:
    """It has room again when a suspension has expired."""
    now = [0.0]
    ledger = with_clock(MemoryLedger(1), lambda: now[0])
    await ledger.begin("run", CALL, Claim(until=100))
    with pytest.raises(CallRefused, match=r"the ledger already holds 1 calls; raise `size`"):
        await ledger.begin("run_2", CALL)
    (entry,) = await ledger.entries()
    await ledger.finish("run", entry.with_result())
    with pytest.raises(CallRefused):
        await ledger.begin("run_2", CALL)
    now[0] = 101 + CLOCK_SLACK
    assert await ledger.begin("run_2", CALL) is None


async def test_a_call_costs_the_same_in_a_full_ledger() -> None:
    """The cost is the number of instructions of SQLite's virtual machine."""

    async def cost(size: int) -> int:
        ledger = with_clock(MemoryLedger(size), lambda: 0.0)
        for number in range(size // 2):
            await ledger.begin(f"run_{number}", CALL)
            await ledger.finish(f"run_{number}", Entry(scope="", call=CALL, began=0, until=0).with_result())
        for number in range(size, 2 * size):
            await ledger.begin(f"run_{number}", CALL, Claim(until=0))
            await ledger.finish(f"run_{number}", Entry(scope="", call=CALL, began=0, until=0).with_result())
        made = 0

        def count() -> None:
            nonlocal made
            made += 1

        ledger._connection.set_progress_handler(count, 1)
        await ledger.begin("run", CALL)
        return made

    assert await cost(1000) < 1.2 * await cost(10)


async def test_an_approval_without_expiry_expires_with_the_ledger() -> None:
    """A call that the ledger may have deleted is refused. Shortly before that, it is found."""
    bank, ledger = Bank(), MemoryLedger(keep=1000)
    held = await run_chat(PAY, tools=bank.tools, decision_timeout=math.inf)
    assert held.chat.suspension is not None
    (question,) = held.chat.suspension.questions
    assert question.asked is not None

    def asked(at: float | None) -> str:
        """Return the suspension with another time of its question."""
        return Suspension(run_id=held.chat.run_id, questions=[replace(question, asked=at)]).to_json()

    for at in (time.time() - 1001, None):
        late = await resume(held, bank, ledger, resume=asked(at))
        assert "error n0 tool_denied" in late.shown
    assert [] == bank.paid
    in_time = await resume(held, bank, MemoryLedger(keep=1000), resume=asked(time.time() - 900))
    assert "executed n0: paid 5 to Ann" in in_time.shown


# Concurrent runs.


class Door(Bank):
    """A bank whose payments wait for a door."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.begun, self.door = anyio.Event(), anyio.Event()

    async def pay(self, to: str, amount: int) -> str:
        self.begun.set()
        await self.door.wait()
        return await super().pay(to, amount)


class Seen:
    """A ledger that counts the requests for a call that another process runs."""

    def __init__(self, ledger: CallLedger) -> None:
        self._ledger = ledger
        self.waited = anyio.Event()
        self.renewed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
        entry = await self._ledger.begin(scope, call, claim)
        if entry is not None and entry.lease_left:
            self.waited.set()
        return entry

    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        await self._ledger.hold(scope, call, holder, seconds)
        self.renewed += 1


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, path: Path) -> Iterator[CallLedger]:
    """Each kind of ledger."""
    if request.param == "memory":
        yield MemoryLedger()
        return
    with closing(SQLiteLedger(path)) as made:
        yield made


@pytest.mark.parametrize("second", [True, Deny()], ids=["approved again", "denied"])
async def test_two_concurrent_resumes_have_one_outcome(ledger: CallLedger, second: Any) -> None:
    """The second waits for the first. It does not end as unknown, and the first of two decisions counts."""
    bank, seen, told = Door(), Seen(ledger), []
    held = await run_chat(PAY, tools=bank.tools)

    async def go_on(decision: Any) -> None:
        told.append((await resume(held, bank, seen, decisions={"n0": decision})).shown)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go_on, True)
        await bank.begun.wait()
        tasks.start_soon(go_on, second)
        await seen.waited.wait()
        bank.door.set()
    assert told[0] == told[1]
    assert "executed n0: paid 5 to Ann" in told[0]
    assert [("Ann", 5)] == bank.paid


async def test_a_resume_waits_no_longer_than_the_timeout_of_the_tool(ledger: CallLedger) -> None:
    """Then the error is a timeout, not an unknown outcome."""
    bank = Bank()
    held = await run_chat(PAY, tools=bank.tools)
    await ledger.begin(held.chat.run_id, held.chat.result.pending[0], Claim(holder="h"))
    on = await resume(held, bank, ledger, "Pity.", tool_timeout=0.05)
    assert "error n0 tool_timeout" in on.shown
    assert "runs for this call in another process and did not finish within 0.05 seconds" in repr(on.events)


async def test_a_waiting_run_can_be_cancelled(ledger: CallLedger) -> None:
    """It stops without a delay, and the first run continues."""
    bank, seen = Door(), Seen(ledger)
    held = await run_chat(PAY, tools=bank.tools)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resume, held, bank, seen)
        await bank.begun.wait()
        async with anyio.create_task_group() as second:
            second.start_soon(resume, held, bank, seen)
            await seen.waited.wait()
            second.cancel_scope.cancel()
        bank.door.set()
    assert [("Ann", 5)] == bank.paid


async def test_a_cancelled_run_releases_its_calls(ledger: CallLedger) -> None:
    """The next run does not wait, and gets an unknown outcome."""
    bank = Door()
    held = await run_chat(PAY, tools=bank.tools)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resume, held, bank, ledger)
        await bank.begun.wait()
        tasks.cancel_scope.cancel()
    (entry,) = await ledger.entries(unknown=True)
    assert (0.0, True) == (entry.lease_left, entry.ended is not None)
    assert "error n0 outcome_unknown" in (await resume(held, bank, ledger, "Oh.")).shown


async def test_a_lease_is_renewed_while_the_tool_works(path: Path) -> None:
    """Also when one renewal fails."""
    bank, broken = Door(requires_approval=False), [True]

    class Renewing(Seen):
        async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
            if broken:
                broken.clear()
                raise OSError("no space left")
            await super().hold(scope, call, holder, seconds)
            if self.renewed == 3:
                bank.door.set()

    with closing(SQLiteLedger(path, lease=0.03)) as ledger:
        held = await run_chat(PAY, "Done.", tools=bank.tools, ledger=Renewing(ledger))
    assert "executed n0: paid 5 to Ann" in held.shown


# A file that other processes use.


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Lock a file as another writer."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


async def test_runs_stop_while_the_ledger_is_locked(path: Path) -> None:
    """Three runs at once: each wait for the file is cancelled, and delays no other run."""
    bank = Bank(requires_approval=False)
    with closing(SQLiteLedger(path)) as ledger:
        tries = Counter[str]()

        class Trying(Seen):
            async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
                tries[scope] += 1
                if len(tries) == 3:
                    self.waited.set()
                return await super().begin(scope, call, claim)

        seen = Trying(ledger)
        async with locked(path):
            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    for number in range(3):
                        run: dict[str, Any] = {"tools": bank.tools, "ledger": seen, "run_id": f"run_{number}"}
                        tasks.start_soon(partial(run_chat, PAY, "Done.", **run))
                    await seen.waited.wait()
                    tasks.cancel_scope.cancel()
            assert [] == await ledger.entries()
        held = await run_chat(PAY, "Done.", tools=bank.tools, ledger=ledger, run_id="run_0")
    assert "executed n0: paid 5 to Ann" in held.shown


async def test_a_locked_ledger_has_the_time_of_the_tool(path: Path) -> None:
    """A new call did not run. The outcome of a resumed call is unknown: an earlier resume may have run it."""
    bank, free = Bank(), Bank(requires_approval=False)
    suspended = await run_chat(PAY, tools=bank.tools)
    with closing(SQLiteLedger(path)) as ledger:
        async with locked(path):
            new = await run_chat(PAY, "Oh.", tools=free.tools, ledger=ledger, tool_timeout=0.05)
            resumed = await resume(suspended, bank, ledger, "Oh.", tool_timeout=0.05)
        assert "error n0 tool_failed" in new.shown
        assert "error n0 outcome_unknown" in resumed.shown
        assert [] == bank.paid + free.paid + await ledger.entries()
        assert "executed n0: paid 5 to Ann" in (await resume(suspended, bank, ledger)).shown


async def test_an_outcome_is_written_when_the_file_is_free(path: Path) -> None:
    """The file is locked while the tool runs."""
    free = Bank(requires_approval=False)
    with closing(SQLiteLedger(path)) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:

        class Locking(Bank):
            async def pay(self, to: str, amount: int) -> str:
                other.execute("BEGIN IMMEDIATE")
                return await super().pay(to, amount)

        class Freeing(Seen):
            async def finish(self, scope: str, outcome: ToolOutcome) -> None:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._ledger.finish, scope, outcome)
                    for _ in range(100):
                        await anyio.lowlevel.checkpoint()
                    other.execute("ROLLBACK")

        bank = Locking(requires_approval=False)
        await run_chat(PAY, "Done.", tools=bank.tools, ledger=Freeing(ledger), run_id="run")
        again = await run_chat(PAY, "Done.", tools=free.tools, ledger=ledger, run_id="run")
    assert "executed n0: paid 5 to Ann" in again.shown
    assert [] == free.paid


@pytest.mark.parametrize(
    "broken",
    [b"", b"{", b'{"text": 1}', b"[" * 100_000, "half", 5],
    ids=["empty", "cut", "other", "deep", "text", "number"],
)
async def test_an_unreadable_row_is_an_unknown_outcome(path: Path, broken: Any) -> None:
    """The call may have run. A person can resolve it."""
    bank = Bank()
    held = await run_chat(PAY, tools=bank.tools)
    with closing(SQLiteLedger(path)) as ledger:
        await resume(held, bank, ledger)
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE calls SET outcome = ?", (broken,))
        again = await resume(held, bank, ledger, "Oh.")
        (entry,) = await ledger.entries(unknown=True)
        assert await ledger.resolve(entry.scope, entry.with_result("paid"))
        told = await resume(held, bank, ledger)
    assert "error n0 outcome_unknown" in again.shown
    assert "executed n0: paid" in told.shown
    assert [("Ann", 5)] == bank.paid


@pytest.mark.parametrize("broken", ["x", b"{"], ids=["text", "bytes"])
async def test_an_unreadable_lease_has_expired(path: Path, broken: Any) -> None:
    """Its holder is unknown, so no run waits for it. A new call with this id is not reported as not run."""
    bank = Bank(requires_approval=False)
    with closing(SQLiteLedger(path)) as ledger:
        await ledger.begin("run", replace(CALL, arguments=ANN), Claim(holder="h"))
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE calls SET held = ?", (broken,))
        held = await run_chat(PAY, "Oh.", tools=bank.tools, ledger=ledger, run_id="run")
        (entry,) = await ledger.entries(unknown=True)
    assert "error n0 outcome_unknown" in held.shown
    assert ("n0", []) == (entry.call.id, bank.paid)


def test_opening_a_locked_file_is_retried(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite fails immediately in this case, despite its timeout."""
    locks: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def connect_to_locked(*args: Any, **options: Any) -> sqlite3.Connection:
        if locks:
            locks[-1].close()
        if len(locks) < 3:
            locks.append(connect(path, isolation_level=None))
            locks[-1].execute("BEGIN EXCLUSIVE")
        return connect(*args, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(sqlite3, "connect", connect_to_locked)
    SQLiteLedger(path).close()
    assert 3 == len(locks)


def test_a_file_with_other_tables_is_refused(path: Path) -> None:
    """The file is refused, so that no call in it is taken for a new one."""
    with closing(sqlite3.connect(path)) as old:
        old.execute("CREATE TABLE calls (scope TEXT, call TEXT)")
    with pytest.raises(sqlite3.OperationalError, match="no such column: ended"):
        SQLiteLedger(path)


# A finished response.

PAID = {"id": "n0", "type": "function", "function": {"name": "pay", "arguments": ANN}}
ANSWER = {"choices": [{"message": {"tool_calls": [PAID]}, "finish_reason": "tool_calls"}]}


async def test_a_finished_response_runs_once(ledger: CallLedger) -> None:
    """It is identified by its run. The same ids in another response are other calls."""
    bank = Bank(requires_approval=False)

    async def process(run_id: str) -> list[str]:
        options = RunnerOptions(ledger=ledger)
        source = sources.finished_response(ANSWER)
        stream = ToolStream(source, tools=bank.tools, run_id=run_id, runner=options)
        await stream
        return [outcome.text for outcome in stream.result.outcomes]

    assert ["paid 5 to Ann"] == await process("answer_1") == await process("answer_1")
    assert 1 == len(bank.paid)
    await process("answer_2")
    assert 2 == len(bank.paid)
