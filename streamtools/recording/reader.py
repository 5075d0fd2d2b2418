"""Reads recordings, either chunk by chunk or completely into memory.

Every problem with a file raises `RecordingError`, whose message names the file and the line. A recording without an end
line raises it too, because a test that replays half of a stream may pass without testing the rest. With `strict=False`,
an incomplete recording can be read. Its `end` is None, and digests are not checked.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias, TypeVar

import msgspec

from streamtools.errors import RecordingError
from streamtools.recording.format import (
    VERSION,
    Chunk,
    ExchangeHead,
    FileMark,
    Line,
    Recording,
    StreamEnd,
    read_data,
    read_end,
)

if TYPE_CHECKING:  # exists only for type checkers
    from _typeshed import WriteableBuffer

PathLike: TypeAlias = str | os.PathLike[str]

MAX_LINE = 64 * 1024 * 1024
"""The maximum length of a line in bytes. A chunk takes some tens of KiB, a request body with images some MiB."""

READ_SIZE = 64 * 1024
"""The number of bytes that are read from a file at once."""

BOM = b"\xef\xbb\xbf"

_T = TypeVar("_T")


class LineReader:
    """Reads a file line by line, and skips blank lines.

    `offset` is the byte position of the last returned line in the file, and `number` its line number, from 1.
    """

    def __init__(self, name: str, file: io.BufferedReader) -> None:
        self.name = name
        self.file = file
        self.number = 0
        self.offset = 0
        self._next_offset = 0
        self._unread: bytes | None = None

    def next(self) -> bytes | None:
        """Return the next line with its line feed. Returns None at the end of the file.

        Raises RecordingError for a line that is too long, and if the file cannot be read.
        """
        if (line := self._unread) is not None:
            self._unread = None
            return line
        while line := self.file.readline(MAX_LINE + 1):
            self.number += 1
            self.offset, self._next_offset = self._next_offset, self._next_offset + len(line)
            if len(line) > MAX_LINE:
                raise self.error(f"is longer than {MAX_LINE // 1024 // 1024} MiB")
            if not line.isspace():
                return line
        return None

    def seek(self, offset: int, number: int) -> None:
        """Continue at the byte position `offset`, at which the line with this number begins."""
        self.file.seek(offset)
        self._next_offset, self.number = offset, number - 1

    def unread(self, line: bytes) -> None:
        """Make `next` return `line` again."""
        self._unread = line

    def decode(self, decoder: msgspec.json.Decoder[_T], line: bytes) -> _T:
        """Decode the JSON of a line. Raises RecordingError for invalid JSON."""
        try:
            return decoder.decode(line)
        except (ValueError, RecursionError) as error:
            raise self.error(f"cannot be read: {error}") from None

    def error(self, problem: str) -> RecordingError:
        """Return an error about the last line that was read."""
        return RecordingError(f"{self.name}, line {self.number}, {problem}")


class _File(io.FileIO):
    """A file whose reads raise RecordingError instead of OSError."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise _unreadable(str(self.name), error) from None


def open_file(path: PathLike) -> io.BufferedReader:
    """Open a file for reading. Opening and reading raise RecordingError instead of OSError."""
    name = os.fspath(path)
    try:
        return io.BufferedReader(_File(name), READ_SIZE)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> RecordingError:
    match error:
        case FileNotFoundError():
            return RecordingError(f"{name} does not exist")
        case IsADirectoryError():
            return RecordingError(f"{name} is a directory, not a recording")
        case OSError(strerror=str(reason)):
            return RecordingError(f"{name} cannot be read: {reason}")
        case _:
            return RecordingError(f"{name!r} cannot be read: {error}")


Chunks: TypeAlias = Generator[Chunk, None, StreamEnd | None]
"""A generator of the chunks of one exchange. It returns the end of the exchange, or None without an end line."""

_mark_decoder = msgspec.json.Decoder(FileMark)
_head_decoder = msgspec.json.Decoder(ExchangeHead)
_line_decoder = msgspec.json.Decoder(Line)


