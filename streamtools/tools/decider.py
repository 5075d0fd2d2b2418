"""Finds out what others say of the calls of one run, now or from what they have said before.

With a desk, a call waits there until it has been decided about. Without one, nobody is there: what was decided before
the run began counts, and a call that nobody has decided about is left, with the question.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping

import anyio

from streamtools.calls import ToolCall
from streamtools.errors import DecisionRefused
from streamtools.tools.decisions import DECISION_TIMEOUT, LATER_TIMEOUT, Approve, Decision, Deny, Desk, Question, ask


class Decider:
    """Asks about calls. `left` are the questions that nobody was there to answer, by the id of the call.

    `timeout` is in seconds, for each question; None is `DECISION_TIMEOUT` at the desk and `LATER_TIMEOUT` without one,
    and infinity is no end. `decisions` were made before, about the questions that were `asked` then. `otherwise` is the
    answer to all other questions of a run without a `desk`, if it is given.
    """

    def __init__(
        self,
        desk: Desk | None = None,
        *,
        timeout: float | None = None,
        decisions: Mapping[str, Decision] | None = None,
        asked: Mapping[str, Question] | None = None,
        otherwise: Decision | None = None,
    ) -> None:
        self.desk = desk
        self.asked = asked or {}
        self.left: dict[str, Question] = {}
        self._timeout = (LATER_TIMEOUT if desk is None else DECISION_TIMEOUT) if timeout is None else timeout
        self._decisions = decisions or {}
        self._otherwise = otherwise
        self._waiting: set[anyio.CancelScope] = set()

    async def decide(
        self, call: ToolCall, *, approval: bool, tell: Callable[[Question], Awaitable[object]]
    ) -> Decision | None:
        """Return what somebody says of the call, None if nobody does; `tell` tells the interface what is asked."""
        question = self.asked.get(call.id)
        if question is None or (question.approval and not approval):  # that has been answered, and here is another
            expires = None if self._timeout == math.inf else time.time() + self._timeout
            question = ask(call, approval=approval, expires=expires)
        elif (decided := self._look_up(question)) is not None:
            return self._bind(decided, question, call)
        if self.desk is None:
            if self._otherwise is None:
                self.left[call.id] = question
                await tell(question)
            return self._otherwise
        await tell(question)
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                decision = await self.desk.wait(question)
            finally:
                self._waiting.discard(scope)
        if scope.cancelled_caught:
            return None
        return self._bind(decision, question, call)

    def _look_up(self, question: Question) -> Decision | None:
        """Return what was decided about a question before the run began; None if it is still open."""
        given, now = self._decisions.get(question.call.id), time.time()
        if given is None and not question.is_late(now):
            return None
        try:
            return question.judge(given or Deny(), now)
        except DecisionRefused as error:
            return Deny(str(error))

    @staticmethod
    def _bind(decision: Decision, question: Question, call: ToolCall) -> Decision:
        """Return the decision as it counts for the call as it is now: what runs is what was shown."""
        if isinstance(decision, Approve) and call.digest != question.digest:
            return Deny("its arguments have changed since")
        return decision

    def stop(self) -> None:
        """Wait for nobody any more: the run ends."""
        for scope in self._waiting:
            scope.cancel()
