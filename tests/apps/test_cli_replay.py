"""The command `streamtools replay`: a recording as a transcript, or as JSON lines."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog

from streamtools import coalesce, replay
from streamtools.apps.cli import main
from streamtools.apps.cli.demo import TOOLS
from streamtools.events import UIEvent, read_ui_event
from streamtools.recording import shipped
from streamtools.recording.format import EndKind
from tests.recording.exchanges import write
from tests.support.command import run

_SHIPPED = shipped()


def sse(*texts: str, finish: str | None = "stop", error: str | None = None) -> bytes:
    """Return a stream of chat completion chunks, as `curl -N` writes it."""
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    if finish is not None:
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if error is not None:
        chunks.append({"error": {"message": error}})
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)


def save(folder: Path, data: bytes, name: str = "capture.sse") -> str:
    """Write `data` to a file, and return its name."""
    path = folder / name
    path.write_bytes(data)
    return str(path)


@pytest.fixture
def tool_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Change to a directory with modules of the user. Forget the modules after the test."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_answer_without_calls_is_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["replay", str(_SHIPPED["headings"]), "--speed", "0"])
    text, _, summary = capsys.readouterr().out.rpartition("\n\n")
    assert text.startswith(
        "# Coffee\n\nCoffee is a drink made from roasted coffee beans.\n\n## Where it comes from\n\n"
    )
    assert text.endswith("### Summary\n\nNow you know what coffee is.")
    assert summary.startswith("✔ finished (stop) · no calls · 399 tokens in, 93 tokens out · ")


def test_without_tools_calls_are_reported_and_stay_pending(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["replay", str(_SHIPPED["tilde-call"]), "--speed", "0"])
    shown = capsys.readouterr()
    assert (
        "I will look up the weather in Paris.\n\n"
        "🔧 Waiting for tool call completion...\n"
        '  hidden from users: ~~~tool_call {"name": "get_weather", "arguments": {"city": "Paris"}} ~~~\n'
        '→ get_weather(city="Paris")\n\n'
        "One moment, please.\n\n"
        "■ pending (stop) · 1 call: 1 pending · 181 tokens in, 45 tokens out · "
    ) == shown.out[: shown.out.rindex("· ") + 2]
    assert "" == shown.err


def test_tools_run_the_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(
        ["replay", str(_SHIPPED["two-tools"]), "--speed", "0", "--tools", "streamtools.apps.cli.demo:TOOLS"]
    )
    shown = capsys.readouterr().out
    assert "🔧 Executed get_weather: Lima: fog, 18 °C (" in shown
    assert "🔧 Executed add → 17.0 (" in shown
    assert "· 2 calls: 2 executed ·" in shown


@pytest.mark.parametrize("name", ["tools", "get_weather", "[get_weather]"])
def test_tools_are_imported_from_the_current_directory(
    name: str, tool_modules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tool_modules / "mine.py").write_text(
        "from streamtools import ToolRegistry\n"
        "print('the module is imported')\n"
        "def get_weather(city: str) -> str:\n"
        "    print('the tool runs')\n"
        "    return city.upper()\n"
        "tools = ToolRegistry(get_weather)\n"
        f"class inner: some = {name}\n"
    )
    assert 0 == main(["replay", str(_SHIPPED["tilde-call"]), "--speed", "0", "--tools", "mine:inner.some"])
    shown = capsys.readouterr()
    assert '🔧 Executed get_weather → "PARIS" (' in shown.out
    assert "the module is imported\nthe tool runs\n" == shown.err  # not on standard output


@pytest.mark.parametrize("name", _SHIPPED)
def test_json_prints_the_events_of_replay(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def all_events() -> list[UIEvent]:
        return await replay(_SHIPPED[name], tools=TOOLS)

    arguments = ["replay", str(_SHIPPED[name]), "--json", "--speed", "0", "--tools", "streamtools.apps.cli.demo:TOOLS"]
    assert 0 == main(arguments)
    shown = capsys.readouterr()
    assert "" == shown.err
    lines = shown.out.removesuffix("\n").split("\n")
    assert coalesce(anyio.run(all_events)) == coalesce(map(read_ui_event, lines))


@pytest.mark.parametrize(
    ("dialects", "calls"),
    [("tilde_fence", 0), ("hash_marker", 1), (" tilde_fence , hash_marker", 1), ("auto", 1), ("", 0)],
)
def test_only_calls_in_enabled_dialects_are_parsed(
    dialects: str, calls: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["replay", str(_SHIPPED["hash-call"]), "--speed", "0", "--dialects", dialects])
    shown = capsys.readouterr().out
    assert (calls == 1) == ("\n  hidden from users: ###:{" in shown)
    assert 1 == shown.count("###:{")
    assert (calls == 1) == ("→ add(a=17.5, b=24)" in shown)


def test_a_raw_capture_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Events that the adapter does not understand are counted."""
    data = b'data: {"unknown":1}\n\n' + sse('Look: ###:{"tool":"a"}', " there") + b"data: [DONE]\n\n"
    assert 0 == main(["replay", save(tmp_path, data)])
    shown = capsys.readouterr().out
    call = '  hidden from users: ###:{"tool":"a"}\n→ a()\n'
    assert shown.startswith(f"Look: \n🔧 Waiting for tool call completion...\n{call} there\n\n■ pending (stop)")
    assert "· 1 call: 1 pending ·" in shown


