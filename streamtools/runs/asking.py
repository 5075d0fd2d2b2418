"""What a run asks of people, passed on to the stream that it drives: decisions come over any connection."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from streamtools.errors import DecisionRefused
from streamtools.tools.decisions import Question


@runtime_checkable
class Asks(Protocol):
    """What asks about calls and takes the answers: a `ToolStream`, a chat, and a run of one. All raise
    `DecisionRefused` for what nothing waits for.
    """

    @property
    def questions(self) -> list[Question]: ...
    def approve(self, call_id: str, *, digest: str | None = None) -> None: ...
    def deny(self, call_id: str, reason: str = "") -> None: ...
    def answer(self, call_id: str, result: Any = None, *, error: str | None = None) -> None: ...


class Answerable:
    """The part of a run that takes decisions; `_events` is what its stream gave when it was entered."""

    _events: object | None

    @property
    def questions(self) -> list[Question]:
        """What the stream waits to be told, with `ask="now"`, in the order in which it was asked."""
        return self._events.questions if isinstance(self._events, Asks) else []

    def approve(self, call_id: str, *, digest: str | None = None) -> None:
        """Let a call run that waits for it; with a `digest`, only if it is the one that was shown.

        From any task of the event loop. Raises `DecisionRefused` if nothing waits for this, as do `deny` and `answer`.
        """
        self._asks(call_id).approve(call_id, digest=digest)

    def deny(self, call_id: str, reason: str = "") -> None:
        """End a call that waits to be decided about; the model is told the reason."""
        self._asks(call_id).deny(call_id, reason)

    def answer(self, call_id: str, result: Any = None, *, error: str | None = None) -> None:
        """Give the result of a call that was carried out elsewhere, or the `error` with which it failed there."""
        self._asks(call_id).answer(call_id, result, error=error)

    def _asks(self, call_id: str) -> Asks:
        if not isinstance(self._events, Asks):
            raise DecisionRefused(f"call {call_id!r} waits for no decision: there is nothing that asks")
        return self._events
