"""The file format of a recording: the chunks of a response, when they arrived, and how the response ended.

A recording keeps network chunks, not events. The places where a provider's bytes are cut, and the times, are what
breaks parsers, so a test must get them back. The file is JSON Lines in UTF-8, readable and editable by people:

    {"streamtools":"recording","version":1,"source":"openai","request":{…},"response":{…}}
    {"at":71.25,"text":"data: {\\"choices\\":[…]}\\n\\n"}
    {"at":84.5,"text":"data: {\\"choices\\":[…\\"caf","after":"c3"}
    {"at":97.125,"before":"a9","text":"\\"}]}\\n\\n"}
    {"at":98.0,"end":"end","bytes":1043,"sha256":"…"}

**Head**, the first line. `source` is the id of the adapter for these bytes (`openai`, `latitude`), or `detect`.
Optional are `title` (a description), `recorded` (date and time, ISO 8601), `request` (`method`, `url`, `headers`, and
the body: `body` for JSON or text, `body_base64` for other bytes, or `left_out` with its size if it was not recorded)
and `response` (`status`, `headers`). Only headers of an allow-list are written: see `redaction`.

**Chunk**, one line each. `at` is the time in milliseconds since the request was sent. A line without it has the time of
the line above. The bytes are those after content decoding (gzip is undone). Keys in them are overwritten by as many
bytes, so lengths, cuts and times stay: see `scrubbing`. UTF-8 is written as `text`. If a chunk begins or ends inside a
character, up to three of its bytes are written in hexadecimal, as `before` and `after`. Other bytes are `base64`.

**End**, the last line: `end` is `end` (the response was complete), `reset` (the connection broke), `timeout` (nothing
more arrived) or `left` (the reader closed the response). `error` may name the exception. `bytes` and `sha256` are those
of all chunks together. They are checked if they are there: remove them if you edit a recording.

A file can hold several exchanges: after an end line, the next head follows.

Compatibility: readers skip unknown keys, and lines that are neither chunk nor end. An unknown `end` is read as `reset`.
A change that a reader of version 1 would misread raises `version`, and a reader refuses a higher version.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

VERSION = 1
"""The version that is written, and the highest that can be read."""

EndKind: TypeAlias = Literal["end", "reset", "timeout", "left"]

_MARK = b'{"streamtools":"recording","version":%d,' % VERSION
_CONTINUATION_BYTES = re.compile(rb"[\x80-\xbf]{1,3}")
_CUT_CHARACTER = re.compile(rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z")

_encode = msgspec.json.Encoder().encode


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request. `body` is JSON or text, `body_base64` is any other body, `left_out` is the size of an omitted body."""

    method: str
    url: str
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: Any = None
    body_base64: str = ""
    left_out: str = ""


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The status and headers of a response."""

    status: int
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class ExchangeHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of an exchange. The head of a raw capture has only a `source`."""

    source: str
    title: str = ""
    recorded: str = ""
    request: RecordedRequest | None = None
    response: RecordedResponse | None = None


class Chunk(NamedTuple):
    """The bytes of one read from the network, and their time in milliseconds since the request was sent."""

    at: float
    data: bytes


class StreamEnd(NamedTuple):
    """How and when the response ended, and the name of the exception if there was one."""

    kind: EndKind
    at: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """One exchange in memory. `end` is None if the file breaks off. `name` is the file, for messages."""

    head: ExchangeHead
    chunks: tuple[Chunk, ...]
    end: StreamEnd | None
    name: str = "the recording"

    @property
    def data(self) -> bytes:
        """All bytes of the response."""
        return b"".join(chunk.data for chunk in self.chunks)


class FileMark(msgspec.Struct, frozen=True):
    """The keys that distinguish a recording from other JSON. Their values are not validated."""

    streamtools: Any = None
    version: Any = None


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of any kind. The order of the fields is that of the keys."""

    streamtools: Any = None
    at: float | None = None
    before: str = ""
    text: str | None = None
    after: str = ""
    base64: str | None = None
    end: str | None = None
    error: str = ""
    bytes: int | None = None
    sha256: str | None = None


def encode_head(head: ExchangeHead) -> bytes:
    """Return the line of a head, with its line feed."""
    return _MARK + _encode(head)[1:] + b"\n"


def encode_chunk(chunk: Chunk) -> bytes:
    """Return the line of a chunk, with its line feed."""
    at, data = milliseconds(chunk.at), chunk.data
    before = _CONTINUATION_BYTES.match(data)
    start = before.end() if before else 0
    after = _CUT_CHARACTER.search(data, max(start, len(data) - 3))
    stop = after.start() if after else len(data)
    try:
        text = data[start:stop].decode()
    except UnicodeDecodeError:
        line = Line(at=at, base64=base64.b64encode(data).decode())
    else:
        shown = text if text or not (start or after) else None
        line = Line(at=at, before=data[:start].hex(), text=shown, after=data[stop:].hex())
    return _encode(line) + b"\n"


def encode_end(end: StreamEnd, *, size: int, digest: str) -> bytes:
    """Return the line of an end, with its line feed. `size` and `digest` are those of all bytes of the response."""
    line = Line(at=milliseconds(end.at), end=end.kind, error=end.error, bytes=size, sha256=digest)
    return _encode(line) + b"\n"


def read_data(line: Line) -> bytes | None:
    """Return the bytes of a chunk line, or None for another line. Raises ValueError."""
    if line.base64 is not None:
        try:
            return base64.b64decode(line.base64, validate=True)
        except binascii.Error:
            raise ValueError("invalid base64") from None
    if line.before or line.after:
        try:
            return bytes.fromhex(line.before) + (line.text or "").encode() + bytes.fromhex(line.after)
        except ValueError:
            raise ValueError("invalid hexadecimal in `before` or `after`") from None
    return None if line.text is None else line.text.encode()


def read_end(line: Line, at: float) -> StreamEnd | None:
    """Return the end in an end line, or None for another line."""
    match line.end:
        case None:
            return None
        case "end" | "timeout" | "left":
            return StreamEnd(line.end, at, line.error)
        case _:
            return StreamEnd("reset", at, line.error)


def milliseconds(at: float) -> float:
    """Return a time as it is written. Raises ValueError for a negative or infinite time."""
    if not 0 <= at < float("inf"):
        raise ValueError(f"a time must be 0 or more milliseconds, got {at!r}")
    return round(float(at), 3)
