"""Asks an approver about calls, applies the decisions, and collects the open questions of a run that is suspended.

A decision says that a call may run (`Approve`), must not run (`Deny`), or was executed elsewhere (`Answer`). Each
question gets one decision. The decision is valid only for the call that was shown: its id, tool and arguments. If a
question expires, its call is denied.

A run that ends with open questions returns a `Suspension`, which can be stored as JSON. A suspension holds the calls,
the question about each call, and the id of the run. Another process can resume the run from the suspension. Store it
where only the application can write: a changed suspension changes the calls that run.

`need_of` returns what a call needs before it runs, for example an approval. A call in text may be a quotation from the
model's input. Only native calls, and calls in text whose marker contains the conversation's secret nonce, certainly
come from the model. A tool with `trust="native"` refuses any other call. A tool with `trust="approved"` requires
approval for any other call. If a `requires_approval` function raises an exception or returns no bool, the call needs
approval.

`Approvals` holds the questions and decisions of one run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import anyio
import msgspec
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import CheckedStruct, DecisionRefused, InvalidDecision, ToolInputError, check_kind, described
from streamtools.logs import Logger
from streamtools.tools.cancellation import call_function, is_failure
from streamtools.tools.context import ToolContext
from streamtools.tools.ledger import CallLedger
from streamtools.tools.tool import Tool

if TYPE_CHECKING:
    from streamtools.tools.signature import Arguments

log = Logger(__name__)

_LONGEST_WAIT = 2_592_000.0  # 30 days, for which a `SQLiteLedger` keeps calls by default

EXPIRED = "the approval timed out before a decision arrived"
"""The reason of the `Deny` decision for a question that has expired."""
STOPPED = "the run was stopped before a decision arrived"
"""The reason of the `Deny` decision for a question of a waiting run that was stopped. The run is not continued."""


class Approve(CheckedStruct, frozen=True, tag_field="decision", tag="approve", forbid_unknown_fields=True):
    """The call may run.

    `digest` is the digest of the call that the approver saw. If it differs from the digest in the question, the
    decision is refused. None skips this check.
    """

    digest: str | None = None


class Deny(CheckedStruct, frozen=True, tag_field="decision", tag="deny", forbid_unknown_fields=True):
    """The call must not run. The model reads the `reason`."""

    reason: str = ""


class Answer(CheckedStruct, frozen=True, tag_field="decision", tag="answer", forbid_unknown_fields=True):
    """The call was executed elsewhere, for example in the front end.

    `result` is its result. `error` is the error message if it failed, otherwise None.
    """

    result: Any = None
    error: str | None = None


Decision: TypeAlias = Approve | Deny | Answer


def parse_decision(data: bytes | str | dict[str, Any]) -> Decision:
    """Return the decision in the JSON of a request. Raises `InvalidDecision` for JSON that is not a decision.

    An endpoint of FastAPI declares its body as `dict[str, Any]`, and passes it.

    >>> parse_decision('"approve"')
    Traceback (most recent call last):
    streamtools.errors.InvalidDecision: Expected `object`, got `str`; write {"decision": "approve"}, "deny" or "answer"
    """
    decode: Callable[..., Decision] = msgspec.json.decode if isinstance(data, bytes | str) else msgspec.convert
    try:
        return decode(data, type=Decision)
    except msgspec.DecodeError as error:
        advice = "" if "unknown field" in str(error) else '; write {"decision": "approve"}, "deny" or "answer"'
        raise InvalidDecision(f"{str(error)[:120]}{advice}", code="invalid_decision") from None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question about a call.

    If `approval` is True, the question is whether the call may run. Otherwise it asks for the result of the call.
    `digest` is the digest of the call that was shown. `expires` is the time when the question expires, or None if it
    never expires. `asked` is the time when the question was asked, or None if that time is unknown. Both times are in
    seconds since 1970.
    """

    call: ToolCall
    digest: str
    approval: bool
    expires: float | None = None
    asked: float | None = None

    def check(self, decision: Decision, made: Decision | None = None) -> None:
        """Raise `DecisionRefused` for a decision of the wrong kind, or for an approval of a different call.

        If `made`, the earlier decision, is not None, raise only if `decision` contradicts it.
        """
        if made is not None:
            check_same(self.call.id, Approve(self.digest) if made == Approve() else made, decision)
            return
        shown = f"call {self.call.id!r} of tool {self.call.name!r}"
        if isinstance(decision, Answer) == self.approval and not isinstance(decision, Deny):
            expected = "Approve or Deny" if self.approval else "Answer or Deny"
            raise DecisionRefused(f"{shown} waits for {expected}, got {type(decision).__name__}", code="wrong_kind")
        changed = self.call.digest != self.digest
        if isinstance(decision, Approve) and (changed or decision.digest not in (None, self.digest)):
            advice = "show it again, and approve with the digest of its event `approval-requested`"
            reason = f"{shown} is not the call that was shown: its digest differs; {advice}"
            raise DecisionRefused(reason, code="wrong_digest")

    def has_expired(self, now: float) -> bool:
        """Return whether the question has expired."""
        return self.expires is not None and now >= self.expires

    def within(self, keep: float) -> Question:
        """Return the question with an expiry that is at most `keep` seconds after the question was asked.

        `keep` is how long a ledger keeps calls, so the question expires before the ledger deletes its call. Without
        `asked`, a question with `expires` does not change, and a question without `expires` has expired.

        >>> call = ToolCall(id="call_1", name="pay", arguments={"sum": 5}, dialect="native")
        >>> Question(call=call, digest=call.digest, approval=True, asked=100.0).within(60.0).expires
        160.0
        """
        if self.asked is None and self.expires is not None:
            return self
        last = (self.asked or 0.0) + keep  # without `asked`, the question may be arbitrarily old
        return replace(self, expires=last if self.expires is None else min(self.expires, last))


