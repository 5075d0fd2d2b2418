"""Read what `curl -N` wrote into a file: the bytes of a stream, of server-sent events or of Ollama's lines.

A raw capture knows neither times nor the cuts of the network, nor how the stream ended. It is replayed as blocks that
all come at once and end in order; whether the stream was complete is then told, as ever, by its own terminator.
"""

from __future__ import annotations

import io
import os
import re

from streamtools.errors import RecordingError
from streamtools.recording.format import Chunk, End, Head, Recording
from streamtools.recording.lines import BLOCK, Lines, Name, open_file
from streamtools.recording.reading import Chunks, OpenRecording, open_lines, read_whole

_SSE = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?::|(?:data|event|id|retry)(?:[:\r\n]|\Z))")
_LINES = re.compile(rb'[\r\n]*\{(?=[^\n]*"done":)(?![^\n]*"streamtools":)')

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
    return open_lines(Lines(name, file), strict=strict)


def read_stream_file(path: Name, *, strict: bool = True) -> Recording:
    """Return what `open_stream_file` would open, whole in memory; raise `RecordingError`."""
    with open_stream_file(path, strict=strict) as opened:
        return read_whole(opened.name, opened.head, opened.chunks)


def _read_blocks(file: io.BufferedReader) -> Chunks:
    while block := file.read1(BLOCK):
        yield Chunk(0.0, block)
    return End("end", 0.0)
