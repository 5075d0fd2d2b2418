"""Record network chunks, read recordings, replay them. `format` describes the files."""

from __future__ import annotations

from pathlib import Path

from streamtools.recording.exchanges import DETECT, RecordedExchange, open_stream_file, read_stream_file
from streamtools.recording.format import (
    VERSION,
    Chunk,
    EndKind,
    ExchangeHead,
    RecordedRequest,
    RecordedResponse,
    Recording,
    StreamEnd,
)
from streamtools.recording.matching import Match
from streamtools.recording.playback import Cut, Playback, PlaybackOptions, ReplayBytes, VirtualClock, recut
from streamtools.recording.reader import OpenRecording, open_recording, read_recording, read_recordings
from streamtools.recording.recorder import Edit, RecordedStream, record
from streamtools.recording.redaction import describe_request, describe_response
from streamtools.recording.scrubbing import Secret
from streamtools.recording.transports import RecordingTransport, ReplayTransport
from streamtools.recording.writer import RecordingTarget, RecordingWriter

__all__ = [
    "DETECT",
    "VERSION",
    "Chunk",
    "Cut",
    "Edit",
    "EndKind",
    "ExchangeHead",
    "Match",
    "OpenRecording",
    "Playback",
    "PlaybackOptions",
    "RecordedExchange",
    "RecordedRequest",
    "RecordedResponse",
    "RecordedStream",
    "Recording",
    "RecordingTarget",
    "RecordingTransport",
    "RecordingWriter",
    "ReplayBytes",
    "ReplayTransport",
    "Secret",
    "StreamEnd",
    "VirtualClock",
    "describe_request",
    "describe_response",
    "open_recording",
    "open_stream_file",
    "read_recording",
    "read_recordings",
    "read_stream_file",
    "record",
    "recut",
    "shipped",
]


def shipped() -> dict[str, Path]:
    """Return the recordings of a real model that come with the package, by name."""
    return {path.stem: path for path in sorted(Path(__file__).with_name("shipped").glob("*.jsonl"))}
