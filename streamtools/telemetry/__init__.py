"""Reports spans and metrics of runs, requests and tools to OpenTelemetry. This package needs the extra `otel`.

from streamtools import telemetry

telemetry.instrument()
"""

from streamtools.loading import load_later

try:
    from streamtools.telemetry.spans_and_metrics import instrument, uninstrument
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise ModuleNotFoundError(
        'telemetry needs opentelemetry-api: pip install "streamtools[otel]"', name=error.name
    ) from None

__all__ = ["instrument", "uninstrument"]

load_later(globals())
