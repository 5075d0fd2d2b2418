"""The spans of one run: `invoke_agent` around it, `chat {model}` for each request, `execute_tool {name}` for each tool.

A span is an object whose parent is said when it is made. It is current only in tasks of the run's own, where logs and
the clients of HTTP find it: in the task that drives the run while it is read, and in that of a tool. Nothing yields
there, so whoever iterates, breaks off or closes elsewhere meets none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from time import perf_counter, time_ns
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import context, metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from streamtools import observing
from streamtools.calls import ToolCall
from streamtools.errors import Code, check_word
from streamtools.events import Call, Done, Error, Reasoning, StepEnd, Text, Usage, UsageReport, Warning
from streamtools.logs import without_inputs
from streamtools.observing import Holds
from streamtools.telemetry.conventions import CONVENTIONS, Names, Version, provider_name
from streamtools.telemetry.instruments import Instruments
from streamtools.telemetry.message_attributes import Clean, as_attribute, input_messages, output_messages

_NAME = "streamtools"
_ON_SPANS = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
}
"""Attributes of spans by the field of `Usage`; that of `cache_write` has another name in each version."""
_COUNTED = ("resent", "malformed", "near_misses")  # of a request
_PROPAGATOR = TraceContextTextMapPropagator()
CANCELLED = "cancelled"
"""`error.type` of what was left before it was complete."""
OTHER = "_OTHER"
"""`gen_ai.tool.name` of a tool that there is not: a model may write any."""


@dataclass(frozen=True, eq=False)
class Instrumentation:
    """What all runs are told with, as `instrument` sets it up, and what watches them: see `streamtools.observing`.

    `live` are those that go on.
    """

    tracer: trace.Tracer
    metrics: Instruments
    names: Names
    agent: str | None
    content: bool
    by_chunk: bool
    live: dict[int, RunSpans]

    def begin(self, run_id: str, machine: Holds, resumed: str) -> RunSpans:
        return RunSpans(self, run_id, machine, resumed)

    def count(self, what: str, by: int) -> None:
        self.metrics.count(what, by)


class _Request:
    """One request to a model, from when it is sent until its answer is complete."""

    def __init__(
        self, settings: Instrumentation, parent: Context, origin: Sequence[Any], source: object, clean: Clean
    ) -> None:
        format, host, model = (*origin, None, None, None)[:3]
        self.attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider_name(format, host),
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
        self._clean = clean
        self.began = perf_counter()
        self._started = time_ns()
        self.came: float | None = None  # when the last chunk did
        self.ended: float | None = None
        self.resent = self.malformed = self.near_misses = 0
        self.usage: Usage | None = None
        self.step: StepEnd | None = None
        self.error: str | None = None
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []
        name = f"chat {model}" if model else "chat"
        told = self.attributes | {"gen_ai.request.stream": True}
        if settings.content and (history := getattr(source, "history", None)):
            told["gen_ai.input.messages"] = input_messages(history, clean)
        self.span = settings.tracer.start_span(name, parent, SpanKind.CLIENT, told, start_time=self._started)
        self._token = context.attach(trace.set_span_in_context(self.span, parent))

    def chunk(self) -> None:
        now, metrics = perf_counter(), self._settings.metrics
        if self.came is None:
            self.span.set_attribute("gen_ai.response.time_to_first_chunk", now - self.began)
            metrics.first_chunk.record(now - self.began, self.attributes)
        elif self._settings.by_chunk:
            metrics.output_chunk.record(now - self.came, self.attributes)
        self.came = now

    def take(self, event: Any, content: bool) -> None:
        """Note what an event tells of the answer."""
        kind = type(event)
        if kind is StepEnd:
            self.step = event
        elif kind is UsageReport:
            self.usage = event.usage if self.usage is None else self.usage + event.usage
        elif kind is Error and event.call_id is None:
            self.error = str(event.status) if event.status else event.code.value
        elif kind is Error and event.call is None:
            self.malformed += 1
        elif kind is Warning and event.code is Code.NEAR_MISS:
            self.near_misses += 1
        elif content:
            if kind is Text:
                self.texts.append(event.text)
            elif isinstance(event, Reasoning):
                self.thoughts.append(event.text)
            elif kind is Call:
                self.calls.append(event.call)

    def end(self, error: str | None) -> None:
        """End the span, at the time at which the answer was complete."""
        context.detach(self._token)
        settings, span, step = self._settings, self.span, self.step or StepEnd(0, None)
        took = (self.ended or perf_counter()) - self.began
        error = error or self.error
        if step.model:
            self.attributes["gen_ai.response.model"] = step.model
        told: dict[str, Any] = {f"streamtools.{each}": getattr(self, each) for each in _COUNTED}
        told |= {"gen_ai.response.id": step.response_id, "gen_ai.response.model": step.model}
        if settings.content:
            said = "".join(self.texts), "".join(self.thoughts), self.calls
            told["gen_ai.output.messages"] = output_messages(*said, step.finish_reason, self._clean)
        _tell(span, told, step.finish_reason, self.usage, settings.names)
        if self.usage is not None:
            settings.metrics.use(self.usage, self.attributes)
        settings.metrics.duration.record(took, self.attributes | _fail(span, error))
        span.end(self._started + int(took * 1e9))


class RunSpans:
    """The spans of one run, and what its metrics need: see `streamtools.observing.Observed`."""

    def __init__(self, settings: Instrumentation, run_id: str, machine: Holds, resumed: str) -> None:
        self._settings = settings
        self.machine = machine
        self._longest = 0
        self._began = perf_counter()
        self.attributes: dict[str, Any] = {"gen_ai.operation.name": "invoke_agent"}
        if settings.agent:
            self.attributes["gen_ai.agent.name"] = settings.agent
        self._before = _links(resumed)
        self._span = settings.tracer.start_span(
            f"invoke_agent {settings.agent}" if settings.agent else "invoke_agent",
            attributes=self.attributes | {"streamtools.run.id": run_id},
            links=self._before,
        )
        self._context = trace.set_span_in_context(self._span)
        self._request: _Request | None = None
        self._model: str | None = None  # that was asked last
        self._usage: Usage | None = None
        self._error: str | None = None
        self._done: Done | None = None
        self.by_chunk = settings.by_chunk
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, self._context)
        self.trace = carrier.get("traceparent", "")
        settings.live[id(self)] = self

    def current(self) -> AbstractContextManager[None]:
        return _current(self._context)

    def asked(self, origin: Sequence[Any], source: object) -> None:
        self._end_request()
        self._request = _Request(self._settings, self._context, origin, source, self.machine.without_matches)
        self._model = self._request.attributes.get("gen_ai.request.model")

    def came(self) -> None:
        if self._request is not None:
            self._request.chunk()

    def shown(self) -> None:
        if (request := self._request) is not None:
            self._settings.metrics.first_text.record(perf_counter() - request.began, request.attributes)

    def answered(self) -> None:
        if self._request is not None and self._request.ended is None:
            self._request.ended = perf_counter()

    def failed(self, cause: str) -> None:
        self._end_request(cause)

    def sent_again(self) -> None:
        if self._request is not None:
            self._request.resent += 1

    def read(self, raised: BaseException | None) -> None:
        request, error = self._request, None
        if request is not None and request.ended is None:
            if isinstance(raised, Exception):
                error = type(raised).__qualname__
            elif request.step is None and request.error is None:
                error = CANCELLED if raised is not None else Code.STREAM_INTERRUPTED.value
        self._end_request(error)

    def _end_request(self, error: str | None = None) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.end(error)

    def saw(self, events: Sequence[Any]) -> None:
        settings = self._settings
        if not settings.content:
            events = [event for event in events if type(event) is not Text]
        settings.metrics.see(events, self._model)
        for event in events:
            kind = type(event)
            if kind is Done:
                self._done = event
            elif kind is Error and event.call_id is None:
                self._error = str(event.status) if event.status else event.code.value
            elif kind is UsageReport:
                self._usage = event.usage if self._usage is None else self._usage + event.usage
            if self._request is not None:
                self._request.take(event, settings.content)

    def held(self) -> None:
        self._longest = max(self._longest, self.machine.held)

    def tool(self, call: ToolCall, tool: Any) -> AbstractContextManager[Callable[[Any], None]]:
        return _ToolSpan(self._settings, self._context, call, tool, self._before, self.machine.without_matches)

    def ended(self) -> None:
        settings, done, span = self._settings, self._done, self._span
        self._end_request()
        settings.live.pop(id(self), None)
        error = self._error
        told: dict[str, Any] = {}
        if done is not None:
            told = {"streamtools.done.reason": done.reason, "gen_ai.conversation.id": done.conversation_id}
            if done.reason == "cancelled":
                error = error or CANCELLED
        _tell(span, told, None if done is None else done.finish_reason, self._usage, settings.names)
        settings.metrics.longest_held.record(self._longest)
        settings.metrics.agent_duration.record(perf_counter() - self._began, self.attributes | _fail(span, error))
        span.end()


class _ToolSpan:
    """The span of one call of a tool, current in its task; it is told the outcome."""

    def __init__(
        self, settings: Instrumentation, parent: Context, call: ToolCall, tool: Any, links: list[Link], clean: Clean
    ) -> None:
        name = OTHER if tool is None else tool.name
        self._settings = settings
        self._attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        told: dict[str, Any] = {"gen_ai.tool.call.id": call.id, "gen_ai.tool.type": "function"}
        told["streamtools.dialect"] = call.dialect
        if tool is not None and tool.description:
            told["gen_ai.tool.description"] = tool.description
        if settings.content:
            told["gen_ai.tool.call.arguments"] = as_attribute(clean(call.arguments))
        self._span = settings.tracer.start_span(
            f"execute_tool {name}", parent, SpanKind.INTERNAL, self._attributes | told, links
        )
        self._context = trace.set_span_in_context(self._span, parent)
        self._error: str | None = CANCELLED

    def __enter__(self) -> Callable[[Any], None]:
        self._began = perf_counter()
        self._token = context.attach(self._context)
        return self._tell

    def _tell(self, outcome: Any) -> None:
        self._error = None if outcome.error is None else outcome.error.value
        if outcome.exception is not None and outcome.error in (Code.TOOL_FAILED, Code.TOOL_OUTPUT):
            cause = outcome.exception
            self._error = type(cause).__qualname__ if outcome.error is Code.TOOL_FAILED else self._error
            self._span.record_exception(without_inputs(cause))
            self._span.set_attribute("streamtools.code", outcome.error.value)
        if self._settings.content:
            self._span.set_attribute("gen_ai.tool.call.result", as_attribute(outcome.text))

    def __exit__(self, *raised: object) -> None:
        context.detach(self._token)
        told = self._attributes | _fail(self._span, self._error)
        self._settings.metrics.tool_duration.record(perf_counter() - self._began, told)
        self._span.end()


@contextmanager
def _current(surrounding: Context) -> Iterator[None]:
    """Make a context current while a task is begun, which gets a copy of it."""
    token = context.attach(surrounding)
    try:
        yield
    finally:
        context.detach(token)


def _fail(span: Span, error: str | None) -> dict[str, Any]:
    """Note the error with which something has ended, if there is one; return it as attributes of a metric."""
    if error is None:
        return {}
    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR, error))
    return {"error.type": error}


def _tell(span: Span, told: dict[str, Any], finish: str | None, usage: Usage | None, names: Names) -> None:
    """Note how an answer, or a run, has ended, as far as that is known."""
    told["gen_ai.response.finish_reasons"] = finish and [finish]
    span.set_attributes({name: value for name, value in told.items() if value})
    for kind, name in {**_ON_SPANS, "cache_write": names.cache_write}.items():
        if (tokens := getattr(usage, kind, None)) is not None:
            span.set_attribute(name, tokens)


def _links(resumed: str) -> list[Link]:
    """Return a link to the span of which `resumed` is the `traceparent`, if it is one."""
    found = trace.get_current_span(_PROPAGATOR.extract({"traceparent": resumed})).get_span_context()
    return [Link(found)] if resumed and found.is_valid else []


def instrument(
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    agent: str | None = None,
    conventions: Version = "1.41",
    content: bool = False,
    by_chunk: bool = False,
) -> None:
    """Have each run that begins from now on tell OpenTelemetry what happens, in this whole process.

    Without providers, those that the application has set count. `agent` is `gen_ai.agent.name`. `conventions` is the
    version by whose names attributes and metrics are called. With `content`, spans hold messages, arguments and
    results, in which keys of known forms are overwritten. With `by_chunk`, the time between the chunks of answers is
    recorded, which costs something for each. A second call replaces the first. Raises ValueError for a version that
    there is not.
    """
    check_word("conventions", conventions, CONVENTIONS)
    names = CONVENTIONS[conventions]
    made = version(_NAME)
    tracer = trace.get_tracer(_NAME, made, tracer_provider, names.schema)
    meter = metrics.get_meter(_NAME, made, meter_provider, names.schema)
    live: dict[int, RunSpans] = {}
    # Of a copy: it is another thread that asks.
    instruments = Instruments(meter, names, lambda: sum(run.machine.held for run in list(live.values())))
    observing.install(Instrumentation(tracer, instruments, names, agent, content, by_chunk, live))


def uninstrument() -> None:
    """Watch no run that begins from now on."""
    observing.install(None)
