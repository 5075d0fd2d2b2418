"""`streamtools report`: what it finds in recordings and logs, and a page that holds whatever stands in them."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import anyio
import pytest

from streamtools import ToolStream, sources
from streamtools.apps.cli import main
from streamtools.apps.cli.report import BINS, Figures, page
from streamtools.errors import Code
from streamtools.events import Done, Error, Warning
from streamtools.recording import Head, RecordingWriter, Response, shipped

CALL = '###:{"name": "get_weather", "arguments": {"city": "Rome"}}'
DRIFTED = 'I look. <tool_call>\n{"name": "get_weather", "arguments": {"city": }}\n</tool_call>\n'
HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'


def figures(capsys: pytest.CaptureFixture[str], *files: Path | str, options: tuple[str, ...] = ()) -> dict[str, Any]:
    assert 0 == main(["report", "--json", *options, *map(str, files)])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def events_of(*texts: str) -> str:
    """Return the lines of JSON that an application would write of runs with these answers."""

    def get_weather(city: str) -> str:
        """Tell the weather."""
        raise RuntimeError(city)

    async def run() -> list[str]:
        lines = []
        for text in texts:
            async with ToolStream(sources.text([text]), tools=[get_weather], dialects="auto") as events:
                lines += [event.to_json() async for event in events]
        return lines

    return "\n".join(anyio.run(run)) + "\n"


def test_recordings_of_models_are_read_once_more(capsys: pytest.CaptureFixture[str]) -> None:
    files = shipped().values()
    found = figures(capsys, *files)
    assert len(files) <= found["found"]
    assert sum(found["calls"].values()) > 3
    assert {"finished"} >= {reason for reason in found["runs"] if reason != "truncated"}
    for name in ("first_chunk", "first_text", "answers"):
        times = found["times"][name]
        assert 0 < times["count"] == sum(times["counts"])
        assert 0 < times["mean"] < 100
    assert (
        found["times"]["first_chunk"]["mean"]
        <= found["times"]["first_text"]["mean"]
        <= found["times"]["answers"]["mean"]
    )


def test_a_log_shows_a_model_that_has_drifted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Events, records of both ways to log, and lines that are none, in one file."""
    structlog = {
        "event": "tool_call_failed",
        "logger": "streamtools.tools.runner",
        "tool": "pay",
        "code": "tool_timeout",
    }
    logging = {
        "message": "stream_failed run_id='r'",
        "name": "x",
        "streamtools": {"code": "upstream_error", "status": 503},
    }
    others = '{"event": "GET /", "logger": "uvicorn"}\nINFO: no JSON\n[1]\n{"type": "text"}\n{"type": "unheard"}\n'
    log = tmp_path / "app.log"
    log.write_text(
        events_of(CALL, DRIFTED, f"`{CALL}`", DRIFTED) + f"{json.dumps(structlog)}\n{json.dumps(logging)}\n{others}"
    )
    found = figures(capsys, log)
    assert {"hash_marker": 1} == found["calls"]
    assert {"hash_marker": 1} == found["near_misses"]
    assert {"invalid_json hermes_json": 2, "tool_failed hash_marker": 1} == found["errors"]
    assert {"get_weather": 1} == found["failed_tools"]
    assert {"finished": 4} == found["runs"]
    assert {"tool_call_failed pay tool_timeout": 1, "stream_failed upstream_error 503": 1} == found["log"]
    assert 5 == found["skipped"]
    assert ([1, 0, 0, 0], [0, 0, 1, 0], [1, 1, 0, 1]) == tuple(
        found["over_runs"][name] for name in ("calls", "near_misses", "errors")
    )


def test_an_answer_that_failed_is_counted_without_being_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "failed.jsonl"
    with RecordingWriter(path, Head(source="openai", response=Response(status=503))) as writer:
        writer.chunk(b'{"error": {}}', 20.0)
        writer.end("end", 21.0)
    found = figures(capsys, path)
    assert ({"upstream_error 503": 1}, {"failed": 1}) == (found["errors"], found["runs"])


class Page(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_holds_hostile_names_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "app.log"
    record = {"event": HOSTILE, "logger": "streamtools", "tool": HOSTILE, "code": "x"}
    log.write_text(events_of(CALL.replace("get_weather", "<b>"), CALL, DRIFTED) + json.dumps(record) + "\n")
    assert 0 == main(["report", str(log)])
    shown = Page(capsys.readouterr().out)
    assert HOSTILE[:90] in shown.text
    assert {"script", "img", "b"}.isdisjoint(shown.names)
    assert {"svg", "rect", "table"} <= shown.names
    assert [] == [name for name in shown.attributes if name.startswith("on") or name in ("src", "href", "style")]
    assert "Errors by code and dialect" in shown.text


def test_what_is_kept_does_not_grow() -> None:
    """Of names there are at most so many, of runs so many columns, and a line without end is passed over."""
    report = Figures()
    for number in range(10 * BINS + 7):
        report.see(
            [Warning(Code.NEAR_MISS, f"a call of the dialect d{number} in code"), Done("finished", None, None, [])]
        )
    told = report.as_dict()
    assert 1007 == sum(told["near_misses"].values()) == sum(told["over_runs"]["near_misses"])
    assert len(told["near_misses"]) <= 201
    assert len(told["over_runs"]["near_misses"]) <= BINS
    assert 16 == told["over_runs"]["runs_in_each"]
    assert len(page(report)) < 60_000
    report.read_lines(
        io.BytesIO(b"[" * (9 * 1024 * 1024) + b"\n" + Error(Code.UPSTREAM_ERROR, "no").to_json().encode())
    )
    assert {"upstream_error": 1} == report.as_dict()["errors"]


def test_a_recording_that_breaks_off_is_counted_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the files behind it are read, too; the exit status says that one was of no use."""
    whole = shipped()["tilde-call"]
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"".join(whole.read_bytes().splitlines(keepends=True)[:-1]))
    assert 1 == main(["report", "--json", str(broken), str(whole)])
    told = capsys.readouterr()
    assert "breaks off" in told.err
    assert {"tilde_fence": 2} == json.loads(told.out)["calls"]


def test_files_that_are_of_no_use_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty"
    empty.write_text("no JSON\n")
    for file, complaint in (
        (empty, "no recording, and no line is an event"),
        (tmp_path / "none", "cannot be read: No such"),
    ):
        assert 2 == main(["report", str(file)])
        told = capsys.readouterr()
        assert "" == told.out
        assert re.search(complaint, told.err)
