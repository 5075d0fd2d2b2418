"""Questions about calls, and decisions: a call may run, must not run, or has been executed elsewhere.

A question is answered once, about exactly the call that was shown: its id, its tool and its arguments. A question that
expires counts as denied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import DecisionRefused

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
