"""Approvals: questions about calls, the decisions about them, and runs that are suspended until they are decided.

A call may run, must not run, or has been executed elsewhere. A question is answered once, about exactly the call that
was shown: its id, its tool and its arguments. A question that expires counts as denied.

A run that ends with open questions is stored as a `Suspension`. It is JSON: the calls as they were made, the question
about each, and their run. Another process can resume from it. Store it where no one else can write, because whoever
changes a call there changes what runs.

`need_of` says what a call needs before it runs. The rule fails closed: a tool with `trust="native"` or `"approved"`
does not run a call that the model may have quoted from its input. Only native calls, and calls under a marker with a
nonce, are certainly the model's own. A `requires_approval` function that raises counts as True. `Approvals` asks, and
returns the decisions of one run.
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
from streamtools.tools.failures import is_failure
from streamtools.tools.ledger import CallLedger
from streamtools.tools.tool import Tool

log = Logger(__name__)

EXPIRED = "nobody answered in time"
"""The reason of the denial when a question expires."""


class Approve(msgspec.Struct, frozen=True, tag_field="decision", tag="approve"):
    """The call may run. With a `digest`, only if it is the digest of the call that was shown."""

    digest: str | None = None


class Deny(msgspec.Struct, frozen=True, tag_field="decision", tag="deny"):
    """The call must not run. The model reads the `reason`."""

    reason: str = ""


class Answer(msgspec.Struct, frozen=True, tag_field="decision", tag="answer"):
    """The call was executed elsewhere, with this `result`, or failed there with this `error`."""

    result: Any = None
    error: str | None = None


Decision: TypeAlias = Approve | Deny | Answer


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question about a call: whether it may run (`approval`), or what its result is.

    `digest` is that of the call as it was shown. `expires` and `asked` are in seconds since 1970; None means never, and
    an unknown time.
    """

    call: ToolCall
    digest: str
    approval: bool
    expires: float | None = None
    asked: float | None = None

    def judge(self, decision: Decision, now: float) -> Decision:
        """Return the decision as it counts: a late one is a denial. Raises `DecisionRefused` for one that does not fit.

        >>> call = ToolCall(id="call_1", name="pay", arguments={"sum": 5}, dialect="native")
        >>> question = ask(call, approval=True, expires=100.0)
        >>> question.judge(Approve(), now=99.0), question.judge(Approve(), now=100.0)
        (Approve(digest=None), Deny(reason='nobody answered in time'))
        """
        self.check(decision)
        return Deny(EXPIRED) if self.is_late(now) else decision

    def check(self, decision: Decision) -> None:
        """Raise `DecisionRefused` for a decision of another kind, or about a different call."""
        shown = f"call {self.call.id!r} of tool {self.call.name!r}"
        if isinstance(decision, Answer) == self.approval and not isinstance(decision, Deny):
            expected = "Approve or Deny" if self.approval else "Answer or Deny"
            raise DecisionRefused(f"{shown} waits for {expected}, got {type(decision).__name__}")
        changed = self.call.digest != self.digest
        if isinstance(decision, Approve) and (changed or decision.digest not in (None, self.digest)):
            raise DecisionRefused(f"{shown} is not the call that was shown: its arguments differ; show it again")

    def is_late(self, now: float) -> bool:
        """Return whether the question has expired."""
        return self.expires is not None and now >= self.expires

    def within(self, keep: float) -> Question:
        """Return the question with an expiry before a ledger deletes its call, `keep` seconds after it was asked.

        >>> call = ToolCall(id="call_1", name="pay", arguments={"sum": 5}, dialect="native")
        >>> ask(call, approval=True, expires=None, asked=100.0).within(60.0).expires
        160.0
        """
        if self.asked is None and self.expires is not None:
            return self
        last = (self.asked or 0.0) + keep  # without a time it may be arbitrarily old
        return replace(self, expires=last if self.expires is None else min(self.expires, last))


def ask(call: ToolCall, *, approval: bool, expires: float | None, asked: float | None = None) -> Question:
    """Return a question about a call as it is now."""
    return Question(call=call, digest=call.digest, approval=approval, expires=expires, asked=asked)


@runtime_checkable
class Decidable(Protocol):
    """A source of questions that takes decisions: a `ToolStream`, a chat, or a run of one."""

    @property
    def questions(self) -> list[Question]:
        """The open questions, in the order in which they were asked."""

    def decide(self, call_id: str, decision: Decision) -> None:
        """Decide about a waiting call. Raises `DecisionRefused` if the call does not wait for this decision."""

    def approve(self, call_id: str, *, digest: str | None = None) -> None:
        """Let a waiting call run; with a `digest`, only if it is that of the call. Raises `DecisionRefused`."""
        self.decide(call_id, Approve(digest))

    def deny(self, call_id: str, reason: str = "") -> None:
        """Refuse a waiting call. The model reads the reason. Raises `DecisionRefused`."""
        self.decide(call_id, Deny(reason))

    def answer(self, call_id: str, result: Any = None, *, error: str | None = None) -> None:
        """Deliver the result of a call that was executed elsewhere, or its `error`. Raises `DecisionRefused`."""
        self.decide(call_id, Answer(result, error))


def read_decisions(decisions: Mapping[str, Decision | bool]) -> dict[str, Decision]:
    """Return decisions by call id; True approves and False denies. Raises ValueError for other values."""
    read: dict[str, Decision] = {}
    for call_id, given in decisions.items():
        decision = {True: Approve(), False: Deny()}[given] if isinstance(given, bool) else given
        if not isinstance(decision, Approve | Deny | Answer):
            allowed = "Approve, Deny, Answer, True or False"
            raise ValueError(f"the decision about call {call_id!r} must be {allowed}, got {given!r}")
        read[call_id] = decision
    return read


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


