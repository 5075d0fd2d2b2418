"""A run that waits for people: its open questions as JSON, to be kept until somebody answers them.

Where nobody is there to answer at once, the run ends, and what it waits for is written down: the calls as they were
made, what is asked about each, and to which run they belong. Another process can take it up from there. It must be kept
where nobody else writes: who can change a call there can change what runs.
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
    """What one run has left open. `run_id` is that of the run in which the calls were made."""

    run_id: str
    questions: list[Question]
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        if len({call.id for call in self.calls}) < len(self.questions):
            raise ValueError("there are two questions about one call")

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that are asked about, in their order."""
        return [question.call for question in self.questions]

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, data: str | bytes) -> Suspension:
        """Return what `to_json` wrote. Raises ValueError for anything else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


class Resumption(NamedTuple):
    """What a run goes on with: the `questions` that the run `run_id` has left, and what was decided, by call id."""

    run_id: str
    questions: Mapping[str, Question]
    decisions: Mapping[str, Decision]

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that are asked about, in their order."""
        return [question.call for question in self.questions.values()]


def take_up(
    left: Suspension | str | None, decisions: Mapping[str, Decision | bool] | None, ledger: CallLedger | None
) -> Resumption | None:
    """Return what a run goes on with, None where nothing was left.

    Raises ValueError for what is no suspension and for one without a ledger, `DecisionRefused` for a decision that does
    not fit.
    """
    if left is not None and ledger is None:
        raise ValueError("to resume takes a ledger, where a second resume finds what has run: SQLiteLedger(path)")
    if not isinstance(left, Suspension | str | None):
        raise ValueError(f"resume is a Suspension or its JSON, not {left!r}")
    suspension = Suspension.from_json(left) if isinstance(left, str) else left
    questions = {question.call.id: question for question in (suspension.questions if suspension else ())}
    given = read_decisions(decisions or {})
    for call_id, decision in given.items():
        if call_id not in questions:
            raise DecisionRefused(f"call {call_id!r} waits for no decision")
        questions[call_id].check(decision)
    return Resumption(suspension.run_id, questions, given) if suspension else None
