"""What others decide about a call before it counts: that it may run, that it may not, or its result itself.

Some calls are for people to allow, and some are for a front end to carry out. Both are questions that stay open until
somebody answers them, once, about exactly the call that was shown: its id, its tool and its arguments. A question that
nobody answers in time has been answered with no.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import anyio
import msgspec
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import DecisionRefused, ToolInputError
from streamtools.logs import Logger
from streamtools.tools.call import is_failure
from streamtools.tools.ledger import CallLedger
from streamtools.tools.tool import Tool

log = Logger(__name__)

DECISION_TIMEOUT = 300.0
"""Seconds that a question stands open for which a run waits, if nobody says otherwise."""

LATER_TIMEOUT = 86_400.0
"""Seconds that a question stands open that a run has left: a day."""

NOBODY = "nobody answered in time"
"""Why a question that has expired was answered with no."""


class Approve(msgspec.Struct, frozen=True, tag_field="decision", tag="approve"):
    """The call may run. With a `digest`, only if it is that of the call: what was shown is what is run."""

    digest: str | None = None


class Deny(msgspec.Struct, frozen=True, tag_field="decision", tag="deny"):
    """The call must not run. The model reads the `reason`."""

    reason: str = ""


class Answer(msgspec.Struct, frozen=True, tag_field="decision", tag="answer"):
    """The call has been carried out elsewhere, with this `result`; or it failed there, with this `error`."""

    result: Any = None
    error: str | None = None


Decision: TypeAlias = Approve | Deny | Answer


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about a call: whether it may run, or for its result.

    `expires` and `asked` are in seconds since 1970, None for never and for a time that nobody has noted; `digest` is
    that of the call as it was shown.
    """

    call: ToolCall
    digest: str
    approval: bool
    expires: float | None = None
    asked: float | None = None

    def judge(self, decision: Decision, now: float) -> Decision:
        """Return the decision as it counts, a late one as a denial. Raises `DecisionRefused` for one that does not fit.

        >>> call = ToolCall(id="call_1", name="pay", arguments={"sum": 5}, dialect="native")
        >>> question = ask(call, approval=True, expires=100.0)
        >>> question.judge(Approve(), now=99.0), question.judge(Approve(), now=100.0)
        (Approve(digest=None), Deny(reason='nobody answered in time'))
        """
        self.check(decision)
        return Deny(NOBODY) if self.is_late(now) else decision

    def check(self, decision: Decision) -> None:
        """Raise `DecisionRefused` for a decision that does not fit: of another kind, or about another call."""
        shown = f"call {self.call.id!r} of tool {self.call.name!r}"
        if isinstance(decision, Answer) == self.approval and not isinstance(decision, Deny):
            wanted = "whether it may run" if self.approval else "for its result"
            said = type(decision).__name__
            raise DecisionRefused(f"{shown} was asked about {wanted}, and {said} is no answer to that")
        changed = self.call.digest != self.digest
        if isinstance(decision, Approve) and (changed or decision.digest not in (None, self.digest)):
            raise DecisionRefused(f"{shown} is not the one that was shown: its arguments differ")

    def is_late(self, now: float) -> bool:
        """Return whether nobody can answer any more."""
        return self.expires is not None and now >= self.expires

    def within(self, keep: float) -> Question:
        """Return the question as one that expires before a ledger forgets what has become of it.

        >>> call = ToolCall(id="call_1", name="pay", arguments={"sum": 5}, dialect="native")
        >>> ask(call, approval=True, expires=None, asked=100.0).within(60.0).expires
        160.0
        """
        if self.asked is None and self.expires is not None:
            return self
        last = (self.asked or 0.0) + keep  # without either time it may be as old as can be
        return replace(self, expires=last if self.expires is None else min(self.expires, last))


def ask(call: ToolCall, *, approval: bool, expires: float | None, asked: float | None = None) -> Question:
    """Return the question about a call as it is now."""
    return Question(call=call, digest=call.digest, approval=approval, expires=expires, asked=asked)


@runtime_checkable
class Decidable(Protocol):
    """What asks about calls and takes decisions, by `questions` and `decide`: a `ToolStream`, a chat, a run of one."""

    @property
    def questions(self) -> list[Question]:
        """What waits to be decided about now, in the order in which it was asked."""

    def decide(self, call_id: str, decision: Decision) -> None:
        """Say what becomes of a call that waits for it. Raises `DecisionRefused` if nothing waits for this."""

    def approve(self, call_id: str, *, digest: str | None = None) -> None:
        """Let a call run that waits for it; with a `digest`, only if it is the one that was shown.

        Raises as `decide`, and so do `deny` and `answer`.
        """
        self.decide(call_id, Approve(digest))

    def deny(self, call_id: str, reason: str = "") -> None:
        """End a call that waits to be decided about; the model reads the reason."""
        self.decide(call_id, Deny(reason))

    def answer(self, call_id: str, result: Any = None, *, error: str | None = None) -> None:
        """Give the result of a call that was carried out elsewhere, or the `error` with which it failed there."""
        self.decide(call_id, Answer(result, error))


