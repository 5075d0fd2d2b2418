"""`streamtools report`: what models have done in recordings, and in logs of JSON lines; a page, or JSON.

A file is a recording, whose answers are read once more, or lines of JSON: UI events as `to_json` writes them, records
of ours as structlog or a formatter of `logging` writes them, in any order, with anything else between. Everything is
read once, and what is kept does not grow with the file.
"""

from __future__ import annotations

import html
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import msgspec

from streamtools.apps.cli import arguments
from streamtools.apps.cli.complaints import Complaints, Refused, reason_of
from streamtools.errors import Code, RecordingError
from streamtools.events import Call, Done, Error, Executed, Matched, Text, UIEvent, Warning, read_ui_event
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.dialects import Dialects
from streamtools.recording import OpenRecording
from streamtools.recording.event_replay import adapter_of
from streamtools.recording.file_reader import find_exchanges, open_place

LONGEST = 4 * 1024 * 1024
"""Bytes of a line that are looked at; a longer one is passed over."""
_KINDS = 200  # different names that one table counts; all others are one more


def run_report(asked: arguments.Report, output: TextIO, complaints: Complaints) -> int:
    """Write the report that was asked for, and return the exit status; then raise `Refused` for files of no use."""
    report, refusals = Figures(asked.dialects or "auto"), list[str]()
    for path in asked.files:
        try:
            report.read(path)
        except Refused as refusal:
            refusals.append(str(refusal))
    if not report.found:
        nothing = f"{', '.join(asked.files)}: no recording, and no line is an event or a record of the log"
        raise Refused("; ".join(refusals) or nothing)
    output.write(msgspec.json.encode(report.as_dict()).decode() + "\n" if asked.json else page(report))
    if refusals:
        raise Refused("; ".join(refusals), status=1)
    return 0


