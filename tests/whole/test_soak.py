"""The soak by numbers: a few dozen streams with every fault, over real connections, and nothing is lost or left."""

from __future__ import annotations

from collections import Counter

import httpx
import pytest
from msgspec.structs import replace

from benchmarks.soaking import served
from benchmarks.soaking.errands import registry
from benchmarks.soaking.house import SOURCES, House
from benchmarks.soaking.plans import FAULTS, GOOD, Plan, make_plan
from benchmarks.soaking.served import application
from benchmarks.soaking.soak import Report, Settings, soak
from benchmarks.soaking.verdict import judge
from benchmarks.soaking.witness import Witness, Wrong
from streamtools import RunnerOptions, ToolStream
from streamtools.events import CallStart, UIEvent, UsageReport, Warning
from streamtools.runs import Runs

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn, and a process of asyncio's, run on asyncio alone."""
    return "asyncio"


@pytest.fixture
async def report() -> Report:
    return await soak(SETTINGS)


SETTINGS = Settings(30, count=70, pace=0.002, idle=3.0)


@pytest.mark.deep
async def test_a_few_dozen_streams(report: Report) -> None:
    """Each event is as the seed of its stream says, each fault was met, and no object of the package is left."""
    assert [] == report.here.problems + report.browsers["problems"]
    assert set(FAULTS) <= set(report.sent)
    assert {} == report.left
    assert 70 == report.here.streams + report.browsers["streams"]
    assert all(finding.holds for finding in judge(report, SETTINGS))


@pytest.mark.deep
async def test_what_is_lost_or_doubled_is_seen() -> None:
    """No event can be missing, or come twice, without a word, though the numbers were right."""
    for plan in map(make_plan, range(100, 160)):
        if plan.ending not in _WITHOUT_NETWORK:
            continue
        events = await read(plan)
        hold(plan, events)
        for place, event in enumerate(events):
            if not isinstance(event, _FREE):
                for broken in (events[:place] + events[place + 1 :], events[: place + 1] + events[place:]):
                    with pytest.raises(Wrong):
                        hold(plan, broken)


async def test_a_run_that_is_gone_too_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser may come back too late for its run, which is no fault; but not before the run is that old."""
    house = House("http://127.0.0.1:9", 1, idle=1.0, life=1.0, seed=1, count=1)
    now = 0.0
    house.runs = Runs(keep=30.0, clock=lambda: now)
    transport = httpx.ASGITransport(application(house))
    async with house, httpx.AsyncClient(transport=transport, base_url="http://soak") as browser:
        for kept, problems in ((0.0, 0), (60.0, 1)):
            monkeypatch.setattr(served, "KEPT", kept)
            assert (await browser.get(f"/run/{problems}")).status_code == 200
            now += 31.0
            again = await browser.get(f"/run/{problems}", headers={"Last-Event-ID": "1"})
            assert (again.status_code, len(house.tally.problems)) == (404, problems)


_WITHOUT_NETWORK = (*GOOD, "truncated", "no terminator", "error frame")
_FREE = (CallStart, UsageReport, Warning)
"""Events that may come or not, as far as the plan can tell."""


async def read(plan: Plan) -> list[UIEvent]:
    """Return the events of a plan's stream, without a network."""
    async with ToolStream(
        SOURCES[plan.format](plan.chunks()), tools=registry, runner=RunnerOptions(state=Counter())
    ) as events:
        return [event async for event in events]


def hold(plan: Plan, events: list[UIEvent]) -> None:
    """Hold events against the plan, numbered anew."""
    witness = Witness(plan, asks=False, ran=None)
    for number, event in enumerate(events, 1):
        witness.feed(replace(event, seq=number))
    witness.close(left=False)
