"""Creates the OpenTelemetry spans and metrics of runs.

The span `invoke_agent` covers the whole run. It has a child span `chat {model}` for each request, and a child span
`execute_tool {name}` for each tool call.

The parent of each span is set explicitly. A span is the current span only in tasks of the run: the task that drives the
run, and the tasks or threads of its tools. Logs and HTTP clients in these tasks find it. In the task that iterates over
the events, the spans of the run are not current.

Some metrics are defined by the semantic conventions for generative AI, version 1.41. This is the latest release, and
dashboards expect it. The next version is still in development, in the repository `semantic-conventions-genai`. The
names of all other metrics begin with `streamtools.`. The attributes of metrics are dialects, codes, rules, models and
tools, which have few distinct values. They never contain text of a model.

With `instrument(content=True)`, span attributes contain messages, arguments and results. The attributes for messages
are JSON in the schema of the conventions. In all these attributes, API keys in known formats are overwritten, as in a
recording. Each attribute is truncated after `MAX_ATTRIBUTE` characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.metadata import version
from time import perf_counter, time_ns
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
from opentelemetry import context, metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, Meter, UpDownCounter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from streamtools import observing
from streamtools.calls import ToolCall
from streamtools.errors import Code, checked
from streamtools.events import Call, Done, Error, Matched, Reasoning, StepEnd, Text, Usage, UsageReport, Warning
from streamtools.history import Assistant, Message, Results, System, TextPart, Thought
from streamtools.json_values import writable
from streamtools.logs import without_inputs
from streamtools.recording.redaction import scrub

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"

PROVIDERS = {"responses": "openai", "gemini": "gcp.gemini", "interactions": "gcp.gemini", "bedrock": "aws.bedrock"}
"""Maps a wire format to `gen_ai.provider.name`. The name of a format that is missing here is used unchanged."""

Clean: TypeAlias = Callable[[Any], Any]
"""A function that replaces the matches of a run's text rules in plain data. Returns the changed data."""


# Metrics.

_SECOND_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKEN_BUCKETS = tuple(4**power for power in range(14))

_COUNTERS = {
    "calls": "Calls that models have made.",
    "errors": "Malformed calls, failed calls, and failed streams.",
    "warnings": "Warnings, such as about texts that look like a call but are not.",
    "rule_matches": "Matches of rules in the text.",
    "resumes": "Readers that reconnected to a run.",
    "fenced_appends": "Runs that another process has taken over, so that this process stopped writing to them.",
    "runs.lost": "Runs of crashed processes that this process has taken over.",
    "runs.handed_over": "Runs of closing processes that this process has taken over.",
    "runs.recovered": "Lost or handed over runs that this process continues.",
    "calls.unknown": "Calls of these runs whose outcome was unknown.",
}


class Instrumentation:
    """The settings and the instruments of `instrument`. Implements `observing.Observer`. At most one is installed."""

    def __init__(self, tracer: trace.Tracer, meter: Meter, agent: str | None, content: bool) -> None:
        def histogram(name: str, about: str, unit: str = "s", buckets: Sequence[float] = _SECOND_BUCKETS) -> Histogram:
            return meter.create_histogram(name, unit, about, explicit_bucket_boundaries_advisory=buckets)

        self.tracer, self.agent, self.content = tracer, agent, content
        self.request_duration = histogram("gen_ai.client.operation.duration", "Duration of a request to a model.")
        self.first_chunk = histogram("gen_ai.client.operation.time_to_first_chunk", "Time from request to first chunk.")
        # Version 1.41 of the conventions lacks the next two metrics. A later version defines them.
        self.tool_duration = histogram("gen_ai.execute_tool.duration", "Duration of a tool execution.")
        self.agent_duration = histogram("gen_ai.invoke_agent.duration", "Duration of a run.")
        self._tokens = histogram("gen_ai.client.token.usage", "Tokens of a request.", "{token}", _TOKEN_BUCKETS)
        self._counters: dict[str, Counter | UpDownCounter] = {
            name: meter.create_counter(f"streamtools.{name}", "1", description)
            for name, description in _COUNTERS.items()
        }
        readers = meter.create_up_down_counter("streamtools.readers", "1", "Connections that read runs.")
        self._counters["readers"] = readers

    def begin(self, run_id: str, clean: Clean) -> RunSpans:
        return RunSpans(self, run_id, clean)

    def report(self, name: str, value: float) -> None:
        """Add `value` to a counter. `streamtools.observing.report` defines the names."""
        self._counters[name].add(value)

    def count_events(self, events: Sequence[Any], model: str | None) -> None:
        """Count the calls, errors, warnings and rule matches in the events of a model's response."""

        def add_one(name: str, **labels: str | None) -> None:
            attributes = {f"streamtools.{key}": value for key, value in labels.items() if value is not None}
            if model is not None:
                attributes["gen_ai.request.model"] = model
            self._counters[name].add(1, attributes)

        for event in events:
            kind = type(event)
            if kind is Call:
                add_one("calls", dialect=event.call.dialect)
            elif kind is Error:
                dialect = event.call.dialect if event.call is not None else event.dialect
                add_one("errors", code=event.code.value, dialect=dialect)
            elif kind is Warning:
                add_one("warnings", code=event.code.value, dialect=event.dialect)
            elif kind is Matched:
                add_one("rule_matches", rule=event.rule, action=event.action)

    def record_usage(self, usage: Usage, attributes: dict[str, Any]) -> None:
        for token_type, tokens in (("input", usage.input), ("output", usage.output)):
            if tokens is not None:
                self._tokens.record(tokens, attributes | {"gen_ai.token.type": token_type})


