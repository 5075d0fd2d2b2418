"""The soak by numbers: a few dozen streams with every fault, over real connections, and nothing is lost or left."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from benchmarks.soaking.errands import registry
from benchmarks.soaking.house import SOURCES
from benchmarks.soaking.plans import FAULTS, GOOD, Plan, make_plan
from benchmarks.soaking.soak import Report, Settings, soak
from benchmarks.soaking.verdict import judge
from benchmarks.soaking.witness import Witness, Wrong
from streamtools import ToolStream
from streamtools.events import CallStart, UIEvent, UsageReport, Warning

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn, and a process of asyncio's, run on asyncio alone."""
    return "asyncio"


@pytest.fixture
async def report() -> Report:
    return await soak(SETTINGS)


SETTINGS = Settings(30, count=70, pace=0.002, idle=3.0)


async def test_a_few_dozen_streams(report: Report) -> None:
    """Each event is as the seed of its stream says, each fault was met, and no object of the package is left."""
    assert [] == report.here.problems + report.browsers["problems"]
    assert set(FAULTS) <= set(report.sent)
    assert {} == report.left
    assert 70 == report.here.streams + report.browsers["streams"]
    assert all(finding.holds for finding in judge(report, SETTINGS))


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


_WITHOUT_NETWORK = (*GOOD, "truncated", "no terminator", "error frame")
_FREE = (CallStart, UsageReport, Warning)
"""Events that may come or not, as far as the plan can tell."""


async def read(plan: Plan) -> list[UIEvent]:
    """Return the events of a plan's stream, without a network."""
    async with ToolStream(SOURCES[plan.format](plan.chunks()), tools=registry, tool_state=Counter()) as events:
        return [event async for event in events]


def hold(plan: Plan, events: list[UIEvent]) -> None:
    """Hold events against the plan, numbered anew."""
    witness = Witness(plan, asks=False, ran=None)
    for number, event in enumerate(events, 1):
        witness.feed(replace(event, seq=number))
    witness.close(left=False)
