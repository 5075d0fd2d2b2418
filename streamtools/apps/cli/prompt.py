"""Reads questions, decisions about calls and results of client tools from the terminal of `streamtools chat`."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, TextIO

from streamtools.apps.cli.printable import one_line, printable
from streamtools.tools import Answer, Approve, Deny, Suspension
from streamtools.tools.approvals import Decision

if TYPE_CHECKING:  # this import needs rich, which is optional
    from streamtools.apps.cli.transcript import Transcript


class Prompt:
    """Reads lines from a terminal, below the transcript. `output` is the terminal."""

    def __init__(self, transcript: Transcript, output: TextIO) -> None:
        self._transcript = transcript
        self._output = output
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - the import adds line editing and a history to `input`

    def read_question(self) -> str:
        """Read a line that is not blank. Returns "" at the end of the input. Raises KeyboardInterrupt for Ctrl-C."""
        line: str | None = ""
        while line is not None and not line.strip():
            self._transcript.prepare_prompt()
            line = self._read("❯ ")
        return line or ""

    def decide(self, suspension: Suspension) -> dict[str, Decision]:
        """Show each pending call with all its arguments, and ask the user. Returns the decisions by call id.

        The user allows or denies the call of a tool that needs approval, and enters the result of a client tool.
        """
        decisions: dict[str, Decision] = {}
        for question in suspension.questions:
            call = question.call
            self._transcript.remark(f"✋ {call.name}")
            self._transcript.write(printable(json.dumps(call.arguments, ensure_ascii=False, indent=2)))
            if not question.approval:
                text = self._read("What is the result (text or JSON)? ")
                decisions[call.id] = Answer(_json_or_text(text)) if text is not None else Deny()
            elif (self._read(f"Run {one_line(call.name)}? [y/N] ") or "").strip().lower() in ("y", "yes"):
                decisions[call.id] = Approve(question.digest)
            else:
                decisions[call.id] = Deny((self._read("Why not (for the model)? ") or "").strip())
        return decisions

    def _read(self, label: str) -> str | None:
        """Read a line. Returns None at the end of the input."""
        try:
            with contextlib.redirect_stdout(self._output):  # `input` needs the terminal as standard output
                return input(label)
        except (EOFError, KeyboardInterrupt) as end:
            self._output.write("\n")
            self._output.flush()
            if isinstance(end, KeyboardInterrupt):
                raise
            return None


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
