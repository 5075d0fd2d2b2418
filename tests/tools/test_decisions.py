"""Questions about calls, and decisions: once, in time, about exactly the call that was shown."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import DecisionRefused
from streamtools.tools import MemoryLedger
from streamtools.tools.approvals import (
    Answer,
    Approvals,
    Approve,
    Decision,
    Deny,
    Question,
    Suspension,
    read_resumption,
)

PAY = ToolCall(id="call_1", name="pay", arguments={"to": "Ann", "sum": 5}, dialect="native")
LATE = Deny("the approval timed out before a decision arrived")


def changed(**arguments: Any) -> ToolCall:
    return ToolCall(id="call_1", name="pay", arguments={**PAY.arguments, **arguments}, dialect="native")


def asked(*, approval: bool = True, expires: float | None = 100.0) -> Question:
    return Question(call=PAY, digest=PAY.digest, approval=approval, expires=expires)


@pytest.mark.parametrize("decision", [Approve(), Approve(PAY.digest), Deny("no money")])
@pytest.mark.parametrize(
    ("decided", "now", "is_late"),
    [(False, 99.9, False), (False, 100.0, True), (True, 100.0, False), (True, 9_999.9, False), (True, 10_000.0, True)],
)
async def test_a_late_decision_is_a_denial(decision: Decision, decided: bool, now: float, is_late: bool) -> None:
    """A decided run has decisions that were made in time. They count as long as the ledger keeps the call."""
    suspension = Suspension(run_id="r", questions=[replace(asked(), asked=0.0)])
    run = SimpleNamespace(suspension=suspension, decisions={PAY.id: decision}, next_id="r~")
    ledger = MemoryLedger(keep=10_000.0)
    resumed = read_resumption(run, None, ledger) if decided else read_resumption(suspension, run.decisions, ledger)

    async def show(question: Question) -> None:
        raise AssertionError("the question is open")

    made = await Approvals(resumed=resumed, clock=lambda: now).ask(PAY, approval=True, show=show)
    assert (LATE if is_late else decision) == made


@pytest.mark.parametrize(
    ("question", "decision", "code", "message"),
    [
        (asked(), Answer("paid"), "wrong_kind", "waits for Approve or Deny, got Answer"),
        (asked(approval=False), Approve(), "wrong_kind", "waits for Answer or Deny, got Approve"),
        (asked(), Approve(changed(sum=6).digest), "wrong_digest", "its digest differs"),
        (replace(asked(), call=changed(sum=500)), Approve(), "wrong_digest", "its digest differs"),
    ],
)
def test_a_wrong_decision_is_refused(question: Question, decision: Decision, code: str, message: str) -> None:
    """The question stays open."""
    with pytest.raises(DecisionRefused, match=message) as caught:
        question.check(decision)
    assert code == caught.value.code


def test_a_suspension_survives_json() -> None:
    """Other JSON is refused."""
    other = ToolCall(id="call_2", name="sign", arguments={}, dialect="native")
    questions = [asked(), Question(call=other, digest=other.digest, approval=False)]
    suspension = Suspension(run_id="run_1", questions=questions)
    assert suspension == Suspension.from_json(suspension.to_json())
    assert [PAY, other] == suspension.calls
    newer = json.dumps({**json.loads(suspension.to_json()), "version": 2})
    for text in (newer, "{}", "no JSON", "[]"):
        with pytest.raises(ValueError, match=r"\S"):
            Suspension.from_json(text)
