"""The exchanges of a file, or of all recordings in a directory: found once, and read when they are played.

Their heads are kept in memory, their bytes are not.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamtools.errors import RecordingError
from streamtools.recording.captures import OpenCapture, open_stream_file
from streamtools.recording.format import EndKind, Head, Request
from streamtools.recording.lines import Name
from streamtools.recording.reading import OpenRecording, Place, find_exchanges, open_place
from streamtools.recording.redact import credentials_of, redact_request
from streamtools.recording.scrubbing import Scrubber, Secret


@dataclass(frozen=True, eq=False)
class Exchange:
    """One exchange: in which file, the how manieth there, from 1, and what is known of it before it is read."""

    path: str
    number: int
    head: Head
    alone: bool
    """Whether the file holds no other."""
    request: Request | None = None
    """The request as it would be written down today; None where none was kept."""
    place: Place | None = None
    """Where it stands; a raw capture has no such place."""

    def __str__(self) -> str:
        return self.path if self.alone else f"{self.path}, exchange {self.number}"

    @functools.cached_property
    def unanswered(self) -> EndKind | None:
        """How a request ended that never got a response, None if there was one; raise `RecordingError`."""
        if self.head.request is None or self.head.response is not None:
            return None
        with self.open() as opened:
            if next(opened, None) is not None or opened.end is None or opened.end.kind == "end":
                return None
            return opened.end.kind

    def open(self) -> OpenRecording:
        """Open it to be read once; raise `RecordingError`."""
        return open_stream_file(self.path) if self.place is None else open_place(self.path, self.place)


def open_exchange(path: Name, number: int | None = None) -> OpenRecording:
    """Open the exchange of this number, from 1, or the only one of a file, or a raw capture; raise `RecordingError`."""
    if not Path(path).is_file():  # what can be read once only, or not at all
        return open_stream_file(path)
    found = _exchanges_of_file(os.fspath(path))
    if number is None and len(found) > 1:
        raise RecordingError(
            f"{os.fspath(path)} holds {len(found)} exchanges: tell which, as in `exchange=1`, or play all of them with "
            "ReplayTransport"
        )
    if number is not None and not 1 <= number <= len(found):
        raise RecordingError(f"{os.fspath(path)} has no exchange {number}, but {len(found)}")
    return found[(number or 1) - 1].open()


def exchanges_of(where: Name, redact: Iterable[Secret] = ()) -> list[Exchange]:
    """Return the exchanges of a recording or raw capture, or of all `*.jsonl` in a directory, in the order of names.

    Of their requests `redact` and all that is never written down is overwritten, whoever wrote them. Raises
    `RecordingError` for what cannot be read, for exchanges without an end, and for a directory without recordings, and
    ValueError for a secret that cannot be looked for.
    """
    secrets = list(redact)
    Scrubber(secrets)  # which refuses what it cannot look for
    path = Path(where)
    files = [os.fspath(where)]
    if path.is_dir():
        files = sorted(str(each) for each in path.glob("*.jsonl") if each.is_file())
        if not files:
            raise RecordingError(f"{path} holds no recording: no file there ends in .jsonl")
    found = [exchange for file in files for exchange in _exchanges_of_file(file, secrets)]
    for exchange in found:
        if exchange.place is not None and not exchange.place.ended:
            raise RecordingError(f"{exchange} breaks off, without an end line")
    return found


def _exchanges_of_file(path: str, secrets: Sequence[Secret] = ()) -> list[Exchange]:
    with open_stream_file(path) as opened:
        if isinstance(opened, OpenCapture):
            return [Exchange(path, 1, opened.head, alone=True)]
    places = find_exchanges(path)
    return [
        Exchange(path, number, place.head, len(places) == 1, _request_of(path, place, secrets), place)
        for number, place in enumerate(places, start=1)
    ]


def _request_of(path: str, place: Place, redact: Iterable[Secret]) -> Request | None:
    try:
        request = place.head.request
        return request and redact_request(request, [*redact, *credentials_of(request)])
    except ValueError as error:  # its URL is none, or its body is no base64
        raise RecordingError(f"{path}, line {place.line}, has a request that cannot be read: {error}") from None
