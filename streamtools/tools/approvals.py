"""Decides whether a call may run, and waits for the decisions of approvers and front ends.

`need_of` says what a call needs before it runs. The rule fails closed: a tool with `trust="native"` or `"approved"`
does not run a call that the model may have quoted from its input. Only native calls, and calls under a marker with a
nonce, are certainly the model's own. A `requires_approval` function that raises counts as True.

`Approvals` asks, and returns the decisions of one run.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio

from streamtools.calls import ToolCall
from streamtools.errors import DecisionRefused, ToolInputError
from streamtools.logs import Logger
from streamtools.tools.decisions import EXPIRED, Approve, Decision, Deny, Question, ask
from streamtools.tools.failures import is_failure
from streamtools.tools.suspension import Resumption
from streamtools.tools.tool import Tool

log = Logger(__name__)

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
