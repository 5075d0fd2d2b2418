"""Defines the OpenTelemetry metrics of runs.

Some metrics are defined by the semantic conventions for GenAI. The names of all other metrics begin with
`streamtools.`. The attributes of metrics are dialects, codes, rules, models and tools, which have few distinct values.
They never contain text of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation

from streamtools.errors import Code
from streamtools.events import Call, Error, Matched, Usage, Warning

_DURATION_BUCKETS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKEN_BUCKETS = tuple(4**power for power in range(14))
_CHARACTER_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)

_COUNTERS = {
    "calls": "Calls that models have made.",
    "errors": "Malformed calls, failed calls, and failed streams.",
    "cut_calls": "Calls that were cut off by the end of a response.",
    "near_misses": "Texts that look like a call but are not.",
    "warnings": "Warnings, except near misses.",
    "rule_matches": "Matches of rules in the text.",
    "resumes": "Readers that reconnected to a run.",
    "fenced_appends": "Runs that another process has taken over, so that this process stopped writing to them.",
}


class Instruments:
    """The instruments of one meter. `buffered` returns the number of characters that all runs buffer now."""

    def __init__(self, meter: Meter, buffered: Callable[[], int]) -> None:
        def seconds(name: str, description: str) -> Histogram:
            return meter.create_histogram(
                name, "s", description, explicit_bucket_boundaries_advisory=_DURATION_BUCKETS_S
            )

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(buffered())]

        self.request_duration = seconds("gen_ai.client.operation.duration", "Duration of a request to a model.")
        self.first_chunk = seconds("gen_ai.client.operation.time_to_first_chunk", "Time from request to first chunk.")
        self.output_chunk = seconds("gen_ai.client.operation.time_per_output_chunk", "Time between two chunks.")
        # Version 1.41 of the conventions has no metrics for the durations of tools and runs. A later version has these.
        self.tool_duration = seconds("gen_ai.execute_tool.duration", "Duration of a tool execution.")
        self.agent_duration = seconds("gen_ai.invoke_agent.duration", "Duration of a run.")
        self.first_text = seconds("streamtools.time_to_first_text", "Time from request to first visible text.")
        self.longest_buffered = meter.create_histogram(
            "streamtools.held.longest",
            "{character}",
            "Maximum number of characters that a run held back.",
            explicit_bucket_boundaries_advisory=_CHARACTER_BUCKETS,
        )
        meter.create_observable_gauge(
            "streamtools.held.now", [observe], "{character}", "Characters held back because they may become a call."
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of a request.",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        )
        self._counters: dict[str, Counter] = {
            name: meter.create_counter(f"streamtools.{name}", "1", description)
            for name, description in _COUNTERS.items()
        }
        self._readers = meter.create_up_down_counter("streamtools.readers", "1", "Connections that read runs.")

    def count(self, name: str, by: int) -> None:
        """Add `by` to the counter `name`. `streamtools.observing.count` defines the names."""
        (self._readers if name == "readers" else self._counters[name]).add(by)

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
                if event.code is Code.TRUNCATED:
                    add_one("cut_calls", dialect=dialect)
            elif kind is Warning:
                if event.code is Code.NEAR_MISS:
                    add_one("near_misses", dialect=event.dialect)
                else:
                    add_one("warnings", code=event.code.value)
            elif kind is Matched:
                add_one("rule_matches", rule=event.rule, action=event.action)

    def record_usage(self, usage: Usage, attributes: dict[str, Any]) -> None:
        for token_type, tokens in (("input", usage.input), ("output", usage.output)):
            if tokens is not None:
                self._tokens.record(tokens, attributes | {"gen_ai.token.type": token_type})