def check_same(call_id: str, made: Decision, given: Decision) -> None:
    """Raise `DecisionRefused` if `given` contradicts `made`, the earlier decision about the call.

    >>> check_same("call_1", Approve("5ab3"), Approve())
    >>> check_same("call_1", Approve("5ab3"), Deny())
    Traceback (most recent call last):
    streamtools.errors.DecisionRefused: call 'call_1' was approved; this decision is ignored
    """
    if made == Deny(EXPIRED) != given:
        raise DecisionRefused(f"the question about call {call_id[:64]!r} has expired", code="expired")
    if made == Deny(STOPPED) != given:
        raise DecisionRefused(f"the run that asked about call {call_id[:64]!r} was stopped", code="stopped")
    match made, given:
        case (Approve(one), Approve(other)) if None in (one, other) or one == other:
            return
        case (Deny(), Deny()):
            return
        case (Answer(), Answer()) if made == given:
            return
    past = {Approve: "approved", Deny: "denied", Answer: "answered"}[type(made)]
    raise DecisionRefused(f"call {call_id[:64]!r} was {past}; this decision is ignored", code="already_decided")


def not_waiting(call_id: str, questions: Iterable[Question]) -> DecisionRefused:
    """Return the error for a decision about a call that is not in `questions`. The error names the waiting calls."""
    waiting = ", ".join(repr(each.call.id[:64]) for each in questions)
    others = f"; these wait: {waiting}" if waiting else ""
    return DecisionRefused(f"call {call_id[:64]!r} does not wait for a decision{others}", code="not_waiting")


@runtime_checkable
class Decidable(Protocol):
    """An object that has open questions and accepts decisions: a `ToolStream`, a chat, or a run of a chat.

    `approve`, `deny` and `answer` are short forms of `decide`. Each raises the errors of `decide`.
    """

    def decide(self, call_id: str, decision: Decision) -> Awaitable[None]:
        """Decide about a waiting call. Raises `DecisionRefused` if the call does not wait for this decision."""

    def approve(self, call_id: str, digest: str | None = None) -> Awaitable[None]:
        """Let a waiting call run. With `digest`, the call must be the one that was shown."""
        return self.decide(call_id, Approve(digest))

    def deny(self, call_id: str, reason: str = "") -> Awaitable[None]:
        """Refuse a waiting call, so that it does not run. The model reads the reason."""
        return self.decide(call_id, Deny(reason))

    def answer(self, call_id: str, result: Any = None, *, error: str | None = None) -> Awaitable[None]:
        """Set the `result` of a call that was executed elsewhere, or the message of its `error`."""
        return self.decide(call_id, Answer(result, error))

    async def questions(self) -> list[Question]:
        """Return the questions that wait for a decision, in order: of a running run, or of one that has ended."""
        ...


