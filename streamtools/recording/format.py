"""The file format of a recording: the chunks of a response, their times, and how the response ended.

A recording stores network chunks and no events. Parsers fail because of chunk boundaries and delays, so a replay must
reproduce both. The file is JSON Lines in UTF-8, which people can read and edit:

    {"streamtools":"recording","version":1,"source":"openai","request":{…},"response":{…}}
    {"at":71.25,"text":"data: {\\"choices\\":[…]}\\n\\n"}
    {"at":84.5,"text":"data: {\\"choices\\":[…\\"caf","after":"c3"}
    {"at":97.125,"before":"a9","text":"\\"}]}\\n\\n"}
    {"at":98.0,"end":"end","bytes":1043,"sha256":"…"}

**Head**, the first line. `source` is the id of the adapter for the bytes (`openai`, `latitude`), or `detect`: the
format is detected when the recording is read. Optional fields are `title` (a description), `recorded` (date and time in
ISO 8601), `request` and `response`. `request` has `method`, `url`, `headers`, and one field for the body: `body` for
JSON or text, or `body_base64` for other bytes. If the body was not recorded, `left_out` holds its size. `response` has
`status` and `headers`. Only headers of an allow-list are written, see the module `redaction`.

**Chunk**, one line for each chunk. `at` is the time in milliseconds since the request was sent. A line without `at` has
the time of the line before it. The bytes are stored after content decoding, so they are not compressed. Secrets, such
as API keys, are overwritten with the same number of bytes. So lengths, chunk boundaries and times do not change. UTF-8
is written as `text`. If a chunk begins or ends inside a character, the one to three bytes of this character are written
in hexadecimal, as `before` or `after`. Other bytes are written as `base64`.

**End**, the last line. `end` is `end` (the response was complete), `reset` (the connection broke), `timeout` (no more
bytes arrived) or `left` (the reader closed the response). `error` may name the exception. `bytes` is the total length
of the chunks, and `sha256` is their digest. These two fields are optional. They are checked if they are present, so
remove them when you edit a recording.

A file can hold several exchanges. The next head follows the end line.

Compatibility: readers skip unknown keys, and lines that are neither chunk nor end. An unknown `end` is read as `reset`.
A change of the format increases `version` if a reader of version 1 would misread it. Readers refuse higher versions.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

VERSION = 1
"""The format version of written files. Files with a higher version cannot be read."""

EndKind: TypeAlias = Literal["end", "reset", "timeout", "left"]
"""How a response ended: complete, by a broken connection, by a timeout, or because the reader closed it."""

_MARK = b'{"streamtools":"recording","version":%d,' % VERSION
_CONTINUATION_BYTES = re.compile(rb"[\x80-\xbf]{1,3}")  # the rest of a character that begins in an earlier chunk
# the first bytes of a character that ends in a later chunk
_CUT_CHARACTER = re.compile(rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z")

_encode = msgspec.json.Encoder().encode


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recorded request.

    `body` is a body of JSON or text, `body_base64` is a body of other bytes. `left_out` is the size of a body that was
    not recorded, such as "43 bytes".
    """

    method: str
    url: str
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: Any = None
    body_base64: str = ""
    left_out: str = ""


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The status and the recorded headers of a response."""

    status: int
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class ExchangeHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of an exchange. For a raw capture, only `source` is set."""

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
    """The end of a response. `at` is its time in milliseconds, `error` the name of the exception or empty."""

    kind: EndKind
    at: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """One exchange in memory. `name` is the file name for error messages."""

    head: ExchangeHead
    chunks: tuple[Chunk, ...]
    end: StreamEnd
    name: str = "the recording"

    @property
    def data(self) -> bytes:
        """All bytes of the response."""
        return b"".join(chunk.data for chunk in self.chunks)


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of any kind. Its keys are written in the order of these fields.

    Of a head, only `streamtools` and `version` are read here, and their values may have any type. `ExchangeHead` reads
    the other fields.
    """

    streamtools: Any = None
    version: Any = None
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
    """Return the line for a head, with a line feed."""
    return _MARK + _encode(head)[1:] + b"\n"


def encode_chunk(chunk: Chunk) -> bytes:
    """Return the line for a chunk, with a line feed."""
    at, data = round(float(chunk.at), 3), chunk.data
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
    """Return the line for an end, with a line feed.

    `size` is the total length of the chunks in bytes, and `digest` their SHA-256 digest in hexadecimal.
    """
    line = Line(at=round(float(end.at), 3), end=end.kind, error=end.error, bytes=size, sha256=digest)
    return _encode(line) + b"\n"


def read_data(line: Line) -> bytes | None:
    """Return the bytes of a chunk line.

    Returns None for another line. Raises ValueError for invalid base64 or hexadecimal.
    """
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
    """Return the end of the response from an end line. Returns None for another line."""
    if line.end is None:
        return None
    kind: Any = line.end if line.end in get_args(EndKind) else "reset"
    return StreamEnd(kind, at, line.error)
