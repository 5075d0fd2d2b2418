"""The state of one call while it runs, and its outcome: in full for the interface, shortened for the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from streamtools.calls import ToolCall
from streamtools.errors import Code, ToolCallFailed, ToolFailed, ToolOutputError
from streamtools.events import UIEvent, Warning
from streamtools.tools.invocation import Thread
from streamtools.tools.results import ToolOutcome, Written
from streamtools.tools.tool import Tool

_EXCERPT_LENGTH = 1000  # characters of a result that is too long for the model
_ERROR_LENGTH = 1000  # characters of an error that the model always gets


@dataclass(slots=True, eq=False, repr=False)
class Execution:
    """One call while it runs. `limit` is how many characters of a result the model gets; `clock` returns seconds."""

    call: ToolCall
    limit: int | None
    clock: Callable[[], float]
    shown: bool = False  # whether the interface knows that the call runs
    began: float | None = None  # when its tool started
    thread: Thread | None = None
    tool: Tool | None = None  # as it was when `need_of` decided, even if the registry has changed since
    outcome: ToolOutcome | None = None
    unsent: list[UIEvent] = field(default_factory=list)  # closing events that are not sent yet, without `seq`
    place: object | None = None  # the borrowed token of the concurrency limit

    def end(self, outcome: ToolOutcome) -> None:
        """Set the outcome, and add the closing events."""
        self.outcome = outcome
        if outcome.abandoned:
            thread = f"the thread of tool {self.call.name[:64]!r}"
            self.unsent.append(
                Warning(Code.ABANDONED, f"{thread} cannot be stopped; its late result will be dropped", count=1)
            )
        self.unsent.append(outcome.event(0))

    def succeeded(self, tool: Tool, written: Written) -> ToolOutcome:
        """Return the outcome of a call whose tool returned."""
        message = written.value.get("message") if isinstance(written.value, dict) else None
        return ToolOutcome(
            call=self.call,
            result=written.value,
            text=self._shorten(written.text, self.limit),
            error=None,
            message=message if isinstance(message, str) and message else None,
            elapsed=self._elapsed(),
            stop=written.stop,
            neutralise=tool.neutralise,
        )

    def failed(self, code: Code, text: str, error: ToolCallFailed | None = None) -> ToolOutcome:
        """Return the outcome of a call that failed, with `error`, or never ran. `text` is the reason."""
        abandoned = self.thread is not None and self.thread.is_abandoned
        if abandoned:
            text += "; it could not be stopped and may still be running"
        # The list of tools helps the model, and is not for the reader.
        message = f"no tool named {self.call.name[:64]!r}" if code is Code.UNKNOWN_TOOL else text
        return ToolOutcome(
            call=self.call,
            result=None,
            text=self._shorten(text, None if self.limit is None else max(self.limit, _ERROR_LENGTH)),
            error=code,
            message=message,
            elapsed=self._elapsed(),
            abandoned=abandoned,
            exception=error.__cause__ if isinstance(error, ToolFailed | ToolOutputError) and error.__cause__ else error,
        )

    def _shorten(self, text: str, limit: int | None) -> str:
        """Return the text for the model. If it is shortened, add a warning for the interface."""
        if limit is None or len(text) <= limit:
            return text
        warning = f"the result of tool {self.call.name[:64]!r} is too long for the model, which gets an excerpt"
        self.unsent.append(Warning(Code.RESULT_TOO_LONG, warning, count=len(text)))
        note = f"the result has {len(text)} characters, more than the limit of {limit}; request less of it"
        excerpt = text[: min(_EXCERPT_LENGTH, limit)]
        return f"{note}. It begins: {excerpt}" if excerpt else note

    def _elapsed(self) -> float:
        return 0.0 if self.began is None else self.clock() - self.began