class OpenRecording:
    """An open exchange: an iterator of its chunks, which keeps only one chunk in memory.

    `end` is set after the last chunk. The file is closed after the last chunk, on an error, and on leaving the `with`
    block.
    """

    def __init__(self, name: str, head: ExchangeHead, chunks: Chunks, file: io.BufferedReader) -> None:
        self.name = name
        self.head = head
        self.end: StreamEnd | None = None
        self.chunks = chunks
        self._file = file

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        try:
            return next(self.chunks)
        except StopIteration as last:
            self.end = last.value or self.end
            self.close()
            raise
        except RecordingError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. Can be repeated."""
        self.chunks.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def open_recording(path: PathLike, *, strict: bool = True) -> OpenRecording:
    """Open the first exchange of a recording. Raises RecordingError for a file that cannot be read."""
    return open_exchange_at(LineReader(os.fspath(path), open_file(path)), strict=strict)


def open_exchange_at(lines: LineReader, *, strict: bool) -> OpenRecording:
    """Return the exchange whose head is the next line. For an invalid head, close the file and raise RecordingError."""
    try:
        return OpenRecording(lines.name, _read_head(lines), _read_chunks(lines, strict), lines.file)
    except RecordingError:
        lines.file.close()
        raise


def read_recording(path: PathLike, *, strict: bool = True) -> Recording:
    """Read a file with one exchange. Raises RecordingError, also if the file holds several exchanges."""
    recordings = read_recordings(path, strict=strict)
    if len(recordings) > 1:
        raise RecordingError(f"{os.fspath(path)} holds {len(recordings)} exchanges, expected one")
    return recordings[0]


def read_recordings(path: PathLike, *, strict: bool = True) -> list[Recording]:
    """Read all exchanges of a file, in order. Raises RecordingError for a file that cannot be read."""
    lines = LineReader(os.fspath(path), open_file(path))
    with lines.file:
        recordings = [collect(lines.name, _read_head(lines), _read_chunks(lines, strict))]
        while (line := lines.next()) is not None:
            if lines.decode(_mark_decoder, line).streamtools == "recording":
                lines.unread(line)
                recordings.append(collect(lines.name, _read_head(lines), _read_chunks(lines, strict)))
        return recordings


class ExchangePlace(NamedTuple):
    """The position of an exchange in a file.

    `offset` is the byte position of the head, and `line` its line number. `has_end` is True if an end line follows.
    """

    head: ExchangeHead
    offset: int
    line: int
    has_end: bool


def find_exchanges(path: PathLike) -> list[ExchangePlace]:
    """Return the positions of the exchanges of a file. Raises RecordingError for an invalid head.

    Only heads are validated. The other lines are validated when an exchange is read.
    """
    lines = LineReader(os.fspath(path), open_file(path))
    with lines.file:
        places = [ExchangePlace(_read_head(lines), lines.offset, lines.number, has_end=False)]
        while (line := lines.next()) is not None:
            # In the text of a chunk, quotes are escaped, so it cannot contain this key. The JSON body of a request can.
            if b'"streamtools"' in line and _decode_or(FileMark(), _mark_decoder, line).streamtools == "recording":
                lines.unread(line)
                places.append(ExchangePlace(_read_head(lines), lines.offset, lines.number, has_end=False))
            elif b'"end"' in line and _decode_or(Line(), _line_decoder, line).end is not None:
                places[-1] = places[-1]._replace(has_end=True)
        return places


def open_place(path: PathLike, place: ExchangePlace) -> OpenRecording:
    """Open the exchange at the position `place` of a file. Raises RecordingError for a file that cannot be read."""
    lines = LineReader(os.fspath(path), open_file(path))
    lines.seek(place.offset, place.line)
    return open_exchange_at(lines, strict=True)


def collect(name: str, head: ExchangeHead, chunks: Chunks) -> Recording:
    """Read all `chunks` into memory. Return them as a recording with this head."""
    collected: list[Chunk] = []
    while True:
        try:
            collected.append(next(chunks))
        except StopIteration as last:
            return Recording(head=head, chunks=tuple(collected), end=last.value, name=name)


def _read_head(lines: LineReader) -> ExchangeHead:
    line = lines.next()
    if line is None:
        raise RecordingError(f"{lines.name} is empty")
    line = line.removeprefix(BOM)
    mark = _decode_or(FileMark(), _mark_decoder, line)
    if mark.streamtools != "recording":
        if mark == FileMark() and (b"\0" in line or line.decode(errors="ignore").encode() != line):
            raise RecordingError(f"{lines.name} is a binary file, not a recording")
        raise RecordingError(f"{lines.name} is not a recording: line {lines.number} is not the head of a recording")
    if type(mark.version) is not int or mark.version < 1:
        raise lines.error(f"has the version {mark.version!r}, expected a number from 1")
    if mark.version > VERSION:
        raise RecordingError(
            f"{lines.name} is a recording of version {mark.version}, and this streamtools reads version {VERSION}"
        )
    return lines.decode(_head_decoder, line)


def _read_chunks(lines: LineReader, strict: bool) -> Chunks:
    digest, size, at = hashlib.sha256(), 0, 0.0
    while (line := lines.next()) is not None:
        try:
            fields = lines.decode(_line_decoder, line)
        except RecordingError:
            if line.endswith(b"\n"):
                raise
            if strict:
                raise lines.error("breaks off in the middle") from None
            return None
        if fields.streamtools == "recording":  # the head of the next exchange; the current exchange has no end line
            lines.unread(line)
            break
        at = at if fields.at is None else fields.at
        if at < 0:
            raise lines.error(f"has a time before the request was sent: {at!r}")
        if (end := read_end(fields, at)) is not None:
            if strict and (fields.bytes not in (None, size) or fields.sha256 not in (None, digest.hexdigest())):
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
    if strict:
        raise RecordingError(f"{lines.name} breaks off at line {lines.number}, without an end line")
    return None


def _decode_or(default: _T, decoder: msgspec.json.Decoder[_T], line: bytes) -> _T:
    try:
        return decoder.decode(line)
    except (ValueError, RecursionError):
        return default
