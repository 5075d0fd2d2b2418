"""What `streamtools chat` asks at a terminal, between two answers: questions, decisions, results of calls.

prompt_toolkit reads the lines where it is installed and the terminal can do what it needs; elsewhere `input` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from streamtools.apps.cli.complaints import one_line, printable
from streamtools.tools import Answer, Approve, Deny, Suspension
from streamtools.tools.decisions import Decision

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

    from streamtools.apps.cli.transcript import Transcript

PROMPT = "❯ "


class Prompt:
    """Reads at the terminal: questions of several lines, with a history and completed `commands`, and short answers."""

    def __init__(self, output: TextIO, commands: Sequence[str] = (), files: Sequence[str] = ()) -> None:
        self._output = output
        self.rich = _can_move(output)
        """Whether lines can be edited in place, and a question can have several."""
        if self.rich:
            try:
                self._open(commands, files)
            except ImportError:
                self.rich = False
        if not self.rich:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401 - `input` uses it: lines can be edited, and earlier ones found

    def _open(self, commands: Sequence[str], files: Sequence[str]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import NestedCompleter, PathCompleter
        from prompt_toolkit.history import DummyHistory
        from prompt_toolkit.input import create_input
        from prompt_toolkit.output import create_output

        ends: dict[str, Any] = {"input": create_input(sys.stdin), "output": create_output(self._output)}
        self._questions: PromptSession[str] = PromptSession(
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            completer=NestedCompleter.from_nested_dict(
                {name: PathCompleter(expanduser=True) if name in files else None for name in commands}
            ),
            complete_while_typing=False,
            key_bindings=_keys(),
            **ends,
        )
        self._answers: PromptSession[str] = PromptSession(history=DummyHistory(), **ends)

    def question(self) -> str | None:
        """Return what is to be asked, None at the end of the input. Raises KeyboardInterrupt."""
        return self._read(lambda: self._questions.prompt(PROMPT), PROMPT)

    def answer(self, asked: str) -> str | None:
        """Return a line that answers, None at the end of the input. Raises KeyboardInterrupt."""
        return self._read(lambda: self._answers.prompt(asked), asked)

    def confirms(self, question: str) -> bool:
        """Return whether a question is answered with yes; anything else is no."""
        return (self.answer(f"{question} [y/N] ") or "").strip().lower() in ("y", "yes")

    def remember(self, questions: Sequence[str]) -> None:
        if self.rich:
            for each in questions:
                self._questions.history.append_string(each)

    def _read(self, in_place: Callable[[], str], prompt: str) -> str | None:
        try:
            if self.rich:
                return in_place()
            with contextlib.redirect_stdout(self._output):  # which `input` looks for a terminal in
                return input(prompt)
        except (EOFError, KeyboardInterrupt) as end:
            if not self.rich:
                self._output.write("\n")
                self._output.flush()
            if isinstance(end, KeyboardInterrupt):
                raise
            return None


def _can_move(output: TextIO) -> bool:
    """Return whether both ends are a terminal whose cursor moves."""
    try:
        terminals = os.isatty(sys.stdin.fileno()) and os.isatty(output.fileno())
    except (OSError, ValueError):  # `io.UnsupportedOperation` is both
        return False
    return terminals and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _keys() -> Any:
    from prompt_toolkit.key_binding import KeyBindings

    def end(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def go_on(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def discard(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt())

    keys = KeyBindings()
    keys.add("enter")(end)
    keys.add("escape", "enter")(go_on)
    keys.add("c-c")(discard)
    return keys


@contextlib.contextmanager
def no_echo() -> Iterator[None]:
    """While an answer is written, do not show what is typed, which would land in it; it is read afterwards."""
    try:
        import termios

        file = sys.stdin.fileno()
        before = termios.tcgetattr(file)
    except (ImportError, OSError, ValueError, AttributeError, termios.error):  # no terminal, or no such system
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(file, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(file, termios.TCSANOW, before)


def decide(waiting: Suspension, screen: Transcript, prompt: Prompt) -> dict[str, Decision]:
    """Ask about each call that waits, with all of its arguments, and return what becomes of them."""
    decisions: dict[str, Decision] = {}
    for question in waiting.questions:
        call = question.call
        shown = printable(json.dumps(call.arguments, ensure_ascii=False, indent=2))
        screen.remark(f"✋ {call.name}")
        screen.write(shown)
        if not question.approval:
            said = prompt.answer("What has come of it (text or JSON)? ")
            decisions[call.id] = Answer(_read_value(said)) if said is not None else Deny()
        elif prompt.confirms(f"Run {one_line(call.name)}?"):
            decisions[call.id] = Approve(question.digest)
        else:
            decisions[call.id] = Deny((prompt.answer("Why not (for the model)? ") or "").strip())
    return decisions


def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
