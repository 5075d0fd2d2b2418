"""Reads and writes the files of recordings.

An exchange is one request and its response. A file can also be a raw capture: the output of `curl -N`, which consists
of server-sent events or of Ollama's JSON lines. A raw capture does not store the times of its chunks, their boundaries,
or how the response ended. It is replayed in blocks at time 0, and ends normally.

Every problem with a file raises `RecordingError`, whose message names the file and the line. The last line of an
exchange is the end line, which says how the response ended. If this line is missing, reading raises `RecordingError`
after the last chunk, because a test that replays half of a stream may pass without testing the rest.

A recording is written while the stream is read. Each line of the file is written without buffering. If the process is
killed, the recording holds the earlier chunks, but no end line. A chunk that ends inside a line of the stream waits
until the rest of this line arrives. If this line ends with the possible beginning of a key, the chunk waits until the
key is complete or excluded. `redaction` describes the limits of this buffering.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeAlias, TypeVar

import msgspec

from streamtools.errors import RecordingError
from streamtools.recording import format as file_format
from streamtools.recording.format import (
    VERSION,
    Chunk,
    EndKind,
    ExchangeHead,
    Line,
    RecordedRequest,
    Recording,
    StreamEnd,
    read_data,
    read_end,
)
from streamtools.recording.redaction import Scrubber, encode_secrets, redact_head, redact_request, redact_text

DETECT = "detect"
"""The value of `ExchangeHead.source` for an unknown wire format, which is detected when the stream is read."""

PathLike: TypeAlias = str | os.PathLike[str]

MAX_LINE = 64 * 1024 * 1024
"""The maximum length of a line in bytes. A chunk takes some tens of KiB, a request body with images some MiB."""

READ_SIZE = 64 * 1024
"""The number of bytes that are read from a file at once."""

BOM = b"\xef\xbb\xbf"

# ": comment", "data: {…}" or "event: name", also after a byte order mark
_SSE = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?::|(?:data|event|id|retry)(?:[:\r\n]|\Z))")
# A JSON object with the key "done". The first line of a recording has the key "streamtools" instead.
_OLLAMA_LINE = re.compile(rb'[\r\n]*\{(?=[^\n]*"done":)(?![^\n]*"streamtools":)')

_T = TypeVar("_T")


class LineReader:
    """Opens a file, and reads it line by line. Blank lines are skipped.

    `offset` is the byte position of the last returned line in the file, and `number` its line number, from 1. All
    methods raise RecordingError if the file cannot be read.
    """

    def __init__(self, path: PathLike) -> None:
        self.name = os.fspath(path)
        self.number = 0
        self.offset = 0
        self._next_offset = 0
        self.file: io.BufferedReader = io.BufferedReader(self.checked(io.FileIO, self.name), READ_SIZE)

    def checked(self, function: Callable[..., _T], *args: Any) -> _T:
        """Call a function that opens or reads the file, and convert its errors to RecordingError."""
        try:
            return function(*args)
        except OSError as error:
            is_name = isinstance(error, FileNotFoundError) and self.name.replace("-", "").isalnum()
            advice = f"; for a recording of the package, write shipped()[{self.name!r}]" if is_name else ""
            raise RecordingError(f"{self.name} cannot be read: {error.strerror}{advice}") from None
        except ValueError as error:  # a null character in the path
            raise RecordingError(f"{self.name!r} cannot be read: {error}") from None

    @property
    def is_capture(self) -> bool:
        """True if the file is a raw capture. Read this property only before the first line."""
        start = self.checked(self.file.peek, READ_SIZE)
        return b"\0" not in start and bool(_SSE.match(start) or _OLLAMA_LINE.match(start))

    def next(self) -> bytes | None:
        """Return the next line with its line feed. Returns None at the end of the file.

        Raises RecordingError for a line that is too long.
        """
        while line := self.checked(self.file.readline, MAX_LINE + 1):
            self.number += 1
            self.offset, self._next_offset = self._next_offset, self._next_offset + len(line)
            if len(line) > MAX_LINE:
                raise self.error(f"is longer than {MAX_LINE // 1024 // 1024} MiB")
            if not line.isspace():
                return line
        return None

    def seek(self, offset: int, number: int) -> None:
        """Continue at the byte position `offset`, at which line `number` begins."""
        self.file.seek(offset)
        self._next_offset, self.number = offset, number - 1

    def decode(self, decoder: msgspec.json.Decoder[_T], line: bytes) -> _T:
        """Decode the JSON of a line. Raises RecordingError for invalid JSON."""
        try:
            return decoder.decode(line)
        except (ValueError, RecursionError) as error:
            raise self.error(f"cannot be read: {error}") from None

    def error(self, problem: str) -> RecordingError:
        """Return an error about the last line that was read."""
        return RecordingError(f"{self.name}, line {self.number}, {problem}")


Chunks: TypeAlias = Generator[Chunk, None, StreamEnd]
"""A generator of the chunks of one exchange. It returns the end of the exchange."""

_head_decoder = msgspec.json.Decoder(ExchangeHead)
_line_decoder = msgspec.json.Decoder(Line)


class OpenExchange:
    """An open exchange. Its chunks can be iterated over once, and only one chunk is in memory.

    `end` is set after the last chunk. The file is closed after the last chunk, on an error, and on leaving the `with`
    block.
    """

    def __init__(self, name: str, head: ExchangeHead, chunks: Chunks, file: io.BufferedReader) -> None:
        self.name = name
        self.head = head
        self.end: StreamEnd | None = None
        self._file = file
        self._chunks = self._read(chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return self._chunks

    def _read(self, chunks: Chunks) -> Generator[Chunk]:
        with self._file:
            self.end = yield from chunks

    def close(self) -> None:
        """Close the file. Can be repeated."""
        self._chunks.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def read(self) -> Recording:
        """Read the remaining chunks into memory, and close the file."""
        with self:
            chunks = tuple(self)
            assert self.end is not None  # set after the last chunk
            return Recording(head=self.head, chunks=chunks, end=self.end, name=self.name)


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedExchange:
    """One exchange of a file. Its chunks are read only after `open`. `number` counts from 1."""

    path: str
    number: int = 1
    head: ExchangeHead
    is_only: bool = True
    """True if the file holds only this exchange."""
    has_end: bool = True
    """True if the exchange has an end line, or is a raw capture."""
    request: RecordedRequest | None = None
    """The recorded request, with secrets overwritten. Only `load_exchanges` sets this field."""
    offset: int = 0
    """The byte position of the head in the file."""
    line: int = 1
    """The line number of the head."""

    def __str__(self) -> str:
        return self.path if self.is_only else f"{self.path}, exchange {self.number}"

    @functools.cached_property
    def unanswered(self) -> EndKind | None:
        """How an exchange without a response ended.

        None if there was a response, if the exchange ended with "end", or if no request was recorded. Raises
        RecordingError for an invalid recording.
        """
        if self.head.request is None or self.head.response is not None:
            return None
        with self.open() as opened:
            if next(iter(opened), None) is not None or opened.end is None or opened.end.kind == "end":
                return None
            return opened.end.kind

    def open(self) -> OpenExchange:
        """Open the exchange, and return an object that reads it once. Raises RecordingError."""
        lines = LineReader(self.path)
        lines.seek(self.offset, self.line)
        return _open_next(lines)


def _open_next(lines: LineReader) -> OpenExchange:
    try:
        if not lines.number and lines.is_capture:
            return OpenExchange(lines.name, ExchangeHead(source=DETECT), _capture_chunks(lines), lines.file)
        return OpenExchange(lines.name, _read_head(lines, lines.next()), _read_chunks(lines), lines.file)
    except RecordingError:
        lines.file.close()
        raise


def _capture_chunks(lines: LineReader) -> Chunks:
    while data := lines.checked(lines.file.read1, READ_SIZE):
        yield Chunk(0.0, data)
    return StreamEnd("end", 0.0)


def read_recording(path: PathLike) -> Recording:
    """Read a file with one exchange. Raises RecordingError, also if the file holds several exchanges."""
    recordings = read_recordings(path)
    if len(recordings) > 1:
        raise RecordingError(f"{os.fspath(path)} holds {len(recordings)} exchanges, expected one")
    return recordings[0]


def read_recordings(path: PathLike) -> list[Recording]:
    """Read all exchanges of a file, in order. Raises RecordingError for a file that cannot be read."""
    return [exchange.open().read() for exchange in find_exchanges(path)]


def open_exchange(path: PathLike, number: int | None = None) -> OpenExchange:
    """Open the exchange with this number, from 1. None opens the only exchange of a file.

    For a pipe, `number` is ignored, and the first exchange is opened. A raw capture is an exchange with the source
    `DETECT`.

    Raises RecordingError for a file that cannot be read, and for an unknown number. Also raises it if `number` is None
    and the file holds several exchanges.
    """
    if not Path(path).is_file():  # a pipe can be read only once, so its exchanges cannot be counted first
        return _open_next(LineReader(path))
    exchanges = find_exchanges(path)
    if number is None and len(exchanges) > 1:
        raise RecordingError(
            f"{os.fspath(path)} holds {len(exchanges)} exchanges: choose one, as in `replay(path, exchange=1)`, or "
            "play all of them with ReplayTransport"
        )
    if number is not None and not 1 <= number <= len(exchanges):
        raise RecordingError(f"{os.fspath(path)} has no exchange {number}: it has {len(exchanges)}")
    return exchanges[(number or 1) - 1].open()


def load_exchanges(path: PathLike, redact: Iterable[str] = ()) -> list[RecordedExchange]:
    """Return the exchanges of a recording or a raw capture, with the secrets in `redact` overwritten in the requests.

    Raises RecordingError for a file that cannot be read, and for an exchange without an end line. Raises ValueError for
    an invalid secret.
    """
    secrets = encode_secrets(redact)
    exchanges: list[RecordedExchange] = []
    for exchange in find_exchanges(path):
        if not exchange.has_end:
            raise RecordingError(f"{exchange} breaks off, without an end line")
        request = exchange.head.request
        try:
            request = request and redact_request(request, secrets)
        except ValueError as error:  # an invalid URL, or invalid base64
            problem = f"has a request that cannot be read: {error}"
            raise RecordingError(f"{exchange.path}, line {exchange.line}, {problem}") from None
        exchanges.append(dataclasses.replace(exchange, request=request))
    return exchanges


def find_exchanges(path: PathLike) -> list[RecordedExchange]:
    """Return the exchanges of a file. Their field `request` is None. Raises RecordingError for an invalid head.

    Only heads are validated. The other lines are validated when an exchange is read.
    """
    lines = LineReader(path)
    with lines.file:
        if lines.is_capture:
            return [RecordedExchange(path=lines.name, head=ExchangeHead(source=DETECT))]
        found = [_find_head(lines, lines.next(), 1)]
        while (line := lines.next()) is not None:
            # The line of a chunk contains neither of these keys, because quotes in its text are escaped.
            fields = _decode(line) if b'"streamtools"' in line or b'"end"' in line else Line()
            if fields.streamtools == "recording":
                found.append(_find_head(lines, line, len(found) + 1))
            elif fields.end is not None:
                found[-1] = dataclasses.replace(found[-1], has_end=True)
    return [dataclasses.replace(exchange, is_only=len(found) == 1) for exchange in found]


def _find_head(lines: LineReader, line: bytes | None, number: int) -> RecordedExchange:
    head = _read_head(lines, line)
    return RecordedExchange(
        path=lines.name, number=number, head=head, has_end=False, offset=lines.offset, line=lines.number
    )


def _read_head(lines: LineReader, line: bytes | None) -> ExchangeHead:
    """Return the head in `line`, the last line that was read. None means that the file has no line."""
    if line is None:
        raise RecordingError(f"{lines.name} is empty")
    line = line.removeprefix(BOM)
    mark = _decode(line)
    if mark.streamtools != "recording":
        raise RecordingError(f"{lines.name} is not a recording: line {lines.number} is not the head of a recording")
    if type(mark.version) is not int or not 1 <= mark.version <= VERSION:
        raise lines.error(f"has the version {mark.version!r}, and this streamtools reads version {VERSION}")
    return lines.decode(_head_decoder, line)


def _read_chunks(lines: LineReader) -> Chunks:
    digest, size, at = hashlib.sha256(), 0, 0.0
    while (line := lines.next()) is not None:
        fields = lines.decode(_line_decoder, line)
        if fields.streamtools == "recording":  # the head of the next exchange; the current exchange has no end line
            break
        at = at if fields.at is None else fields.at
        if at < 0:
            raise lines.error(f"has a time before the request was sent: {at!r}")
        if (end := read_end(fields, at)) is not None:
            if fields.bytes not in (None, size) or fields.sha256 not in (None, digest.hexdigest()):
                raise lines.error("has a length or digest that does not match the chunks above")
            return end
        try:
            data = read_data(fields)
        except ValueError as error:
            raise lines.error(f"cannot be read: {error}") from None
        if data is not None:
            size += len(data)
            digest.update(data)
            yield Chunk(at, data)
    raise RecordingError(f"{lines.name} breaks off at line {lines.number}, without an end line")


def _decode(line: bytes) -> Line:
    """Return the fields of a line. Returns an empty `Line` for invalid JSON."""
    try:
        return _line_decoder.decode(line)
    except (ValueError, RecursionError):
        return Line()


# Writing.

_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)

RecordingTarget: TypeAlias = str | os.PathLike[str] | BinaryIO
"""The path of a recording, or a binary file that is open for writing."""


def create_private_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open an empty file for writing, with permissions for the current user only. Raises OSError.

    The permissions of an existing file are restricted before it is emptied. If the file belongs to another user, this
    function raises and does not change the file. A symbolic link is followed.
    """
    file = os.fdopen(os.open(path, _FLAGS, 0o600), "wb")
    try:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # skip devices such as /dev/null
            if hasattr(os, "fchmod"):  # Windows has no such permissions
                os.fchmod(file.fileno(), 0o600)
            file.truncate()
    except BaseException:
        file.close()
        raise
    return file


