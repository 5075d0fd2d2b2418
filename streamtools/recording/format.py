"""The form of a recording: what came over the network, when, and how it ended.

A recording keeps network chunks, not events: where a provider's bytes were cut, and when, is what breaks parsers, so
that is what a test has to get back. The file is JSON Lines in UTF-8, to be read, compared and edited by people too:

    {"streamtools":"recording","version":1,"source":"openai","request":{…},"response":{…}}
    {"at":71.25,"text":"data: {\\"choices\\":[…]}\\n\\n"}
    {"at":84.5,"text":"data: {\\"choices\\":[…\\"caf","after":"c3"}
    {"at":97.125,"before":"a9","text":"\\"}]}\\n\\n"}
    {"at":98.0,"end":"end","bytes":1043,"sha256":"…"}

**Head**, the first line. `source` is the id of the adapter that reads these bytes (`openai`, `latitude`), or `detect`,
where that shows when they are read. Optional are `title` (what is to be seen here, for people), `recorded` (date and
time, ISO 8601), `request` (`method`, `url`, `headers`, and `body`: JSON where the body was JSON, a list of parts where
it had parts, a string where it was other text, or `body_base64`, all of them unpacked; `left_out` says what of a body
is not there) and `response` (`status`, `headers`). Only headers of an allow-list are written, and no credentials: see
`redact`.

**Chunk**, one line each. `at` is the time of arrival in milliseconds since the request was sent, to the microsecond; a
line without it has the time of the line above. The bytes are those after content decoding (gzip is undone), as they
came, but for keys, which are overwritten by as many bytes, so that lengths, cuts and times stay: see `scrubbing`. Where
they are UTF-8, they are `text`; up to three bytes of a character that was cut in two stand beside it in hexadecimal, as
`before` and `after`. Where they are not, they are `base64`.

**End**, the last line: `end` is `end` (the response was complete), `reset` (the connection broke), `timeout` (nothing
more came) or `left` (the reader closed the response: what else would have come is not known); `error` may name the
exception. `bytes` and `sha256` are those of all chunks together, and are checked where they stand: who edits a
recording by hand takes them out.

A file may hold the exchanges of one conversation: behind an end line the next head may follow, and so on.

Old and new get along: unknown keys, and lines that are neither chunk nor end, are passed over; an unknown `end` is read
as `reset`, as older readers take `left`, for whatever it is, it is no complete response. What a reader of version 1
would misread raises `version`, and a higher one is refused.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

VERSION = 1
"""The version that is written, and the highest that is read."""

EndKind: TypeAlias = Literal["end", "reset", "timeout", "left"]

_MARK = b'{"streamtools":"recording","version":%d,' % VERSION
_CONTINUATION = re.compile(rb"[\x80-\xbf]{1,3}")
_CUT_CHARACTER = re.compile(rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z")

_encode = msgspec.json.Encoder().encode


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked. `body` is a JSON value, or a string for a body of other text; `body_base64` is any other.

    `left_out` says what of the body is not there, because it could not be looked through.
    """

    method: str
    url: str
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: Any = None
    body_base64: str = ""
    left_out: str = ""


class Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the answer began."""

    status: int
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of a recording. A raw capture has one too, with nothing but a guess at `source`."""

    source: str
    title: str = ""
    recorded: str = ""
    request: Request | None = None
    response: Response | None = None


class Chunk(NamedTuple):
    """What one read from the network gave, and when: milliseconds since the request was sent."""

    at: float
    data: bytes


class End(NamedTuple):
    """How the response ended, when, and the name of the exception if one was raised."""

    kind: EndKind
    at: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """One exchange, whole in memory. `end` is None where the file broke off; `name` is the file, for messages."""

    head: Head
    chunks: tuple[Chunk, ...]
    end: End | None
    name: str = "the recording"

    @property
    def data(self) -> bytes:
        """All bytes of the response."""
        return b"".join(chunk.data for chunk in self.chunks)


class FileMark(msgspec.Struct, frozen=True):
    """What tells a recording from any other JSON. Both are taken as they come, so that a message can show them."""

    streamtools: Any = None
    version: Any = None


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Any line; its keys say which kind, and stand in this order."""

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


def encode_head(head: Head) -> bytes:
    """Return the line of a head, with its line feed."""
    return _MARK + _encode(head)[1:] + b"\n"


def encode_chunk(chunk: Chunk) -> bytes:
    """Return the line of a chunk, with its line feed."""
    at, data = milliseconds(chunk.at), chunk.data
    before = _CONTINUATION.match(data)
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


def encode_end(end: End, *, size: int, digest: str) -> bytes:
    """Return the line of an end, with its line feed. `size` and `digest` are those of all bytes before it."""
    line = Line(at=milliseconds(end.at), end=end.kind, error=end.error, bytes=size, sha256=digest)
    return _encode(line) + b"\n"


def read_data(line: Line) -> bytes | None:
    """Return the bytes of a chunk line, None for any other line; raise ValueError for bytes that cannot be read."""
    if line.base64 is not None:
        try:
            return base64.b64decode(line.base64, validate=True)
        except binascii.Error:
            raise ValueError("its base64 is no base64") from None
    if line.before or line.after:
        try:
            return bytes.fromhex(line.before) + (line.text or "").encode() + bytes.fromhex(line.after)
        except ValueError:
            raise ValueError("its before or after is no hexadecimal") from None
    return None if line.text is None else line.text.encode()


def read_end(line: Line, at: float) -> End | None:
    """Return what an end line says, None for any other line."""
    match line.end:
        case None:
            return None
        case "end" | "timeout" | "left":
            return End(line.end, at, line.error)
        case _:
            return End("reset", at, line.error)


def milliseconds(at: float) -> float:
    """Return a time as it is written; raise ValueError for what is none."""
    if not 0 <= at < float("inf"):
        raise ValueError(f"a time is a number of milliseconds from 0, and {at!r} is none")
    return round(float(at), 3)
