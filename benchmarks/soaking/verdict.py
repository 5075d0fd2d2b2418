"""Judges the results of a soak."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import NamedTuple

from benchmarks.soaking.house import KEPT
from benchmarks.soaking.plans import FAULTS
from benchmarks.soaking.soak import Report, Settings
from benchmarks.soaking.watch import GROWTH, growth

_SATURATED = 0.9
"""The share of a processor above which streams are no more as many at the same time as they seem."""


class Finding(NamedTuple):
    """A condition. `holds` is None if it was not checked."""

    what: str
    holds: bool | None
    told: str


def judge(report: Report, settings: Settings) -> list[Finding]:
    """Return all conditions with their results."""
    here, browsers = report.here, report.browsers
    seen = here.seen + Counter(browsers["seen"])
    missing = [fault for fault in FAULTS if not report.sent[fault]]
    wrong = here.wrong + browsers["wrong"]
    findings = [
        Finding("no event was lost, doubled or wrong", not wrong, f"{wrong} problems in {_streams(report):,} streams"),
        Finding("each kind of fault was met", not missing, f"not {', '.join(missing)}" if missing else _counts(seen)),
        Finding("nothing of the package is left", not report.left, f"{report.left or 'no object'}"),
    ]
    if settings.count is not None:
        return findings
    samples = [sample for sample in report.samples if sample.at <= report.until]
    begins = settings.life + KEPT  # until then there are ever more streams, and ever more runs are kept
    if settings.minutes * 60 < 4 * begins or len(samples) < 8:
        told = f"a quarter of the time has to be {begins:.0f} s at this pace"
        return [*findings, Finding("memory is flat", None, told)]
    many = statistics.median(sample.streams for sample in samples[len(samples) // 4 :])
    full = many >= settings.streams
    findings.append(Finding("the streams are open at the same time", full, f"{many:,.0f} of {settings.streams:,}"))
    # What is in use counts, and not what the process holds: see `memory.py`.
    used, kept = growth([sample.used for sample in samples]), growth([sample.held for sample in samples])
    told = f"last quarter by second quarter: {used:.4f} of what is in use, and {kept:.4f} of what the process holds"
    findings.append(Finding("memory is flat", used <= GROWTH, told))
    first, last = samples[len(samples) // 4], samples[-1]
    share = (last.seconds - first.seconds) / (last.at - first.at)
    findings.append(Finding("the processor is not saturated", share < _SATURATED, f"{share:.0%} of one"))
    return findings


def summarise(report: Report) -> str:
    """Return the counts, one kind in each line."""
    here, browsers = report.here, report.browsers
    return "\n".join(
        (
            f"streams: {_streams(report):,}, of them {browsers['streams']:,} by browsers",
            f"events: {here.events + browsers['events']:,}, calls: {here.calls + browsers['calls']:,}",
            f"readers that came back: {here.resumed + browsers['resumed']:,}",
            f"answers that the provider gave to their end: {_counts(report.sent)}",
            f"of them read to their end: {_counts(here.seen + Counter(browsers['seen']))}",
            f"left before: {_counts(here.left + Counter(browsers['left']))}",
            f"calls ended as: {_counts(here.outcomes + Counter(browsers['outcomes']))}",
            f"logged: {_counts(report.logged)}",
            f"MiB in use: {_mib(report.used[0])} before the first stream, {_mib(report.used[1])} after the last",
            f"MiB held then: {_mib(report.held)}, and {_mib(report.given_back)} once what is free was given back",
            f"the event loop was late: {_lags(report)}",
        )
    )


def _mib(many: int) -> str:
    return f"{many / 2**20:.1f}"


def _lags(report: Report) -> str:
    lags = sorted(sample.lag for sample in report.samples)
    return (
        f"{lags[len(lags) // 2]:.2f} s at most in half of the samples, {lags[-1]:.2f} s in all" if lags else "unknown"
    )


def _streams(report: Report) -> int:
    return report.here.streams + int(report.browsers["streams"])


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {many:,}" for name, many in sorted(counts.items())) or "none"
