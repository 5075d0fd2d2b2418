"""The metrics: those of the conventions, and under `streamtools.` those that only a library like this one can tell.

Attributes have few values: the names of dialects, codes, rules and tools that there are, and never what a model wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from opentelemetry.metrics import CallbackOptions, Counter, Meter, Observation

from streamtools.errors import Code
from streamtools.events import Call, Error, Matched, Usage, Warning
from streamtools.telemetry.conventions import AGENT_DURATION, SECONDS, TOKENS, TOOL_DURATION, Names

_CHARACTERS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)

_COUNTED = {
    "calls": "Calls that models have made.",
    "errors": "Calls that are not, or were not run, well, and faults of streams.",
    "cut_calls": "Calls in which an answer ended.",
    "near_misses": "What looked like a call and was none.",
    "warnings": "Warnings, near misses aside.",
    "rule_matches": "What rules have found in the text.",
    "resumes": "Readers that came back to a run.",
    "fenced_appends": "Runs that another process has taken over, of which nothing more was written here.",
}


class Instruments:
    """The instruments of one meter; `held` returns how many characters are held back now."""

    def __init__(self, meter: Meter, names: Names, held: Callable[[], int]) -> None:
        def seconds(name: str, about: str) -> Any:
            return meter.create_histogram(name, "s", about, explicit_bucket_boundaries_advisory=SECONDS)

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(held())]

        self.duration = seconds(names.duration, "Duration of a request to a model.")
        self.first_chunk = seconds(names.first_chunk, "Time until the first chunk of an answer.")
        self.output_chunk = seconds(names.output_chunk, "Time from one chunk of an answer to the next.")
        self.tool_duration = seconds(TOOL_DURATION, "Duration of a tool.")
        self.agent_duration = seconds(AGENT_DURATION, "Duration of a run.")
        self.first_text = seconds("streamtools.time_to_first_text", "Time until the reader sees the first text.")
        self.longest_held = meter.create_histogram(
            "streamtools.held.longest",
            "{character}",
            "The most characters that a run has held back at once.",
            explicit_bucket_boundaries_advisory=_CHARACTERS,
        )
        meter.create_observable_gauge(
            "streamtools.held.now", [observe], "{character}", "Characters that are held back: they may become a call."
        )
        self._tokens = names.tokens and meter.create_histogram(
            names.tokens, "{token}", "Tokens of a request.", explicit_bucket_boundaries_advisory=TOKENS
        )
        self._by_kind = {
            kind: meter.create_counter(name, "{token}", f"Tokens: {kind}.")
            for kind, name in names.tokens_by_kind.items()
        }
        self._counters: dict[str, Counter] = {
            name: meter.create_counter(f"streamtools.{name}", "1", about) for name, about in _COUNTED.items()
        }
        self._readers = meter.create_up_down_counter("streamtools.readers", "1", "Connections that read runs.")

    def count(self, what: str, by: int) -> None:
        """Count what is told by `streamtools.observing.count`."""
        (self._readers if what == "readers" else self._counters[what]).add(by)

    def see(self, events: Sequence[Any], model: str | None) -> None:
        """Count what events tell of the answers of a model."""

        def count(name: str, **attributes: str | None) -> None:
            told = {f"streamtools.{key}": value for key, value in attributes.items() if value is not None}
            self._counters[name].add(1, told if model is None else told | {"gen_ai.request.model": model})

        for event in events:
            kind = type(event)
            if kind is Call:
                count("calls", dialect=event.call.dialect)
            elif kind is Error:
                dialect = event.call.dialect if event.call is not None else event.dialect
                count("errors", code=event.code.value, dialect=dialect)
                if event.code is Code.TRUNCATED:
                    count("cut_calls", dialect=dialect)
            elif kind is Warning:
                if event.code is Code.NEAR_MISS:
                    count("near_misses", dialect=event.dialect)
                else:
                    count("warnings", code=event.code.value)
            elif kind is Matched:
                count("rule_matches", rule=event.rule, action=event.action)

    def use(self, usage: Usage, attributes: dict[str, Any]) -> None:
        if self._tokens:
            for kind, tokens in (("input", usage.input), ("output", usage.output)):
                if tokens is not None:
                    self._tokens.record(tokens, attributes | {"gen_ai.token.type": kind})
        for kind, counter in self._by_kind.items():
            if (tokens := getattr(usage, kind)) is not None:
                counter.add(tokens, attributes | {"gen_ai.token.modality": "unknown"})
