"""Read what `curl -N` wrote into a file: the bytes of a stream, of server-sent events or of Ollama's lines.

Or the events of such a stream without their framing, one JSON payload a line, as the AI SDK keeps them in its
`chunks.txt`: they are framed anew. A file of JSON lines is taken for one of these if its first line can only be the
first event of a provider's stream; the events that we write ourselves begin like those of the AI SDK, and are none.

A raw capture knows neither times nor the cuts of the network, nor how the stream ended. It is replayed as blocks that
all come at once and end in order; whether the stream was complete is then told, as ever, by its own terminator.
"""

from __future__ import annotations

import io
import os
import re
from typing import Any

import msgspec

from streamtools.errors import RecordingError
from streamtools.recording.format import Chunk, End, Head, Recording
from streamtools.recording.lines import BLOCK, Lines, Name, open_file
from streamtools.recording.reading import Chunks, OpenRecording, open_lines, read_whole

_SSE = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?::|(?:data|event|id|retry)(?:[:\r\n]|\Z))")
_LINES = re.compile(rb'[\r\n]*\{(?=[^\n]*"done":)(?![^\n]*"streamtools":)')

_FIRST_TYPES = {
    *("message_start", "response.created", "response.queued", "response.in_progress"),
    *("start", "start-step"),
}
_OUR_OWN = {"seq", "run_id"}

DETECT = "detect"
"""The source where nobody has said whose the stream is: that shows when it is read."""


class OpenCapture(OpenRecording):
    """A raw capture that is read as a recording is."""


def open_stream_file(path: Name, *, strict: bool = True) -> OpenRecording:
    """Open a recording, or else a raw capture, whose `source` is `DETECT`; raise `RecordingError`."""
    file = open_file(path)
    name = os.fspath(path)
    try:
        start = file.peek(BLOCK)
    except RecordingError:
        file.close()
        raise
    if b"\0" not in start and (_SSE.match(start) or _LINES.match(start)):
        return OpenCapture(name, Head(source=DETECT), _read_blocks(file), file)
    if _is_payload(start.lstrip(b"\r\n").partition(b"\n")[0]):
        return OpenCapture(name, Head(source=DETECT), _read_payloads(Lines(name, file)), file)
    return open_lines(Lines(name, file), strict=strict)


def read_stream_file(path: Name, *, strict: bool = True) -> Recording:
    """Return what `open_stream_file` would open, whole in memory; raise `RecordingError`."""
    with open_stream_file(path, strict=strict) as opened:
        return read_whole(opened.name, opened.head, opened.chunks)


def _read_blocks(file: io.BufferedReader) -> Chunks:
    while block := file.read1(BLOCK):
        yield Chunk(0.0, block)
    return End("end", 0.0)


def _is_payload(line: bytes) -> bool:
    """Tell whether a line is the first event of a provider's stream, without its framing."""
    try:
        value: Any = msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or _OUR_OWN & value.keys():
        return False
    return (
        isinstance(value.get("choices"), list)
        or isinstance(value.get("candidates"), list)
        or value.get("event_type") == "interaction.created"
        or (isinstance(value.get("type"), str) and value["type"] in _FIRST_TYPES)
    )


def _read_payloads(lines: Lines) -> Chunks:
    while (line := lines.next()) is not None:
        yield Chunk(0.0, b"data: %b\n\n" % line.removeprefix(b"\xef\xbb\xbf").strip())
    return End("end", 0.0)
