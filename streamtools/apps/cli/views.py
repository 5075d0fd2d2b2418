"""The output of a run: a transcript for people, or JSON lines for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO, TypeAlias

from streamtools.apps.cli.errors import ErrorOutput, require_packages
from streamtools.events import UIEvent
from streamtools.stream.result import TurnResult

if TYPE_CHECKING:  # this import needs rich, which is optional
    from streamtools.apps.cli.transcript import Transcript


class JsonLines:
    """Writes each event as one line of JSON."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def show(self, event: UIEvent) -> None:
        """Write the event, and flush the output."""
        self._output.write(event.to_json() + "\n")
        self._output.flush()

    def summarize(self, result: TurnResult, seconds: float) -> None:
        """Do nothing, because the `done` event contains the reason of the end."""


View: TypeAlias = "JsonLines | Transcript"


def open_transcript(output: TextIO, errors: ErrorOutput) -> Transcript:
    """Create a transcript that writes to `output`.

    If `output` and `errors` write to a terminal, the current line of the transcript ends before each error line. Raises
    CommandError if rich is not installed.
    """
    with require_packages("a transcript (not replay --json)", "cli", "rich"):
        from streamtools.apps.cli.transcript import Terminal, Transcript
    transcript = Transcript(Terminal(file=output))
    if output.isatty() and errors.is_terminal:
        errors.before_line = transcript.end_line
    return transcript
