"""The lines of a file with their numbers, and what may be wrong with a file before anybody looks at its meaning."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from streamtools.errors import RecordingError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Name: TypeAlias = str | os.PathLike[str]

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line. A chunk from the network has some tens of KiB; a request body with images may have some MiB."""

BLOCK = 64 * 1024
"""Bytes that are read at once."""

_T = TypeVar("_T")


class Lines:
    """Reads a file line by line. Blank lines are passed over; `again` gives a line back."""

    def __init__(self, name: str, file: io.BufferedReader) -> None:
        self.name = name
        self.file = file
        self.number = 0
        self.offset = 0
        """Where the line begins that `next` gave last."""
        self._behind = 0
        self._kept: bytes | None = None

    def next(self) -> bytes | None:
        """Return the next line with its line feed, None at the end of the file; raise `RecordingError`."""
        if (line := self._kept) is not None:
            self._kept = None
            return line
        while line := self.file.readline(MAX_LINE + 1):
            self.number += 1
            self.offset, self._behind = self._behind, self._behind + len(line)
            if len(line) > MAX_LINE:
                raise self.wrong(f"is longer than {MAX_LINE // 1024 // 1024} MiB")
            if not line.isspace():
                return line
        return None

    def go_to(self, offset: int, number: int) -> None:
        """Go on at `offset`, where the line of this number begins."""
        self.file.seek(offset)
        self._behind, self.number = offset, number - 1

    def again(self, line: bytes) -> None:
        """Let `next` return this line, the last one that it gave, once more."""
        self._kept = line

    def decode(self, decoder: msgspec.json.Decoder[_T], line: bytes) -> _T:
        """Return what the line says; raise `RecordingError`."""
        try:
            return decoder.decode(line)
        except (ValueError, RecursionError) as error:
            raise self.wrong(f"cannot be read: {error}") from None

    def wrong(self, what: str) -> RecordingError:
        """Return the error that says `what` of the present line."""
        return RecordingError(f"{self.name}, line {self.number}, {what}")


class _File(io.FileIO):
    """A file whose reads raise `RecordingError` and no OSError."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise _unreadable(str(self.name), error) from None


def open_file(path: Name) -> io.BufferedReader:
    """Return the file, open for reading; opening and all reading raise `RecordingError` where the system fails."""
    name = os.fspath(path)
    try:
        return io.BufferedReader(_File(name), BLOCK)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
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
