"""At most once: what is written down of calls, by whom it is read, and what a crash leaves behind."""

from __future__ import annotations

import os
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
from streamtools.events import NativeToolCall, ProviderCompleted, UIEvent
from streamtools.tools.ledger import CallLedger, Entry, MemoryLedger, SQLiteLedger
from tests.stories import story

pytestmark = pytest.mark.anyio

CALL = ToolCall(id="call_1", name="pay", arguments={"to": "Ann"}, dialect="native")
DONE = ToolOutcome(call=CALL, result={"paid": True}, text='{"paid":true}', error=None, message=None, elapsed=0.5)


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CallLedger]:
    """Each kind of ledger."""
    if request.param == "memory":
        yield MemoryLedger()
        return
    made = SQLiteLedger(tmp_path / "calls.sqlite")
    yield made
    made.close()
    made.close()


async def test_a_call_begins_once(ledger: CallLedger) -> None:
    """Who comes second is told what is known: that it began, and later how it ended."""
    assert await ledger.begin("run_1", CALL) is None
    assert Entry(None) == await ledger.begin("run_1", CALL)
    await ledger.finish("run_1", DONE)
    assert Entry(DONE) == await ledger.begin("run_1", CALL)


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
    """The oldest calls are forgotten."""
    ledger = MemoryLedger(2)
    calls = [ToolCall(id=f"call_{n}", name="pay", arguments={}, dialect="native") for n in range(3)]
    for call in calls:
        assert await ledger.begin("run_1", call) is None
    assert await ledger.begin("run_1", calls[0]) is None
    assert Entry(None) == await ledger.begin("run_1", calls[2])


async def test_the_file_is_private_and_lasting(tmp_path: Path) -> None:
    """Only its owner reads it; another process, here another connection, finds what was written."""
    path = tmp_path / "calls.sqlite"
    first = SQLiteLedger(path)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    await first.begin("run_1", CALL)
    second = SQLiteLedger(path)
    assert Entry(None) == await second.begin("run_1", CALL)
    await first.finish("run_1", DONE)
    assert Entry(DONE) == await second.begin("run_1", CALL)
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

    async def begin(self, scope: str, call: ToolCall) -> Entry | None:
        if not self._begins:
            raise OSError("no space left: secret")
        return await super().begin(scope, call)

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
from streamtools.tools.ledger import SQLiteLedger

ledger_path, diary, die = sys.argv[1:]

def dies(where):
    if die == where:
        os.kill(os.getpid(), 9)

class Dying(SQLiteLedger):
    async def begin(self, scope, call):
        dies("before it is written down")
        entry = await super().begin(scope, call)
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
    async with ToolStream(source, tools=[pay], ledger=Dying(ledger_path), run_id="run_1") as events:
        async for event in events:
            if event.type in ("executed", "error"):
                print(event.type, getattr(event, "code", ""))

anyio.run(main)
"""


@pytest.mark.parametrize(
    ("die", "effects", "told"),
    [
        pytest.param("before it is written down", 1, "executed", id="before it is written down"),
        pytest.param("before it is dispatched", 0, "error outcome_unknown", id="before it is dispatched"),
        pytest.param("in the tool, before the effect", 0, "error outcome_unknown", id="before the effect"),
        pytest.param("in the tool, behind the effect", 1, "error outcome_unknown", id="behind the effect"),
        pytest.param("before its end is written down", 1, "error outcome_unknown", id="before its end is written down"),
        pytest.param("behind its end", 1, "executed", id="behind its end"),
    ],
)
def test_a_process_that_is_killed(die: str, effects: int, told: str, tmp_path: Path) -> None:
    """Wherever it dies, who takes the run up again causes no second effect, and tells what nobody knows."""
    ledger, diary = tmp_path / "calls.sqlite", tmp_path / "diary"
    command = [sys.executable, "-c", _PROCESS, str(ledger), str(diary)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    killed = subprocess.run([*command, die], env=environment, capture_output=True, timeout=60, check=False)
    assert -signal.SIGKILL == killed.returncode, killed.stderr
    again = subprocess.run([*command, ""], env=environment, capture_output=True, timeout=60, check=True, text=True)
    assert told == again.stdout.splitlines()[-1].strip()
    assert effects == (diary.read_text().count("Ann") if diary.exists() else 0)
