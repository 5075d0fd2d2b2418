"""`streamtools replay`: a recording, or a raw capture, as a transcript or as lines of JSON."""

from __future__ import annotations

import json
import logging
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
from streamtools.recording import ExchangeHead, shipped
from streamtools.recording.format import EndKind
from streamtools.recording.writer import RecordingWriter
from tests.support.command import run

_SHIPPED = shipped()


def sse(*texts: str, finish: str | None = "stop", error: str | None = None) -> bytes:
    """Return a stream of chat completion chunks as `curl -N` would save it."""
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    if finish is not None:
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if error is not None:
        chunks.append({"error": {"message": error}})
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)


def saved(folder: Path, data: bytes, name: str = "capture.sse") -> str:
    """Return the name of a file that holds `data`."""
    path = folder / name
    path.write_bytes(data)
    return str(path)


def recorded(folder: Path, data: bytes, kind: EndKind) -> str:
    """Return the name of a recording whose response ends in this way."""
    path = folder / "stream.jsonl"
    with RecordingWriter(path, ExchangeHead(source="openai")) as writer:
        writer.chunk(data, 1.0)
        writer.end(kind, 2.0)
    return str(path)


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with modules of the user, which are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_answer_without_calls_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """The transcript of an answer is the answer, byte for byte, and one line that sums it up."""
    assert 0 == main(["replay", str(_SHIPPED["headings"]), "--speed", "0"])
    text, _, summary = capsys.readouterr().out.rpartition("\n\n")
    assert text.startswith(
        "# Coffee\n\nCoffee is a drink made from roasted coffee beans.\n\n## Where it comes from\n\n"
    )
    assert text.endswith("### Summary\n\nNow you know what coffee is.")
    assert summary.startswith("✔ finished (stop) · no calls · 399 tokens in, 93 tokens out · ")


def test_without_tools_calls_are_reported_and_stay_pending(capsys: pytest.CaptureFixture[str]) -> None:
    """The call is told in other words than the model's, and nobody has run it."""
    assert 0 == main(["replay", str(_SHIPPED["tilde-call"]), "--speed", "0"])
    shown = capsys.readouterr()
    assert (
        "I will look up the weather in Paris.\n\n"
        "🔧 Waiting for tool call completion...\n"
        '→ get_weather(city="Paris")\n\n'
        "One moment, please.\n\n"
        "■ pending (stop) · 1 call: 1 pending · 181 tokens in, 45 tokens out · "
    ) == shown.out[: shown.out.rindex("· ") + 2]
    assert "" == shown.err


def test_tools_run_the_calls(capsys: pytest.CaptureFixture[str]) -> None:
    """With a registry, each call is executed and its result is told."""
    assert 0 == main(
        ["replay", str(_SHIPPED["two-tools"]), "--speed", "0", "--tools", "streamtools.apps.cli.demo:TOOLS"]
    )
    shown = capsys.readouterr().out
    assert "🔧 Executed get_weather: Lima: fog, 18 °C (" in shown
    assert "🔧 Executed add → 17.0 (" in shown
    assert "· 2 calls: 2 executed ·" in shown


