"""Compares the events of one run with the plan of its stream: no data is lost, repeated or invented.

All written text is either shown, or is the raw text of a call or of a near miss. Joined, it equals the provider's
text, or a beginning of it for a reader that left. The calls equal those of the plan, in order. Each runs the planned
number of times with the planned result. The final `done` matches the ending of the plan.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.soaking.errands import SECRET, Errand
from benchmarks.soaking.plans import GOOD, Plan
from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import Code, EventOrderError
from streamtools.events import (
    ApprovalRequested,
    Call,
    Done,
    Error,
    Executed,
    Executing,
    Progress,
    Raw,
    Reasoning,
    Text,
    UIEvent,
    Warning,
)
from streamtools.outputs import Grammar
from streamtools.stream.result import TurnResult


class Wrong(AssertionError):
    """A result differs from the plan."""


class Witness:
    """Reads the events of one run.

    `asks` says whether somebody decides while the run goes on, `ran` is how often its tools have noted each call, and
    None where they cannot be seen.
    """

    def __init__(self, plan: Plan, *, asks: bool, ran: Counter[str] | None) -> None:
        self.plan = plan
        self.count = 0
        self.calls = 0
        self.done: Done | None = None
        self.fault: Error | None = None
        self._asks = asks
        self._ran = ran
        self._grammar = Grammar()
        self._written: list[str] = []
        self._shown: list[str] = []
        self._thought: list[str] = []
        self._due = [errand for errand in plan.errands if errand.fate]
        self._errands: dict[str, Errand] = {}  # by the ids of the calls
        self._begun: set[str] = set()
        self._asked: set[str] = set()
        self._ended: dict[str, Executed | Error] = {}
        self._progress: dict[str, list[Any]] = {}
        self._malformed = 0
        self._warnings: Counter[str] = Counter()

    @property
    def is_whole(self) -> bool:
        """Whether the run ended as its provider ended it."""
        return self.done is not None and self.done.reason != "cancelled"

    @property
    def outcomes(self) -> Counter[str]:
        """How calls ended, by code."""
        return Counter(event.code.value if isinstance(event, Error) else event.type for event in self._ended.values())

    def feed(self, event: UIEvent) -> None:
        """Read an event. Raises `Wrong` if it is not allowed."""
        self.count += 1
        try:
            self._grammar.feed(event)
        except EventOrderError as error:
            raise Wrong(str(error)) from None
        match event:
            case Text(text):
                self._shown.append(text)
                self._written.append(text)
            case Reasoning(text):
                self._thought.append(text)
            case Call(call):
                self.calls += 1
                self._written.append(call.raw)
                self._errands[call.id] = self._find(call)
            case Executing(call):
                self._begun.add(call.id)
            case ApprovalRequested(call):
                self._asked.add(call.id)
            case Progress(call_id, data):
                self._progress.setdefault(call_id, []).append(data)
            case Executed(call):
                self._end(call.id, event)
            case Error(_, _, None):
                self.fault = event
            case Error(_, _, _, None):
                self._malformed += 1
                self._written.append("" if event.dialect == NATIVE else event.raw or "")
            case Error(_, _, str(call_id)):
                self._end(call_id, event)
            case Warning(code):
                self._warnings[code.value] += 1
            case Raw(data):
                raise Wrong(f"raw: {data}")
            case Done():
                self.done = event

    def close(self, *, left: bool) -> None:
        """End the events. `left` is set if the reader left. Raises `Wrong`."""
        plan, done = self.plan, self.done
        if done is None:
            raise Wrong("the run has no done")
        try:
            self._grammar.close()
        except EventOrderError as error:
            raise Wrong(str(error)) from None
        is_cut = left and done.reason == "cancelled"
        if not is_cut:
            expected = self._expected_reason()
            if (done.reason, done.raw_finish_reason) != (expected, plan.finish):
                raise Wrong(f"{done}, and not {expected} with {plan.finish}")
        self._check_fault(is_cut)
        self.check_beginning(whole=not is_cut)
        self._check_warnings(is_cut)
        self._check_calls(is_cut)
        for call_id, errand in self._errands.items():
            self._check_outcome(call_id, errand, is_cut)

    def check_beginning(self, *, whole: bool = False) -> None:
        """Raise `Wrong` unless the text so far is the beginning of the sent text."""
        for pieces, sent in ((self._written, self.plan.text), (self._thought, self.plan.thought)):
            written = "".join(pieces)
            if written != (sent if whole else sent[: len(written)]):
                raise Wrong(f"{written!r}, and not {sent!r}")

    def check_result(self, result: TurnResult) -> None:
        """Raise `Wrong` unless the result agrees with the events."""
        done = self.done
        assert done is not None
        told = (done.reason, done.finish_reason, self.calls, len(self._ended))
        if told != (result.reason, result.finish_reason, len(result.calls), len(result.outcomes)):
            raise Wrong(f"{told}, and not {result}")
        shown = "".join(self._shown)
        if result.text != shown:
            raise Wrong(f"the result is {result.text!r}, and not {shown!r}")

    def _find(self, call: ToolCall) -> Errand:
        """Return the planned call of an event. Calls arrive in order, and cut calls may be missing."""
        for place, errand in enumerate(self._due):
            if (call.name, call.arguments) == errand[:2]:
                del self._due[: place + 1]
                return errand
        raise Wrong(f"a call that nobody made: {call}, and not {self._due}")

    def _end(self, call_id: str, event: Executed | Error) -> None:
        if call_id in self._ended:
            raise Wrong(f"{call_id} ended twice")
        self._ended[call_id] = event

    def _expected_reason(self) -> str:
        if self.plan.ending in GOOD:
            return "waiting" if self._asked - self._ended.keys() else "finished"
        return "truncated" if self.plan.ending == "truncated" else "failed"

    def _check_fault(self, is_cut: bool) -> None:
        plan, fault = self.plan, self.fault
        if fault is None:  # the grammar wants one where the run has failed
            return
        is_told = plan.status != 200 or plan.ending == "error frame"
        code = Code.UPSTREAM_ERROR if is_told else Code.STREAM_INTERRUPTED
        status = plan.status if plan.status != 200 else None
        if is_cut or fault.code != code or (status and fault.status != status):
            raise Wrong(f"{fault}, and not {code} {status}")

    def _check_warnings(self, is_cut: bool) -> None:
        told = Counter(self._warnings)
        most = len(self.plan.garbage) + bool(self.plan.rest)  # a frame that breaks off may be one that is bad
        garbage, left = told.pop(Code.BAD_FRAME.value, 0), told.pop(Code.ABANDONED.value, 0)
        due = sum(errand.fate.left for errand in self._errands.values() if errand.fate)
        for code in (Code.MISSING_CLOSE, Code.NEAR_MISS):  # of what was cut, and of what looks like a call
            told.pop(code.value, 0)
        if told or garbage > most or (not is_cut and garbage < len(self.plan.garbage)) or left > due:
            raise Wrong(f"warnings: {dict(self._warnings)}")

    def _check_calls(self, is_cut: bool) -> None:
        plan = self.plan
        sure, possible = ({p for p in places if plan.errands[p].fate} for places in plan.complete())
        if self.calls > len(possible) or (not is_cut and self.calls < len(sure)):
            raise Wrong(f"{self.calls} calls, of {len(sure)} to {len(possible)}")
        if plan.native and not is_cut and self._malformed != plan.begun - self.calls:
            raise Wrong(f"{self._malformed} malformed calls, and {plan.begun - self.calls} were sent")
        if not plan.native and self._malformed > len(plan.errands) - self.calls:
            raise Wrong(f"{self._malformed} malformed calls, which is too many")

    def _check_outcome(self, call_id: str, errand: Errand, is_cut: bool) -> None:
        fate, ended = errand.fate, self._ended.get(call_id)
        assert fate is not None
        ran = int(fate.runs and ended is not None) if self._ran is None else self._ran[call_id]
        told = f"{errand.name} of {self.plan.ending}: {ended}, ran {ran} times"
        if self.plan.ending not in GOOD and (call_id in self._begun | self._asked or ended or ran):
            raise Wrong(f"{told}: what was cut is not run")
        if ran > fate.runs:
            raise Wrong(f"{told}: too often")
        progress = self._progress.get(call_id, [])
        if progress != list(fate.progress[: len(progress)]):
            raise Wrong(f"{told}: progress {progress}")
        if is_cut and (ended is None or (isinstance(ended, Error) and ended.code is Code.TOOL_CANCELLED)):
            return
        if self.plan.ending not in GOOD or (fate.asks and not self._asks):
            if ended is not None or ran or (call_id in self._asked) != (self.plan.ending in GOOD):
                raise Wrong(f"{told}: it had to be left")
            return
        if ran != fate.runs or len(progress) != len(fate.progress) or fate.asks != (call_id in self._asked):
            raise Wrong(f"{told}: {len(progress)} of {len(fate.progress)} told")
        if (fate.code is not Code.TOOL_DENIED) != (call_id in self._begun):
            raise Wrong(f"{told}: executing was told of {self._begun}")
        if isinstance(ended, Executed) and (fate.code is None) and ended.result == fate.result:
            return
        if (
            isinstance(ended, Error)
            and ended.code == fate.code
            and (fate.words or "") in ended.message
            and SECRET not in ended.message
        ):
            return
        raise Wrong(f"{told}, and not {fate}")
