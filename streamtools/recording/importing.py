"""Make recordings of streams that were saved in other forms, and of recordings whose redaction is out of date."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator

import msgspec

from streamtools.recording.captures import DETECT, OpenCapture
from streamtools.recording.cutting import recut
from streamtools.recording.exchange_file import Target
from streamtools.recording.exchanges import exchanges_of
from streamtools.recording.format import Chunk, Head, Request
from streamtools.recording.reading import OpenRecording
from streamtools.recording.redact import credentials_of, keep_headers
from streamtools.recording.scrubbing import Secret
from streamtools.recording.writing import RecordingWriter, open_anew


def import_stream(
    path: str | os.PathLike[str], target: Target, *, source: str = DETECT, redact: Iterable[Secret] = ()
) -> int:
    """Write the stream in a file into `target` as a recording, and return how many exchanges it holds.

    A raw capture becomes one chunk for each event, all at the time 0; `source` says whose it is. A recording keeps its
    chunks, and its `source` unless one is given. Raises `RecordingError` for a file that is neither, OSError for a
    target that cannot be written.
    """
    secrets = list(redact)
    exchanges = exchanges_of(path, secrets)
    file = open_anew(target) if isinstance(target, str | os.PathLike) else target
    try:
        for exchange in exchanges:
            with exchange.open() as opened:
                asked = opened.head.request
                head = _head(opened.head, exchange.request, source)
                writer = RecordingWriter(file, head, redact=[*secrets, *(credentials_of(asked) if asked else ())])
                for at, data in _pieces(opened):
                    writer.chunk(data, at)
                assert opened.end is not None  # or there would have been an error
                writer.end(*opened.end)
    finally:
        if file is not target:
            file.close()
    return len(exchanges)


def _head(head: Head, request: Request | None, source: str) -> Head:
    return msgspec.structs.replace(
        head,
        source=head.source if source == DETECT else source,
        request=request,
        response=head.response
        and msgspec.structs.replace(head.response, headers=keep_headers(head.response.headers.items())),
    )


def _pieces(opened: OpenRecording) -> Iterator[Chunk]:
    if not isinstance(opened, OpenCapture):
        return iter(opened)
    first = next(opened)  # a capture holds something, or it would be none
    chunks = itertools.chain([first], opened)
    return _lines(chunks) if first.data.lstrip()[:1] == b"{" else recut(chunks, "frame")


def _lines(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    rest = b""
    for at, data in chunks:
        *lines, rest = (rest + data).split(b"\n")
        yield from (Chunk(at, line + b"\n") for line in lines)
    if rest:
        yield Chunk(0.0, rest)
