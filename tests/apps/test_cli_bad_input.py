"""Invalid input to the command: one line on standard error, an exit status, and no traceback."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamtools.apps.cli import main
from streamtools.recording import shipped
from tests.support.command import COMMAND, ENVIRONMENT, start

_HEADINGS = str(shipped()["headings"])
_NO_CALL = str(shipped()["no-call"])


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the line on standard error. Fails if anything was written to standard output."""
    shown = capsys.readouterr()
    assert "" == shown.out
    assert 1 == shown.err.count("\n")
    assert shown.err.startswith("streamtools: ")
    return shown.err.removeprefix("streamtools: ").removesuffix("\n")


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty"),
        (b"Dear diary,\n", "is not a recording: line 1 is not the head of a recording"),
        (
            b'{"streamtools":"recording","version":1,"source":"nobody"}\n',
            "no adapter is named 'nobody'; there are openai",
        ),
    ],
)
def test_a_file_that_is_not_a_recording_is_named(
    content: bytes | None, reason: str, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    assert 2 == main(["replay", str(path), *options])
    line = error_line(capsys)
    assert line.startswith(str(path))
    assert reason in line


def test_control_characters_of_a_file_name_are_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["replay", str(tmp_path / "a\nb\x1b[2J")])
    assert error_line(capsys).endswith("/a b␛[2J cannot be read: No such file or directory")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_incomplete_recording_is_shown_and_reported(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 1."""
    path = tmp_path / "half.jsonl"
    path.write_bytes(Path(_HEADINGS).read_bytes()[:8000])
    assert 1 == main(["replay", str(path), "--speed", "0", *options])
    shown = capsys.readouterr()
    assert "Coffee" in shown.out
    (line,) = shown.err.splitlines()
    assert line.startswith(f"streamtools: {path}, line ")
    assert line.endswith(" cannot be read: Input data was truncated")


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ("weather", "--tools must be MODULE:NAME, such as weather:tools, got 'weather'"),
        (":tools", "--tools must be MODULE:NAME, such as weather:tools, got ':tools'"),
        ("no_such:tools", "--tools no_such:tools cannot be used: ModuleNotFoundError: No module named 'no_such'"),
        ("mine.py:tools", "No module named 'mine.py'; 'mine' is not a package"),
        ("plain:nothing", "AttributeError: module 'plain' has no attribute 'nothing'"),
        ("plain:text", "`tools` must be a list"),
        ("plain:none", "TypeError: it is None"),
        ("raises:tools", "--tools raises:tools cannot be used: ZeroDivisionError: division by zero"),
        ("exits:tools", "SystemExit: 0"),
        ("imports:tools", "ModuleNotFoundError: No module named 'no_such'"),
        ("syntax:tools", "SyntaxError: "),
        (".mine:tools", "TypeError: "),
    ],
)
def test_invalid_tools_are_reported(
    tools: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    modules = {
        "mine": "tools = []\n",
        "plain": "text = 'text'\nnone = None\n",
        "raises": "1 / 0\n",
        "exits": "raise SystemExit(0)\n",
        "imports": "import no_such\n",
        "syntax": "def\n",
    }
    for name, source in modules.items():
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert 2 == main(["replay", _NO_CALL, "--tools", tools])
    for name in modules:
        sys.modules.pop(name, None)
    assert reason in error_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "the following arguments are required: COMMAND (see streamtools --help)"),
        (("play",), "invalid choice: 'play'"),
        (("replay",), "the following arguments are required: FILE (see streamtools replay --help)"),
        (("replay", _NO_CALL, "more"), "unrecognized arguments: more"),
        (("replay", _NO_CALL, "--speed", "fast"), "expected 0 or a factor such as 0.5 or 2, got 'fast'"),
        (("replay", _NO_CALL, "--speed=-1"), "got '-1'"),
        (("replay", _NO_CALL, "--speed", "nan"), "got 'nan'"),
        (("demo", "--speed", "inf"), "got 'inf'"),
        (("replay", _NO_CALL, "--dialects", "klingon"), "no dialect 'klingon'; pass a dialect of your own"),
    ],
)
def test_an_invalid_command_line_is_reported(
    arguments: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message does not contain the usage text."""
    assert 2 == main(arguments)
    assert reason in error_line(capsys)


@pytest.mark.parametrize("command", ["replay", "demo"])
def test_only_transcripts_need_rich(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "streamtools.apps.cli.transcript", raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    arguments = [command, _NO_CALL] if command == "replay" else [command]
    assert 2 == main(arguments)
    expected = 'this command (except replay --json) needs rich: pip install "streamtools[cli]"'
    assert expected == error_line(capsys)
    assert 0 == main(["replay", _NO_CALL, "--json", "--speed", "0"])
    assert '"type":"done"' in capsys.readouterr().out


def broken_pipe() -> io.TextIOWrapper:
    """Return a text file that is a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    return open(writing, "w", encoding="utf-8")  # noqa: PTH123 - it is a pipe


_GATEWAY = ("gateway", "--upstream", "http://127.0.0.1:9/v1", "--port", "0")


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", _NO_CALL, "--speed", "0"),
        ("replay", _NO_CALL, "--json"),
        ("demo",),
        ("serve", "--port", "0"),
        _GATEWAY,
        ("--version",),
        ("replay", "--help"),
    ],
    ids=" ".join,
)
def test_an_output_that_cannot_be_written(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broken pipe ends the command quietly, because a reader such as `head` may stop. Other faults are reported."""
    with broken_pipe() as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert 1 == main(arguments)
    assert "" == capsys.readouterr().err
    with open("/dev/full", "w", encoding="utf-8") as output:  # noqa: PTH123 - it is a device
        monkeypatch.setattr(sys, "stdout", output)
        assert 1 == main(arguments)
    assert "the output cannot be written: No space left on device" == error_line(capsys)


def test_a_closed_standard_output_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert 1 == main(["replay", _NO_CALL])
    assert "streamtools: standard output is closed\n" == capsys.readouterr().err
    assert 2 == main(["replay"])
    assert 0 == main(["--version"])


def test_a_closed_standard_error_is_ignored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written to standard output instead."""
    monkeypatch.setattr(sys, "stderr", None)
    assert 2 == main(["replay", "no such file", "--json"])
    assert "" == capsys.readouterr().out
    with broken_pipe() as output:
        monkeypatch.setattr(sys, "stderr", output)
        assert 2 == main(["replay", "no such file", "--json"])
    assert "" == capsys.readouterr().out


class TerminalFile(io.StringIO):
    """A text file that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_an_error_begins_a_new_line_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    half = tmp_path / "half.jsonl"
    half.write_bytes(Path(_HEADINGS).read_bytes()[:8000])
    screen = TerminalFile()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    assert 1 == main(["replay", str(half), "--speed", "0"])
    assert f"\nstreamtools: {half}, line" in screen.getvalue()


def test_an_interrupt_has_status_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "interrupted.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert 130 == main(["replay", _NO_CALL, "--tools", "interrupted:tools"])
    assert "interrupted" == error_line(capsys)


# These tests run the command in a process, with messages of Python at its exit.


def test_a_process_with_a_broken_pipe_has_status_1() -> None:
    """Python reports no error at the exit."""
    process = start("replay", _HEADINGS, "--speed", "4")
    assert process.stdout is not None
    assert process.stderr is not None
    assert b"# Coffee\n" == process.stdout.readline()
    process.stdout.close()
    with process.stderr:
        assert b"" == process.stderr.read()
    assert 1 == process.wait(timeout=120)


@pytest.mark.parametrize(("arguments", "status"), [(("--help",), 1), (("replay", "no such file"), 2)])
def test_a_process_without_readers_has_its_own_status(arguments: tuple[str, ...], status: int) -> None:
    """Python has status 120 if it cannot flush standard output or standard error at the exit."""
    with broken_pipe() as nowhere:
        environment = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run([*COMMAND, *arguments], stdout=nowhere, stderr=nowhere, env=environment, check=False)
        os.dup2(os.open(os.devnull, os.O_WRONLY), nowhere.fileno())
    assert status == done.returncode


@pytest.mark.parametrize("sleeping", ["time.sleep(600)", "await anyio.sleep(600)"])
def test_a_process_is_interrupted_while_a_tool_runs(sleeping: str, tmp_path: Path) -> None:
    kind = "async def" if sleeping.startswith("await") else "def"
    (tmp_path / "slow.py").write_text(
        f"import time, anyio\n{kind} get_weather(city: str) -> str:\n    {sleeping}\n    return city\n"
    )
    process = subprocess.Popen(
        [*COMMAND, "replay", str(shipped()["tilde-call"]), "--speed", "0", "--tools", "slow:get_weather"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell ignores SIGINT for background jobs
    )
    assert process.stdout is not None
    while b"Executing" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=120)
    assert (130, b"streamtools: interrupted\n") == (process.returncode, complaints)