def read_decision(call_id: str, given: Decision | bool) -> Decision:
    """Return the decision about a call, with True as `Approve` and False as `Deny`.

    Raises ValueError for any other value, and TypeError for a `call_id` that is not a string.
    """
    if not isinstance(call_id, str):
        raise TypeError(f"call_id must be a str, such as event.call.id, got {described(call_id)}")
    decision = {True: Approve(), False: Deny()}[given] if isinstance(given, bool) else given
    if not isinstance(decision, Approve | Deny | Answer):
        allowed = "Approve, Deny, Answer, True or False (for the JSON of a client, write parse_decision(…))"
        hint = (
            f"; for the option, write ApprovalOptions({call_id}={given!r:.20})" if call_id in ("ask", "timeout") else ""
        )
        raise ValueError(f"the decision about call {call_id!r} must be {allowed}, got {given!r:.40}{hint}")
    if isinstance(decision, Approve):
        check_kind("digest", decision.digest, str, optional=True)
    elif isinstance(decision, Deny):
        check_kind("reason", decision.reason, str)
    return decision


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """The open questions of a run that has ended.

    `run_id` is the id of the run that made the calls. `version` is the version of the JSON format.
    """

    run_id: str
    questions: list[Question]
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        if len({call.id for call in self.calls}) < len(self.questions):
            raise ValueError("a suspension must not hold two questions about one call")

    @property
    def calls(self) -> list[ToolCall]:
        """The calls of the questions, in order."""
        return [question.call for question in self.questions]

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the last question expires: from 0 to 30 days. `now` is in seconds since 1970."""
        last = max((question.expires or math.inf for question in self.questions), default=now)
        return min(_LONGEST_WAIT, max(0.0, last - now))

    def to_json(self) -> str:
        """Return one line of JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, data: str | bytes) -> Suspension:
        """Return the suspension in the JSON that `to_json` returned. Raises ValueError for any other data."""
        try:
            return msgspec.json.decode(data, type=cls)
        except RecursionError:
            raise ValueError("the JSON of the suspension is nested too deeply") from None


@runtime_checkable
class DecidedRun(Protocol):
    """An ended run whose calls have been decided or have expired. `streamtools.runs.Run` is one.

    A chat with the argument `resume=run` uses the `decisions` of the run, and has the run id `next_id`.
    """

    @property
    def suspension(self) -> Suspension | None: ...
    @property
    def decisions(self) -> Mapping[str, Decision]: ...
    @property
    def next_id(self) -> str: ...


class Resumption(NamedTuple):
    """The input of a resumed run: the suspension, its questions by call id, and the decisions by call id."""

    suspension: Suspension
    questions: Mapping[str, Question]
    decisions: Mapping[str, Decision]


def read_resumption(
    resume: Suspension | DecidedRun | str | None,
    decisions: Mapping[str, Decision | bool] | None,
    ledger: CallLedger | None,
) -> Resumption | None:
    """Check the arguments `resume` and `decisions` of a run, and return them as a `Resumption`.

    Returns None if `resume` is None. The questions expire before the ledger may delete their calls. The decisions of a
    `DecidedRun` were made in time, so only this limit applies to them. Raises ValueError if `resume` is not a
    suspension, if there is no ledger, or if a decision is invalid. Raises `DecisionRefused` if `Question.check` refuses
    a decision, or if no question is about its call.
    """
    if resume is None and not decisions:  # `isinstance` takes 10 µs, because `DecidedRun` is a protocol
        return None
    if in_time := isinstance(resume, DecidedRun):
        decisions = {call_id: each for call_id, each in resume.decisions.items() if call_id}  # "" if it was stopped
        resume = resume.suspension
    if isinstance(resume, str) and resume.lstrip().startswith("{"):
        resume = Suspension.from_json(resume)
    if not isinstance(resume, Suspension | None):
        raise ValueError(f"resume must be a Suspension, its JSON, or `await runs.find(run_id, …)`, got {resume!r:.80}")
    if resume is not None and ledger is None:
        raise ValueError("`resume` needs the first run's ledger: write runner=RunnerOptions(ledger=SQLiteLedger(path))")
    given = {call_id: read_decision(call_id, decision) for call_id, decision in (decisions or {}).items()}
    questions = dict[str, Question]()
    for each in resume.questions if resume else ():
        if in_time and each.asked is not None and each.call.id in given:
            each = replace(each, expires=None)
        questions[each.call.id] = each.within(ledger.keep) if ledger else each
    for call_id, decision in given.items():
        if call_id not in questions:
            raise not_waiting(call_id, questions.values())
        questions[call_id].check(decision)
    return Resumption(resume, questions, given) if resume else None


