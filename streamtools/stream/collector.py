"""Collects the result of a run from its events.

The history for the model holds the text of the model, the raw text of its calls, and the results of its tools. By
default, only users see the replacements of text rules. With `history="as_shown"`, the history holds them, too. A
malformed call also gets a result, so that the model can write the call again. The history contains no superseded call.

`StepParts` collects the parts of one turn: text, reasoning, native calls and provider items (JSON data that this
library does not interpret). A part ends when a part of another kind starts. A reasoning part also ends with its
signature.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import Code
from streamtools.events import (
    Call,
    CallStart,
    Done,
    Error,
    Event,
    Matched,
    Partial,
    Raw,
    Reasoning,
    RuledReasoning,
    StepEnd,
    StepStart,
    StepSuperseded,
    Text,
    UIEvent,
    UsageReport,
    ValidPartial,
    Warning,
    weigh,
)
from streamtools.history import ProviderItem, TextPart, Thought
from streamtools.history.parts import SEND_AGAIN, Assistant, CallResult, Origin, Part, Step
from streamtools.json_values import Draft
from streamtools.machine.logged_run import LoggedRun, LoggedStep
from streamtools.parsing.call_events import BROKEN_OFF
from streamtools.parsing.dialects import Dialect
from streamtools.stream.result import TurnResult
from streamtools.tools import ToolOutcome
from streamtools.tools.ledger import Entry, call_key

BATCH = 256
"""The number of recorded events that are processed together, for speed."""
MAX_WARNINGS = 1000
"""The maximum number of warnings in the result. Further warnings are only in the events."""
# The types of events that `_add` processes. `Text` is processed separately.
_COLLECTED = {Reasoning, RuledReasoning, CallStart, Call, Error, Warning, Raw, Matched, UsageReport}
_COLLECTED |= {StepEnd, StepSuperseded, Partial, ValidPartial, Done}


class Collector:
    """Collects the result of a run from its events.

    `take` only records events. `collect` processes them in batches. It is also called when the result is read.
    """

    def __init__(
        self,
        dialects: tuple[Dialect, ...],
        *,
        max_size: int | None = None,
        show_call: Callable[[ToolCall], ToolCall] | None = None,
    ) -> None:
        """`max_size` is the limit of `size`; None means no limit.

        `show_call` converts a native call for the history; None keeps the original call.
        """
        self.result = TurnResult(dialects=dialects)
        self.size = 0
        """The approximate number of collected characters.

        Counts text, reasoning, provider data, and the raw text of calls, errors and warnings.
        """
        self.is_too_large = False
        """True if `size` exceeded its limit at the last `collect`."""
        self.draft = Draft()
        """The part of the typed answer that has arrived."""
        self.recorded: list[Event | list[ToolOutcome]] = []
        """The events and outcomes that `collect` has not processed."""
        self._max_size = max_size
        self._show_call = show_call
        self._source: object = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        # The lengths of `_text`, `_reasoning` and `result.errors` at the start of the last step and of this step.
        self._previous_step_start = self._step_start = (0, 0, 0)
        self._start_step()

    def _start_step(self) -> None:
        self._previous_step_start = self._step_start
        self._step_start = (len(self._text), len(self._reasoning), len(self.result.errors))
        self._parts = StepParts()
        self._results: dict[str, CallResult | None] = {}  # by call id: the results; None for a call that has not run
        self._names: dict[str, str] = {}  # by call id: the tool names of the calls that have started
        self._in_text: dict[str, ToolCall] = {}  # by call id: the calls that the model wrote in its text
        self._has_too_many_calls = False  # True after the first error about a call beyond the limit of the turn
        # The next text begins with this many characters that a rule inserted. The history omits them.
        self._replacement = 0
        self._reasoning_replacement = 0  # the same number for the next reasoning
        self._resumed: Collection[str] = ()  # ids of an earlier run's calls; the history already holds these calls

    def take(self, events: Sequence[UIEvent]) -> None:
        """Record events."""
        self.recorded += events
        if len(self.recorded) >= BATCH:
            self.collect()

    def record(self, outcomes: list[ToolOutcome]) -> None:
        """Record the outcomes of a step, in call order."""
        self.recorded.append(outcomes)

    def resume(self, calls: Iterable[ToolCall]) -> None:
        """Record calls of an earlier run. The history already holds them, so the step adds only their results."""
        self.result.resumed = list(calls)
        self._resumed = frozenset(call.id for call in calls)

    def restore(self, logged: LoggedRun, recorded: Mapping[str, Entry]) -> list[ToolOutcome]:
        """Record the events of a run that continues. Returns the outcomes of the calls of its open step.

        `recorded` are the calls of the run in the ledger, with the texts of their results for the model.

        If a model was writing when the process crashed, another answer continues the text. The step then keeps only its
        text.
        """
        step = LoggedStep()
        for event in logged.events:
            if isinstance(event, StepStart):
                step = LoggedStep()
                self.read_from(SimpleNamespace(origin=Origin(event.format)))
            elif isinstance(event, StepEnd):
                self.record(_outcomes_of(step, recorded))
            elif isinstance(event, Warning) and event.code is Code.OWNER_LOST and not step.is_answered:
                self.collect()
                self._keep_text_only()
            step.add(event)
            self.take((event,))
        self.collect()
        if logged.open is not None and not logged.open.is_answered:
            self._keep_text_only()
        return [] if logged.open is None else _outcomes_of(step, recorded)

    def _keep_text_only(self) -> None:
        """Keep only the text of the open step, because another answer continues it."""
        self._parts.keep_text_only()
        for id in [id for id, result in self._results.items() if result is not None and result.dialect == NATIVE]:
            del self._results[id]

    @property
    def step_text(self) -> str:
        """The text of the open step."""
        self.collect()
        return "".join(self._text[self._step_start[0] :])

    def read_from(self, source: object) -> None:
        """Set the source of the next events. The attribute `origin` of the source names the provider of the step."""
        self.collect()
        self._source = source

    def read(self) -> TurnResult:
        """Process the recorded events, and return the current result."""
        self.collect()
        self.result.text = "".join(self._text)
        self.result.reasoning = "".join(self._reasoning)
        return self.result

    def collect(self) -> None:
        """Process the recorded events and outcomes. Adjacent texts are joined first."""
        texts: list[str] = []
        for event in self.recorded:
            if type(event) is Text:
                texts.append(event.text)
                continue
            kind = type(event)
            if texts and (kind in _COLLECTED or kind is list):
                self._add_text(texts)
            if kind in _COLLECTED:
                self._add(event)  # type: ignore[arg-type]  # it is not a list
            elif isinstance(event, list):
                self._add_outcomes(event)
        if texts:
            self._add_text(texts)
        self.is_too_large = self._max_size is not None and self.size > self._max_size
        self.recorded.clear()

    def _add_text(self, texts: list[str]) -> None:
        text = "".join(texts)
        self.size += len(text)
        self._text.append(text)
        self._parts.write(text[self._replacement :] if self._replacement else text)
        self._replacement = max(0, self._replacement - len(text))
        texts.clear()

    def _add_outcomes(self, outcomes: list[ToolOutcome]) -> None:
        self.result.outcomes += outcomes
        for outcome in outcomes:
            failed = outcome.error is not None
            self._results[outcome.call.id] = _result(outcome.call, outcome.text, outcome.neutralize, is_error=failed)

    def _add(self, event: Event) -> None:
        result = self.result
        match event:
            case Reasoning(text):
                self.size += len(text) + len(event.signature or "")
                self._reasoning.append(text)
                original = getattr(event, "written", None) or event
                if self._reasoning_replacement:
                    original = replace(original, text=original.text[self._reasoning_replacement :])
                    self._reasoning_replacement = max(0, self._reasoning_replacement - len(text))
                self._parts.think(original)
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
                    self._parts.call(call if self._show_call is None else self._show_call(call))
                else:
                    written = replace(call, raw=event.written) if event.written else call
                    self._parts.write(written.raw)
                    self._in_text[call.id] = written
            case Error():
                self._add_error(event)
            case Warning():
                if event.code is Code.FAILED_OVER:
                    self._keep_text_only()
                if len(result.warnings) < MAX_WARNINGS:
                    self.size += len(event.raw or "")
                    result.warnings.append(event)
            case UsageReport(usage):
                result.usage = usage + result.usage
            case StepEnd():
                result.response_id, result.model = event.response_id, event.model
                results = [result for result in self._results.values() if result is not None]
                origin = Origin(*getattr(self._source, "origin", ()))
                origin = origin._replace(model=event.model or origin.model)
                in_text = self._in_text.values()
                parts = self._parts.close(in_text, result.dialects)
                turn = Assistant(parts=parts, in_text=in_text, origin=origin)
                result.steps.append(Step(turn, results, event.response_id))
                self._start_step()
            case Partial(path, value, complete, call_id=None):
                self.draft.add(path, value, complete)
                if event.instance is not None:
                    result.output = event.instance
            case StepSuperseded():  # another step replaces the last one
                result.steps.pop()
                self.draft, result.output = Draft(), None
                texts, thoughts, errors = self._step_start = self._previous_step_start
                del self._text[texts:], self._reasoning[thoughts:], result.errors[errors:]
            case Done(reason, finish_reason, _, pending, conversation_id):
                result.reason, result.finish_reason = reason, finish_reason
                result.pending, result.conversation_id = pending, conversation_id

    def _add_error(self, error: Error) -> None:
        """Record an error event. Errors of tools are skipped, because their outcomes are recorded."""
        self.size += len(error.raw or "")
        call = error.call
        if call is None and error.code is Code.SUPERSEDED and error.message == BROKEN_OFF:
            return  # an incomplete call of an answer that broke off; another model continues the turn
        if call is not None:
            if error.code in (Code.TOOL_CHOICE_VIOLATION, Code.UNRECOGNISED_TOOL_CALL):
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


def _outcomes_of(step: LoggedStep, recorded: Mapping[str, Entry]) -> list[ToolOutcome]:
    """Return the outcomes of the calls of a step, in call order."""
    outcomes = []
    for id, call in step.calls.items():
        if id in step.outcomes:
            entry = recorded.get(call_key(call))
            outcome = None if entry is None else entry.outcome
            outcomes.append(outcome or ToolOutcome.of_event(step.outcomes[id]))
    return outcomes


def _result(call: ToolCall, text: str, neutralize: bool = True, *, is_error: bool) -> CallResult:
    return CallResult(call.dialect, call.name, text, call.id, neutralize, is_error)


class StepParts:
    """Collects the parts of one turn."""

    def __init__(self) -> None:
        self._written: list[str] = []  # the text since the last part, with the raw text of its calls
        self._parts: list[Part] = []
        self._reasoning: list[str] = []  # the pieces of the open block of reasoning
        self._reasoning_fields: dict[str, dict[str, Any]] = {}  # by format: the provider's JSON fields for reasoning
        self._dropped: dict[str, ToolCall] = {}  # by id: the superseded calls
        self._has_gaps = False  # True if text was omitted, so the texts before and after it are joined

    def write(self, text: str | None) -> None:
        """Add text. None means that text is omitted at this position."""
        if self._reasoning:
            self._end_reasoning()
        self._has_gaps = self._has_gaps or text is None
        if text:
            self._written.append(text)

    def think(self, event: Reasoning) -> None:
        """Add reasoning. A signature, or an id without text, ends the block of reasoning."""
        ends = event.signature or (event.id and not event.text)
        if event.text or ends:
            self._end_text()
        if event.text:
            self._reasoning.append(event.text)
        for format, data in (event.own or {}).items():
            self._reasoning_fields.setdefault(format, {}).update(data)
        if ends:
            self._end_reasoning(event.signature, event.id, event.redacted)

    def call(self, call: ToolCall) -> None:
        """Add a native call."""
        self._end_text()
        self._end_reasoning()
        self._parts.append(call)

    def drop(self, call: ToolCall) -> None:
        """Remove a superseded call. `close` applies this."""
        self._dropped[call.id] = call

    def keep_text_only(self) -> None:
        """Remove all parts except the text. Another model continues the turn, so the earlier calls are not used."""
        self._end_text()
        self._written += [part.text for part in self._parts if isinstance(part, TextPart)]
        self._parts.clear()
        self._reasoning.clear()
        self._reasoning_fields.clear()

    def take(self, event: Raw) -> None:
        """Add a provider item, or attach it to the current text if `event.about` is `"text"`."""
        format, data = event.format or "", event.data if event.item is None else event.item
        extra = ProviderItem(format, data) if isinstance(data, dict) else None
        self._end_reasoning()
        if event.about == "text":
            self._end_text(extra)
        elif extra is not None:
            self._end_text()
            self._parts.append(extra)

    def close(self, calls: Iterable[ToolCall], dialects: tuple[Dialect, ...]) -> list[Part]:
        """Return the parts of the turn. `calls` are the calls in the text.

        White space after a native call is added to the text before the call. If text was omitted, the remaining text
        may look like a call or a tag. It is neutralized, so that the model does not read it as structure.
        """
        self._end_text()
        self._end_reasoning()
        self._keep_reasoning_fields()
        parts: list[Part] = []
        last: int | None = None  # index in `parts` of the last text without provider fields
        for part in self._parts:
            if isinstance(part, ToolCall) and part.id in self._dropped:
                continue
            if isinstance(part, TextPart) and last is not None and not part.extra and not part.text.strip():
                before = parts[last]
                assert isinstance(before, TextPart)
                parts[last] = before._replace(text=before.text + part.text)
                continue
            last = len(parts) if isinstance(part, TextPart) and not part.extra else last
            parts.append(part)
        for call in self._dropped.values():
            if call.dialect != NATIVE and call.raw:
                _remove_raw(parts, call.raw)
        if self._has_gaps:
            from streamtools.history.calls_in_text import neutralize_between

            parts = neutralize_between(parts, calls, dialects)
        return parts

    def _end_text(self, extra: ProviderItem | None = None) -> None:
        text = "".join(self._written)
        self._written.clear()
        extra = extra if extra is not None and extra.data else None
        if text or extra:
            self._parts.append(TextPart(text, extra))

    def _end_reasoning(self, signature: str | None = None, id: str | None = None, redacted: bool = False) -> None:
        text = "".join(self._reasoning)
        self._reasoning.clear()
        if text or signature or id:
            self._parts.append(Thought(text, signature, id, redacted))

    def _keep_reasoning_fields(self) -> None:
        """Add the provider's JSON fields for reasoning to the first block of reasoning.

        A field with the value None gets the text of all reasoning.
        """
        text = "".join(part.text for part in self._parts if isinstance(part, Thought))
        for format, fields in self._reasoning_fields.items():
            extra = ProviderItem(format, {name: text if value is None else value for name, value in fields.items()})
            index = next((index for index, part in enumerate(self._parts) if isinstance(part, Thought)), None)
            if index is None:
                self._parts.insert(0, Thought("", extra=extra))
            elif isinstance(first := self._parts[index], Thought):
                self._parts[index] = first._replace(extra=extra)


def _remove_raw(parts: list[Part], raw: str) -> None:
    """Remove the raw text of a call from its text part. Remove the part if only white space remains."""
    for index, part in enumerate(parts):
        if isinstance(part, TextPart) and raw in part.text:
            rest = part.text.replace(raw, "", 1)
            parts[index : index + 1] = [part._replace(text=rest)] if rest.strip() or part.extra else []
            return
