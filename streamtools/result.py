"""What a run has come to, and how it goes back to the model.

The history that a model sees holds what it wrote, the raw text of its calls included, and what its tools answered;
never the words that an interface puts in between. Malformed calls are answered too, so that it can write them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import (
    Call,
    Done,
    DoneReason,
    Error,
    Event,
    Reasoning,
    StepEnd,
    Text,
    Usage,
    UsageReport,
    Warning,
)
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.base import neutralise
from streamtools.tools import ToolOutcome

_TOLD = frozenset(
    (
        Code.INVALID_JSON,
        Code.MISSING_TOOL_NAME,
        Code.INVALID_ARGUMENTS,
        Code.CONFLICTING_FIELDS,
        Code.UNRECOGNISED_TOOL_CALL,
        Code.TOO_LARGE,
        Code.TOO_DEEP,
        Code.TOO_MANY_CALLS,
        Code.DUPLICATE_KEY,
        Code.NOT_A_NUMBER,
        Code.NUMBER_TOO_LONG,
        Code.LONE_SURROGATE,
        Code.TRUNCATED,
    )
)


@dataclass
class Step:
    """One turn of the model: what it wrote, reasoning left out, and what came of its calls, in call order."""

    text: str = ""
    outcomes: list[ToolOutcome] = field(default_factory=list)
    malformed: list[Error] = field(default_factory=list)


@dataclass
class TurnResult:
    """What a run has come to so far; complete when `reason` is not None.

    `errors` holds malformed calls and the fault of the stream, if there was one; calls that failed when they ran are
    among the `outcomes`. `reason`, `finish_reason`, `pending` and `conversation_id` are those of `done`.
    """

    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    outcomes: list[ToolOutcome] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)
    pending: list[ToolCall] = field(default_factory=list)
    usage: Usage | None = None
    reason: DoneReason | None = None
    finish_reason: str | None = None
    conversation_id: str | None = None
    steps: list[Step] = field(default_factory=list, repr=False)
    dialects: tuple[Dialect, ...] = field(default=(), repr=False)

    def messages(self, format: str = "openai") -> list[dict[str, Any]]:  # reads well at the call
        """Return the messages that continue the history: for each turn the assistant's, and one with all results.

        Results of calls in text stand in a user message, one block a call, in the form of the call's dialect. Raises
        ValueError for a format that is not `"openai"`.
        """
        if format != "openai":
            raise ValueError(f"messages are written for 'openai', not for {format!r}")
        messages = []
        for step in self.steps:
            if step.text:
                messages.append({"role": "assistant", "content": step.text})
            if blocks := [*map(self._write_outcome, step.outcomes), *map(self._write_malformed, step.malformed)]:
                messages.append({"role": "user", "content": "\n".join(blocks)})
        return messages

    def _write_outcome(self, outcome: ToolOutcome) -> str:
        dialect = next((each for each in self.dialects if each.id == outcome.call.dialect), None)
        return self._write(dialect, outcome.call.name, outcome.text)

    def _write_malformed(self, error: Error) -> str:
        raw = error.raw or ""
        dialect = next((each for each in self.dialects if raw.startswith(each.reserved)), None)
        return self._write(dialect, "error", f"{error.message}; send the call again")

    def _write(self, dialect: Dialect | None, name: str, text: str) -> str:
        text = neutralise(text, self.dialects)
        return f"{name}: {text}" if dialect is None else dialect.write_result(name, text)


class Collector:
    """Gathers a result from the events as they go out; costs one append for each piece of text."""

    def __init__(self, dialects: tuple[Dialect, ...]) -> None:
        self.result = TurnResult(dialects=dialects)
        self._shown: list[str] = []
        self._thought: list[str] = []
        self._written: list[str] = []  # of this step, with the raw text of calls
        self._malformed: list[Error] = []
        self._outcomes: list[ToolOutcome] = []

    def add(self, events: Iterable[Event]) -> None:
        """Take note of events."""
        for event in events:
            kind = type(event)
            if kind is Text:
                text: str = event.text  # type: ignore[attr-defined]  # mypy does not narrow by `type(event) is`
                self._shown.append(text)
                self._written.append(text)
            else:
                self._add(event)

    def add_outcomes(self, outcomes: Sequence[ToolOutcome]) -> None:
        """Take note of what came of the calls of this step, in call order."""
        self._outcomes += outcomes
        self.result.outcomes += outcomes

    def read(self) -> TurnResult:
        """Return the result as it stands."""
        self.result.text = "".join(self._shown)
        self.result.reasoning = "".join(self._thought)
        self._shown, self._thought = [self.result.text], [self.result.reasoning]
        return self.result

    def _add(self, event: Event) -> None:
        result = self.result
        match event:
            case Reasoning(text):
                self._thought.append(text)
            case Call(call):
                result.calls.append(call)
                self._written.append(call.raw)
            case Error() if event.call is None:
                result.errors.append(event)
                self._written.append(event.raw or "")
                if event.code in _TOLD:
                    self._malformed.append(event)
            case Warning():
                result.warnings.append(event)
            case UsageReport(usage):
                result.usage = usage if result.usage is None else result.usage + usage
            case StepEnd():
                result.steps.append(Step("".join(self._written), self._outcomes, self._malformed))
                self._written, self._outcomes, self._malformed = [], [], []
            case Done(reason, finish_reason, _, pending, conversation_id):
                result.reason, result.finish_reason = reason, finish_reason
                result.pending, result.conversation_id = pending, conversation_id
