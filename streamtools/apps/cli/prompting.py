"""What `streamtools chat` asks at a terminal, between two answers: decisions, results of calls, confirmations."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, TextIO

from streamtools.apps.cli.complaints import one_line, printable
from streamtools.tools import Answer, Approve, Deny, Suspension
from streamtools.tools.approval import Decision

if TYPE_CHECKING:
    from streamtools.apps.cli.transcript import Transcript

PROMPT = "❯ "


def read_at_prompt(output: TextIO, prompt: str = PROMPT) -> str | None:
    """Return a line, None at the end of the input. Raises KeyboardInterrupt."""
    try:
        with contextlib.redirect_stdout(output):  # which `input` looks for a terminal in
            return input(prompt)
    except (EOFError, KeyboardInterrupt) as end:
        output.write("\n")
        output.flush()
        if isinstance(end, KeyboardInterrupt):
            raise
        return None


def confirms(output: TextIO, question: str) -> bool:
    """Return whether a question is answered with yes; anything else is no."""
    return (read_at_prompt(output, f"{question} [y/N] ") or "").strip().lower() in ("y", "yes")


def decide(waiting: Suspension, screen: Transcript, output: TextIO) -> dict[str, Decision]:
    """Ask about each call that waits, with all of its arguments, and return what becomes of them."""
    decisions: dict[str, Decision] = {}
    for question in waiting.questions:
        call = question.call
        shown = printable(json.dumps(call.arguments, ensure_ascii=False, indent=2))
        screen.remark(f"✋ {call.name}")
        screen.write(shown)
        if not question.approval:
            said = read_at_prompt(output, "What has come of it (text or JSON)? ")
            decisions[call.id] = Answer(_read_value(said)) if said is not None else Deny()
        elif confirms(output, f"Run {one_line(call.name)}?"):
            decisions[call.id] = Approve(question.digest)
        else:
            decisions[call.id] = Deny((read_at_prompt(output, "Why not (for the model)? ") or "").strip())
    return decisions


def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
