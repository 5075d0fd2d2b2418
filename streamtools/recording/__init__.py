"""Record network chunks, read recordings, replay them. The form of the files is described in `format`."""

from __future__ import annotations

from pathlib import Path

from streamtools.recording.captures import DETECT, open_stream_file, read_stream_file
from streamtools.recording.cutting import Cut, recut
from streamtools.recording.exchange_file import Edit, Target
from streamtools.recording.exchanges import Exchange
from streamtools.recording.format import VERSION, Chunk, End, EndKind, Head, Recording, Request, Response
from streamtools.recording.matching import Match
from streamtools.recording.playback import Playback, PlaybackOptions, VirtualClock
from streamtools.recording.reading import OpenRecording, open_recording, read_recording, read_recordings
from streamtools.recording.redact import describe_request, describe_response
from streamtools.recording.replay import ReplayBytes
from streamtools.recording.replay_transport import ReplayTransport
from streamtools.recording.scrubbing import Secret
from streamtools.recording.transport import RecordingTransport
from streamtools.recording.wrapping import RecordedStream, record
from streamtools.recording.writing import RecordingWriter

__all__ = [
    "DETECT",
    "VERSION",
    "Chunk",
    "Cut",
    "Edit",
    "End",
    "EndKind",
    "Exchange",
    "Head",
    "Match",
    "OpenRecording",
    "Playback",
    "PlaybackOptions",
    "RecordedStream",
    "Recording",
    "RecordingTransport",
    "RecordingWriter",
    "ReplayBytes",
    "ReplayTransport",
    "Request",
    "Response",
    "Secret",
    "Target",
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
