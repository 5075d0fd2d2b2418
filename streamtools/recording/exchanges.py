"""The exchanges of a file, or of all recordings in a directory, and which of them answers a request.

They are found once, and read when they are played: only their heads are kept in memory.

A file may also be a raw capture, the bytes that `curl -N` wrote: server-sent events, or Ollama's lines; or the payloads
of events, one JSON value a line, as the AI SDK keeps them in its `chunks.txt`, which are framed anew. JSON lines are
such payloads if the first can only be the first event of a provider's stream; the events that this package writes begin
like those of the AI SDK, and are none. A raw capture knows neither times nor cuts, nor how the stream ended: it is
replayed as blocks that all come at once and end in order; its own terminator tells whether the stream was complete.

Requests are compared as they may be written down: without credentials, bodies of JSON by value and not by spelling.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from streamtools.errors import RecordingError
from streamtools.recording import file_reader
from streamtools.recording.file_reader import BLOCK, Chunks, Lines, Name, OpenRecording, Place
from streamtools.recording.format import Chunk, End, EndKind, Head, Recording, Request
from streamtools.recording.redact import redact_request
from streamtools.recording.request_bodies import leave_out
from streamtools.recording.scrubbing import Scrubber, Secret

_BOM = b"\xef\xbb\xbf"
_SSE = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?::|(?:data|event|id|retry)(?:[:\r\n]|\Z))")
_LINES = re.compile(rb'[\r\n]*\{(?=[^\n]*"done":)(?![^\n]*"streamtools":)')

_FIRST_TYPES = {
    *("message_start", "response.created", "response.queued", "response.in_progress"),
    *("start", "start-step"),
}
_OUR_OWN = {"seq", "run_id"}

DETECT = "detect"
"""The source of a stream whose provider is not given: it is detected when the stream is read."""


class OpenCapture(OpenRecording):
    """A raw capture that is read as a recording is."""


def open_stream_file(path: Name, *, strict: bool = True) -> OpenRecording:
    """Open a recording, or else a raw capture, whose `source` is `DETECT`; raise `RecordingError`."""
    file = file_reader.open_file(path)
    name = os.fspath(path)
    try:
        start = file.peek(BLOCK)
    except RecordingError:
        file.close()
        raise
    if b"\0" not in start and (_SSE.match(start) or _LINES.match(start)):
        return OpenCapture(name, Head(source=DETECT), _captured(iter(lambda: file.read1(BLOCK), b"")), file)
    if _is_payload(start.lstrip(b"\r\n").partition(b"\n")[0]):
        payloads = (line.removeprefix(_BOM).strip() for line in iter(Lines(name, file).next, None))
        framed = (b"data: %b\n\n" % payload for payload in payloads)
        return OpenCapture(name, Head(source=DETECT), _captured(framed), file)
    return file_reader.open_lines(Lines(name, file), strict=strict)


def read_stream_file(path: Name, *, strict: bool = True) -> Recording:
    """Return what `open_stream_file` would open, whole in memory; raise `RecordingError`."""
    with open_stream_file(path, strict=strict) as opened:
        return file_reader.read_whole(opened.name, opened.head, opened.chunks)


def _captured(pieces: Iterator[bytes]) -> Chunks:
    for data in pieces:
        yield Chunk(0.0, data)
    return End("end", 0.0)


def _is_payload(line: bytes) -> bool:
    """Tell whether a line is the first event of a provider's stream, without its framing."""
    try:
        value: Any = msgspec.json.decode(line.removeprefix(_BOM))
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


@dataclass(frozen=True, eq=False)
class Exchange:
    """One exchange: in which file, its number there, from 1, and what is known of it before it is read."""

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
        return open_stream_file(self.path) if self.place is None else file_reader.open_place(self.path, self.place)


def open_exchange(path: Name, number: int | None = None) -> OpenRecording:
    """Open the exchange of this number, from 1, or the only one of a file, or a raw capture; raise `RecordingError`."""
    if not Path(path).is_file():  # what can be read once only, or not at all
        return open_stream_file(path)
    found = exchanges_in(path)
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
    found = [exchange for file in files for exchange in exchanges_in(file, secrets)]
    for exchange in found:
        if exchange.place is not None and not exchange.place.ended:
            raise RecordingError(f"{exchange} breaks off, without an end line")
    return found


def exchanges_in(path: Name, secrets: Sequence[Secret] = ()) -> list[Exchange]:
    """Return the exchanges of a file; raise `RecordingError`."""
    path = os.fspath(path)
    with open_stream_file(path) as opened:
        if isinstance(opened, OpenCapture):
            return [Exchange(path, 1, opened.head, alone=True)]
    places = file_reader.find_exchanges(path)
    found: list[Exchange] = []
    for number, place in enumerate(places, start=1):
        request = place.head.request
        try:
            request = request and redact_request(request, secrets)[0]
        except ValueError as error:  # its URL is none, or its body is no base64
            raise RecordingError(f"{path}, line {place.line}, has a request that cannot be read: {error}") from None
        found.append(Exchange(path, number, place.head, len(places) == 1, request, place))
    return found