# Attributes with messages, arguments and results.

MAX_ATTRIBUTE = 64 * 1024
"""The maximum length of an attribute in characters."""


def as_attribute(value: Any) -> str:
    """Convert a value to an attribute. A string is used directly, any other value is serialized as JSON.

    API keys are overwritten, and the result is truncated after `MAX_ATTRIBUTE` characters.
    """
    encoded = value.encode("utf-8", "replace") if isinstance(value, str) else msgspec.json.encode(writable(value))
    return scrub(encoded).decode("utf-8", "replace")[:MAX_ATTRIBUTE]


def output_messages(text: str, reasoning: str, calls: Sequence[ToolCall], finish: str | None, clean: Clean) -> str:
    """Return the value of the attribute `gen_ai.output.messages`: one response."""
    parts = [{"type": "reasoning", "content": reasoning}] if reasoning else []
    parts += [{"type": "text", "content": text}] if text else []
    message = {"role": "assistant", "parts": [*parts, *map(_call, calls)], "finish_reason": finish or "error"}
    return as_attribute(clean([message]))


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _message(message: Message) -> dict[str, Any]:
    match message:
        case System(text):
            return {"role": "system", "parts": [{"type": "text", "content": text}]}
        case Results(results):
            parts = [{"type": "tool_call_response", "id": item.call_id, "response": item.text} for item in results]
            return {"role": "tool", "parts": parts}
        case Assistant(parts=assistant_parts):
            return {"role": "assistant", "parts": list(map(_part, assistant_parts))}
        case _:
            content = message.content
            texts = [content] if isinstance(content, str) else [str(part.get("text", "")) for part in content]
            return {"role": "user", "parts": [{"type": "text", "content": text} for text in texts]}


def _part(part: Any) -> dict[str, Any]:
    match part:
        case ToolCall():
            return _call(part)
        case TextPart(text):
            return {"type": "text", "content": text}
        case Thought(text):
            return {"type": "reasoning", "content": text}
        case _:
            return {"type": "provider_item"}


# Spans.

_LIBRARY = "streamtools"
_USAGE_ATTRIBUTES = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
}
"""Maps the fields of `Usage` to the names of span attributes."""

CANCELLED = "cancelled"
"""The value of `error.type` for a request, tool or run that was cancelled."""
UNKNOWN_TOOL = "_OTHER"
"""The value of `gen_ai.tool.name` for a tool that does not exist. The name that the model wrote is not used, because
the number of different attribute values must be limited."""


