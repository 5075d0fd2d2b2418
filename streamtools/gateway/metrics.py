"""Counts the requests and events of a gateway, for Prometheus. Sans-IO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from streamtools.errors import Code
from streamtools.events import Call, Error, Matched, UIEvent, Warning

_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "requests": ("Requests that were answered.", ("kind", "status")),  # 499: the client disconnected
    "calls": ("Calls, by dialect.", ("dialect",)),
    "near_misses": ("Texts that look like a call but are not.", ("dialect",)),
    "errors": ("Errors in answers.", ("code", "dialect")),  # the dialect is "" if the error is not about a call
    "rule_matches": ("Matches of text rules.", ("rule",)),
}
"""Maps the name of each counter to its description and its labels."""


class Metrics:
    """The counters of one gateway since its start. `record` counts one event of an answer."""

    def __init__(self) -> None:
        self.running = 0
        """The number of requests that are currently being answered."""
        self.counts = {name: Counter[tuple[str, ...]]() for name in _COUNTERS}
        """Maps the name of each counter to a `Counter`, whose keys are the values of the labels."""

    def count(self, name: str, *labels: str) -> None:
        """Add 1 to the counter `name`. `labels` are the values of its labels."""
        self.counts[name][labels] += 1

    def record(self, event: UIEvent) -> None:
        match event:
            case Call(call):
                self.count("calls", call.dialect)
            case Error(call=call):
                dialect = (event.dialect if call is None else call.dialect) or ""
                self.count("errors", event.code, dialect)
            case Warning(Code.NEAR_MISS):
                self.count("near_misses", event.dialect or "")
            case Matched(rule):
                self.count("rule_matches", rule)

    def prometheus(self) -> str:
        """Return the metrics in Prometheus' text format, version 0.0.4."""
        lines: list[str] = []

        def family(name: str, kind: str, about: str, samples: Sequence[tuple[str, float]]) -> None:
            name = f"streamtools_gateway_{name}"
            lines.extend((f"# HELP {name} {about}", f"# TYPE {name} {kind}"))
            lines.extend(f"{name}{labels} {value:g}" for labels, value in samples)

        family("running", "gauge", "Requests that are being answered.", [("", self.running)])
        for name, (about, label_names) in _COUNTERS.items():
            samples = [(_labels(label_names, values), count) for values, count in sorted(self.counts[name].items())]
            family(f"{name}_total", "counter", about, samples)
        return "\n".join(lines) + "\n"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    """Return labels with these names and values in Prometheus' text format.

    >>> _labels(("dialect",), ('a"b',))
    '{dialect="a\\\\"b"}'
    """
    escaped = (value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for value in values)
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(names, escaped, strict=True)) + "}"
