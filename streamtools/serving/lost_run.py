"""The end of a run whose owner does not come back, out of what it has said. Sans-IO.

It says what is known and no more: what was being written is cut, a call that may have begun has an unknown outcome, and
calls that nobody has run are pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from streamtools.errors import Code
from streamtools.events import (
    ApprovalRequested,
    Call,
    Done,
    Error,
    Executed,
    Executing,
    Start,
    StepEnd,
    StepStart,
    Thinking,
    UIEvent,
    Warning,
)
from streamtools.tools import ToolOutcome

Known: TypeAlias = Callable[[str], "ToolOutcome | bool | None"]
"""What a ledger knows of a call, by its id: how it ended, True for one that had begun, False for one that had not; None
where there is no ledger."""

_GONE = "the process that ran this has gone"


def close_lost(run_id: str, said: Iterable[UIEvent], known: Known) -> list[UIEvent]:
    """Return the events, without numbers, that end a run behind these as the order of events asks for."""
    lost = _Lost()
    for event in said:
        lost.feed(event)
    return lost.close(run_id, known)


def is_untouched(said: Iterable[UIEvent]) -> bool:
    return all(isinstance(event, Start | StepStart) for event in said)


class _Lost:
    def __init__(self) -> None:
        self._begun = self._failed = self._waits = self._refused = False
        self._step: int | None = None  # that is open
        self._written: dict[str, bool] = {}  # ids of calls that are being written, and whether what was is whole
        self._asked: set[str] = set()
        self._running: set[str] = set()
        self._calls: dict[str, Call] = {}
        self._left: list[Call] = []  # of steps before

    def feed(self, event: UIEvent) -> None:
        self._begun = True
        self._refused = False
        match event:
            case StepStart(step):
                self._step = step
            case StepEnd():
                self._step = None
                self._left += self._calls.values()
                self._calls.clear()
            case Thinking(active, None):
                self._waits = active
            case Thinking(active, str(id)):
                if active:
                    self._written[id] = False
                else:
                    self._refused = not self._written.pop(id, True)
            case Call(call):
                self._calls[call.id] = event
                if call.id in self._written:
                    self._written[call.id] = True
            case ApprovalRequested(call):
                self._asked.add(call.id)
            case Executing(call):
                self._running.add(call.id)
            case Executed(call):
                self._calls.pop(call.id, None)
            case Error(call_id=None):
                self._failed = True
            case Error(call_id=str(id), call=call):
                self._calls.pop(id, None)
                if call is None:
                    self._written[id] = True

    def close(self, run_id: str, known: Known) -> list[UIEvent]:
        end: list[UIEvent] = [] if self._begun else [Start(run_id)]
        if self._refused:
            end.append(Warning(Code.NEAR_MISS, "what looked like a call was none"))
        for id, is_whole in self._written.items():
            if not is_whole:
                end.append(Error(Code.TRUNCATED, _GONE + " while the call was written", call_id=id))
            end.append(Thinking(False, id))
        if self._waits:
            end.append(Thinking(False))
        for id in list(self._calls):
            end += self._end_call(id, known(id))
        if not self._failed:
            end.append(Error(Code.STREAM_INTERRUPTED, _GONE))
        if self._step is not None:
            end.append(StepEnd(self._step, None))
        pending = [each.call for each in (*self._left, *self._calls.values())]
        return [*end, Done("failed", None, None, pending)]

    def _end_call(self, id: str, outcome: ToolOutcome | bool | None) -> list[UIEvent]:
        call = self._calls[id].call
        if isinstance(outcome, ToolOutcome):
            del self._calls[id]
            begins: list[UIEvent] = [] if id in self._running else [Executing(call)]
            return [*begins, outcome.event(0)]
        if outcome is False or (outcome is None and id in self._asked - self._running):
            if id not in self._running:
                return []
            del self._calls[id]
            return [Error(Code.TOOL_CANCELLED, f"{_GONE} before the tool began", call_id=id, call=call)]
        del self._calls[id]
        text = f"{_GONE}, and it is not known what the tool has done"
        return [Error(Code.OUTCOME_UNKNOWN, text, call_id=id, call=call)]
