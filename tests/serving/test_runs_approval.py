"""Runs whose streams ask questions, which any task that has the run can decide."""

from __future__ import annotations

import pytest

from streamtools import replay
from streamtools.errors import DecisionRefused, OwnerUnreachable
from streamtools.recording import shipped
from streamtools.runs import LostRun, MemoryEventLog, Run, Runs

pytestmark = pytest.mark.anyio


async def test_a_run_without_questions() -> None:
    """It has no questions and refuses decisions, also before it is entered."""
    async with Runs() as runs:
        run = await runs.start(replay(shipped()["tilde-call"]), owner="ann")
        assert [] == await run.questions()
        for decide in (run.approve, run.deny, run.answer):
            with pytest.raises(DecisionRefused):
                await decide("n0")
        await run.wait()


async def test_a_decision_before_a_continued_run_is_entered() -> None:
    """It may be repeated, because the call may still wait."""
    lost = LostRun("r", "ann", None, None, 1, [])
    run = Run(replay(shipped()["tilde-call"]), "r", "ann", MemoryEventLog(), lost=lost)
    with pytest.raises(OwnerUnreachable):
        await run.approve("n0")