class Figures:
    """What files tell, counted: tables by name, times, and what came in which run, in the order of the files.

    Calls in recordings are read in these `dialects`.
    """

    def __init__(self, dialects: Dialects = "auto") -> None:
        self._dialects = dialects
        self.found = 0
        """Lines, or answers of recordings, that told something."""
        self.skipped = 0
        """Lines that told nothing."""
        self.tables: dict[str, Counter[str]] = {name: Counter() for name in _TABLES}
        self.times = {name: Histogram() for name in _TIMES}
        self.bins: list[Counter[str]] = []
        self._a_bin = 1  # runs in each of them
        self._runs = 0  # in the last one
        self._open: Counter[str] = Counter()  # what came since the last run ended

    def read(self, path: str) -> None:
        """Take in a file; `-` is standard input. Raises `Refused` for one that cannot be read."""
        try:
            if path == "-":
                self.read_lines(sys.stdin.buffer)
                return
            with Path(path).open("rb") as file:
                is_recording = b'"recording"' in file.readline(LONGEST)
                if not is_recording:
                    file.seek(0)
                    self.read_lines(file)
            if is_recording:
                for place in find_exchanges(path):
                    with open_place(path, place) as recording:
                        self._read_recording(recording)
        except (OSError, ValueError) as error:  # ValueError: a null character in the name
            raise Refused(f"{path} cannot be read: {reason_of(error)}") from None
        except RecordingError as error:
            raise Refused(str(error)) from None

    def read_lines(self, file: BinaryIO) -> None:
        line = file.readline(LONGEST)
        while line:
            whole = line
            while not line.endswith(b"\n") and (line := file.readline(LONGEST)):
                whole = b""  # too long
            if whole.strip():
                self._read_line(whole)
            line = file.readline(LONGEST)
        if self._open.total():
            self._end_run()

    def see(self, events: Iterable[UIEvent]) -> None:
        """Count what events tell."""
        for event in events:
            match event:
                case Call(call):
                    self._count("calls", call.dialect)
                case Error(code=code, call=call):
                    dialect = (event.dialect if call is None else call.dialect) or ""
                    self._count("errors", f"{code} {dialect}".strip())
                    if code is Code.TRUNCATED:
                        self._count("cut_calls", dialect)
                    if call is not None and code in (Code.TOOL_FAILED, Code.TOOL_TIMEOUT, Code.TOOL_OUTPUT):
                        self._count("failed_tools", call.name)
                case Warning(code) if code is Code.NEAR_MISS:
                    self._count("near_misses", event.dialect or "")
                case Warning(code):
                    self._count("warnings", code)
                case Matched(rule):
                    self._count("rule_matches", rule)
                case Executed(call, elapsed=elapsed):
                    self._count("tools", call.name)
                    self.times["tools"].add(elapsed)
                case Done(reason):
                    self._count("runs", reason)
                    self._end_run()

    def as_dict(self) -> dict[str, Any]:
        tables = {name: dict(counter.most_common()) for name, counter in self.tables.items()}
        times = {name: histogram.as_dict() for name, histogram in self.times.items()}
        over_runs = {"runs_in_each": self._a_bin, **{name: [each[name] for each in self.bins] for name in _MARKS}}
        return {"found": self.found, "skipped": self.skipped, **tables, "times": times, "over_runs": over_runs}

    def _count(self, table: str, name: str) -> None:
        counter, name = self.tables[table], name[:100]
        counter[name if name in counter or len(counter) < _KINDS else "(others)"] += 1
        if table in _MARKS:
            self._open[table] += 1

    def _end_run(self) -> None:
        if not self.bins or self._runs == self._a_bin:
            if len(self.bins) == BINS:
                self.bins = [one + other for one, other in zip(self.bins[::2], self.bins[1::2], strict=True)]
                self._a_bin *= 2
            self.bins.append(Counter())
            self._runs = 0
        self.bins[-1] += self._open
        self._runs += 1
        self._open.clear()

    def _read_line(self, line: bytes) -> None:
        try:
            value = msgspec.json.decode(line)
            is_event = isinstance(value, dict) and isinstance(value.get("type"), str)
            events = [read_ui_event(line)] if is_event else []
        except (ValueError, RecursionError):
            self.skipped += 1
            return
        if not is_event and not (isinstance(value, dict) and self._read_record(value)):
            self.skipped += 1
            return
        self.found += 1
        self.see(events)

    def _read_record(self, record: dict[str, Any]) -> bool:
        """Count a record of the log: of structlog, whose values stand beside its `event`, or of a formatter of JSON."""
        told = record.get("streamtools")
        name = record.get("event") or str(record.get("message", "")).partition(" ")[0]
        logger = record.get("logger") or record.get("name") or ""
        if not (name and isinstance(name, str) and (isinstance(told, dict) or str(logger).startswith("streamtools"))):
            return False
        values = told if isinstance(told, dict) else record
        about = (str(values[key]) for key in ("tool", "model", "code", "status", "cause", "error") if values.get(key))
        self._count("log", " ".join([name, *about]))
        return True

    def _read_recording(self, recording: OpenRecording) -> None:
        head = recording.head
        status = head.response.status if head.response is not None else 200
        self.found += 1
        if not 200 <= status < 300:
            self._count("errors", f"{Code.UPSTREAM_ERROR} {status}")
            self._count("runs", "failed")
            self._end_run()
            return
        adapter = adapter_of(recording)
        machine = StreamMachine(dialects=self._dialects, execute="never")
        first_chunk = first_text = None
        at = 0.0
        for chunk in recording:
            at = chunk.at / 1000
            first_chunk = at if first_chunk is None else first_chunk
            events = [out for event in adapter.take(chunk.data) for out in machine.feed(event)]
            if first_text is None and any(type(event) is Text and not event.text.isspace() for event in events):
                first_text = at
            self.see(events)
        for name, seconds in (("first_chunk", first_chunk), ("first_text", first_text), ("answers", at)):
            if seconds is not None:
                self.times[name].add(seconds)
        self.see(out for event in adapter.close() for out in machine.feed(event))
        self.see(machine.close())


# What was counted, and the page that shows it: one file, with plots in SVG, without scripts.

BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Seconds: the upper bounds of the bars of a plot of times."""
BINS = 100
"""Columns of the plot over the runs: where there are more, two become one."""

_TABLES = {
    "calls": "Calls by dialect",
    "near_misses": "Near misses by dialect",
    "errors": "Errors by code and dialect",
    "cut_calls": "Calls in which an answer ended",
    "runs": "How runs ended",
    "tools": "Calls that tools have answered",
    "failed_tools": "Calls in which a tool has failed",
    "warnings": "Other warnings",
    "rule_matches": "Matches of rules",
    "log": "Records of the log",
}
_TIMES = {
    "first_chunk": "Until the first chunk of an answer",
    "first_text": "Until its first visible text",
    "answers": "Until its end",
    "tools": "Calls of tools",
}
_MARKS = {"calls": "#2a78d6", "near_misses": "#eda100", "errors": "#e34948"}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#0b0b0b;"
    "background:#fcfcfb}table{border-collapse:collapse}td,th{padding:.1em 1em .1em 0;text-align:left;"
    "overflow-wrap:anywhere}td+td{text-align:right}svg{max-width:100%}text{font:12px system-ui,sans-serif;"
    "fill:#52514e}"
)


class Histogram:
    """How many of some seconds lie between the bounds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.sum += seconds
        self.counts[bisect_left(BOUNDS, seconds)] += 1

    def as_dict(self) -> dict[str, Any]:
        count = sum(self.counts)
        return {"count": count, "mean": self.sum / count if count else None, "bounds": BOUNDS, "counts": self.counts}


def page(report: Figures) -> str:
    """Return the page. Whatever stands in a file may stand in it, escaped."""
    parts = [f"<p>{report.found} lines and answers were read, and {report.skipped} lines told nothing.</p>"]
    if any(each.total() for each in report.bins):
        parts += ["<h2>Over the runs, in their order</h2>", _over_runs(report.bins)]
    for name, title in _TABLES.items():
        if counter := report.tables[name]:
            cells = (f"<td>{html.escape(key) or '–'}</td><td>{many}</td>" for key, many in counter.most_common())
            parts += [f"<h2>{title}</h2>", f"<table>{''.join(f'<tr>{each}</tr>' for each in cells)}</table>"]
    for name, title in _TIMES.items():
        histogram = report.times[name]
        if any(histogram.counts):
            mean = histogram.sum / sum(histogram.counts)
            parts += [f"<h2>{title}: {mean:.3g} s on average</h2>", _bars(histogram)]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"content-security-policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>What the models have done</title><style>{_STYLE}</style><h1>What the models have done</h1>"
        f"{''.join(parts)}</html>\n"
    )


def _over_runs(bins: Sequence[Counter[str]]) -> str:
    """Return columns of calls, near misses and errors, one above the other."""
    height, width = 160, 800 / len(bins)
    most = max(each.total() for each in bins)
    shapes = []
    for at, each in enumerate(bins):
        top = float(height)
        for name, colour in _MARKS.items():
            size = each[name] * height / most
            top -= size
            if size:
                told = f"{name.replace('_', ' ')}: {each[name]}"
                shapes.append(_rect(at * width, top, max(1.0, width - 1), size, colour, told))
    legend = (
        f'<rect x="{at * 120}" y="172" width="12" height="12" fill="{colour}"/>'
        f'<text x="{at * 120 + 18}" y="182">{name.replace("_", " ")}</text>'
        for at, (name, colour) in enumerate(_MARKS.items())
    )
    return f'<svg viewBox="0 0 800 190" width="800" role="img">{"".join(shapes)}{"".join(legend)}</svg>'


def _bars(histogram: Histogram) -> str:
    """Return a bar for each interval of times, with the seconds up to which it goes below."""
    most, shapes = max(histogram.counts), []
    for at, count in enumerate(histogram.counts):
        size = count * 100 / most
        name = f"≤ {BOUNDS[at]:g} s" if at < len(BOUNDS) else "more"
        shapes.append(_rect(at * 57, 100 - size, 50, size, _MARKS["calls"], f"{name}: {count}"))
        shapes.append(f'<text x="{at * 57}" y="116">{name}</text>')
    return f'<svg viewBox="0 0 800 120" width="800" role="img">{"".join(shapes)}</svg>'


def _rect(x: float, y: float, width: float, height: float, colour: str, told: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{colour}"><title>{html.escape(told)}</title></rect>'
