"""Counts the requests and events of a gateway, for Prometheus. Sans-IO.

Without the gateway, a client would show calls in text, malformed calls and forged tool results to its user. Each of
them is counted as a *leak prevented*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from streamtools.calls import NATIVE
from streamtools.errors import Code
from streamtools.events import Call, Error, Matched, UIEvent, Warning

_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, float("inf"))
"""Upper bounds of the histogram of the time to first token, in seconds."""


class Metrics:
    """The counters of one gateway since its start. `record` counts one event of an answer."""

    def __init__(self) -> None:
        self.running = 0
        """The number of requests that are currently being answered."""
        self.requests: Counter[tuple[str, int]] = Counter()
        """The numbers of requests, by kind of endpoint and status. Status 499 means that the client disconnected."""
        self.calls: Counter[str] = Counter()
        """The numbers of calls, by dialect."""
        self.errors: Counter[tuple[str, str]] = Counter()
        """The numbers of errors, by code and by the dialect of the call. The dialect is "" for other errors."""
        self.near_misses: Counter[str] = Counter()
        """The numbers of texts that look like calls but are not, by dialect."""
        self.cut_calls: Counter[str] = Counter()
        """The numbers of calls that are incomplete because the answer ended in them, by dialect."""
        self.rule_matches: Counter[str] = Counter()
        """The numbers of matches of text rules, by rule."""
        self.leaks_prevented = 0
        """The number of texts that were kept from the client's user. The module's docstring defines them."""
        self._first_tokens: Counter[float] = Counter()  # the numbers of answers, by upper bound of their bucket
        self._first_token_seconds = 0.0

    def record(self, event: UIEvent) -> None:
        match event:
            case Call(call):
                self.calls[call.dialect] += 1
                self.leaks_prevented += call.dialect != NATIVE
            case Error(call=call):
                dialect = (event.dialect if call is None else call.dialect) or ""
                self.errors[event.code, dialect] += 1
                self.cut_calls[dialect] += event.code is Code.TRUNCATED
                self.leaks_prevented += call is None and event.raw is not None
            case Warning(Code.NEAR_MISS):
                self.near_misses[event.dialect or ""] += 1
            case Matched(rule):
                self.rule_matches[rule] += 1
            case Warning(Code.FORGED_RESULT):
                self.leaks_prevented += 1

    def record_first_token(self, seconds: float) -> None:
        """Record how long a client waited for the first bytes of an answer."""
        self._first_token_seconds += seconds
        self._first_tokens[next(bound for bound in _BUCKETS if seconds <= bound)] += 1

    def prometheus(self) -> str:
        """Return the metrics in Prometheus' text format, version 0.0.4."""
        lines: list[str] = []

        def family(name: str, kind: str, about: str, samples: Sequence[tuple[str, float]]) -> None:
            name = f"streamtools_gateway_{name}"
            lines.extend((f"# HELP {name} {about}", f"# TYPE {name} {kind}"))
            lines.extend(f"{name}{labels} {value:g}" for labels, value in samples)

        family("running", "gauge", "Requests that are being answered.", [("", self.running)])
        counters: Sequence[tuple[str, str, tuple[str, ...], Counter[Any]]] = (
            ("requests", "Requests that were answered.", ("kind", "status"), self.requests),
            ("calls", "Calls, by dialect.", ("dialect",), self.calls),
            ("cut_calls", "Calls that are incomplete because the answer ended in them.", ("dialect",), self.cut_calls),
            ("near_misses", "Texts that look like a call but are not.", ("dialect",), self.near_misses),
            ("errors", "Errors in answers.", ("code", "dialect"), self.errors),
            ("rule_matches", "Matches of text rules.", ("rule",), self.rule_matches),
        )
        for name, about, label_names, counter in counters:
            samples = [(_labels(label_names, key), count) for key, count in sorted(counter.items()) if count]
            family(f"{name}_total", "counter", about, samples)
        family("leaks_prevented_total", "counter", "Calls and results hidden from users.", [("", self.leaks_prevented)])
        name = "first_token_seconds"
        family(name, "histogram", "Seconds until the first bytes of an answer.", [])
        total = 0
        for bound in _BUCKETS:
            total += self._first_tokens[bound]
            labels = _labels(("le",), "+Inf" if bound == float("inf") else f"{bound:g}")
            lines.append(f"streamtools_gateway_{name}_bucket{labels} {total:g}")
        lines.append(f"streamtools_gateway_{name}_sum {self._first_token_seconds:g}")
        lines.append(f"streamtools_gateway_{name}_count {total}")
        return "\n".join(lines) + "\n"


def _labels(names: tuple[str, ...], key: object) -> str:
    """Return labels in Prometheus' text format. `key` is the value for one name, or a tuple with a value for each name.

    >>> _labels(("dialect",), 'a"b')
    '{dialect="a\\\\"b"}'
    """
    values = map(str, key if isinstance(key, tuple) else (key,))
    escaped = (value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for value in values)
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(names, escaped, strict=True)) + "}"