def test_a_failed_stream_has_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = save(tmp_path, sse("Hel", finish=None, error="overloaded"))
    assert 1 == main(["replay", name])
    shown = capsys.readouterr()
    assert shown.out.startswith("Hel\n\n❌ Stream error: overloaded (upstream_error)\n\n✘ failed (upstream_error) ·")
    assert f"streamtools: {name}: the stream failed: overloaded\n" == shown.err


def test_an_incomplete_capture_has_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = save(tmp_path, sse("Hel", finish=None))
    assert 1 == main(["replay", name, "--json"])
    shown = capsys.readouterr()
    assert '"reason":"failed"' in shown.out.splitlines()[-1]
    assert f"streamtools: {name}: the stream failed: the stream ended before it was complete\n" == shown.err


@pytest.mark.parametrize(("kind", "cause"), [("reset", "ConnectionResetError"), ("timeout", "TimeoutError")])
def test_a_broken_connection_has_status_1(
    kind: EndKind, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cause is written to standard error only."""
    name = str(write(tmp_path / "stream.jsonl", (None, [sse("Hel", finish=None)]), end=kind, response=None))
    assert 1 == main(["replay", name, "--speed", "0"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"streamtools: {name}: the stream failed: ")
    assert cause in line


def test_the_configuration_of_structlog_is_restored(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        before = structlog.get_config()
        assert 0 == main(["replay", str(_SHIPPED["no-call"]), "--speed", "0"])
        assert before == structlog.get_config()
    finally:
        structlog.reset_defaults()
    assert 0 == main(["replay", str(_SHIPPED["no-call"]), "--speed", "0"])
    assert not structlog.is_configured()


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The help contains the default of each option and the exit statuses."""
    assert 0 == main(["--version"])
    assert capsys.readouterr().out.startswith("streamtools 0.")
    assert 0 == main(["--help"])
    assert "Exit status: 0 on success; 1 if a stream failed" in capsys.readouterr().out
    assert 0 == main(["replay", "--help"])
    shown = capsys.readouterr().out
    assert "0 for no waiting (default: 1)" in " ".join(shown.split())
    assert "hash_marker,tilde_fence" in "".join(shown.split())


def test_the_package_can_be_run_as_a_module() -> None:
    status, output, complaints = run("replay", _SHIPPED["no-call"], "--speed", "0")
    assert (0, "") == (status, complaints)
    assert output.startswith("The capital of France is Paris. It lies on the river Seine.\n\n✔ finished (stop)")


def test_main_reads_the_arguments_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["streamtools", "--version"])
    monkeypatch.setattr(os, "_exit", int)  # another test may have left a thread
    assert 0 == main()
    assert capsys.readouterr().out.startswith("streamtools ")
