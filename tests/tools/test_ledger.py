"""At-most-once execution: what ledgers record, and what remains after a crash."""

from __future__ import annotations

import gc
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from time import time
from typing import Any

import pytest
import structlog.testing

from conformance.ledger_laws import MakeLedger, assert_ledger_laws
from streamtools import ApprovalOptions, RunnerOptions, Tool, ToolError, ToolOutcome, ToolStream, sources, tool
from streamtools.calls import ToolCall
from streamtools.events import NativeToolCall, ProviderCompleted, UIEvent
from streamtools.tools import Approve, CallLedger, Claim, MemoryLedger, PostgresLedger, RedisLedger, SQLiteLedger
from streamtools.tools.approvals import Question, Suspension
from streamtools.tools.ledger import NO_LEASE, Entry
from tests.support.cases import cases
from tests.support.patching import with_clock
from tests.support.postgres import PostgresServer
from tests.support.redis_server import RedisServer
from tests.support.stories import story

CALL = ToolCall(id="call_1", name="pay", arguments={"to": "Ann"}, dialect="native")
DONE = ToolOutcome(call=CALL, result={"paid": True}, text='{"paid":true}', error=None, message=None, elapsed=0.5)


@pytest.fixture(
    params=["memory", "file", *(pytest.param(each, marks=pytest.mark.servers) for each in ("postgres", "redis"))]
)
def make_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> MakeLedger:
    """Create a new ledger of each kind."""
    numbers = count()

    @asynccontextmanager
    async def make(clock: Callable[[], float]) -> AsyncIterator[CallLedger]:
        match request.param:
            case "memory":
                async with MemoryLedger() as memory:
                    yield with_clock(memory, clock)
            case "file":
                async with SQLiteLedger(tmp_path / f"{next(numbers)}.sqlite") as file:
                    yield with_clock(file, clock)
                    file.close()
            case "redis":
                server: RedisServer = request.getfixturevalue("redis")
                async with RedisLedger(server.url, prefix=f"{request.node.name} {next(numbers)}") as redis:
                    yield with_clock(redis, clock)
            case _:
                postgres: PostgresServer = request.getfixturevalue("postgres")
                schema = f"{request.node.name} {next(numbers)}"
                async with PostgresLedger(postgres.url, schema=schema) as ledger:
                    yield with_clock(ledger, clock)

    return make


async def test_laws(make_ledger: MakeLedger) -> None:
    """Every ledger of this package keeps the laws."""
    await assert_ledger_laws(make_ledger)


async def entry_of(ledger: CallLedger, call: ToolCall = CALL) -> Entry:
    """Return the entry of a call that has started."""
    entry = await ledger.begin("run_1", call, Claim(holder="another holder"))
    assert entry is not None
    return entry


def another(number: int) -> ToolCall:
    return ToolCall(id=f"call_{number}", name="pay", arguments={}, dialect="native")


async def test_a_full_memory_ledger_deletes_the_oldest_call() -> None:
    """No suspension can name this call."""
    ledger = MemoryLedger(2)
    for number in range(3):
        await ledger.begin("run_1", another(number), Claim(until=0))
        await ledger.finish("run_1", (await entry_of(ledger, another(number))).with_result())
    assert [another(1), another(2)] == [entry.call for entry in await ledger.entries()]


async def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    """A connection of another process finds the entries."""
    path = tmp_path / "calls.sqlite"
    first = SQLiteLedger(path)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    await first.begin("run_1", CALL)
    second = SQLiteLedger(path)
    assert (await entry_of(second)).is_unknown
    await first.finish("run_1", DONE)
    assert DONE == (await entry_of(second)).outcome
    first.close()
    second.close()


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    """The file stays unchanged."""
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ann, " * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        SQLiteLedger(path)
    assert path.read_text().startswith("Dear Ann")


# In a stream.


def a_call() -> Any:
    called = NativeToolCall("pay", {"to": "Ann"}, id="n0")
    return sources.events([called, ProviderCompleted(finish_reason="tool_calls")])


async def run(ledger: CallLedger, *, paid: list[str], run_id: str = "run_1") -> list[UIEvent]:
    """Return the events of a run that pays."""

    async def pay(to: str) -> dict[str, str]:
        paid.append(to)
        return {"message": f"paid {to}"}

    async with ToolStream(a_call(), tools=[pay], runner=RunnerOptions(ledger=ledger), run_id=run_id) as events:
        return [event async for event in events]


async def test_a_failure_is_recorded_without_its_exception(make_ledger: MakeLedger) -> None:
    """The traceback would keep objects of the run alive."""
    began: list[str] = []
    told: list[BaseException | None] = []
    streams: list[weakref.ref[Tool[Any, Any]]] = []

    async def fail(ledger: CallLedger) -> list[UIEvent]:
        @tool(name="pay")
        async def pay(to: str) -> str:
            began.append(to)
            raise ToolError("no money")

        streams.append(weakref.ref(pay))
        async with ToolStream(a_call(), tools=[pay], runner=RunnerOptions(ledger=ledger), run_id="run_1") as events:
            read = [event async for event in events]
        told.append(events.result.outcomes[0].exception)
        return read

    async with make_ledger(time) as ledger:
        first = await fail(ledger)
        assert first == await fail(ledger)
        assert (["Ann"], [True, False]) == (began, [isinstance(each, ToolError) for each in told])
        told.clear()
        gc.collect()
        assert [None, None] == [each() for each in streams]


