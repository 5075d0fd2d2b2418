"""Runs whose streams ask questions, which any task that has the run can decide."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import ApprovalOptions, chat, replay
from streamtools.conversation import ScriptedModel
from streamtools.errors import Code, DecisionRefused, OwnerUnreachable
from streamtools.recording import shipped
from streamtools.runs import LostRun, MemoryEventLog, Run, Runs
from streamtools.tools import Approve
from tests.support.approvals import ANN, QUESTION, Bank, calls

BOTH = calls(("pay", ANN), ("sign", {"text": "Dear Ann"}))


async def held(bank: Bank, decide: Any) -> Any:
    """Return a run after its two questions. Its stream asks now, so `Runs` needs no ledger."""
    async with Runs() as runs:
        stream = chat(
            ScriptedModel([BOTH, "Done."]), [QUESTION], tools=bank.tools, approvals=ApprovalOptions(ask="now")
        )
        run = await runs.start(stream, owner="ann")
        asked = 0
        async with run.attach() as events:
            async for event in events:
                if event.type == "approval-requested" or (event.type == "executing" and event.call.name == "sign"):
                    asked += 1
                    if asked == 2:
                        await decide(run)
        await run.wait()
        assert [] == await run.questions()
        with pytest.raises(DecisionRefused, match="'n2' does not wait for a decision"):
            await run.approve("n2")
        made = run.decisions["n0"]
        await runs.decide(run.id, "n0", made, owner="ann")  # a late second click
        with pytest.raises(DecisionRefused, match=r"'n0' was (approved|denied); this"):
            await run.decide("n0", not isinstance(made, Approve))
        return run


async def test_decisions_of_a_run() -> None:
    """It reports the questions of its stream, approves and answers."""
    bank = Bank()

    async def decide(run: Any) -> None:
        pay, sign = await run.questions()
        assert [("pay", True), ("sign", False)] == [(each.call.name, each.approval) for each in (pay, sign)]
        await run.approve("n0", digest=pay.digest)
        with pytest.raises(DecisionRefused, match="was approved; this decision is ignored"):
            await run.deny("n0")
        await run.answer("n1", {"page": 1})

    run = await held(bank, decide)
    assert ["paid 5 to Ann", {"page": 1}] == [each.result for each in run.result.outcomes]
    assert [("Ann", 5)] == bank.paid


async def test_denials_and_errors_of_a_run() -> None:
    """It denies a call, or reports why it could not be carried out."""
    bank = Bank()

    async def decide(run: Any) -> None:
        with pytest.raises(DecisionRefused, match="its digest differs"):
            await run.approve("n0", digest="another")
        with pytest.raises(ValueError, match=r"'n0' must be Approve, Deny, Answer, True or False .*, got None"):
            await run.decide("n0", None)
        await run.decide("n0", False)
        await run.answer("n1", error="no ink")

    run = await held(bank, decide)
    assert [Code.TOOL_DENIED, Code.TOOL_FAILED] == [each.error for each in run.result.outcomes]
    assert [] == bank.paid


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
