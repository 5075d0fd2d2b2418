"""At most once: what is written down of calls, by whom it is read, and what a crash leaves behind."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog.testing

from streamtools import ToolOutcome, ToolStream, sources
from streamtools.calls import ToolCall
from streamtools.errors import CallRefused
from streamtools.events import NativeToolCall, ProviderCompleted, UIEvent
from streamtools.tools import CallLedger, Claim, MemoryLedger, SQLiteLedger
from streamtools.tools.ledger import ON_NO_TERMS, SLACK, Entry
from tests.support.cases import cases
from tests.support.stories import story

pytestmark = pytest.mark.anyio

CALL = ToolCall(id="call_1", name="pay", arguments={"to": "Ann"}, dialect="native")
DONE = ToolOutcome(call=CALL, result={"paid": True}, text='{"paid":true}', error=None, message=None, elapsed=0.5)


KEEP = 1000.0


class Clock:
    """Seconds since 1970, as a test tells them."""

    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of the ledger."""
    return Clock()


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[CallLedger]:
    """Each kind of ledger."""
    if request.param == "memory":
        yield MemoryLedger(keep=KEEP, clock=clock)
        return
    made = SQLiteLedger(tmp_path / "calls.sqlite", keep=KEEP, clock=clock)
    yield made
    made.close()
    made.close()


async def there(ledger: CallLedger, call: ToolCall = CALL) -> Entry:
    """What the ledger says of a call that has begun."""
    entry = await ledger.begin("run_1", call, Claim(holder="somebody else"))
    assert entry is not None
    return entry


def another(number: int) -> ToolCall:
    return ToolCall(id=f"call_{number}", name="pay", arguments={}, dialect="native")


async def test_a_call_begins_once(ledger: CallLedger) -> None:
    """Who comes second is told what is known: that it began, and later how it ended."""
    assert await ledger.begin("run_1", CALL) is None
    assert (await there(ledger)).is_unknown
    await ledger.finish("run_1", DONE)
    assert DONE == (await there(ledger)).outcome


async def test_a_call_is_held(ledger: CallLedger, clock: Clock) -> None:
    """While its holder comes back, its end is not unknown; a holder that asks again has it still, and one may go."""
    assert await ledger.begin("run_1", CALL, Claim(holder="h")) is None
    assert await ledger.begin("run_1", CALL, Claim(holder="h")) is None
    for _ in range(5):
        clock.now += 10
        assert not (await there(ledger)).is_unknown
        await ledger.hold("run_1", CALL, "h", ledger.lease)
    await ledger.hold("run_1", CALL, "somebody else", 0)
    assert (await there(ledger)).held
    await ledger.hold("run_1", CALL, "h", 0)
    assert (await there(ledger)).is_unknown
    assert clock.now == (await there(ledger)).ended


async def test_a_holder_that_does_not_come_back(tmp_path: Path, clock: Clock) -> None:
    """When the lease is over, nobody knows more, until the holder says so after all; what is said first stands."""
    ledger = SQLiteLedger(tmp_path / "calls.sqlite", lease=15, clock=clock)
    await ledger.begin("run_1", CALL, Claim(holder="h"))
    clock.now += 14
    assert 1 == (await there(ledger)).held
    clock.now += 1
    assert (await there(ledger)).is_unknown
    await ledger.finish("run_1", DONE)
    await ledger.finish("run_1", (await there(ledger)).told(error="lost"))
    assert not await ledger.resolve("run_1", (await there(ledger)).told(error="lost"))
    assert DONE == (await there(ledger)).outcome
    ledger.close()


async def test_who_has_taken_a_run_over(ledger: CallLedger, clock: Clock) -> None:
    """Nothing begins under an older epoch than the run's, whether it was raised by a claim or by a call."""
    await ledger.begin("run_1", CALL, Claim(epoch=1))
    await ledger.fence("run_1", 2)
    with pytest.raises(CallRefused, match="taken over"):
        await ledger.begin("run_1", another(2), Claim(epoch=1))
    assert await ledger.begin("run_1", another(2), Claim(epoch=2)) is None
    assert await ledger.begin("run_1", another(3), Claim(epoch=3)) is None
    with pytest.raises(CallRefused, match="taken over"):
        await ledger.fence("run_1", 2)
    assert await ledger.begin("run_2", CALL) is None
    clock.now += KEEP
    await ledger.begin("run_3", CALL, Claim(epoch=1))
    assert await ledger.begin("run_1", another(4)) is None


