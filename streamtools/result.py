"""What a run has come to, and how it goes back to the model.

The history that a model sees holds what it wrote, the raw text of its calls included, and what its tools answered;
never the words that an interface puts in between. Malformed calls are answered too, so that it can write them again.
Calls that another kind superseded are in no history: nobody answers them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import (
    Call,
    CallStart,
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
    whole,
)
from streamtools.native import DIALECT as NATIVE
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.base import compact, neutralise
from streamtools.tools import ToolOutcome

_TOGETHER = 256  # events are looked at together, which costs less; more of them might keep large values for long
_NOT_RUN = "this call was not run"
_WARNINGS = 1000  # of a run are kept; all of them are events
_odd = re.compile(r"[^A-Za-z0-9_-]")


class Answer(NamedTuple):
    """What the model is told of one call."""

    dialect: str | None
    name: str
    text: str
    call_id: str
    neutralise: bool = True


class Thought(NamedTuple):
    """One block of reasoning that came in a channel of its own, with what goes back to the provider unchanged."""

    text: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False


@dataclass
class Step:
    """One turn of the model: what it wrote, reasoning left out, and what it is told of each of its calls, in order.

    `calls` are its native calls; one that was malformed has no arguments.
    """

    text: str = ""
    answers: list[Answer] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    thoughts: list[Thought] = field(default_factory=list)


@dataclass
class TurnResult:
    """What a run has come to so far; complete when `reason` is not None.

    `calls` are those that count: of a turn with native calls and calls in text, those of one kind. `errors` holds
    malformed calls, calls that the `tool_choice` forbids, and the fault of the stream, if there was one; calls that
    failed when they ran are among the `outcomes`, which stand in call order. Of the calls of a turn that were too many,
    the first stands for all. The rest is that of `done`.
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

    def messages(self, format: str = "openai", *, answer_pending: bool | None = None) -> list[dict[str, Any]]:
        """Return the messages that continue the history: for each turn the assistant's, and those with the results.

        Each result of a native call is a `tool` message. Results of calls in text stand in one user message, one block
        a call, in the form of the call's dialect. Raises ValueError for a format that is not `"openai"`.

        Providers want each native call answered. One that nobody has run is, where the run did not come to its end (it
        was cancelled, cut, stopped, or it failed): that it was not run. In a finished run, who runs it puts the result
        in; `answer_pending` says otherwise, for either.
        """
        if answer_pending is None:
            answer_pending = self.reason not in (None, "finished")
        if format != "openai":
            raise ValueError(f"messages are written for 'openai', not for {format!r}")
        messages: list[dict[str, Any]] = []
        for step in self.steps:
            calls = [_write_call(call) for call in step.calls]
            if step.text or calls:
                message = {"role": "assistant", "content": whole(step.text) or None}
                messages.append(message | {"tool_calls": calls} if calls else message)
            told = {answer.call_id: answer.text for answer in step.answers if answer.dialect == NATIVE}
            for call in step.calls:
                if call.id in told or answer_pending:
                    content = whole(told.get(call.id, _NOT_RUN))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
            blocks = [self._write(answer) for answer in step.answers if answer.dialect != NATIVE]
            if blocks:
                messages.append({"role": "user", "content": whole("\n".join(blocks))})
        return messages

    def _write(self, answer: Answer) -> str:
        name = _odd.sub("_", answer.name)[:64]
        text = neutralise(_unescape(answer.text), self.dialects) if answer.neutralise else answer.text
        dialect = next((each for each in self.dialects if each.id == answer.dialect), None)
        return f"{name}: {text}" if dialect is None else dialect.write_result(name, text)


class _Pieces:
    """A text that grows by small pieces. Packed, many of them become one, which takes a fraction of the room."""

    __slots__ = ("_blocks", "recent")

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self.recent: list[str] = []

    def pack(self) -> None:
        if self.recent:
            self._blocks.append("".join(self.recent))
            self.recent.clear()

    def join(self) -> str:
        """Return all of it."""
        self._blocks = ["".join(self._blocks + self.recent)]
        self.recent.clear()
        return self._blocks[0]


