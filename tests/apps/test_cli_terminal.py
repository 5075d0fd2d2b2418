"""`streamtools chat` in a real pseudo-terminal whose cursor moves: prompt, Markdown, approvals, Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.test_cli_chat import PAYING, saying, serving, surroundings, to
from tests.support.command import COMMAND, ENVIRONMENT
from tests.support.provider import Provider
from tests.support.screen import Screen

__all__ = ["surroundings"]  # a fixture that every test here uses

WIDTH, HEIGHT = 60, 20
READY = "\x1b[?2004h"  # prompt_toolkit has taken the terminal: it wants pasted text in brackets
DONE = "\x1b[?2004l"  # and has given it back
CTRL_C, CTRL_D, ALT_ENTER, UP = "\x03", "\x04", "\x1b\r", "\x1b[A"

_SEQUENCE = re.compile(r"\x08?\x1b(\[[0-9;?]*[A-Za-z]|[=>]|\][^\x07]*\x07)")


class Terminal:
    """A terminal with the command in it."""

    def __init__(self, server: Provider, *options: str, cwd: Path, **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, *to(server, *options)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env=ENVIRONMENT | {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"} | environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that keys become signals
        )
        os.close(theirs)
        self._left = b""

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def until(self, text: str) -> str:
        """Return all that comes, up to and including `text`."""
        while text.encode() not in self._left:
            more = b""
            if select.select([self._ours], [], [], 60)[0]:
                with contextlib.suppress(OSError):  # nobody is there any more
                    more = os.read(self._ours, 65536)
            assert more, self._left.decode(errors="replace")
            self._left += more
        before, _, self._left = self._left.partition(text.encode())
        return before.decode() + text

    def end(self) -> tuple[int, str]:
        """Return the exit status, and what came until then."""
        with contextlib.suppress(OSError):
            while more := os.read(self._ours, 65536):
                self._left += more
        return self.process.wait(timeout=120), self._left.decode()

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed by itself."""
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=120)
        os.close(self._ours)


@contextlib.contextmanager
def chatting(server: Provider, *options: str, cwd: Path, ready: str = READY, **environment: str) -> Iterator[Terminal]:
    """Give a terminal in which the prompt stands."""
    terminal = Terminal(server, *options, cwd=cwd, **environment)
    try:
        terminal.until(ready)
        yield terminal
    finally:
        terminal.close()


def asked(server: Provider) -> list[Any]:
    """Return the last message of each request."""
    return [body["messages"][-1]["content"] for body in server.bodies]


def test_a_question_of_several_lines_and_an_earlier_one(tmp_path: Path) -> None:
    """Alt-Enter and a backslash begin another line, what is pasted stays one question, and the arrow finds it again."""
    with (
        serving(saying("One."), saying("Two."), saying("Three.")) as server,
        chatting(server, cwd=tmp_path) as terminal,
    ):
        terminal.type(f"first{ALT_ENTER}second\\\rthird\r")
        terminal.until("✔ finished")
        terminal.until(READY)
        terminal.type("\x1b[200~pasted\nlines\x1b[201~\r")
        terminal.until("✔ finished")
        terminal.until(READY)
        terminal.type(f"{UP}!\r")
        terminal.until("✔ finished")
        terminal.until(READY)
        terminal.type(CTRL_D)
        assert 0 == terminal.end()[0]
    assert ["first\nsecond\nthird", "pasted\nlines", "pasted\nlines!"] == asked(server)


def test_markdown_is_drawn_once(tmp_path: Path) -> None:
    """An answer longer than the screen: finished lines are written for good, and all of it is there."""
    lines = [f"- item **{number}**\n" for number in range(60)]
    with (
        serving(saying("# Title\n\nSome ", "*text*.\n\n", *lines, "\nThe end.")) as server,
        chatting(server, cwd=tmp_path) as terminal,
    ):
        terminal.type("?\r")
        terminal.until(DONE)
        shown = terminal.until("✔ finished")
    screen = Screen(WIDTH, HEIGHT)
    screen.feed(shown.lstrip("\r\n"))  # the end of the prompt's line, and one above the answer
    expected = ["Title", "", "Some text.", "", *(f" • item {number}" for number in range(60)), "", "The end."]
    assert expected == [row.rstrip() for row in screen.rows][: len(expected)]