# What a person does.


async def test_entries(ledger: CallLedger, clock: Clock) -> None:
    """The oldest first, in pages, of one run, of one owner, or those that somebody has to look into."""
    ann, bob = ledger.of("ann"), ledger.of("bob")
    for number in range(4):
        await (bob if number == 3 else ann).begin(f"run_{number % 2}", another(number), Claim(holder="h"))
        clock.now += 1
    await ledger.finish("run_0", (await ledger.entries())[0].told("paid"))
    await ledger.hold("run_1", another(1), "h", 0)

    async def ids(ledger: CallLedger, *given: Any, **wanted: Any) -> list[str]:
        return [entry.call.id for entry in await ledger.entries(*given, **wanted)]

    assert ["call_0", "call_1", "call_2", "call_3"] == await ids(ledger)
    assert ["call_1", "call_3"] == await ids(ledger, "run_1")
    assert ["call_1"] == await ids(ledger, unknown=True)
    assert ["call_3"] == await ids(bob)
    first = await ledger.entries(limit=2)
    assert ["call_2", "call_3"] == await ids(ledger, after=first[-1])
    assert ["ann", 5000.0, None] == [first[1].owner, first[0].began, first[1].outcome]


async def test_an_end_that_somebody_has_found_out(ledger: CallLedger) -> None:
    """It is told once, of a call that nobody runs, and not by another owner."""
    mine, others = ledger.of("ann"), ledger.of("bob")
    await mine.begin("run_1", CALL, Claim(holder="h"))
    (entry,) = await ledger.entries()
    assert not await ledger.resolve("run_1", entry.told({"paid": True}))
    await ledger.hold("run_1", CALL, "h", 0)
    assert not await others.resolve("run_1", entry.told(error="no money"))
    assert await mine.resolve("run_1", entry.told({"paid": True}))
    assert not await mine.resolve("run_1", entry.told(error="no money"))
    assert not await mine.resolve("run_2", entry.told(error="no money"))
    outcome = (await there(ledger)).outcome
    assert outcome is not None
    assert ({"paid": True}, '{"paid":true}', None) == (outcome.result, outcome.text, outcome.error)
    failed = entry.told(error="no money")
    assert (None, "no money", "tool_failed") == (failed.result, failed.text, failed.error)


async def test_what_is_pruned(ledger: CallLedger, clock: Clock) -> None:
    """What is old enough, but nothing that is at work or that a suspension may name, and nothing of other owners."""
    plain, named, held, lost = (another(number) for number in range(4))
    await ledger.begin("run_1", plain, Claim(holder="h", until=0))
    await ledger.begin("run_1", named, Claim(holder="h", until=clock.now + 500))
    await ledger.begin("run_1", held, Claim(holder="h", until=0))
    await ledger.begin("run_1", lost, Claim(until=0))
    for call in plain, named:
        await ledger.finish("run_1", (await there(ledger, call)).told())
    clock.now += 10
    assert 0 == await ledger.prune(11)
    assert 0 == await ledger.of("ann").prune(10)
    assert 2 == await ledger.prune(10)
    assert [named, held] == [entry.call for entry in await ledger.entries()]
    await ledger.hold("run_1", held, "h", 0)
    clock.now += 490 + SLACK
    assert 2 == await ledger.prune(10)
    assert await ledger.begin("run_1", plain) is None