class Collector:
    """Gathers a result from the events as they go out; costs nearly nothing until there are many, or it is read."""

    def __init__(self, dialects: tuple[Dialect, ...]) -> None:
        self.result = TurnResult(dialects=dialects)
        self._new: list[Event] = []  # what has been added and not been looked at
        self._shown = _Pieces()
        self._thought = _Pieces()
        self._begin_step()

    def _begin_step(self) -> None:
        self._written = _Pieces()  # with the raw text of calls
        self._answers: dict[str, Answer | None] = {}  # by call id; None for a call that nobody has run
        self._names: dict[str, str] = {}  # of calls that have begun
        self._native: dict[str, ToolCall] = {}
        self._thoughts: list[Thought] = []
        self._block: list[str] = []  # the reasoning that no signature has ended
        self._superseded: list[ToolCall] = []
        self._flooded = False  # there were too many calls

    def add(self, events: Iterable[Event]) -> None:
        """Take note of events."""
        self._new += events
        if len(self._new) >= _TOGETHER:
            self._look()

    def add_outcomes(self, outcomes: Sequence[ToolOutcome]) -> None:
        """Take note of what came of the calls of this step, in call order."""
        self._look()
        self.result.outcomes += outcomes
        for outcome in outcomes:
            self._answers[outcome.call.id] = _answer(outcome.call, outcome.text)._replace(neutralise=outcome.neutralise)

    def read(self) -> TurnResult:
        """Return the result as it stands."""
        self._look()
        self.result.text = self._shown.join()
        self.result.reasoning = self._thought.join()
        return self.result

    def _look(self) -> None:
        """Look at what is new."""
        shown, written = self._shown, self._written
        for event in self._new:
            kind = type(event)
            if kind is Text:
                text: str = event.text  # type: ignore[attr-defined]  # mypy does not narrow by `type(event) is`
                shown.recent.append(text)
                written.recent.append(text)
            else:
                self._add(event)
                written = self._written
        self._new.clear()
        for pieces in (shown, written, self._thought):
            pieces.pack()

    def _add(self, event: Event) -> None:
        result = self.result
        match event:
            case Reasoning(text):
                self._thought.recent.append(text)
                self._block.append(text)
                if event.signature:
                    self._end_block(event.signature, event.id, event.redacted)
            case CallStart(call_id, name):
                self._names[call_id] = name
            case Call(call):
                result.calls.append(call)
                self._written.recent.append(call.raw)
                self._answers[call.id] = None
                if call.dialect == NATIVE:
                    self._native[call.id] = call
            case Error():
                self._add_error(event)
            case Warning():
                if len(result.warnings) < _WARNINGS:
                    result.warnings.append(event)
            case UsageReport(usage):
                result.usage = usage if result.usage is None else result.usage + usage
            case StepEnd():
                self._end_block()
                answers = [answer for answer in self._answers.values() if answer is not None]
                step = Step(self._written.join(), answers, list(self._native.values()), self._thoughts)
                for call in self._superseded:
                    step.text = step.text.replace(call.raw, "", 1)
                result.steps.append(step)
                self._begin_step()
            case Done(reason, finish_reason, _, pending, conversation_id):
                result.reason, result.finish_reason = reason, finish_reason
                result.pending, result.conversation_id = pending, conversation_id

    def _add_error(self, error: Error) -> None:
        """Take note of an error, unless it is that of a tool, which comes as an outcome too."""
        call = error.call
        if call is not None:
            if error.code is Code.TOOL_CHOICE_VIOLATION:
                self.result.errors.append(error)
                self._answers[call.id] = _answer(call, error.message)
            elif error.code is Code.SUPERSEDED:
                self.result.calls.remove(call)
                del self._answers[call.id]
                self._native.pop(call.id, None)
                self._superseded.append(call)
            return
        if error.dialect != NATIVE:
            self._written.recent.append(error.raw or "")
        if error.code is Code.TOO_MANY_CALLS:
            if self._flooded:
                return
            self._flooded = True
        self.result.errors.append(error)
        if error.call_id is None:
            return
        if error.dialect == NATIVE:
            name = self._names.get(error.call_id, "unknown")
            self._native[error.call_id] = ToolCall(id=error.call_id, name=name, arguments={}, dialect=NATIVE)
        told = f"{error.message}; send the call again"
        self._answers[error.call_id] = Answer(error.dialect, "error", told, error.call_id)

    def _end_block(self, signature: str | None = None, id: str | None = None, redacted: bool = False) -> None:
        text = "".join(self._block)
        self._block.clear()
        if text or signature:
            self._thoughts.append(Thought(text, signature, id, redacted))


def _answer(call: ToolCall, text: str) -> Answer:
    return Answer(call.dialect, call.name, text, call.id)


def _write_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": whole(call.name), "arguments": compact(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _unescape(text: str) -> str:
    """Return JSON text without escapes that are not needed, so that nothing is hidden in them; other text as it is."""
    if "\\" not in text:
        return text
    try:
        return compact(json.loads(text))
    except (ValueError, RecursionError):
        return text
