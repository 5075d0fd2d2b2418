"""The result of a run: the text and calls of the model, the outcomes of its tools, and the reason of the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamtools import history as histories
from streamtools.calls import ToolCall
from streamtools.errors import ListsNames
from streamtools.events import COMPLETE, DoneReason, Error, Usage, Warning
from streamtools.history.parts import Origin, Step, steps_to_history
from streamtools.parsing.dialects import Dialect
from streamtools.tools import ToolOutcome


@dataclass
class TurnResult(ListsNames):
    """The result of a run. It is complete when `reason` is not None."""

    text: str = ""
    """The visible text of all steps."""
    reasoning: str = ""
    """The reasoning of all steps."""
    calls: list[ToolCall] = field(default_factory=list)
    """The valid calls. If a turn has native calls and calls in text, only one kind is valid. Events report the calls of
    the other kind as errors with the code `superseded`."""
    outcomes: list[ToolOutcome] = field(default_factory=list)
    """The outcomes of the calls that ended, in call order. A denied call ends without running."""
    errors: list[Error] = field(default_factory=list)
    """The `error` events of malformed and forbidden calls, and of the whole stream. Errors of tools are in `outcomes`.
    If a turn exceeds the limit of calls, this holds one error for all calls beyond the limit."""
    warnings: list[Warning] = field(default_factory=list)
    """The warnings of the run, at most 1000."""
    pending: list[ToolCall] = field(default_factory=list)
    """The calls without an outcome."""
    usage: Usage | None = None
    """The token usage of the whole run; None if no provider reported it."""
    reason: DoneReason | None = None
    """The reason of the end of the run; None while it continues."""
    finish_reason: str | None = None
    """The finish reason of the last turn, or the limit, judge or tool that stopped the run. None if it is not known."""
    conversation_id: str | None = None
    """The conversation id that the provider sent."""
    response_id: str | None = None
    """The id of the last response."""
    model: str | None = None
    """The model of the last response."""
    output: Any = None
    """The validated typed answer; None if there is none. While the answer arrives, read `output` of the stream."""
    steps: list[Step] = field(default_factory=list, repr=False)
    """The steps of the run: for each, the turn of the model and the results of its calls."""
    resumed: list[ToolCall] = field(default_factory=list, repr=False)
    """The calls of an earlier run that this run resumed. `outcomes` holds their outcomes."""
    dialects: tuple[Dialect, ...] = field(default=(), repr=False)
    """The dialects in which results of calls in text are written."""

    def messages(
        self,
        format: histories.Format = "openai",
        *,
        answer_pending: bool | None = None,
        provider: Origin | None = None,
        send_reasoning: histories.SendReasoning = "with_calls",
    ) -> list[Any]:
        """Return the messages of the run, to add to the history: for each turn the model's message and its results.

        `format` selects the provider; `history.Format` lists the values. Each message is a dict for a request to this
        provider. The type is `Any`, so that the messages fit the types of the SDKs. The results of calls in text are
        joined into one user message. It has one block for each call, in the dialect of the call. `provider` is the
        recipient: data of a provider, such as signatures, is sent back only to the same provider. `send_reasoning`
        selects the turns whose reasoning is sent back in chat completions; see `write_messages`.

        Providers require a result for each call. With `answer_pending=True`, a call that did not run gets the result
        that it was cancelled. With False, the caller must add the results of the last turn. None, the default, means
        False for a finished, waiting or running run, and True for a run that ended early.

        Raises ValueError for another format.
        """
        if answer_pending is None:
            answer_pending = self.reason not in (None, *COMPLETE)
        history = steps_to_history(self.steps)
        options: Any = {
            "dialects": self.dialects,
            "unanswered": "cancelled" if answer_pending else None,
            "provider": provider,
            "send_reasoning": send_reasoning,
        }
        from streamtools.history.formats import write_continuation  # imported late, like `write_messages`

        return write_continuation(self.resumed, history, format, **options)