def test_ctrl_c_stops_the_answer_and_not_the_chat(tmp_path: Path) -> None:
    """During an answer the key ends it; in a line it discards the line; where there is none it ends the chat."""
    silent = saying("Let me think", hold=True)
    with serving(silent, saying("Yes?")) as server, chatting(server, cwd=tmp_path) as terminal:
        terminal.type("one\r")
        terminal.until("Let me think")
        assert not terminal.echoes()
        terminal.type(CTRL_C)
        stopped = terminal.until(READY)
        assert "■ cancelled" in stopped
        assert "✔" not in stopped
        terminal.type(f"wrong{CTRL_C}two\r")
        assert "Yes?" in terminal.until("✔ finished")
        terminal.until(READY)
        terminal.type(CTRL_C)
        status, left = terminal.end()
        assert terminal.echoes()
    assert (130, True) == (status, "streamtools: interrupted" in left)
    assert ["one", "two"] == [each.splitlines()[-1] for each in asked(server)]


def test_a_conversation_is_kept(tmp_path: Path) -> None:
    """It goes on where it was, its questions are found again, and the file is its owner's alone."""
    for number in range(2):
        with (
            serving(saying("Hello Ann."), saying("Ann.")) as server,
            chatting(server, "--continue", "talk.json", cwd=tmp_path) as terminal,
        ):
            terminal.type("I am Ann.\r" if not number else f"{UP}{UP} Who am I?\r")
            terminal.until("✔ finished")
            terminal.until(READY)
    assert ["I am Ann.", "Hello Ann.", "I am Ann. Who am I?"] == [
        each["content"] for each in server.bodies[0]["messages"]
    ]
    file = tmp_path / "talk.json"
    assert 0o600 == file.stat().st_mode & 0o777
    assert 4 == len(json.loads(file.read_text()))
    assert [file] == list(tmp_path.iterdir())


def test_nothing_that_a_model_writes_reaches_the_terminal(tmp_path: Path) -> None:
    """Neither sequences in text, in Markdown, in entities and addresses, nor in a call that is asked about."""
    (tmp_path / "paying.py").write_text(PAYING)
    evil = "\x1b]0;owned\x07\x9b2J\u202e"
    call = {"tool": "pay", "parameters": {"to": evil, "amount": 1}}
    text = (
        f"{evil} [a](http://x.org/{evil}) `{evil}` &#27;]0;owned&#7;\n\n```{evil}\n{evil}\n```\n\n| {evil} |\n|---|\n\n"
    )
    with (
        serving(saying(text, f"###:{json.dumps(call)}"), saying("Done.")) as server,
        chatting(server, "--tools", "paying:TOOLS", cwd=tmp_path) as terminal,
    ):
        terminal.type("?\r")
        terminal.until("?")
        shown = terminal.until("Run pay? [y/N]")
    assert "owned" in shown
    left = _SEQUENCE.sub("", shown.replace("\r\n", "\n"))
    assert not re.search(r"\x1b\]|\x07|\x9b|\u202e", shown)
    assert {"\n", "\r"} >= {each for each in left if not each.isprintable()}


@pytest.mark.parametrize("missing", ["prompt_toolkit", "TERM"])
def test_without_the_library_or_a_terminal_that_can(missing: str, tmp_path: Path) -> None:
    """The terminal's own line is read, and the answer comes as it is written where the cursor cannot move."""
    environment = {"TERM": "dumb"}
    if missing != "TERM":
        (tmp_path / "prompt_toolkit.py").write_text("raise ImportError('broken')\n")
        environment = {"PYTHONPATH": str(tmp_path)}
    with (
        serving(saying("Some **text**.")) as server,
        chatting(server, cwd=tmp_path, ready="❯ ", **environment) as terminal,
    ):
        terminal.type("Hello\n")
        shown = terminal.until("✔ finished")
        assert ("Some **text**." in shown) == (missing == "TERM")
        terminal.until("❯ ")
        terminal.type("/quit\n")
        assert 0 == terminal.end()[0]