async def test_how_long_an_entry_is_kept(ledger: CallLedger, clock: Clock) -> None:
    """What has ended, or was left, goes by itself; a call that has begun and may be at work does not."""
    ended, left, begun = (another(number) for number in range(3))
    for call in ended, left, begun:
        await ledger.begin("run_1", call, Claim(holder="h"))
    await ledger.finish("run_1", (await there(ledger, ended)).told())
    await ledger.hold("run_1", left, "h", 0)
    clock.now += KEEP - 1
    await ledger.begin("run_2", CALL)
    assert 4 == len(await ledger.entries())
    clock.now += 1 + SLACK
    await ledger.begin("run_3", CALL)
    assert [begun, CALL, CALL] == [entry.call for entry in await ledger.entries()]


async def test_another_call(ledger: CallLedger) -> None:
    """Another run, another id, another name and other arguments each make another call."""
    others: list[dict[str, Any]] = [
        {"id": "call_2"},
        {"name": "look"},
        {"arguments": {"to": "Bob"}},
        {"arguments": {}},
    ]
    await ledger.begin("run_1", CALL)
    for change in others:
        fields: Any = {"id": "call_1", "name": "pay", "arguments": {"to": "Ann"}, "dialect": "native", **change}
        assert await ledger.begin("run_1", ToolCall(**fields)) is None
    assert await ledger.begin("run_2", CALL) is None


async def test_of_many_at_once_one_begins(ledger: CallLedger) -> None:
    """Whatever the order is."""
    entries: list[Entry | None] = []

    async def begin() -> None:
        entries.append(await ledger.begin("run_1", CALL))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(begin)
    assert 1 == entries.count(None)


async def test_a_result_that_utf8_cannot_hold(ledger: CallLedger) -> None:
    """Half a surrogate pair, from a file name say, does not keep the call from being done."""
    outcome = ToolOutcome(call=CALL, result="\ud800", text="\ud800", error=None, message=None, elapsed=0.5)
    await ledger.begin("run_1", CALL)
    await ledger.finish("run_1", outcome)
    entry = await ledger.begin("run_1", CALL)
    assert entry is not None
    assert entry.outcome is not None


async def test_memory_is_bounded() -> None:
    """A call that nobody can name any more makes room, the oldest first."""
    ledger = MemoryLedger(2)
    for number in range(3):
        await ledger.begin("run_1", another(number), Claim(until=0))
        await ledger.finish("run_1", (await there(ledger, another(number))).told())
    assert [another(1), another(2)] == [entry.call for entry in await ledger.entries()]


async def test_the_file_is_private_and_lasting(tmp_path: Path) -> None:
    """Only its owner reads it; another process, here another connection, finds what was written."""
    path = tmp_path / "calls.sqlite"
    first = SQLiteLedger(path)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    await first.begin("run_1", CALL)
    second = SQLiteLedger(path)
    assert (await there(second)).is_unknown
    await first.finish("run_1", DONE)
    assert DONE == (await there(second)).outcome
    first.close()
    second.close()


def test_a_file_that_is_no_ledger(tmp_path: Path) -> None:
    """It is said at once, and the file stays as it is."""
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ann, " * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        SQLiteLedger(path)
    assert path.read_text().startswith("Dear Ann")


# In a stream.


def a_call() -> Any:
    called = NativeToolCall("0", "pay", {"to": "Ann"}, "n0")
    return sources.events([called, ProviderCompleted(finish_reason="tool_calls")])


async def run(ledger: CallLedger, *, paid: list[str], run_id: str = "run_1") -> list[UIEvent]:
    """The events of a run that pays."""

    async def pay(to: str) -> dict[str, str]:
        paid.append(to)
        return {"message": f"paid {to}"}

    async with ToolStream(a_call(), tools=[pay], ledger=ledger, run_id=run_id) as events:
        return [event async for event in events]


async def test_a_run_that_is_replayed(ledger: CallLedger) -> None:
    """The tool does not run again, and the events are the same, with the time that the first took."""
    paid: list[str] = []
    first = await run(ledger, paid=paid)
    assert first == await run(ledger, paid=paid)
    assert ["Ann"] == paid
    await run(ledger, paid=paid, run_id="run_2")
    assert ["Ann", "Ann"] == paid


