"""Ways to show runs: events as lines of JSON, or a transcript for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TextIO

from streamtools.cli.complaints import Complaints, Refused
from streamtools.events import UIEvent
from streamtools.result import TurnResult

if TYPE_CHECKING:
    from streamtools.cli.transcript import Transcript


class View(Protocol):
    """Shows runs: what was asked, each event as it comes, then what the run has come to."""

    def question(self, text: str) -> None: ...
    def show(self, event: UIEvent) -> None: ...
    def summarise(self, result: TurnResult, seconds: float) -> None: ...


class JsonLines:
    """Events, one JSON object a line. The last one is `done`, so that there is nothing to add."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def question(self, text: str) -> None:
        """Write nothing: who asks knows."""

    def show(self, event: UIEvent) -> None:
        """Write one line, at once."""
        self._output.write(event.to_json() + "\n")
        self._output.flush()

    def summarise(self, result: TurnResult, seconds: float) -> None:
        """Write nothing."""


def open_transcript(output: TextIO, complaints: Complaints, *, raw: bool = False) -> Transcript:
    """Return a transcript on `output`; raise `Refused` if what it needs is not installed."""
    try:
        from streamtools.cli.transcript import Terminal, Transcript
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        raise Refused(
            'transcripts need rich: pip install "streamtools[cli]" (replay --json and chat --json work without)'
        ) from None
    transcript = Transcript(Terminal(file=output), raw=raw)
    if output.isatty() and complaints.on_terminal:
        complaints.make_room = transcript.end_line
    return transcript
