"""Regression tests of faults that the torture found."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from streamtools import ToolStream
from streamtools.events import SourceEvent
from tests.support.stories import Script
from tests.torture.blows import read_blow
from tests.torture.enumeration import benches
from tests.torture.scenarios import SCENARIOS


@pytest.mark.parametrize(("name", "steps"), [("prose", range(1, 12)), ("unread", range(1, 12))])
def test_a_run_ends_if_asyncio_cancels_all_tasks(name: str, steps: range) -> None:
    """This happens at the end of a program. It ignores shields, and may strike before the first step of a task."""
    strike_all(name, steps)


@pytest.mark.parametrize(("name", "steps"), [("threads", range(34, 40)), ("run", range(4, 20))])
def test_a_cancelled_task_stays_cancelled_inside_a_cancelled_scope(name: str, steps: range) -> None:
    """asyncio also cancels a sibling, and so the task group of both, while the stream or the runs exit."""
    strike_all(name, steps, "raise1@999")  # never strikes, but puts the consumer into a task group


def test_a_cancellation_is_not_lost_while_the_runs_close_after_an_exception() -> None:
    strike_all("run", range(10, 36), "raise1@1", kind="cancel-task")


def strike_all(name: str, steps: range, *others: str, kind: str = "cancel-all") -> None:
    """Cancel at each of these steps of a scenario, and assert that nothing breaks."""
    (bench,) = benches([SCENARIOS[name]], ("asyncio",), 0)
    for step in steps:
        bench.strike([*map(read_blow, others), read_blow(f"{kind}@{step}")])
    assert bench.trials > len(steps)
    assert bench.failures == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [("prose", "source-lone-cancel"), ("own-source", "fault-lone-cancel"), ("own-source", "close-lone-cancel")],
)
def test_a_cancellation_in_a_source_is_not_that_of_its_consumer(name: str, kind: str) -> None:
    """A source that awaits a future which another task cancelled has failed. A finished run stays finished."""
    (bench,) = benches([SCENARIOS[name]], ("asyncio",), 0)
    for blow in [each for each in bench.strikes() if each.kind.name == kind]:
        bench.strike([blow])
    assert bench.trials > 1
    assert bench.failures == []


def test_a_cancellation_while_a_run_is_stopped() -> None:
    """The run is cancelled, and its consumer is not."""

    class Source(Script):
        async def __anext__(self) -> Sequence[SourceEvent]:
            raise asyncio.CancelledError

    async def main() -> None:
        async with ToolStream(Source()) as events:
            await events.aclose()
            for _ in range(20):
                await asyncio.sleep(0)
        assert "cancelled" == events.result.reason

    asyncio.run(main())
