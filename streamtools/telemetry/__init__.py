"""Reports spans and metrics of runs, requests and tools to OpenTelemetry. This package needs the extra `otel`.

from streamtools import telemetry

telemetry.instrument()
"""

from streamtools.loading import load_later, require_packages

with require_packages("telemetry"):
    from streamtools.telemetry.spans_and_metrics import instrument, uninstrument

__all__ = ["instrument", "uninstrument"]

load_later(globals())
