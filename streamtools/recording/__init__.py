"""Records network chunks, and reads and replays recordings. The module `format` describes the file format."""

from __future__ import annotations

from pathlib import Path

from streamtools.loading import check_calls
from streamtools.recording.files import RecordedExchange, read_recording, read_recordings
from streamtools.recording.format import ExchangeHead, RecordedRequest, Recording
from streamtools.recording.playback import Playback, PlaybackOptions, ReplayBytes
from streamtools.recording.transports import RecordingTransport, ReplayTransport, record

__all__ = [
    "ExchangeHead", "Playback", "PlaybackOptions", "RecordedExchange", "RecordedRequest", "Recording",
    "RecordingTransport", "ReplayBytes", "ReplayTransport", "read_recording", "read_recordings", "record",
    "shipped",
]  # fmt: skip


def shipped() -> dict[str, Path]:
    """Return the paths of the recordings in this package, by name. They are recordings of a real model."""
    return {path.stem: path for path in sorted(Path(__file__).with_name("shipped").glob("*.jsonl"))}


check_calls(globals())
