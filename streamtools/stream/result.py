"""What a run has come to, and how it goes back to the model.

The history that a model sees holds what it wrote, the raw text of its calls included, and what its tools answered;
never what an interface puts in between. Malformed calls are answered too, so that it can write them again. Calls that
another kind superseded are in no history: nobody answers them.

A response that was not streamed comes to its calls: `extract_tool_calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Unpack

from msgspec.structs import replace

from streamtools import history as histories
from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import Code
from streamtools.events import (
    Call,
    CallStart,
    Done,
    DoneReason,
    Error,
    Event,
    Matched,
    Partial,
    Raw,
    Reasoning,
    StepEnd,
    StepSuperseded,
    Text,
    UIEvent,
    Usage,
    UsageReport,
    Warning,
)
from streamtools.events.event import LARGE, is_large, weigh
from streamtools.events.ui_events import RuledReasoning, ValidPartial
from streamtools.history.parts import SEND_AGAIN, Assistant, CallResult, Origin, Step, steps_to_history
from streamtools.json_values import Draft
from streamtools.limits import DEFAULT_LIMITS
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.call_events import BROKEN_OFF
from streamtools.parsing.dialects import Dialect, Dialects
from streamtools.parsing.options import ParserKeywords
from streamtools.sources.finished import finished
from streamtools.stream.step_parts import StepParts, TextPieces
from streamtools.tools import Tool, ToolOutcome, ToolRegistry

BATCH = 256
"""Events that are collected together, which costs less. A large event is collected immediately."""
MAX_WARNINGS = 1000
"""Warnings of a run that the result keeps. The events hold all of them."""
_COLLECTED = {Reasoning, RuledReasoning, CallStart, Call, Error, Warning, Raw, Matched, UsageReport}  # besides text
_COLLECTED |= {StepEnd, StepSuperseded, Partial, ValidPartial, Done}


@dataclass
class TurnResult:
    """What a run has come to so far; complete when `reason` is not None.

    `calls` are those that count: of a turn with native calls and calls in text, those of one kind. `errors` holds
    malformed calls, calls that the `tool_choice` forbids, and the fault of the stream, if there was one; calls that
    failed when they ran are among the `outcomes`, which stand in call order. Of the calls of a turn that were too many,
    the first stands for all. In a chat, `text` is that of all its turns with nothing put between them, as it was shown;
    `steps` has them apart; `output` is the answer as an instance of the type that was asked for, if it is
    valid; `usage_by_model` has what each model has used, where its name is known; `response_id` and
    `model` are those of the last. `resumed` are calls of an earlier run, that this one has gone on with: the results of
    these are its own. The rest is that of `done`.
    """

    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    outcomes: list[ToolOutcome] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)
    pending: list[ToolCall] = field(default_factory=list)
    usage: Usage | None = None
    usage_by_model: dict[str, Usage] = field(default_factory=dict)
    reason: DoneReason | None = None
    finish_reason: str | None = None
    conversation_id: str | None = None
    response_id: str | None = None
    model: str | None = None
    output: Any = None
    steps: list[Step] = field(default_factory=list, repr=False)
    resumed: list[ToolCall] = field(default_factory=list, repr=False)
    dialects: tuple[Dialect, ...] = field(default=(), repr=False)

    def messages(
        self,
        format: histories.Format = "openai",
        *,
        answer_pending: bool | None = None,
        provider: Origin | None = None,
        send_reasoning: histories.SendReasoning = "with_calls",
    ) -> list[Any]:
        """Return the messages that continue the history: for each turn the assistant's, and those with the results.

        Each is a dict; they are typed as `Any`, as which they fit what the provider's SDK takes.
        They are those of a provider's request, `"openai"`, `"responses"`, `"anthropic"`, `"gemini"` or `"ollama"`, by
        the rules of `write_messages`, which has `provider` and `send_reasoning` too. Results of calls in text stand in
        one user message, one block a call, in the form of the call's dialect. Raises ValueError for another format.

        Providers want each call answered before the history goes on. One that nobody has run is, where a turn follows
        or the run did not come to its end (it was cancelled, cut, stopped, or it failed): that it was not run. At the
        end of a finished run, who runs it puts the result in; `answer_pending` says otherwise, for either.
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