class Broken(MemoryLedger):
    """A ledger that cannot write."""

    def __init__(self, *, begins: bool) -> None:
        super().__init__()
        self._begins = begins

    async def begin(self, scope: str, call: ToolCall, claim: Claim = ON_NO_TERMS) -> Entry | None:
        if not self._begins:
            raise OSError("no space left: secret")
        return await super().begin(scope, call, claim)

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        raise OSError("no space left: secret")


async def test_what_cannot_be_written_down_is_not_run() -> None:
    """The call fails, the run goes on, and the log says why without any text."""
    paid: list[str] = []
    with structlog.testing.capture_logs() as logs:
        events = await run(Broken(begins=False), paid=paid)
    assert [] == paid
    assert "error n0 tool_failed" in story(events)
    assert "OSError" in repr(logs)
    assert "secret" not in repr([logs, events])


async def test_an_end_that_cannot_be_written_down() -> None:
    """This run has its result; whoever comes next finds that the call had begun."""
    paid: list[str] = []
    ledger = Broken(begins=True)
    with structlog.testing.capture_logs() as logs:
        assert "executed n0: {'message': 'paid Ann'}" in story(await run(ledger, paid=paid))
        again = await run(ledger, paid=paid)
    assert "error n0 outcome_unknown" in story(again)
    assert ["Ann"] == paid
    assert "secret" not in repr(logs)


# Crashes.

_PROCESS = """
import os, sys
import anyio
from streamtools import ToolStream, sources
from streamtools.events import NativeToolCall, ProviderCompleted
from streamtools.tools import SQLiteLedger

def dies(where):
    if die == where:
        os.kill(os.getpid(), 9)

class Dying(SQLiteLedger):
    async def begin(self, scope, call, claim):
        dies("before it is written down")
        entry = await super().begin(scope, call, claim)
        dies("before it is dispatched")
        return entry

    async def finish(self, scope, outcome):
        dies("before its end is written down")
        await super().finish(scope, outcome)
        dies("behind its end")

async def pay(to: str) -> str:
    dies("in the tool, before the effect")
    with open(diary, "a") as file:
        file.write(to + "\\n")
    dies("in the tool, behind the effect")
    return "paid " + to

async def main():
    call = NativeToolCall("0", "pay", {"to": "Ann"}, "n0")
    source = sources.events([call, ProviderCompleted(finish_reason="tool_calls")])
    async with ToolStream(source, tools=[pay], ledger=Dying(ledger_path, lease=0.2), run_id="run_1") as events:
        async for event in events:
            if event.type in ("executed", "error"):
                print(event.type, getattr(event, "code", ""), flush=True)

for place in sys.argv[1:]:
    ledger_path, diary = place + ".sqlite", place + ".diary"
    for die in (place, ""):  # each in a process of its own, which has imported all that it needs
        if not (child := os.fork()):
            anyio.run(main)
            os._exit(0)
        print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

KILLED = {
    "before it is written down": (1, "executed"),
    "before it is dispatched": (0, "error outcome_unknown"),
    "in the tool, before the effect": (0, "error outcome_unknown"),
    "in the tool, behind the effect": (1, "error outcome_unknown"),
    "before its end is written down": (1, "error outcome_unknown"),
    "behind its end": (1, "executed"),
}
"""Where a process dies: how often there is an effect in the end, and what the next process tells."""


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    """Wherever it dies, who takes the run up again causes no second effect, and tells what nobody knows."""
    command = [sys.executable, "-c", _PROCESS, *KILLED]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=60, text=True)
    assert 0 == said.returncode, said.stderr
    ends = re.findall(r"(.*?)status (.*?)\n", said.stdout, re.DOTALL)
    with cases() as case:
        for place, killed, again in zip(KILLED, ends[::2], ends[1::2], strict=True):
            with case(place):
                effects, told = KILLED[place]
                diary = tmp_path / f"{place}.diary"
                assert [-signal.SIGKILL, 0] == [int(killed[1]), int(again[1])]
                assert told == again[0].splitlines()[-1].strip()
                assert effects == (diary.read_text().count("Ann") if diary.exists() else 0)