@dataclass
class _Open:
    """A question that waits, and the answer, which is no until there is another, and None where the run has ended."""

    question: Question
    decision: Decision | None = field(default_factory=lambda: Deny(NOBODY))
    decided: anyio.Event = field(default_factory=anyio.Event)


@dataclass(eq=False, repr=False, kw_only=True)
class Approvals:
    """Asks about the calls of one run, and finds what was decided before it began.

    Where the run is `attended`, a call waits until it has been decided about. Elsewhere nobody is there: what was
    decided before counts, and a call that nobody has decided about is left, with its question in `left`, by its id.

    `timeout` is in seconds, for each question; None is `DECISION_TIMEOUT` where the run waits and `LATER_TIMEOUT` where
    it does not, and infinity is no end. `resumed` is what was decided before, and the questions that were `asked` then.
    `otherwise` is the answer to all other questions of a run that is not attended, if it is given.
    """

    attended: bool = False
    timeout: float | None = None
    resumed: Resumption | None = None
    otherwise: Decision | None = None
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.asked: Mapping[str, Question] = self.resumed.questions if self.resumed else {}
        self.left: dict[str, Question] = {}
        self._timeout = (DECISION_TIMEOUT if self.attended else LATER_TIMEOUT) if self.timeout is None else self.timeout
        self._decisions: Mapping[str, Decision] = self.resumed.decisions if self.resumed else {}
        self._open: dict[str, _Open] = {}
        self._closed: dict[str, None] = {}  # ids of calls that have been decided about

    @property
    def questions(self) -> list[Question]:
        """Those that wait for an answer, in the order in which they were asked."""
        return [each.question for each in self._open.values()]

    def answer(self, call_id: str, decision: Decision) -> None:
        """Answer the question about a call. Raises `DecisionRefused` if there is none, or it has been answered."""
        found = self._open.get(call_id)
        if found is None:
            why = "has been decided already" if call_id in self._closed else "waits for no decision"
            raise DecisionRefused(
                f"call {call_id[:64]!r} {why}{'' if self.attended else ': the run asks later, not now'}"
            )
        found.decision = found.question.judge(decision, self.clock())
        self._closed[call_id] = None
        del self._open[call_id]
        found.decided.set()

    async def wait(self, question: Question) -> Decision | None:
        """Return the answer to a question: a denial if there is none in time, None if the run ends before."""
        call_id = question.call.id
        mine = self._open[call_id] = _Open(question)
        left = None if question.expires is None else max(0.0, question.expires - self.clock())
        try:
            with anyio.move_on_after(left):
                await mine.decided.wait()
        finally:
            self._open.pop(call_id, None)
        if mine.decision is not None:
            self._closed[call_id] = None
        return mine.decision

    async def decide(
        self, call: ToolCall, *, approval: bool, tell: Callable[[Question], Awaitable[object]]
    ) -> Decision | None:
        """Return what somebody decides about the call, None if nobody does; `tell` shows the interface the question."""
        question = self.asked.get(call.id)
        if question is None or (question.approval and not approval):  # that has been answered, and here is another
            now = self.clock()
            expires = None if self._timeout == math.inf else now + self._timeout
            question = ask(call, approval=approval, expires=expires, asked=now)
        elif (decided := self._look_up(question)) is not None:
            return _bind(decided, question, call)
        if not self.attended:
            if self.otherwise is None:
                self.left[call.id] = question
                await tell(question)
            return self.otherwise
        await tell(question)
        decision = await self.wait(question)
        return None if decision is None else _bind(decision, question, call)

    def _look_up(self, question: Question) -> Decision | None:
        """Return what was decided about a question before the run began; None if it is still open."""
        given, now = self._decisions.get(question.call.id), self.clock()
        if given is None and not question.is_late(now):
            return None
        try:
            return question.judge(given or Deny(), now)
        except DecisionRefused as error:
            return Deny(str(error))

    def stop(self) -> None:
        """Wait for nobody any more: the run ends."""
        for each in self._open.values():
            each.decision = None
            each.decided.set()