class RecordingWriter:
    """Writes one exchange to a file. Creating it writes the head. Call `chunk` for each chunk, then `end`.

    The file stays open after `end`. So several exchanges can be written to one file.
    """

    def __init__(self, file: BinaryIO, head: ExchangeHead, *, redact: Iterable[str] = ()) -> None:
        """Write the head. Keys of known formats and the secrets in `redact` are overwritten.

        Raises ValueError for an invalid secret.
        """
        self._secrets = list(redact)
        self._scrubber = Scrubber(self._secrets)
        self._file = file
        self._pending: deque[tuple[float, int]] = deque()  # time and length of each chunk that was not written
        self._scrubbed = bytearray()  # the scrubbed bytes of these chunks
        self._digest = hashlib.sha256()
        self._size = 0
        self._write(file_format.encode_head(redact_head(head, self._secrets)))

    def chunk(self, data: bytes, at: float) -> None:
        """Add the bytes of one read. `at` is the time in milliseconds since the request was sent."""
        self._pending.append((at, len(data)))
        self._write_chunks(self._scrubber.feed(data))

    def end(self, kind: EndKind, at: float, error: str = "") -> None:
        """Write the remaining chunks and the end line."""
        self._write_chunks(self._scrubber.close(complete=kind == "end"))
        end = StreamEnd(kind, at, redact_text(error, self._secrets))
        self._write(file_format.encode_end(end, size=self._size, digest=self._digest.hexdigest()))

    def _write_chunks(self, scrubbed: bytes) -> None:
        """Add scrubbed bytes. Write each chunk of which all bytes are scrubbed."""
        self._scrubbed += scrubbed
        start = 0
        while self._pending and start + self._pending[0][1] <= len(self._scrubbed):
            at, size = self._pending.popleft()
            data = bytes(self._scrubbed[start : start + size])
            start += size
            self._digest.update(data)
            self._size += size
            self._write(file_format.encode_chunk(Chunk(at, data)))
        del self._scrubbed[:start]

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
