"""`streamtools report`: what models have done in recordings, and in logs of JSON lines; a page, or JSON.

A file is a recording, whose answers are read once more, or lines of JSON: UI events as `to_json` writes them, records
of ours as structlog or a formatter of `logging` writes them, in any order, with anything else between. Everything is
read once, and what is kept does not grow with the file.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import msgspec

from streamtools import sources
from streamtools.apps.cli import arguments
from streamtools.apps.cli.complaints import Complaints, Refused
from streamtools.apps.cli.report_page import Figures, page
from streamtools.errors import Code, RecordingError
from streamtools.events import Call, Done, Error, Executed, Matched, Text, UIEvent, Warning, read_ui_event
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.dialects import Dialects
from streamtools.recording import DETECT, OpenRecording
from streamtools.recording.file_reader import find_exchanges, open_place

LONGEST = 4 * 1024 * 1024
"""Bytes of a line that are looked at; a longer one is passed over."""
_KINDS = 200  # different names that one table counts; all others are one more


def run_report(asked: arguments.Report, output: TextIO, complaints: Complaints) -> int:
    """Write the report that was asked for, and return the exit status; then raise `Refused` for files of no use."""
    report, refusals = Report(asked.dialects or "auto"), list[str]()
    for path in asked.files:
        try:
            report.read(path)
        except Refused as refusal:
            refusals.append(str(refusal))
    if not report.figures.found:
        nothing = f"{', '.join(asked.files)}: no recording, and no line is an event or a record of the log"
        raise Refused("; ".join(refusals) or nothing)
    figures = report.figures
    output.write(msgspec.json.encode(figures.as_dict()).decode() + "\n" if asked.json else page(figures))
    if refusals:
        raise Refused("; ".join(refusals), status=1)
    return 0


class Report:
    """Counts what files tell. Calls in recordings are read in these `dialects`."""

    def __init__(self, dialects: Dialects = "auto") -> None:
        self.figures = Figures()
        self._dialects = dialects

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
            raise Refused(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        except RecordingError as error:
            raise Refused(str(error)) from None

    def read_lines(self, file: BinaryIO) -> None:
        """Take in lines of JSON."""
        line = file.readline(LONGEST)
        while line:
            whole = line
            while not line.endswith(b"\n") and (line := file.readline(LONGEST)):
                whole = b""  # too long
            if whole.strip():
                self._read_line(whole)
            line = file.readline(LONGEST)
        if self.figures.is_open:
            self.figures.end_run()

    def see(self, events: Iterable[UIEvent]) -> None:
        """Count what events tell."""
        figures = self.figures
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
                    figures.times["tools"].add(elapsed)
                case Done(reason):
                    self._count("runs", reason)
                    figures.end_run()

    def _count(self, table: str, name: str) -> None:
        counter: Counter[str] = self.figures.tables[table]
        name = name[:100]
        counter[name if name in counter or len(counter) < _KINDS else "(others)"] += 1
        self.figures.mark(table)

    def _read_line(self, line: bytes) -> None:
        try:
            value = msgspec.json.decode(line)
        except (ValueError, RecursionError):
            self.figures.skipped += 1
            return
        if not isinstance(value, dict):
            self.figures.skipped += 1
        elif isinstance(value.get("type"), str):
            try:
                event = read_ui_event(line)
            except (ValueError, RecursionError):
                self.figures.skipped += 1
            else:
                self.figures.found += 1
                self.see([event])
        else:
            self._read_record(value)

    def _read_record(self, record: dict[str, Any]) -> None:
        """Count a record of the log: of structlog, whose values stand beside its `event`, or of a formatter of JSON."""
        told = record.get("streamtools")
        name = record.get("event") or str(record.get("message", "")).partition(" ")[0]
        logger = record.get("logger") or record.get("name") or ""
        if not (name and isinstance(name, str) and (isinstance(told, dict) or str(logger).startswith("streamtools"))):
            self.figures.skipped += 1
            return
        values = told if isinstance(told, dict) else record
        self.figures.found += 1
        about = (str(values[key]) for key in ("tool", "model", "code", "status", "cause", "error") if values.get(key))
        self._count("log", " ".join([name, *about]))

    def _read_recording(self, recording: OpenRecording) -> None:
        head, times = recording.head, self.figures.times
        status = head.response.status if head.response is not None else 200
        self.figures.found += 1
        if not 200 <= status < 300:
            self._count("errors", f"{Code.UPSTREAM_ERROR} {status}")
            self._count("runs", "failed")
            self.figures.end_run()
            return
        declared = head.response.headers.get("content-type", "") if head.response is not None else ""
        adapter = sources.Undecided(declared) if head.source == DETECT else sources.adapter(head.source)
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
                times[name].add(seconds)
        self.see(out for event in adapter.close() for out in machine.feed(event))
        self.see(machine.close())