def _bind(decision: Decision, question: Question, call: ToolCall) -> Decision:
    """Return the decision as it counts for the call as it is now: what runs is what was shown."""
    changed = isinstance(decision, Approve) and call.digest != question.digest
    return Deny("its arguments have changed since") if changed else decision


# Whether a call may run as it is, or somebody has to be asked first.
#
# The rules are in one place and fail closed. A tool that does not trust text is not run for a call that anybody could
# have planted in what the model reads, and then quotes: only native calls, and calls under a marker with a nonce, are
# the model's own beyond doubt. A predicate that breaks counts as one that asks.

Need: TypeAlias = Literal["nothing", "approval", "result", "native"]
"""What has to come before a tool runs: nothing, a person's yes, the result itself from elsewhere; or the call may not
run at all, because it did not come as a native one."""


async def need_of(
    tool: Tool | None, call: ToolCall, *, is_trusted: Callable[[ToolCall], bool], asked: bool | None = None
) -> Need:
    """Return what the call needs. `is_trusted` tells whether nobody but the model can have written it.

    `asked`: somebody has been asked before, for approval (True) or for the result, and that question stands, whatever
    the tool says by now.

    A call that is refused anyway, because there is no such tool or its arguments do not fit, needs nothing.
    """
    if tool is None:
        return "nothing"
    trusted = tool.trust == "text" or is_trusted(call)
    if asked is None and trusted and not (tool.requires_approval or tool.client):
        return "nothing"
    try:
        tool.read(call.arguments)
    except Exception as error:  # the runner says what is wrong
        if not isinstance(error, ToolInputError):
            log.error("arguments_not_read", error, tool=tool.name)
        return "nothing"
    if tool.trust == "native" and not trusted:
        return "native"
    if asked is not None:
        return "approval" if asked else "result"
    if (tool.trust == "approved" and not trusted) or await _requires_approval(tool, call):
        return "approval"
    return "result" if tool.client else "nothing"


async def _requires_approval(tool: Tool, call: ToolCall) -> bool:
    required = tool.requires_approval
    if isinstance(required, bool):
        return required
    try:
        returned = required(dict(call.arguments))
        return bool(await returned if inspect.isawaitable(returned) else returned)
    except BaseException as error:
        if not is_failure(error):
            raise
        log.error("approval_not_decided", error, tool=tool.name)
        return True


# A run that waits for people: its open questions as JSON, to be kept until somebody answers them.
#
# Where nobody is there to answer at once, the run ends, and what it waits for is written down: the calls as they were
# made, what is asked about each, and to which run they belong. Another process can resume from there. It must be kept
# where nobody else writes: who can change a call there can change what runs.


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What one run has left open: `run_id` is the one in which the calls were made, and `trace` its `traceparent`."""

    run_id: str
    questions: list[Question]
    version: Literal[1] = 1
    trace: str = ""

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
    trace: str = ""

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that are asked about, in their order."""
        return [question.call for question in self.questions.values()]


def read_decisions(decisions: Mapping[str, Decision | bool]) -> dict[str, Decision]:
    """Return decisions by the ids of their calls; True approves and False denies. Raises ValueError for others."""
    read: dict[str, Decision] = {}
    for call_id, said in decisions.items():
        decision = {True: Approve(), False: Deny()}[said] if isinstance(said, bool) else said
        if not isinstance(decision, Approve | Deny | Answer):
            raise ValueError(f"a decision about call {call_id!r} is Approve, Deny, Answer, True or False, not {said!r}")
        read[call_id] = decision
    return read


def take_up(
    resume: Suspension | str | None, decisions: Mapping[str, Decision | bool] | None, ledger: CallLedger | None
) -> Resumption | None:
    """Return what a run goes on with, None where nothing was left. A question that the ledger may have forgotten the
    answer of has expired.

    Raises ValueError for what is no suspension and for one without a ledger, `DecisionRefused` for a decision that does
    not fit.
    """
    if resume is not None and ledger is None:
        raise ValueError("to resume takes a ledger, where a second resume finds what has run: SQLiteLedger(path)")
    if not isinstance(resume, Suspension | str | None):
        raise ValueError(f"resume is a Suspension or its JSON, not {resume!r}")
    suspension = Suspension.from_json(resume) if isinstance(resume, str) else resume
    left = suspension.questions if suspension else []
    questions = {each.call.id: each.within(ledger.keep) if ledger else each for each in left}
    given = read_decisions(decisions or {})
    for call_id, decision in given.items():
        if call_id not in questions:
            raise DecisionRefused(f"call {call_id[:64]!r} waits for no decision")
        questions[call_id].check(decision)
    return Resumption(suspension.run_id, questions, given, suspension.trace) if suspension else None
