"""Finds out what others say of the calls of one run, now or from what they have said before.

With a desk, a call waits there until it has been decided about. Without one, nobody is there: what was decided before
the run began counts, and a call that nobody has decided about is left, with the question.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

import anyio

from streamtools.calls import ToolCall
from streamtools.errors import DecisionRefused
from streamtools.tools.decisions import DECISION_TIMEOUT, Approve, Decision, Deny, Desk, Question, ask
from streamtools.tools.ledger import digest


class Asking:
    """Asks about calls. `left` are the questions that nobody was there to answer, by the id of the call.

    `timeout` is in seconds, for each question. `decisions` were made before, about the questions that were `asked`
    then; they are for runs without a `desk`, in which `otherwise` is the answer to all other questions, if it is given.
    """

    def __init__(
        self,
        desk: Desk | None = None,
        *,
        timeout: float | None = DECISION_TIMEOUT,
        decisions: Mapping[str, Decision] | None = None,
        asked: Mapping[str, Question] | None = None,
        otherwise: Decision | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.desk = desk
        self.left: dict[str, Question] = {}
        self._timeout = timeout
        self._decisions = decisions or {}
        self._asked = asked or {}
        self._otherwise = otherwise
        self._now = now
        self._waiting: set[anyio.CancelScope] = set()

    async def decide(
        self, call: ToolCall, *, approval: bool, tell: Callable[[Question], Awaitable[object]]
    ) -> Decision | None:
        """Return what somebody says of the call, None if nobody does; `tell` tells the interface what is asked."""
        expires = None if self._timeout is None else self._now() + self._timeout
        question = self._asked.get(call.id)
        if question is None or (question.approval and not approval):  # that has been answered, and here is another
            question = ask(call, approval=approval, expires=expires)
        if self.desk is None:
            return await self._look(question, tell)
        await tell(question)
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                decision = await self.desk.wait(question)
            finally:
                self._waiting.discard(scope)
        if scope.cancelled_caught:
            return None
        if isinstance(decision, Approve) and digest(call) != question.digest:
            return Deny("its arguments have changed since")
        return decision

    async def _look(self, question: Question, tell: Callable[[Question], Awaitable[object]]) -> Decision | None:
        """Return what was decided before; None if the question stays open."""
        call_id, now = question.call.id, self._now()
        if question is self._asked.get(call_id):
            given = self._decisions.get(call_id)
            try:
                if given is not None or question.is_late(now):
                    return question.judge(given or Deny(), now)
            except DecisionRefused as error:
                return Deny(str(error))
        if self._otherwise is None:
            self.left[call_id] = question
            await tell(question)
        return self._otherwise

    def stop(self) -> None:
        """Wait for nobody any more: the run ends."""
        for scope in self._waiting:
            scope.cancel()
