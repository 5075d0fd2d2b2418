"""A run that ends with open questions, to be resumed once they are decided.

A `Suspension` is JSON: the calls as they were made, the question about each, and their run. Another process can resume
from it. Store it where no one else can write, because whoever changes a call there changes what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import DecisionRefused
from streamtools.tools.decisions import Decision, Question, read_decisions
from streamtools.tools.ledger import CallLedger


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """The open questions of a run: `run_id` is the run that made the calls, `trace` its `traceparent`."""

    run_id: str
    questions: list[Question]
    version: Literal[1] = 1
    trace: str = ""

    def __post_init__(self) -> None:
        if len({call.id for call in self.calls}) < len(self.questions):
            raise ValueError("a suspension must not hold two questions about one call")

    @property
    def calls(self) -> list[ToolCall]:
        """The calls of the questions, in order."""
        return [question.call for question in self.questions]

    def to_json(self) -> str:
        """Return one line of JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, data: str | bytes) -> Suspension:
        """Return the suspension that `to_json` wrote. Raises ValueError for anything else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except RecursionError:
            raise ValueError("the JSON of the suspension is nested too deeply") from None


class Resumption(NamedTuple):
    """The start of a resumed run: the `questions` of the run `run_id` and their `decisions`, by call id."""

    run_id: str
    questions: Mapping[str, Question]
    decisions: Mapping[str, Decision]
    trace: str = ""

    @property
    def calls(self) -> list[ToolCall]:
        """The calls of the questions, in order."""
        return [question.call for question in self.questions.values()]


def read_resumption(
    resume: Suspension | str | None, decisions: Mapping[str, Decision | bool] | None, ledger: CallLedger | None
) -> Resumption | None:
    """Check the arguments `resume` and `decisions` of a run. Returns None if there is nothing to resume.

    A question expires before the ledger may delete its call. Raises ValueError for anything but a suspension, and for
    one without a ledger; `DecisionRefused` for a decision that fits no question.
    """
    if resume is not None and ledger is None:
        raise ValueError("resume= needs a ledger, so that no call runs twice: pass ledger=SQLiteLedger(path)")
    if not isinstance(resume, Suspension | str | None):
        raise ValueError(f"resume must be a Suspension or its JSON, got {resume!r}")
    suspension = Suspension.from_json(resume) if isinstance(resume, str) else resume
    open_questions = suspension.questions if suspension else []
    questions = {each.call.id: each.within(ledger.keep) if ledger else each for each in open_questions}
    given = read_decisions(decisions or {})
    for call_id, decision in given.items():
        if call_id not in questions:
            raise DecisionRefused(f"call {call_id[:64]!r} waits for no decision")
        questions[call_id].check(decision)
    return Resumption(suspension.run_id, questions, given, suspension.trace) if suspension else None