DECISION_TIMEOUT = 300.0
"""Seconds that a run waits for a decision by default."""

SUSPENDED_TIMEOUT = 86_400.0
"""Seconds that a question of a suspended run stays open by default: one day."""

Need: TypeAlias = Literal["nothing", "approval", "result", "native"]
"""What a call needs before it runs: nothing, an approval, or its result from elsewhere. `native`: it must not run,
because it is not a native call."""


async def need_of(
    tool: Tool | None, call: ToolCall, *, is_trusted: Callable[[ToolCall], bool], asked_approval: bool | None = None
) -> Need:
    """Return what the call needs. `is_trusted` returns whether certainly the model wrote a call.

    `asked_approval` is set if a question about the call is open: True for its approval, False for its result. Then that
    question counts, even if the tool has changed.

    A call that will fail anyway, because its tool is unknown or its arguments do not fit, needs nothing.
    """
    if tool is None:
        return "nothing"
    trusted = tool.trust == "text" or is_trusted(call)
    if asked_approval is None and trusted and not (tool.requires_approval or tool.client):
        return "nothing"
    try:
        tool.read(call.arguments)
    except Exception as error:  # the runner reports the error
        if not isinstance(error, ToolInputError):
            log.error("arguments_not_read", error, tool=tool.name)
        return "nothing"
    if tool.trust == "native" and not trusted:
        return "native"
    if asked_approval is not None:
        return "approval" if asked_approval else "result"
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


@dataclass
class _OpenQuestion:
    """An open question. The decision is a denial until it is made, and None if the run ends first."""

    question: Question
    decision: Decision | None = field(default_factory=lambda: Deny(EXPIRED))
    decided: anyio.Event = field(default_factory=anyio.Event)


@dataclass(eq=False, repr=False, kw_only=True)
class Approvals:
    """The questions and decisions of one run.

    In an `attended` run, a call waits until it is decided. Otherwise only earlier decisions count, and the question of
    an undecided call goes into `suspended`, by call id.

    `timeout` is in seconds, for each question. None means `DECISION_TIMEOUT` in an attended run and `SUSPENDED_TIMEOUT`
    otherwise; infinity means no timeout. `resumed` holds the earlier questions and decisions. `default` is the decision
    about every other call of a run that is not attended.
    """

    attended: bool = False
    timeout: float | None = None
    resumed: Resumption | None = None
    default: Decision | None = None
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.asked: Mapping[str, Question] = self.resumed.questions if self.resumed else {}
        self.suspended: dict[str, Question] = {}
        self._timeout = (
            (DECISION_TIMEOUT if self.attended else SUSPENDED_TIMEOUT) if self.timeout is None else self.timeout
        )
        self._decisions: Mapping[str, Decision] = self.resumed.decisions if self.resumed else {}
        self._open: dict[str, _OpenQuestion] = {}
        self._closed: dict[str, None] = {}  # ids of decided calls

    @property
    def questions(self) -> list[Question]:
        """The open questions, in the order in which they were asked."""
        return [waiting.question for waiting in self._open.values()]

    def decide(self, call_id: str, decision: Decision) -> None:
        """Decide about a call. Raises `DecisionRefused` if it does not wait, or was decided already."""
        waiting = self._open.get(call_id)
        if waiting is None:
            why = "has been decided already" if call_id in self._closed else "waits for no decision"
            hint = "" if self.attended else "; decide about its suspension with resume= and decisions="
            raise DecisionRefused(f"call {call_id[:64]!r} {why}{hint}")
        waiting.decision = waiting.question.judge(decision, self.clock())
        self._closed[call_id] = None
        del self._open[call_id]
        waiting.decided.set()

    async def wait(self, question: Question) -> Decision | None:
        """Wait for the decision: a denial if the question expires, None if the run ends first."""
        call_id = question.call.id
        waiting = self._open[call_id] = _OpenQuestion(question)
        seconds_left = None if question.expires is None else max(0.0, question.expires - self.clock())
        try:
            with anyio.move_on_after(seconds_left):
                await waiting.decided.wait()
        finally:
            self._open.pop(call_id, None)
        if waiting.decision is not None:
            self._closed[call_id] = None
        return waiting.decision

    async def ask(
        self, call: ToolCall, *, approval: bool, show: Callable[[Question], Awaitable[object]]
    ) -> Decision | None:
        """Return the decision about a call, None if there is none. `show` sends the question to the interface."""
        question = self.asked.get(call.id)
        if question is None or (question.approval and not approval):  # the earlier question was about the result
            now = self.clock()
            expires = None if self._timeout == math.inf else now + self._timeout
            question = ask(call, approval=approval, expires=expires, asked=now)
        elif (decided := self._earlier_decision(question)) is not None:
            return _bind(decided, question, call)
        if not self.attended:
            if self.default is None:
                self.suspended[call.id] = question
                await show(question)
            return self.default
        await show(question)
        decision = await self.wait(question)
        return None if decision is None else _bind(decision, question, call)

    def _earlier_decision(self, question: Question) -> Decision | None:
        """Return the decision that was made before the run began, or None if the question is still open."""
        given, now = self._decisions.get(question.call.id), self.clock()
        if given is None and not question.is_late(now):
            return None
        try:
            return question.judge(given or Deny(), now)
        except DecisionRefused as error:
            return Deny(str(error))

    def stop(self) -> None:
        """End all waiting, because the run ends."""
        for waiting in self._open.values():
            waiting.decision = None
            waiting.decided.set()


def _bind(decision: Decision, question: Question, call: ToolCall) -> Decision:
    """Return the decision, or a denial if the call is no longer the one that was shown."""
    changed = isinstance(decision, Approve) and call.digest != question.digest
    return Deny("its arguments have changed since") if changed else decision
