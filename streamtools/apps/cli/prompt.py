"""Reads the input of `streamtools chat` on a terminal: questions, decisions about calls, and results of client tools.

It uses prompt_toolkit if that is installed and the terminal supports it. Otherwise it uses the function `input`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from streamtools.apps.cli.printable import one_line, printable
from streamtools.tools import Answer, Approve, Deny, Suspension
from streamtools.tools.approvals import Decision

if TYPE_CHECKING:  # these imports need optional packages
    from prompt_toolkit.key_binding import KeyPressEvent

    from streamtools.apps.cli.transcript import Transcript

PROMPT = "❯ "


class Prompt:
    """Reads questions and answers. A question can have several lines, a history, and completion of `commands`.

    An answer has one line.
    """

    def __init__(self, output: TextIO, commands: Sequence[str] = ()) -> None:
        self._output = output
        self.can_edit = _has_cursor(output)
        """True if prompt_toolkit is used. Otherwise a question has one line, and no completion."""
        if self.can_edit:
            try:
                self._open_sessions(commands)
            except ImportError:
                self.can_edit = False
        if not self.can_edit:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401 - the import adds line editing and a history to `input`

    def _open_sessions(self, commands: Sequence[str]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import DummyHistory
        from prompt_toolkit.input import create_input
        from prompt_toolkit.output import create_output

        streams: dict[str, Any] = {"input": create_input(sys.stdin), "output": create_output(self._output)}
        self._questions: PromptSession[str] = PromptSession(
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            completer=WordCompleter(commands, sentence=True),
            complete_while_typing=False,
            key_bindings=_key_bindings(),
            **streams,
        )
        self._answers: PromptSession[str] = PromptSession(history=DummyHistory(), **streams)

    def read_question(self) -> str | None:
        """Read a question. Returns None at the end of the input. Raises KeyboardInterrupt for Ctrl-C."""
        return self._read(lambda: self._questions.prompt(PROMPT), PROMPT)

    def read_answer(self, label: str) -> str | None:
        """Read one line. Returns None at the end of the input. Raises KeyboardInterrupt for Ctrl-C."""
        return self._read(lambda: self._answers.prompt(label), label)

    def confirm(self, question: str) -> bool:
        """Ask the user a question. Returns True if the answer is yes."""
        return (self.read_answer(f"{question} [y/N] ") or "").strip().lower() in ("y", "yes")

    def add_to_history(self, questions: Sequence[str]) -> None:
        if self.can_edit:
            for question in questions:
                self._questions.history.append_string(question)

    def _read(self, read_with_editing: Callable[[], str], label: str) -> str | None:
        try:
            if self.can_edit:
                return read_with_editing()
            with contextlib.redirect_stdout(self._output):  # `input` needs the terminal as standard output
                return input(label)
        except (EOFError, KeyboardInterrupt) as end:
            if not self.can_edit:
                self._output.write("\n")
                self._output.flush()
            if isinstance(end, KeyboardInterrupt):
                raise
            return None


def _has_cursor(output: TextIO) -> bool:
    """Return True if standard input and `output` are a terminal whose cursor can be moved."""
    try:
        terminals = os.isatty(sys.stdin.fileno()) and os.isatty(output.fileno())
    except (OSError, ValueError):
        return False
    return terminals and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _key_bindings() -> Any:
    from prompt_toolkit.key_binding import KeyBindings

    def accept(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def insert_line_feed(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def discard_or_exit(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt())

    keys = KeyBindings()
    keys.add("enter")(accept)
    keys.add("escape", "enter")(insert_line_feed)
    keys.add("c-c")(discard_or_exit)
    return keys


@contextlib.contextmanager
def no_echo() -> Iterator[None]:
    """Disable the echo of the terminal in a `with` block, while an answer is shown. The next prompt reads the keys."""
    try:
        import termios

        file = sys.stdin.fileno()
        before = termios.tcgetattr(file)
    except (ImportError, OSError, ValueError, AttributeError, termios.error):  # no terminal, or Windows
        yield
        return
    without_echo = [*before]
    without_echo[3] &= ~termios.ECHO
    termios.tcsetattr(file, termios.TCSANOW, without_echo)
    try:
        yield
    finally:
        termios.tcsetattr(file, termios.TCSANOW, before)


def decide(suspension: Suspension, screen: Transcript, prompt: Prompt) -> dict[str, Decision]:
    """Show each pending call with all its arguments, and ask the user. Returns the decisions by call id."""
    decisions: dict[str, Decision] = {}
    for question in suspension.questions:
        call = question.call
        screen.remark(f"✋ {call.name}")
        screen.write(printable(json.dumps(call.arguments, ensure_ascii=False, indent=2)))
        if not question.approval:
            text = prompt.read_answer("What is the result (text or JSON)? ")
            decisions[call.id] = Answer(_json_or_text(text)) if text is not None else Deny()
        elif prompt.confirm(f"Run {one_line(call.name)}?"):
            decisions[call.id] = Approve(question.digest)
        else:
            decisions[call.id] = Deny((prompt.read_answer("Why not (for the model)? ") or "").strip())
    return decisions


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
