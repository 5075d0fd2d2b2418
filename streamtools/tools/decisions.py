"""What others have to say about a call before it counts: that it may run, that it may not, or its result itself.

Some calls are for people to allow, and some are for a front end to carry out. Both are questions that stand open until
somebody answers them, once, about exactly the call that was shown: its id, its tool and its arguments. A question that
nobody answers in time has been answered with no.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import anyio
import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import DecisionRefused

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
    """The call must not run. The model is told the `reason`."""

    reason: str = ""


class Answer(msgspec.Struct, frozen=True, tag_field="decision", tag="answer"):
    """The call has been carried out elsewhere, with this `result`; or it failed there, with this `error`."""

    result: Any = None
    error: str | None = None


Decision: TypeAlias = Approve | Deny | Answer


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about a call: whether it may run, or for its result.

    `expires` is in seconds since 1970, None for never; `digest` is that of the call as it was shown.
    """

    call: ToolCall
    digest: str
    approval: bool
    expires: float | None = None

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


def ask(call: ToolCall, *, approval: bool, expires: float | None) -> Question:
    """Return the question about a call as it is now."""
    return Question(call=call, digest=call.digest, approval=approval, expires=expires)


@runtime_checkable
class Decidable(Protocol):
    """What asks about calls and is told: a `ToolStream`, a chat, and a run of one. It has `questions` and `decide`."""

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
        """End a call that waits to be decided about; the model is told the reason."""
        self.decide(call_id, Deny(reason))

    def answer(self, call_id: str, result: Any = None, *, error: str | None = None) -> None:
        """Give the result of a call that was carried out elsewhere, or the `error` with which it failed there."""
        self.decide(call_id, Answer(result, error))


class _Open:
    """A question that lies on the desk, and the answer, which is no until there is another."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.decision: Decision = Deny(NOBODY)
        self.decided = anyio.Event()


class Desk:
    """Where the questions of one run lie until they are answered."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._open: dict[str, _Open] = {}
        self._closed: set[str] = set()  # ids of calls that have been decided about

    @property
    def questions(self) -> list[Question]:
        """Those that are open, in the order in which they were asked."""
        return [each.question for each in self._open.values()]

    def decide(self, call_id: str, decision: Decision) -> None:
        """Answer the question about a call. Raises `DecisionRefused` if there is none, or it has been answered."""
        found = self._open.get(call_id)
        if found is None:
            why = "has been decided already" if call_id in self._closed else "waits for no decision"
            raise DecisionRefused(f"call {call_id!r} {why}")
        found.decision = found.question.judge(decision, self._clock())
        self._closed.add(call_id)
        del self._open[call_id]
        found.decided.set()

    async def wait(self, question: Question) -> Decision:
        """Ask, and return the answer: a denial if there is none in time, or nobody waits for it any more."""
        call_id = question.call.id
        mine = self._open[call_id] = _Open(question)
        left = None if question.expires is None else max(0.0, question.expires - self._clock())
        try:
            with anyio.move_on_after(left):
                await mine.decided.wait()
        finally:
            self._open.pop(call_id, None)
        self._closed.add(call_id)
        return mine.decision


def read_decisions(decisions: Mapping[str, Decision | bool]) -> dict[str, Decision]:
    """Return what a caller says of calls by their ids; True approves and False denies. Raises ValueError for others."""
    read: dict[str, Decision] = {}
    for call_id, said in decisions.items():
        decision = {True: Approve(), False: Deny()}[said] if isinstance(said, bool) else said
        if not isinstance(decision, Approve | Deny | Answer):
            raise ValueError(f"a decision about call {call_id!r} is Approve, Deny, Answer, True or False, not {said!r}")
        read[call_id] = decision
    return read
