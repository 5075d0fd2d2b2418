"""What is known of one call while it is run: when it began, its thread, how it ended, what of that is still to be sent.

Here stands how an outcome is put: what the model gets of it, which may be shorter, and what the interface is told.
"""

from __future__ import annotations

from collections.abc import Callable

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import UIEvent, Warning
from streamtools.tools.definition import Tool
from streamtools.tools.outcome import ToolOutcome, Written, message_of, shorten
from streamtools.tools.threads import Thread

_OF_ERROR = 1000  # characters of an error that the model gets in any case; what we say ourselves is shorter


class Account:
    """The account of one call. `limit` is how many characters of a result the model gets; `clock` tells seconds."""

    __slots__ = ("_clock", "_limit", "began", "call", "endings", "has_begun", "outcome", "place", "thread")

    def __init__(self, call: ToolCall, limit: int | None, clock: Callable[[], float]) -> None:
        self.call = call
        self.has_begun = False
        """The interface has been told that it is run."""
        self.began: float | None = None
        """When its tool began to work."""
        self.thread: Thread | None = None
        self.outcome: ToolOutcome | None = None
        self.endings: list[UIEvent] = []
        """What closes the call and has not been sent; nobody has numbered it."""
        self.place: object | None = None
        """What it holds of those that may work at the same time."""
        self._limit = limit
        self._clock = clock

    def begin(self) -> None:
        """Take note that its tool begins to work."""
        self.began = self._clock()

    def end(self, outcome: ToolOutcome) -> None:
        """Take note of how it ended."""
        self.outcome = outcome
        if outcome.abandoned:
            self.endings.append(_abandoned(outcome.call))
        self.endings.append(outcome.event(0))

    def succeeded(self, tool: Tool, written: Written) -> ToolOutcome:
        """Return the outcome of a call that `tool` has answered."""
        return ToolOutcome(
            call=self.call,
            result=written.value,
            text=self._shorten(written.text, self._limit),
            error=None,
            message=message_of(written.value),
            elapsed=self._elapsed(),
            stop=written.stop,
            neutralise=tool.neutralise,
        )

    def refused(self, code: Code, text: str) -> ToolOutcome:
        """Return the outcome of a call that has failed, or was never run; `text` says why."""
        abandoned = self.thread is not None and self.thread.is_left
        if abandoned:
            text += "; it could not be stopped, and may still be at work"
        # Which tools there are helps the model, and is not for the reader.
        message = f"no tool named {self.call.name[:64]!r}" if code is Code.UNKNOWN_TOOL else text
        return ToolOutcome(
            call=self.call,
            result=None,
            text=self._shorten(text, None if self._limit is None else max(self._limit, _OF_ERROR)),
            error=code,
            message=message,
            elapsed=self._elapsed(),
            abandoned=abandoned,
        )

    def _shorten(self, text: str, limit: int | None) -> str:
        """Return what the model gets of a text, and note that the interface is to be told if that is not all."""
        short = shorten(text, limit)
        if short is not text:
            self.endings.append(_too_long(self.call, len(text)))
        return short

    def _elapsed(self) -> float:
        return 0.0 if self.began is None else self._clock() - self.began


def _abandoned(call: ToolCall) -> Warning:
    message = f"the thread of tool {call.name[:64]!r} cannot be stopped and was left behind; its result will be dropped"
    return Warning(Code.ABANDONED, message, count=1)


def _too_long(call: ToolCall, length: int) -> Warning:
    message = f"the result of tool {call.name[:64]!r} is too long for the model, which was told so instead"
    return Warning(Code.RESULT_TOO_LONG, message, count=length)
