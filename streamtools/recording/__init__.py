"""Record network chunks, read recordings, replay them. The form of the files is described in `format`."""

from __future__ import annotations

from pathlib import Path

from streamtools.recording.exchanges import DETECT, Exchange, Match, open_stream_file, read_stream_file
from streamtools.recording.file_reader import OpenRecording, open_recording, read_recording, read_recordings
from streamtools.recording.file_writer import RecordingWriter, Target
from streamtools.recording.format import VERSION, Chunk, End, EndKind, Head, Recording, Request, Response
from streamtools.recording.playback import Cut, Playback, PlaybackOptions, ReplayBytes, VirtualClock, recut
from streamtools.recording.recorder import Edit, RecordedStream, record
from streamtools.recording.redact import describe_request, describe_response
from streamtools.recording.scrubbing import Secret
from streamtools.recording.transports import RecordingTransport, ReplayTransport

__all__ = [
    "DETECT", "VERSION", "Chunk", "Cut", "Edit", "End", "EndKind", "Exchange", "Head", "Match", "OpenRecording",
    "Playback", "PlaybackOptions", "RecordedStream", "Recording", "RecordingTransport", "RecordingWriter",
    "ReplayBytes", "ReplayTransport", "Request", "Response", "Secret", "Target", "VirtualClock", "describe_request",
    "describe_response", "open_recording", "open_stream_file", "read_recording", "read_recordings", "read_stream_file",
    "record", "recut", "shipped",
]  # fmt: skip


def shipped() -> dict[str, Path]:
    """Return the recordings of a real model that come with the package, by name."""
    return {path.stem: path for path in sorted(Path(__file__).with_name("shipped").glob("*.jsonl"))}
