"""Spans and metrics that were reported to OpenTelemetry, from the in-memory exporters of its SDK."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from streamtools import telemetry

Attributes = dict[str, Any]


class Collected:
    """The ended spans and the current metrics."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans, in the order of their starts."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: (span.start_time or 0, -len(span.name)))

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans whose names begin with a word."""
        return [span for span in self.spans if span.name.partition(" ")[0] == name]

    def one(self, name: str) -> ReadableSpan:
        """The only span whose name begins with a word."""
        (span,) = self.named(name)
        return span

    def points(self, name: str) -> list[tuple[Attributes, float]]:
        """The values of a metric by their attributes. For a histogram, the number of recorded values."""
        return [(dict(point.attributes or {}), _value(point)) for point in self._data(name)]

    def total(self, name: str, **attributes: Any) -> float:
        """The sum of the values of a metric with these attributes. The prefix `streamtools.` may be omitted."""
        return sum(
            value
            for found, value in self.points(name)
            if all(found.get(f"streamtools.{key}", found.get(key)) == wanted for key, wanted in attributes.items())
        )

    def sums(self, name: str) -> list[float]:
        """The sums of a histogram, one for each set of attributes."""
        return [point.sum for point in self._data(name)]

    @property
    def metrics(self) -> dict[str, Any]:
        """All metrics with values, by name."""
        read = self._reader.get_metrics_data()
        scopes = [scope for of in read.resource_metrics for scope in of.scope_metrics] if read is not None else []
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def _data(self, name: str) -> list[Any]:
        found = self.metrics.get(name)
        return list(found.data.data_points) if found is not None else []


def _value(point: Any) -> float:
    return float(point.count if hasattr(point, "count") else point.value)


def context_of(span: ReadableSpan) -> SpanContext:
    """Return the context of a span."""
    context = span.get_span_context()
    assert context is not None
    return context


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    """Return True if a span is a direct child of another."""
    return span.parent is not None and span.parent.span_id == context_of(parent).span_id


@contextmanager
def collecting(**options: Any) -> Iterator[Collected]:
    """Instrument the runs in a `with` block. `options` are those of `instrument`."""
    collected = Collected()
    telemetry.instrument(tracer_provider=collected.tracers, meter_provider=collected.meters, **options)
    try:
        yield collected
    finally:
        telemetry.uninstrument()
