"""What a gateway has seen, counted: for its status page, and for Prometheus. Sans-IO.

A *leak prevented* is a span that a client without the gateway would have shown its reader: a call in text, one that
cannot be read, or a result that the model made up.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from typing import Any

from streamtools.calls import NATIVE
from streamtools.errors import Code
from streamtools.events import Call, Error, Matched, UIEvent, Warning

BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds until the first token: the upper bounds of the histogram's buckets, beside infinity."""

STYLE = "body{font:16px sans-serif;margin:2em auto;max-width:40em}td,th{padding:.2em 1em;text-align:left}"


class Counters:
    """Counts of one gateway since it began; `see` is told the events of each answer."""

    def __init__(self) -> None:
        self.running = 0
        self.requests: Counter[tuple[str, int]] = Counter()
        """By what is asked for, and the status of the answer; 499 where the client did not wait for one."""
        self.calls: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        """By code, and by the dialect of the call, where it is one."""
        self.near_misses: Counter[str] = Counter()
        self.cut_calls: Counter[str] = Counter()
        self.rule_matches: Counter[str] = Counter()
        self.leaks_prevented = 0
        self._waits: Counter[float] = Counter()
        self._waited = 0.0

    def see(self, event: UIEvent) -> None:
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

    def first_token(self, seconds: float) -> None:
        """Note how long a client has waited for the first bytes of an answer."""
        self._waited += seconds
        self._waits[next((bound for bound in BOUNDS if seconds <= bound), float("inf"))] += 1

    def metrics(self) -> str:
        """Return the text of Prometheus' exposition format, version 0.0.4."""
        lines: list[str] = []

        def family(name: str, kind: str, about: str, samples: Sequence[tuple[str, float]]) -> None:
            name = f"streamtools_gateway_{name}"
            lines.extend((f"# HELP {name} {about}", f"# TYPE {name} {kind}"))
            lines.extend(f"{name}{labels} {value:g}" for labels, value in samples)

        family("running", "gauge", "Requests that are being answered.", [("", self.running)])
        counters: tuple[tuple[str, str, tuple[str, ...], Counter[Any]], ...] = (
            ("requests", "Requests that were answered.", ("kind", "status"), self.requests),
            ("calls", "Calls that were read, by the way in which they were written.", ("dialect",), self.calls),
            ("cut_calls", "Calls in which an answer ended.", ("dialect",), self.cut_calls),
            ("near_misses", "What looked like a call and was none.", ("dialect",), self.near_misses),
            ("errors", "Errors in answers.", ("code", "dialect"), self.errors),
            ("rule_matches", "What rules have found in texts.", ("rule",), self.rule_matches),
        )
        for name, about, names, counted in counters:
            keyed = ((key if isinstance(key, tuple) else (key,), many) for key, many in sorted(counted.items()) if many)
            found = [(_labels(**dict(zip(names, map(str, key), strict=True))), many) for key, many in keyed]
            family(f"{name}_total", "counter", about, found)
        family("leaks_prevented_total", "counter", "Spans that no reader was shown.", [("", self.leaks_prevented)])
        waits, so_far = [], 0
        for bound in (*BOUNDS, float("inf")):
            so_far += self._waits[bound]
            waits.append((_labels(le="+Inf" if bound == float("inf") else f"{bound:g}"), so_far))
        name = "first_token_seconds"
        family(name, "histogram", "Seconds until the first bytes of an answer.", [])
        lines.extend(f"streamtools_gateway_{name}_bucket{labels} {value:g}" for labels, value in waits)
        lines.extend((f"streamtools_gateway_{name}_sum {self._waited:g}", f"streamtools_gateway_{name}_count {so_far}"))
        return "\n".join(lines) + "\n"

    def page(self, upstream: str) -> str:
        """Return the status page, which loads itself anew and holds no script."""
        waits = self._waits.total()
        rows: list[tuple[str, str]] = [
            ("upstream", upstream),
            ("being answered", str(self.running)),
            *(
                (f"requests: {kind}, status {status}", str(many))
                for (kind, status), many in sorted(self.requests.items())
            ),
            ("time to first token, mean", f"{self._waited / waits:.3f} s" if waits else "–"),
            *((f"calls: {dialect}", str(many)) for dialect, many in sorted(self.calls.items())),
            ("near misses", str(self.near_misses.total())),
            ("leaks prevented", str(self.leaks_prevented)),
            *((f"errors: {code} {dialect}", str(many)) for (code, dialect), many in sorted(self.errors.items())),
        ]
        cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows)
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
            f"<title>Gateway</title><style>{STYLE}</style><h1>Gateway</h1><table>{cells}</table></html>"
        )


def _labels(**labels: str) -> str:
    """Return labels, escaped as the format demands.

    >>> _labels(dialect='a"b')
    '{dialect="a\\\\"b"}'
    """
    escaped = {
        name: value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
