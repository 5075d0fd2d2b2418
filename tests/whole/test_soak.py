"""The soak test in numbers: a few dozen streams with each fault, over real connections. Nothing is lost or left."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from benchmarks.soaking.errands import registry
from benchmarks.soaking.house import SOURCES
from benchmarks.soaking.plans import GOOD, Plan, make_plan
from benchmarks.soaking.witness import Witness, Wrong
from streamtools import RunnerOptions, ToolStream
from streamtools.events import CallStart, UIEvent, UsageReport, Warning


@pytest.mark.deep
async def test_lost_and_duplicate_events_are_found() -> None:
    """Also if the numbers of the events are right."""
    for plan in map(make_plan, range(100, 160)):
        if plan.ending not in _WITHOUT_NETWORK:
            continue
        events = await read(plan)
        check(plan, events)
        for place, event in enumerate(events):
            if not isinstance(event, _FREE):
                for broken in (events[:place] + events[place + 1 :], events[: place + 1] + events[place:]):
                    with pytest.raises(Wrong):
                        check(plan, broken)


_WITHOUT_NETWORK = (*GOOD, "truncated", "no terminator", "error frame")
_FREE = (CallStart, UsageReport, Warning)
"""Events that may come or not, as far as the plan can tell."""


async def read(plan: Plan) -> list[UIEvent]:
    """Return the events of a plan's stream, without a network."""
    async with ToolStream(
        SOURCES[plan.format](plan.chunks()), tools=registry, runner=RunnerOptions(state=Counter())
    ) as events:
        return [event async for event in events]


def check(plan: Plan, events: list[UIEvent]) -> None:
    """Compare events, with new numbers, with the plan."""
    witness = Witness(plan, asks=False, ran=None)
    for number, event in enumerate(events, 1):
        witness.feed(replace(event, seq=number))
    witness.close(left=False)