class _Outcome:
    """The token usage and the failure that the events of a request or a run report."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.error: str | None = None

    def record_outcome(self, event: Any) -> None:
        if type(event) is UsageReport:
            self.usage = event.usage if self.usage is None else self.usage + event.usage
        elif type(event) is Error and event.call_id is None:
            self.error = str(event.status) if event.status else event.code.value


class _RequestSpan(_Outcome):
    """The span of one request to a model. It starts when the request is sent and ends when the response is complete."""

    def __init__(
        self, settings: Instrumentation, parent: Context, origin: Sequence[Any], source: object, clean: Clean
    ) -> None:
        """`origin` holds the wire format, the host and the model. Missing values at its end are unknown.

        `source` yields the events of the response. `clean` removes the matches of text rules.
        """
        super().__init__()
        format, _, model = (*origin, None, None, None)[:3]
        self.attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDERS.get(format or "", format or "_OTHER"),
        }
        if model:
            self.attributes["gen_ai.request.model"] = model
        url = getattr(source, "url", None)
        if url:
            parts = urlsplit(url if "://" in url else f"//{url}")
            if parts.hostname:
                self.attributes["server.address"] = parts.hostname
                self.attributes["server.port"] = parts.port or (80 if parts.scheme == "http" else 443)
        self._settings = settings
        self._source = source
        self._clean = clean
        self._started_at = perf_counter()
        self._start_time_ns = time_ns()
        self.ended_at: float | None = None
        self.step: StepEnd | None = None
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[ToolCall] = []
        name = f"chat {model}" if model else "chat"
        attributes = self.attributes | {"gen_ai.request.stream": True}
        self.span = settings.tracer.start_span(
            name, parent, SpanKind.CLIENT, attributes, start_time=self._start_time_ns
        )
        self._token = context.attach(trace.set_span_in_context(self.span, parent))

    def record_first_chunk(self) -> None:
        seconds = perf_counter() - self._started_at
        self.span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
        self._settings.first_chunk.record(seconds, self.attributes)

    def record_event(self, event: Any) -> None:
        self.record_outcome(event)
        kind = type(event)
        if kind is StepEnd:
            self.step = event
        elif self._settings.content:
            if kind is Text:
                self.texts.append(event.text)
            elif isinstance(event, Reasoning):
                self.reasoning.append(event.text)
            elif kind is Call:
                self.calls.append(event.call)

    def end(self, error: str | None) -> None:
        """End the span at the time at which the response was complete, or now. `error` is the `error.type`, if any."""
        context.detach(self._token)
        settings, span, step = self._settings, self.span, self.step or StepEnd(0, None)
        duration = (self.ended_at or perf_counter()) - self._started_at
        error = error or self.error
        if step.model:
            self.attributes["gen_ai.response.model"] = step.model
        attributes: dict[str, Any] = {"gen_ai.response.id": step.response_id, "gen_ai.response.model": step.model}
        if settings.content:
            if history := getattr(self._source, "history", ())[: MAX_ATTRIBUTE // 27]:  # '{"role":"user","parts":[]},'
                attributes["gen_ai.input.messages"] = as_attribute(self._clean([*map(_message, history)]))
            attributes["gen_ai.output.messages"] = output_messages(
                "".join(self.texts), "".join(self.reasoning), self.calls, step.finish_reason, self._clean
            )
        _set_outcome(span, attributes, step.finish_reason, self.usage)
        if self.usage is not None:
            settings.record_usage(self.usage, self.attributes)
        settings.request_duration.record(duration, self.attributes | _set_error(span, error))
        span.end(self._start_time_ns + int(duration * 1e9))


class RunSpans(_Outcome):
    """Records the spans and metrics of one run. It implements `streamtools.observing.ObservedRun`.

    `clean` removes the matches of text rules from attributes.
    """

    def __init__(self, settings: Instrumentation, run_id: str, clean: Clean) -> None:
        super().__init__()
        self._settings = settings
        self._clean = clean
        self._started_at = perf_counter()
        self.attributes: dict[str, Any] = {"gen_ai.operation.name": "invoke_agent"}
        if settings.agent:
            self.attributes["gen_ai.agent.name"] = settings.agent
        self._span = settings.tracer.start_span(
            f"invoke_agent {settings.agent}" if settings.agent else "invoke_agent",
            attributes=self.attributes | {"streamtools.run.id": run_id},
        )
        self._context = trace.set_span_in_context(self._span)
        self._request: _RequestSpan | None = None
        self._last_model: str | None = None
        self._done: Done | None = None

    def current(self) -> AbstractContextManager[object]:
        return _current(self._span)

    def request_started(self, origin: Sequence[Any], source: object) -> None:
        self._end_request()
        self._request = _RequestSpan(self._settings, self._context, origin, source, self._clean)
        self._last_model = self._request.attributes.get("gen_ai.request.model")

    def first_batch_received(self) -> None:
        if self._request is not None:
            self._request.record_first_chunk()

    def answer_completed(self) -> None:
        if self._request is not None and self._request.ended_at is None:
            self._request.ended_at = perf_counter()

    def model_failed(self, cause: str) -> None:
        self._end_request(cause)

    def source_read(self, raised: BaseException | None) -> None:
        request, error = self._request, None
        if request is not None and request.ended_at is None:
            if isinstance(raised, Exception):
                error = type(raised).__qualname__
            elif request.step is None and request.error is None:  # the response is incomplete
                error = CANCELLED if raised is not None else Code.STREAM_INTERRUPTED.value
        self._end_request(error)

    def events_shown(self, events: Sequence[Any]) -> None:
        settings = self._settings
        if not settings.content:  # without content, `Text` events change no span and no metric
            events = [event for event in events if type(event) is not Text]
        settings.count_events(events, self._last_model)
        for event in events:
            self.record_outcome(event)
            if type(event) is Done:
                self._done = event
            if self._request is not None:
                self._request.record_event(event)

    @contextmanager
    def tool_runs(self, call: ToolCall, tool: Any) -> Iterator[Callable[[Any], None]]:
        settings, clean = self._settings, self._clean
        name = UNKNOWN_TOOL if tool is None else tool.name
        metric_attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        attributes: dict[str, Any] = metric_attributes | {
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            "streamtools.dialect": call.dialect,
        }
        if tool is not None and tool.description:
            attributes["gen_ai.tool.description"] = tool.description
        if settings.content:
            attributes["gen_ai.tool.call.arguments"] = as_attribute(clean(call.arguments))
        span = settings.tracer.start_span(f"execute_tool {name}", self._context, SpanKind.INTERNAL, attributes)
        started_at = perf_counter()
        error: str | None = CANCELLED

        def set_outcome(outcome: Any) -> None:
            nonlocal error
            error = None if outcome.error is None else outcome.error.value
            if outcome.exception is not None and outcome.error in (Code.TOOL_FAILED, Code.TOOL_OUTPUT):
                if outcome.error is Code.TOOL_FAILED:
                    error = type(outcome.exception).__qualname__
                span.record_exception(without_inputs(outcome.exception))
                span.set_attribute("streamtools.code", outcome.error.value)
            if settings.content:
                span.set_attribute("gen_ai.tool.call.result", as_attribute(clean(outcome.text)))

        try:
            with _current(span):
                yield set_outcome
        finally:
            attributes = metric_attributes | _set_error(span, error)
            settings.tool_duration.record(perf_counter() - started_at, attributes)
            span.end()

    def run_ended(self) -> None:
        settings, done, span = self._settings, self._done, self._span
        self._end_request()
        error = self.error
        attributes: dict[str, Any] = {}
        if done is not None:
            attributes = {"streamtools.done.reason": done.reason, "gen_ai.conversation.id": done.conversation_id}
            if done.reason == "cancelled":
                error = error or CANCELLED
        _set_outcome(span, attributes, None if done is None else done.finish_reason, self.usage)
        duration = perf_counter() - self._started_at
        settings.agent_duration.record(duration, self.attributes | _set_error(span, error))
        span.end()

    def _end_request(self, error: str | None = None) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.end(error)


_current = partial(trace.use_span, record_exception=False, set_status_on_exception=False)
"""Makes a span the current span in a `with` block. Tasks that start in the block inherit it."""


def _set_error(span: Span, error: str | None) -> dict[str, Any]:
    """Set the error of a span, unless `error` is None. Returns the attributes of the error for a metric."""
    if error is None:
        return {}
    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR, error))
    return {"error.type": error}


def _set_outcome(span: Span, attributes: dict[str, Any], finish: str | None, usage: Usage | None) -> None:
    """Set the attributes, the finish reason and the token usage of a span. Skip attributes that are empty or 0."""
    attributes["gen_ai.response.finish_reasons"] = finish and [finish]
    span.set_attributes({name: value for name, value in attributes.items() if value})
    for field, name in _USAGE_ATTRIBUTES.items():
        if (tokens := getattr(usage, field, None)) is not None:
            span.set_attribute(name, tokens)


@checked
def instrument(
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    agent: str | None = None,
    content: bool = False,
) -> None:
    """Report all runs that start after this call in this process to OpenTelemetry. A second call replaces the first.

    `tracer_provider` and `meter_provider` default to the global providers. `agent` is the value of `gen_ai.agent.name`.
    With `content=True`, spans contain messages, arguments and results, in which keys of known formats are overwritten.
    """
    library_version = version(_LIBRARY)
    tracer = trace.get_tracer(_LIBRARY, library_version, tracer_provider, SCHEMA_URL)
    meter = metrics.get_meter(_LIBRARY, library_version, meter_provider, SCHEMA_URL)
    observing.install(Instrumentation(tracer, meter, agent, content))


def uninstrument() -> None:
    """Do not report runs that start after this call. Runs that have started are still reported."""
    observing.install(None)