DECISION_TIMEOUT = 300.0
"""The default time, in seconds, that a run with an approver waits for a decision."""

SUSPENDED_TIMEOUT = 86_400.0
"""The default time, in seconds, that a question of a suspended run stays open: one day."""

Need: TypeAlias = Literal["nothing", "approval", "result", "native"]
"""What a call needs before it runs.

`nothing`: the call can run. `approval`: an approver must decide. `result`: the call is executed elsewhere, and its
result must be delivered. `native`: the call must not run, because its tool accepts only native calls.
"""


async def need_of(
    tool: Tool | None, call: ToolCall, is_trusted: Callable[[ToolCall], bool], asked: bool | None, context: ToolContext
) -> Need:
    """Return what the call needs. `is_trusted` returns True if the model certainly wrote the call.

    `context` is for a `requires_approval` function. `asked` is None if no question about the call is open. It is True
    if an open question asks for approval, and False if an open question asks for the result. Then the call needs what
    the question asks for, even if the tool has changed in the meantime. Only a tool with `trust="native"` still refuses
    an untrusted call.

    A call needs nothing if it fails anyway, because its tool is unknown or its arguments are invalid.
    """
    if tool is None:
        return "nothing"
    trusted = tool.trust == "text" or is_trusted(call)
    if asked is None and trusted and not (tool.requires_approval or tool.client):
        return "nothing"
    try:
        arguments = tool.read(call.arguments)
    except Exception as error:  # the runner reads the arguments again and reports the error
        if not isinstance(error, ToolInputError):
            log.error("arguments_not_read", error, tool=tool.name)
        return "nothing"
    if tool.trust == "native" and not trusted:
        return "native"
    if asked is not None:
        return "approval" if asked else "result"
    if (tool.trust == "approved" and not trusted) or await _requires_approval(tool, arguments, context):
        return "approval"
    return "result" if tool.client else "nothing"


async def _requires_approval(tool: Tool, arguments: Arguments, context: ToolContext) -> bool:
    required = tool.requires_approval
    if isinstance(required, bool):
        return required
    try:
        given = [tool._named(arguments), context][: len(tool._approval_arguments)]
        return bool(await call_function("requires_approval", required, *given, kinds=bool, expected="a bool"))
    except BaseException as error:
        if not is_failure(error):
            raise
        advice = "the call now needs approval; fix the function in requires_approval of this tool"
        log.error("approval_not_decided", error, tool=tool.name, advice=advice)
        return True


@dataclass
class _AskedQuestion:
    """A question of an attended run, and its decision.

    `decided` is set after the decision, after the expiry, or when the run ends. If the run ends first, `decision` stays
    None.
    """

    question: Question
    decision: Decision | None = None
    decided: anyio.Event = field(default_factory=anyio.Event)