FIELDS = ("method", "url", "body")
Match: TypeAlias = Collection[str] | Callable[[Request, Request], bool]
"""Which of `FIELDS` have to be equal, or a function of what is asked and what was recorded."""

_SHOWN = 60  # characters of a value in a message
_MOST_DIFFERENCES = 5  # differences that a message lists
_COUNTED = 1000  # differences that are counted; more make a request no less similar


class RequestDifference(NamedTuple):
    """Where two requests differ, and what each has there, as it is shown in a message."""

    path: str
    asked: str
    recorded: str

    def __str__(self) -> str:
        return f"{self.path}: {self.asked} was asked, {self.recorded} is recorded"


def title(request: Request | None) -> str:
    """Return what a message calls a request."""
    return "any request" if request is None else f"{request.method} {request.url}"


def matcher(match: Match) -> Callable[[Request, Request], bool]:
    """Return what tells whether a recorded request is asked; raise ValueError for fields that do not exist."""
    if callable(match):
        return match
    if wrong := [match] if isinstance(match, str) else [each for each in match if each not in FIELDS]:
        raise ValueError(f"match names fields, of {', '.join(FIELDS)}, and not {wrong[0]!r}")
    fields = tuple(match)
    return lambda asked, recorded: next(differences(asked, recorded, fields), None) is None


def differences(asked: Request, recorded: Request, fields: Sequence[str] = FIELDS) -> Iterator[RequestDifference]:
    """Yield what differs in these fields; nothing if the requests match. Where a body was left out, its size counts."""
    asked = leave_out(asked) if recorded.left_out and "body" in fields else asked
    if "method" in fields and asked.method.upper() != recorded.method.upper():
        yield RequestDifference("method", asked.method, recorded.method)
    if "url" in fields and asked.url != recorded.url:
        yield RequestDifference("url", *_excerpts(asked.url, recorded.url))
    if "body" in fields:
        yield from _differences("body", _body(asked), _body(recorded))


def explain(asked: Request, unplayed: Iterable[Exchange], played: Collection[Exchange]) -> str | None:
    """Return a text on the exchange most similar to what is `asked`, and how it differs; None without any."""
    different = {
        exchange: list(itertools.islice(differences(asked, exchange.request), _COUNTED))
        for exchange in (*unplayed, *played)
        if exchange.request is not None
    }
    if not different:
        return None

    def far(exchange: Exchange) -> tuple[bool, bool, int]:
        fields = {each.path for each in different[exchange]}
        return "url" in fields, "method" in fields, len(different[exchange])

    nearest = min(different, key=far)
    name = f"{nearest} (which has been played)" if nearest in played else str(nearest)
    if not different[nearest]:
        return f" {'once more' if nearest in played else 'but `match` refuses it'}: the same is {name}"
    lines = [f"    {each}" for each in different[nearest][:_MOST_DIFFERENCES]]
    if len(different[nearest]) > _MOST_DIFFERENCES:
        lines.append(f"    and {len(different[nearest]) - _MOST_DIFFERENCES} more")
    return "\n".join([f"; the nearest is {name}:", *lines])


def _body(request: Request) -> Any:
    if request.body is None and (unread := request.body_base64 or request.left_out):
        return {"left_out" if request.left_out else "base64": unread}
    return request.body


def _differences(path: str, asked: Any, recorded: Any) -> Iterator[RequestDifference]:
    if isinstance(asked, dict) and isinstance(recorded, dict):
        for key in [*asked, *(key for key in recorded if key not in asked)]:
            where = f"{path}.{key}" if key.isidentifier() else f"{path}[{json.dumps(key, ensure_ascii=False)}]"
            yield from _differences(where, asked.get(key, _MISSING), recorded.get(key, _MISSING))
    elif isinstance(asked, list) and isinstance(recorded, list):
        for index, (one, other) in enumerate(itertools.zip_longest(asked, recorded, fillvalue=_MISSING)):
            yield from _differences(f"{path}[{index}]", one, other)
    elif isinstance(asked, str) and isinstance(recorded, str):
        if asked != recorded:
            yield RequestDifference(path, *_excerpts(asked, recorded))
    elif asked != recorded or isinstance(asked, bool) is not isinstance(recorded, bool):  # 1 == True, but in Python
        yield RequestDifference(path, _shown(asked), _shown(recorded))


_MISSING = object()


def in_common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginnings."""
    differing = (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(differing, min(len(one), len(other)))


def _excerpts(one: str, other: str) -> tuple[str, str]:
    """Return two different strings as JSON, short, from a little before the place where they begin to differ."""
    start = max(0, in_common(one, other) - _SHOWN // 3)
    return _excerpt(one, start), _excerpt(other, start)


def _excerpt(text: str, start: int = 0) -> str:
    start = 0 if len(text) <= _SHOWN else start
    cut = text[start : start + _SHOWN]
    before, behind = "…" if start else "", "…" if start + _SHOWN < len(text) else ""
    return before + json.dumps(cut, ensure_ascii=False) + behind


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    if isinstance(value, str):
        return _excerpt(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
