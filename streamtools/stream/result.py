"""The result of a run: what the model wrote, what its tools returned, and how the run ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamtools import history as histories
from streamtools.calls import ToolCall
from streamtools.events import DoneReason, Error, Usage, Warning
from streamtools.history.parts import Origin, Step, steps_to_history
from streamtools.parsing.dialects import Dialect
from streamtools.tools import ToolOutcome


@dataclass
class TurnResult:
    """The result of a run. It is complete when `reason` is not None."""

    text: str = ""
    """The visible text. In a chat, this is the text of all steps."""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    """The calls that count. Of a turn with native calls and calls in text, only one kind counts."""
    outcomes: list[ToolOutcome] = field(default_factory=list)
    """The outcomes of the calls that ran, in call order."""
    errors: list[Error] = field(default_factory=list)
    """Malformed calls, calls that `tool_choice` forbids, and the fault of the stream. Of the calls of a turn beyond its
    limit, only the first is here."""
    warnings: list[Warning] = field(default_factory=list)
    pending: list[ToolCall] = field(default_factory=list)
    """The calls that did not run."""
    usage: Usage | None = None
    usage_by_model: dict[str, Usage] = field(default_factory=dict)
    """The usage of each model whose name is known."""
    reason: DoneReason | None = None
    finish_reason: str | None = None
    conversation_id: str | None = None
    response_id: str | None = None
    """The id of the last response."""
    model: str | None = None
    """The model of the last response."""
    output: Any = None
    """The typed answer, if it is valid."""
    steps: list[Step] = field(default_factory=list, repr=False)
    resumed: list[ToolCall] = field(default_factory=list, repr=False)
    """Calls of an earlier run that this run resumed. Their outcomes are here."""
    dialects: tuple[Dialect, ...] = field(default=(), repr=False)

    def messages(
        self,
        format: histories.Format = "openai",
        *,
        answer_pending: bool | None = None,
        provider: Origin | None = None,
        send_reasoning: histories.SendReasoning = "with_calls",
    ) -> list[Any]:
        """Return the messages that continue the history: for each turn the model's, and the results of its calls.

        Each message is a dict for the request of a provider (`"openai"`, `"responses"`, `"anthropic"`, `"gemini"`,
        `"ollama"`), by the rules of `write_messages`, which has `provider` and `send_reasoning` too. They are typed as
        `Any`, so that they fit the types of the provider's SDK. Results of calls in text are one user message, with one
        block for each call in the form of its dialect. Raises ValueError for another format.

        Providers require a result for each call. A call that did not run gets one that says so, if another turn follows
        or the run was cancelled, cut, stopped, or failed. At the end of a finished run the caller adds the result.
        `answer_pending` overrides this.
        """
        if answer_pending is None:
            answer_pending = self.reason not in (None, "finished")
        history = steps_to_history(self.steps)
        how: Any = {
            "dialects": self.dialects,
            "unanswered": "cancelled" if answer_pending else None,
            "provider": provider,
            "send_reasoning": send_reasoning,
        }
        if self.resumed:
            from streamtools.history.formats import write_continuation  # like all formats, on first use

            return write_continuation(self.resumed, history, format, **how)
        return histories.write_messages(history, format, **how)