@dataclass(eq=False, repr=False, kw_only=True)
class Approvals:
    """The questions and decisions of one run.

    With `attended=True`, an approver is present, and each call waits for its decision. With `attended=False`, only the
    decisions in `resumed` are used. A call without a decision is suspended, and its question is stored in `suspended`,
    by call id.

    `timeout` is the time in seconds after which each question expires. None means `DECISION_TIMEOUT` in an attended run
    and `SUSPENDED_TIMEOUT` in any other run. Infinity means no timeout. `resumed` holds the earlier questions and
    decisions. `clock` returns seconds since 1970.
    """

    attended: bool = False
    timeout: float | None = None
    resumed: Resumption | None = None
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.asked: Mapping[str, Question] = self.resumed.questions if self.resumed else {}
        """The questions of the run that is resumed, by call id."""
        self.suspended: dict[str, Question] = {}
        self._timeout = (
            (DECISION_TIMEOUT if self.attended else SUSPENDED_TIMEOUT) if self.timeout is None else self.timeout
        )
        self._decisions: Mapping[str, Decision] = self.resumed.decisions if self.resumed else {}
        self._asked: dict[str, _AskedQuestion] = {}  # by call id, also after the decision
        self.shown: Collection[str] = ()
        """The ids of calls whose questions a lost process has shown."""
        self._unasked: dict[str, Question] = {}  # by call id: open questions of a lost process, until `ask` is called

    def restore(
        self, questions: Sequence[Question], started: Collection[str], decisions: Mapping[str, Decision]
    ) -> None:
        """Continue with the questions and decisions of a lost process. The calls in `started` were approved."""
        self._decisions = {**dict.fromkeys(started, Approve()), **self._decisions, **decisions}
        lost = {
            each.call.id: replace(each, expires=None) if each.call.id in self._decisions else each for each in questions
        }
        self.asked = {**self.asked, **lost}
        self.shown = lost.keys()
        if self.attended:
            self._unasked = {id: each for id, each in lost.items() if id not in self._decisions}

    @property
    def questions(self) -> list[Question]:
        """The open questions, in the order in which they were asked."""
        asked = [asked.question for asked in self._asked.values() if not asked.decided.is_set()]
        return asked + list(self._unasked.values())

    def decide(self, call_id: str, given: Decision | bool) -> None:
        """Decide about a call. True approves it, and False denies it. The same decision, made again, has no effect.

        Raises `DecisionRefused` if the call waits for no decision, was decided otherwise, has expired, or waits for
        another kind of decision. Raises ValueError if `given` is not a decision.
        """
        decision, asked = read_decision(call_id, given), self._asked.get(call_id)
        if asked is None and (question := self._unasked.get(call_id)) is not None:
            question.check(decision, Deny(EXPIRED) if question.has_expired(self.clock()) else None)
            del self._unasked[call_id]
            self._decisions = {**self._decisions, call_id: decision}
            return
        if asked is None and call_id in self.shown and (made := self._decisions.get(call_id)) is not None:
            self.asked[call_id].check(decision, made)
            return
        if asked is None or (asked.decided.is_set() and asked.decision is None):
            refused = not_waiting(call_id, self.questions)
            if not self.attended:  # a note, because clients get the message
                refused.add_note('Pass it to `runs.decide` or to the next chat, or set ApprovalOptions(ask="now").')
            raise refused
        made = asked.decision or (Deny(EXPIRED) if asked.question.has_expired(self.clock()) else None)
        asked.question.check(decision, made)
        if made is None:
            asked.decision = decision
            asked.decided.set()

    async def ask(
        self, call: ToolCall, *, approval: bool, show: Callable[[Question], Awaitable[object]]
    ) -> Decision | None:
        """Return the decision about a call, or None if it is suspended or the run ends first.

        With `approval=True`, the question is whether the call may run. With False, it asks for the result of the call.
        `show` sends the question to the interface.
        """
        question, now, given = self.asked.get(call.id), self.clock(), self._decisions.get(call.id)
        self._unasked.pop(call.id, None)
        if question is None or (question.approval and not approval):  # approved: now ask for the result
            if given is not None and not isinstance(given, Approve):  # a lost process has received the result
                return given
            expires = None if self._timeout == math.inf else now + self._timeout
            question = Question(call=call, digest=call.digest, approval=approval, expires=expires, asked=now)
        elif question.has_expired(now):
            return Deny(EXPIRED)
        elif given is not None:
            if isinstance(given, Answer) and approval:  # the call was approved before a lost process got its result
                given = Approve()
            return _deny_if_changed(given, question, call)
        if not self.attended:
            self.suspended[call.id] = question
            await show(question)
            return None
        await show(question)
        asked = self._asked[call.id] = _AskedQuestion(question)
        try:
            seconds = None if question.expires is None else max(0.0, question.expires - self.clock())
            with anyio.move_on_after(seconds) as scope:
                await asked.decided.wait()
            if scope.cancelled_caught and asked.decision is None:
                asked.decision = Deny(EXPIRED)
        finally:
            asked.decided.set()
        return None if asked.decision is None else _deny_if_changed(asked.decision, question, call)

    def stop(self) -> None:
        """End all waits for decisions, because the run ends."""
        self._unasked.clear()
        for asked in self._asked.values():
            asked.decided.set()


def _deny_if_changed(decision: Decision, question: Question, call: ToolCall) -> Decision:
    """Return the decision, or `Deny` if it approves a call that has changed since it was shown."""
    changed = isinstance(decision, Approve) and call.digest != question.digest
    return Deny("its arguments have changed since it was shown") if changed else decision