class Collector:
    """Collects the result of a run. A stage: it sees events before the consumer does.

    It costs almost nothing until `BATCH` events have arrived or the result is read.
    """

    def __init__(
        self,
        dialects: tuple[Dialect, ...],
        *,
        max_size: int | None = None,
        shown_call: Callable[[ToolCall], ToolCall] | None = None,
    ) -> None:
        """`max_size` is the limit of `size`. `shown_call` returns a native call as the history has it."""
        self.result = TurnResult(dialects=dialects)
        self.size = 0
        """Characters of text, reasoning, and calls as the model wrote them."""
        self.is_too_large = False
        """Whether `size` exceeds its limit."""
        self.draft = Draft()
        """The typed answer, as far as it has arrived."""
        self._new: list[Event | list[ToolOutcome]] = []  # not collected yet: events, and the outcomes of a step
        self._max_size = max_size
        self._shown_call = shown_call
        self._source: object = None
        self._shown = TextPieces()
        self._thought = TextPieces()
        self._length = self._thought_length = 0  # characters of text, and of reasoning
        self._used: Usage | None = None  # of models whose name is not known yet
        self._last_begin = self._step_begin = (0, 0, 0)
        self._begin_step()

    def _begin_step(self) -> None:
        self._last_begin = self._step_begin
        self._step_begin = (self._length, self._thought_length, len(self.result.errors))
        self._parts = StepParts()
        self._results: dict[str, CallResult | None] = {}  # by call id; None for a call that has not run
        self._names: dict[str, str] = {}  # of calls that have started
        self._in_text: dict[str, ToolCall] = {}
        self._has_too_many_calls = False
        self._replacement = 0  # characters of the next text that a rule put there: they are shown, but not history
        self._reasoning_replacement = 0  # the same for reasoning
        self._resumed: Collection[str] = ()  # ids of calls that an earlier run has put into the history

    def take(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Record events; return them."""
        new = self._new
        new += events
        for event in events:
            if is_large(event) if type(event) is not Text else len(event.text) > LARGE:
                self.collect()
                return events
        if len(new) >= BATCH:
            self.collect()
        return events

    def record(self, outcomes: list[ToolOutcome]) -> None:
        """Record the outcomes of a step, in call order."""
        self._new.append(outcomes)

    def resume(self, calls: Iterable[ToolCall]) -> None:
        """Note that an earlier run made these calls of the step, and that the history holds them."""
        self.result.resumed = list(calls)
        self._resumed = frozenset(call.id for call in calls)

    def read_from(self, source: object) -> None:
        """Set the source of the next events. Its `origin` names the provider of the step."""
        self.collect()
        self._source = source

    def read(self) -> TurnResult:
        """Return the current result."""
        self.collect()
        self.result.text = self._shown.join()
        self.result.reasoning = self._thought.join()
        return self.result

    def collect(self) -> None:
        """Collect the recorded events. Adjacent texts are collected as one."""
        texts: list[str] = []
        for event in self._new:
            if type(event) is Text:
                texts.append(event.text)
                continue
            kind = type(event)
            if texts and (kind in _COLLECTED or kind is list):
                self._show(texts)
            if kind in _COLLECTED:
                self._add(event)  # type: ignore[arg-type]  # it is no list
            elif isinstance(event, list):
                self._add_outcomes(event)
        if texts:
            self._show(texts)
        self.is_too_large = self._max_size is not None and self.size > self._max_size
        self._new.clear()
        for pieces in (self._shown, self._parts.written, self._thought):
            if pieces.recent:
                pieces.pack()

    def _show(self, texts: list[str]) -> None:
        text = "".join(texts)
        self.size += len(text)
        self._length += len(text)
        self._shown.recent.append(text)
        self._parts.write(text[self._replacement :] if self._replacement else text)
        self._replacement = max(0, self._replacement - len(text))
        texts.clear()

    def _add_outcomes(self, outcomes: list[ToolOutcome]) -> None:
        self.result.outcomes += outcomes
        for outcome in outcomes:
            failed = outcome.error is not None
            self._results[outcome.call.id] = _result(outcome.call, outcome.text, outcome.neutralise, is_error=failed)

    def _add(self, event: Event) -> None:
        result = self.result
        match event:
            case Reasoning(text):
                self.size += len(text) + len(event.signature or "")
                self._thought_length += len(text)
                self._thought.recent.append(text)
                said = getattr(event, "written", None) or event
                if self._reasoning_replacement:
                    said = replace(said, text=said.text[self._reasoning_replacement :])
                    self._reasoning_replacement = max(0, self._reasoning_replacement - len(text))
                self._parts.think(said)
            case Raw():
                if event.format is not None:
                    self.size += weigh(event)
                    self._parts.take(event.written or event)
            case Matched(where="reasoning"):
                self._parts.think(Reasoning(event.written or ""))
                self._reasoning_replacement = event.shown
            case Matched():
                self._parts.write(event.written)
                self._replacement = 0 if event.written is None else event.shown
            case CallStart(call_id, name):
                self._names[call_id] = name
            case Call(call):
                self.size += len(call.raw)
                result.calls.append(call)
                if call.id in self._resumed:
                    return
                self._results[call.id] = None
                if call.dialect == NATIVE:
                    self._parts.call(call if self._shown_call is None else self._shown_call(call))
                else:
                    written = replace(call, raw=event.written) if event.written else call
                    self._parts.write(written.raw)
                    self._in_text[call.id] = written
            case Error():
                self._add_error(event)
            case Warning():
                if event.code is Code.FAILED_OVER:
                    self._parts.keep_text_only()
                if len(result.warnings) < MAX_WARNINGS:
                    self.size += len(event.raw or "")
                    result.warnings.append(event)
            case UsageReport(usage):
                result.usage = usage if result.usage is None else result.usage + usage
                if event.model is not None:
                    self._count(event.model, usage)
                else:
                    self._used = usage if self._used is None else self._used + usage
            case StepEnd():
                result.response_id, result.model = event.response_id, event.model
                results = [result for result in self._results.values() if result is not None]
                origin = Origin(*getattr(self._source, "origin", ()))
                origin = origin._replace(model=event.model or origin.model)
                if origin.model is not None and self._used is not None:
                    self._count(origin.model, self._used)
                    self._used = None
                in_text, id = self._in_text.values(), event.response_id
                parts = self._parts.close(in_text, result.dialects)
                said = Assistant(parts=parts, in_text=in_text, origin=origin, response_id=id)
                result.steps.append(Step(said, results, id))
                self._begin_step()
            case Partial(path, value, complete, call_id=None):
                self.draft.add(path, value, complete)
                if event.instance is not None:
                    result.output = event.instance
            case StepSuperseded():
                self._take_back()
            case Done(reason, finish_reason, _, pending, conversation_id):
                result.reason, result.finish_reason = reason, finish_reason
                result.pending, result.conversation_id = pending, conversation_id

    def _count(self, model: str, usage: Usage) -> None:
        by_model = self.result.usage_by_model
        by_model[model] = by_model[model] + usage if model in by_model else usage

    def _take_back(self) -> None:
        """Remove the last step: it was superseded."""
        result = self.result
        result.steps.pop()
        self.draft, result.output = Draft(), None
        length, thought, errors = self._step_begin = self._last_begin
        self._shown.cut(length)
        self._thought.cut(thought)
        self._length, self._thought_length = length, thought
        del result.errors[errors:]

    def _add_error(self, error: Error) -> None:
        """Record an error. Errors of tools are outcomes, and not recorded here."""
        self.size += len(error.raw or "")
        call = error.call
        if call is None and error.code is Code.SUPERSEDED and error.message == BROKEN_OFF:
            return
        if call is not None:
            if error.code is Code.TOOL_CHOICE_VIOLATION:
                self.result.errors.append(error)
                self._results[call.id] = _result(call, error.message, is_error=True)
            elif error.code is Code.SUPERSEDED:
                self.result.calls.remove(call)
                del self._results[call.id]
                self._parts.drop(self._in_text.pop(call.id, call))
            return
        if error.dialect != NATIVE:
            self._parts.write(error.written or error.raw or "")
        if error.code is Code.TOO_MANY_CALLS:
            if self._has_too_many_calls:
                return
            self._has_too_many_calls = True
        self.result.errors.append(error)
        if error.call_id is None:
            return
        if error.dialect == NATIVE:
            name = self._names.get(error.call_id, "unknown")
            self._parts.call(ToolCall(id=error.call_id, name=name, arguments={}, dialect=NATIVE))
        text = error.message + SEND_AGAIN
        self._results[error.call_id] = CallResult(error.dialect, "error", text, error.call_id, is_error=True)


def _result(call: ToolCall, text: str, neutralise: bool = True, *, is_error: bool) -> CallResult:
    return CallResult(call.dialect, call.name, text, call.id, neutralise, is_error)


# The calls of a finished response: a run of the machine over a stream that came at once.
#
# Which calls count, native ones or those in the text, is decided by the same table as in a stream, and what is
# malformed is an error by the same rules. `ToolRegistry.process_tool_calls` finds the same native calls; it differs in
# that it reads none in the text, runs none of an answer that was cut off, and refuses null and Gemini's responses,
# since what it reads has to go back with the results.


class Extracted(NamedTuple):
    """The calls that count, in order, and how the others ended: malformed, truncated, or superseded."""

    calls: list[ToolCall]
    errors: list[Error]


def extract_tool_calls(
    response: object,
    *,
    native_tool_calls: bool | None = None,
    self_contained: bool = False,
    dialects: Dialects = None,
    tools: Any = None,
    **options: Unpack[ParserKeywords],
) -> Extracted:
    """Return the calls of a response that was not streamed.

    `response` is a whole response of OpenAI (chat completions or Responses), Anthropic, Gemini or Ollama, a message, a
    list of content blocks, a list of calls, or a text; as a dict or as an object of an SDK. None holds no calls.
    `tools` is what `ToolStream` takes (a registry, tools, functions, a mapping of names to functions), or definitions
    as dicts in the form of any provider. The other parameters are those of `StreamMachine`. Raises `UnreadableSource`
    for a response that is none of these, and TypeError for `tools` that are none.

    >>> calls, errors = extract_tool_calls({"role": "assistant", "content": '###:{"name": "now"}'})
    >>> calls[0].name, errors
    ('now', [])
    """
    machine = StreamMachine(
        dialects=dialects,
        tools=_declare(tools),
        execute="never",
        native_tool_calls=native_tool_calls,
        self_contained=self_contained,
        **options,
    )
    events = [out for event in finished(response, options.get("limits", DEFAULT_LIMITS)) for out in machine.feed(event)]
    events += machine.close()
    return Extracted(machine.pending, [event for event in events if isinstance(event, Error) and event.call_id])


def _declare(tools: Any) -> Any:
    """Return `tools` with functions made into tools, and definitions as they are."""
    if isinstance(tools, Mapping):
        return ToolRegistry(tools) if all(map(callable, tools.values())) else tools
    if isinstance(tools, Iterable) and not isinstance(tools, str | bytes | ToolRegistry):
        return [_declare(each) for each in tools]
    return ToolRegistry(tools) if callable(tools) and not isinstance(tools, Tool) else tools