@pytest.mark.parametrize("name", ["tools", "get_weather", "[get_weather]", "{'get_weather': get_weather}"])
def test_tools_come_from_the_current_directory_in_any_form(
    name: str, own_modules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module beside the user is found; a registry, a tool, functions or a collection of them are tools."""
    (own_modules / "mine.py").write_text(
        "from streamtools import ToolRegistry\n"
        "print('the module is imported')\n"
        "def get_weather(city: str) -> str:\n"
        "    print('the tool is at work')\n"
        "    return city.upper()\n"
        "tools = ToolRegistry(get_weather)\n"
        f"class inner: some = {name}\n"
    )
    assert 0 == main(["replay", str(_SHIPPED["tilde-call"]), "--speed", "0", "--tools", "mine:inner.some"])
    shown = capsys.readouterr()
    assert '🔧 Executed get_weather → "PARIS" (' in shown.out
    assert "the module is imported\nthe tool is at work\n" == shown.err  # and not on standard output


@pytest.mark.parametrize("name", _SHIPPED)
def test_json_is_one_event_a_line_and_nothing_else(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines are the events that `replay` gives, and read back as them."""

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
def test_dialects_are_chosen(dialects: str, calls: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Only what is enabled is a call; the rest is text."""
    assert 0 == main(["replay", str(_SHIPPED["hash-call"]), "--speed", "0", "--dialects", dialects])
    shown = capsys.readouterr().out
    assert (calls == 0) == ("###:{" in shown)
    assert (calls == 1) == ("→ add(a=17.5, b=24)" in shown)


def test_a_raw_capture_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that `curl -N` wrote is as good as a recording; what an adapter does not know is counted."""
    data = b'data: {"unknown":1}\n\n' + sse('Look: ###:{"tool":"a"}', " there") + b"data: [DONE]\n\n"
    assert 0 == main(["replay", saved(tmp_path, data)])
    shown = capsys.readouterr().out
    assert shown.startswith("Look: \n🔧 Waiting for tool call completion...\n→ a()\n there\n\n■ pending (stop)")
    assert "· 1 call: 1 pending · 1 event that was not understood ·" in shown


def test_a_stream_that_failed_has_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the provider reported is in the transcript, and in one line on standard error."""
    name = saved(tmp_path, sse("Hel", finish=None, error="overloaded"))
    assert 1 == main(["replay", name])
    shown = capsys.readouterr()
    assert shown.out.startswith("Hel\n\n❌ Stream error: overloaded (upstream_error)\n\n✘ failed (upstream_error) ·")
    assert f"streamtools: {name}: the stream failed: overloaded\n" == shown.err


def test_a_stream_without_an_end_has_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A capture that breaks off in mid-answer is no whole answer, also as JSON."""
    name = saved(tmp_path, sse("Hel", finish=None))
    assert 1 == main(["replay", name, "--json"])
    shown = capsys.readouterr()
    assert '"reason":"failed"' in shown.out.splitlines()[-1]
    assert f"streamtools: {name}: the stream failed: the stream ended before it was complete\n" == shown.err


@pytest.mark.parametrize(("kind", "cause"), [("reset", "ConnectionResetError"), ("timeout", "TimeoutError")])
def test_a_connection_that_broke_has_status_1(
    kind: EndKind, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line on standard error has the cause, which is not for the interface."""
    name = recorded(tmp_path, sse("Hel", finish=None), kind)
    assert 1 == main(["replay", name, "--speed", "0"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"streamtools: {name}: the stream failed: ")
    assert cause in line


def test_the_log_is_configured_for_the_command_only(capsys: pytest.CaptureFixture[str]) -> None:
    """What a program has configured for its own logs is the same after `main` as before it."""
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
    """Both are answers and no errors; the help tells the default of each option and the exit statuses."""
    assert 0 == main(["--version"])
    assert capsys.readouterr().out.startswith("streamtools 0.")
    assert 0 == main(["--help"])
    assert "Exit status: 0 on success; 1 if a stream failed" in capsys.readouterr().out
    assert 0 == main(["replay", "--help"])
    shown = capsys.readouterr().out
    assert "0 for no waiting (default: 1)" in " ".join(shown.split())
    assert "hash_marker,tilde_fence" in "".join(shown.split())


def test_the_module_is_the_command() -> None:
    """`python -m streamtools` does what `streamtools` does."""
    status, output, complaints = run("replay", _SHIPPED["no-call"], "--speed", "0")
    assert (0, "") == (status, complaints)
    assert output.startswith("The capital of France is Paris. It lies on the river Seine.\n\n✔ finished (stop)")


def test_a_process_ends_with_its_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without arguments of its own `main` takes those of the process."""
    monkeypatch.setattr(sys, "argv", ["streamtools", "--version"])
    assert 0 == main()
    assert capsys.readouterr().out.startswith("streamtools ")
