"""Finds the exchanges of a file, or of all recordings in a directory. Only their heads are kept in memory.

An exchange is one request and its response. A file can also be a raw capture: the output of `curl -N`, which consists
of server-sent events or of Ollama's JSON lines. A raw capture does not store the times of its chunks, their boundaries,
or how the response ended. It is replayed in blocks at time 0, and ends normally.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamtools.errors import RecordingError
from streamtools.recording import reader
from streamtools.recording.format import Chunk, EndKind, ExchangeHead, RecordedRequest, Recording, StreamEnd
from streamtools.recording.reader import READ_SIZE, Chunks, ExchangePlace, LineReader, OpenRecording, PathLike
from streamtools.recording.redaction import redact_request
from streamtools.recording.scrubbing import KnownSecrets, Secret, know

_SSE = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?::|(?:data|event|id|retry)(?:[:\r\n]|\Z))")
_OLLAMA_LINE = re.compile(rb'[\r\n]*\{(?=[^\n]*"done":)(?![^\n]*"streamtools":)')

DETECT = "detect"
"""The value of `ExchangeHead.source` for an unknown wire format, which is detected when the stream is read."""


class OpenCapture(OpenRecording):
    """A raw capture with the interface of a recording."""


def open_stream_file(path: PathLike, *, strict: bool = True) -> OpenRecording:
    """Open the first exchange of a recording, or a raw capture with the source `DETECT`.

    Raises RecordingError for a file that cannot be read.
    """
    file = reader.open_file(path)
    name = os.fspath(path)
    try:
        start = file.peek(READ_SIZE)
    except RecordingError:
        file.close()
        raise
    if b"\0" not in start and (_SSE.match(start) or _OLLAMA_LINE.match(start)):
        blocks = iter(lambda: file.read1(READ_SIZE), b"")
        return OpenCapture(name, ExchangeHead(source=DETECT), _capture_chunks(blocks), file)
    return reader.open_exchange_at(LineReader(name, file), strict=strict)


def read_stream_file(path: PathLike, *, strict: bool = True) -> Recording:
    """Read the first exchange of a recording, or a raw capture, into memory.

    Raises RecordingError for a file that cannot be read.
    """
    with open_stream_file(path, strict=strict) as opened:
        return reader.collect(opened.name, opened.head, opened.chunks)


def _capture_chunks(pieces: Iterator[bytes]) -> Chunks:
    for data in pieces:
        yield Chunk(0.0, data)
    return StreamEnd("end", 0.0)


@dataclass(frozen=True, eq=False)
class RecordedExchange:
    """One exchange of a file. Its chunks are read only after `open`. `number` counts from 1."""

    path: str
    number: int
    head: ExchangeHead
    is_only: bool
    """True if the file holds only this exchange."""
    request: RecordedRequest | None = None
    """The recorded request, in which the secrets passed to `exchanges_of` are overwritten too. None if no request was
    recorded."""
    place: ExchangePlace | None = None
    """The position in the file. None for a raw capture."""

    def __str__(self) -> str:
        return self.path if self.is_only else f"{self.path}, exchange {self.number}"

    @functools.cached_property
    def unanswered(self) -> EndKind | None:
        """The kind of end of a request that got no response. None if there was a response, or no recorded request.

        Raises RecordingError for an invalid recording.
        """
        if self.head.request is None or self.head.response is not None:
            return None
        with self.open() as opened:
            if next(opened, None) is not None or opened.end is None or opened.end.kind == "end":
                return None
            return opened.end.kind

    def open(self) -> OpenRecording:
        """Open the exchange, and return an object that reads it once. Raises RecordingError."""
        return open_stream_file(self.path) if self.place is None else reader.open_place(self.path, self.place)


def open_exchange(path: PathLike, number: int | None = None) -> OpenRecording:
    """Open the exchange with this number, from 1. None opens the only exchange of a file.

    Raises RecordingError if `number` is None and the file holds several exchanges, and for an unknown number.
    """
    if not Path(path).is_file():  # a pipe can be read only once, so its exchanges cannot be counted first
        return open_stream_file(path)
    exchanges = exchanges_in(path)
    if number is None and len(exchanges) > 1:
        raise RecordingError(
            f"{os.fspath(path)} holds {len(exchanges)} exchanges: choose one, as in `exchange=1`, or play all of them "
            "with ReplayTransport"
        )
    if number is not None and not 1 <= number <= len(exchanges):
        raise RecordingError(f"{os.fspath(path)} has no exchange {number}: it has {len(exchanges)}")
    return exchanges[(number or 1) - 1].open()


def exchanges_of(where: PathLike, redact: Iterable[Secret] = ()) -> list[RecordedExchange]:
    """Return the exchanges of a recording or a raw capture. For a directory, read its `*.jsonl` files in name order.

    The secrets in `redact` are overwritten in the requests. Raises RecordingError for a file that cannot be read, an
    exchange without an end line, and a directory without recordings. Raises ValueError for an invalid secret.
    """
    secrets = know(redact)
    path = Path(where)
    files = [os.fspath(where)]
    if path.is_dir():
        files = sorted(str(file) for file in path.glob("*.jsonl") if file.is_file())
        if not files:
            raise RecordingError(f"{path} holds no recording: no file there ends in .jsonl")
    exchanges = [exchange for file in files for exchange in exchanges_in(file, secrets)]
    for exchange in exchanges:
        if exchange.place is not None and not exchange.place.has_end:
            raise RecordingError(f"{exchange} breaks off, without an end line")
    return exchanges


def exchanges_in(path: PathLike, secrets: Sequence[Secret] | KnownSecrets = ()) -> list[RecordedExchange]:
    """Return the exchanges of a file. `secrets` are overwritten in their requests. Raises RecordingError."""
    path, secrets = os.fspath(path), know(secrets)
    with open_stream_file(path) as opened:
        if isinstance(opened, OpenCapture):
            return [RecordedExchange(path, 1, opened.head, is_only=True)]
    places = reader.find_exchanges(path)
    exchanges: list[RecordedExchange] = []
    for number, place in enumerate(places, start=1):
        request = place.head.request
        try:
            request = request and redact_request(request, secrets)
        except ValueError as error:  # an invalid URL, or invalid base64
            raise RecordingError(f"{path}, line {place.line}, has a request that cannot be read: {error}") from None
        exchanges.append(RecordedExchange(path, number, place.head, len(places) == 1, request, place))
    return exchanges
