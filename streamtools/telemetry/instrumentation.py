"""What watches all runs of the process, once `instrument` has been called."""

from __future__ import annotations

from importlib.metadata import version
from typing import get_args

from opentelemetry import metrics, trace

from streamtools import observing
from streamtools.observing import Holds
from streamtools.telemetry.conventions import CONVENTIONS, Version
from streamtools.telemetry.instruments import Instruments
from streamtools.telemetry.spans import RunSpans, Settings

_NAME = "streamtools"


class Telemetry:
    """What watches runs, as `instrument` has set it up: see `streamtools.observing.Observer`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def begin(self, run_id: str, machine: Holds, resumed: str) -> RunSpans:
        """Begin the spans of a run."""
        return RunSpans(self._settings, run_id, machine, resumed)

    def count(self, what: str, by: int) -> None:
        """Count what happens outside of a run."""
        self._settings.metrics.count(what, by)


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
    if conventions not in CONVENTIONS:
        raise ValueError(f"conventions is one of {', '.join(get_args(Version))}, not {conventions!r}")
    names = CONVENTIONS[conventions]
    made = version(_NAME)
    tracer = trace.get_tracer(_NAME, made, tracer_provider, names.schema)
    meter = metrics.get_meter(_NAME, made, meter_provider, names.schema)
    live: dict[int, RunSpans] = {}
    # Of a copy: it is another thread that asks.
    instruments = Instruments(meter, names, lambda: sum(run.held_now for run in list(live.values())))
    observing.install(Telemetry(Settings(tracer, instruments, names, agent, content, by_chunk, live)))


def uninstrument() -> None:
    """Watch no run that begins from now on."""
    observing.install(None)