class Broken(MemoryLedger):
    """A ledger that cannot write."""

    def __init__(self, *, begins: bool) -> None:
        super().__init__()
        self._begins = begins

    async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
        if not self._begins:
            raise OSError("no space left: secret")
        return await super().begin(scope, call, claim)

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        raise OSError("no space left: secret")


async def test_a_call_that_cannot_be_recorded_does_not_run() -> None:
    """The call fails, the run continues, and only the log has the reason."""
    paid: list[str] = []
    with structlog.testing.capture_logs() as logs:
        events = await run(Broken(begins=False), paid=paid)
    assert [] == paid
    assert "error n0 tool_failed" in story(events)
    assert "OSError" in repr(logs)
    assert "OSError: no space left: secret" in logs[0]["exception"]
    assert "secret" not in repr(events)


async def test_an_outcome_that_cannot_be_recorded_is_unknown_later() -> None:
    """This run has its result. The next one finds that the call has started."""
    paid: list[str] = []
    ledger = Broken(begins=True)
    with structlog.testing.capture_logs() as logs:
        assert "executed n0: {'message': 'paid Ann'}" in story(await run(ledger, paid=paid))
        again = await run(ledger, paid=paid)
    assert "error n0 outcome_unknown" in story(again)
    assert ["Ann"] == paid
    assert "secret" not in repr(logs)
    assert not any("exception" in each for each in logs)


async def test_the_log_says_why_an_outcome_is_unknown() -> None:
    """A call of a suspended run may have run in another process, and the ledger was not opened."""
    call = ToolCall(id="n0", name="pay", arguments={}, dialect="native")
    waiting = Suspension(run_id="r", questions=[Question(call=call, digest=call.digest, approval=True)])
    stream = ToolStream(
        sources.events([]),
        tools=[tool(name="pay")(lambda: "paid")],
        resume=waiting,
        approvals=ApprovalOptions(decisions={"n0": Approve()}),
        runner=RunnerOptions(ledger=RedisLedger("redis://127.0.0.1:1")),
    )
    with structlog.testing.capture_logs() as logs:
        async with stream as events:
            assert "error n0 outcome_unknown" in story([event async for event in events])
    assert "Enter the ledger before you use it" in logs[0]["exception"]


# Crashes.

_PROCESS = """
import contextlib, os, sys
import anyio
from streamtools import RunnerOptions, ToolStream, sources
from streamtools.events import NativeToolCall, ProviderCompleted
from streamtools import tools

kind, where, *places = sys.argv[1:]
Kind = getattr(tools, kind)

def dies(where):
    if die == where:
        os.kill(os.getpid(), 9)

class Dying(Kind):
    async def begin(self, scope, call, claim):
        dies("before it is recorded")
        entry = await super().begin(scope, call, claim)
        dies("before it starts")
        return entry

    async def finish(self, scope, outcome):
        dies("before its outcome is recorded")
        await super().finish(scope, outcome)
        dies("after its outcome is recorded")

async def pay(to: str) -> str:
    dies("in the tool, before the effect")
    with open(diary, "a") as file:
        file.write(to + "\\n")
    dies("in the tool, after the effect")
    return "paid " + to

async def main():
    call = NativeToolCall("pay", {"to": "Ann"}, id="n0")
    source = sources.events([call, ProviderCompleted(finish_reason="tool_calls")])
    ledger = Dying(where, lease=0.2 if die else 2.0)  # the second process must not lose a transaction that waits
    async with (
        ledger if hasattr(ledger, "__aenter__") else contextlib.nullcontext(),
        ToolStream(source, tools=[pay], runner=RunnerOptions(ledger=ledger), run_id=place) as events,
    ):
        async for event in events:
            if event.type in ("executed", "error"):
                print(event.type, getattr(event, "code", ""), flush=True)

for place in places:
    diary = place + ".diary"
    for die in (place, ""):  # each in a separate process with all imports
        if not (child := os.fork()):
            anyio.run(main)
            os._exit(0)
        print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

KILLED = {
    "before it is recorded": (1, "executed"),
    "before it starts": (0, "error outcome_unknown"),
    "in the tool, before the effect": (0, "error outcome_unknown"),
    "in the tool, after the effect": (1, "error outcome_unknown"),
    "before its outcome is recorded": (1, "error outcome_unknown"),
    "after its outcome is recorded": (1, "executed"),
}
"""For each place where a process dies: the number of effects, and the report of the next process."""


@pytest.mark.parametrize(
    "kind",
    ["SQLiteLedger", *(pytest.param(each, marks=pytest.mark.servers) for each in ("PostgresLedger", "RedisLedger"))],
)
def test_a_killed_process_causes_no_second_effect(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """The resumed run reports an unknown outcome, wherever the process died."""
    where = "calls" if kind == "SQLiteLedger" else request.getfixturevalue(kind.removesuffix("Ledger").lower()).url
    command = [sys.executable, "-c", _PROCESS, kind, where, *KILLED]
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
