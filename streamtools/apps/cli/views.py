"""How commands show a run: as a transcript for people, or as JSON lines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, TypeAlias

from streamtools.apps.cli.errors import CommandError, ErrorOutput, reason_of
from streamtools.events import UIEvent
from streamtools.recording.writer import create_private_file
from streamtools.stream.result import TurnResult

if TYPE_CHECKING:  # needs rich, which is optional
    from streamtools.apps.cli.transcript import Transcript


class JsonLines:
    """Writes events, one JSON object per line."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def question(self, text: str) -> None:
        """Write nothing: the output holds only events."""

    def show(self, event: UIEvent) -> None:
        """Write one line immediately."""
        self._output.write(event.to_json() + "\n")
        self._output.flush()

    def summarize(self, result: TurnResult, seconds: float) -> None:
        """Write nothing: the `done` event says how the run ended."""


View: TypeAlias = "JsonLines | Transcript"


def open_transcript(output: TextIO, errors: ErrorOutput, **options: Any) -> Transcript:
    """Return a transcript that writes to `output`. Raises CommandError if rich is not installed."""
    try:
        from streamtools.apps.cli.transcript import Terminal, Transcript
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        raise CommandError(
            'transcripts need rich: pip install "streamtools[cli]" (replay --json and chat --json work without)'
        ) from None
    transcript = Transcript(Terminal(file=output), **options)
    if output.isatty() and errors.is_terminal:
        errors.before_line = transcript.end_line
    return transcript


@contextlib.contextmanager
def open_recording_file(path: str, option: str) -> Iterator[BinaryIO]:
    """Open an empty file for a recording. Raises CommandError, which names the `option` with the path."""
    try:
        file = create_private_file(path)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise CommandError(f"{option}: {path} cannot be written: {reason_of(error)}") from None
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # the recorder has reported it
            file.close()
