"""Over the wire: what a collector receives by OTLP, as the SDK exports it to a real HTTP server."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import anyio
import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from streamtools import chat, telemetry
from streamtools.conversation import ScriptedModel

CALL = '###:{"name": "get_weather", "arguments": {"city": "Rome"}}'


class Collector(ThreadingHTTPServer):
    """Takes traces and metrics."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.traces = ExportTraceServiceRequest()
        self.metrics = ExportMetricsServiceRequest()


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert isinstance(self.server, Collector)
        (self.server.traces if self.path == "/v1/traces" else self.server.metrics).MergeFromString(body)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def collector() -> Iterator[tuple[Collector, str]]:
    """Serve in a thread."""
    with Collector() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_collector_is_sent_spans_and_metrics(backend: str) -> None:
    async def answer() -> None:
        model = ScriptedModel([[CALL + "\n"], ["It rains."]], name="m")
        async with chat(model, [{"role": "user", "content": "Rome?"}], tools=[get_weather]) as events:
            async for _ in events:
                pass

    with collector() as (server, url):
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{url}/v1/metrics"))
        meters = MeterProvider([reader], shutdown_on_exit=False)
        telemetry.instrument(tracer_provider=tracers, meter_provider=meters)
        try:
            anyio.run(answer, backend=backend)
        finally:
            telemetry.uninstrument()
            tracers.shutdown()
            meters.shutdown()
    scopes = [scope for of in server.traces.resource_spans for scope in of.scope_spans]
    assert {"https://opentelemetry.io/schemas/1.41.0"} == {scope.schema_url for scope in scopes}
    spans = {span.name: span for scope in scopes for span in scope.spans}
    assert {"invoke_agent", "chat m", "execute_tool get_weather"} == spans.keys()
    run = spans.pop("invoke_agent")
    assert {run.span_id} == {span.parent_span_id for span in spans.values()}
    assert Span.SPAN_KIND_CLIENT == spans["chat m"].kind
    names = {
        metric.name for of in server.metrics.resource_metrics for scope in of.scope_metrics for metric in scope.metrics
    }
    assert {"gen_ai.client.operation.duration", "gen_ai.execute_tool.duration", "streamtools.calls"} <= names
