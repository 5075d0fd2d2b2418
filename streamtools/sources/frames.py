"""Bytes of a response into frames: server-sent events, lines of NDJSON, and elements of a JSON array. Sans-IO.

First, line ends become LF. A frame then ends at two of them (in NDJSON, at one). So a network chunk with whole frames
is one split. CR, CRLF, a cut CRLF and cut frames are the same case once they are joined. An incomplete frame is kept in
one `bytearray` that is searched only where it is new, so that a frame of many megabytes costs the same in any chunks.

Differences from the WHATWG event stream, each found in real streams:

- The last event needs no blank line: several providers end without one.
- An event with a name but no data is delivered: Anthropic sends such pings.
- Lines of bare JSON count as data if there is no other data: Gemini sends errors so.
- `retry` is ignored, because a completion cannot be reconnected to.
- A line whose field name has control characters or bytes beyond ASCII counts as data, which cannot be decoded. It may
  be a damaged field, and a loss must be reported.

`data` stays bytes, because the JSON decoder reads bytes.

Objects of a provider's SDK become the frames that they were decoded from. So each format has one reader, and objects
give the same events as the bytes, unknown fields of the SDK included.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from io import BytesIO
from operator import methodcaller
from typing import Any, ClassVar, TypeAlias

import msgspec

from streamtools.errors import UnreadableSource
from streamtools.json_values import as_dict, whole
from streamtools.limits import DEFAULT_LIMITS

_BOM = b"\xef\xbb\xbf"
_DAMAGED = re.compile(rb"[^\t -~]")  # in a field name
_ENVELOPE = {"event", "data", "id", "retry"}  # members of an event as a dict
_MAX_HEAD = 1024  # bytes of white space before the start of a stream
_CR, _LF = b"\r\n"  # numbers, because `13 in chunk` is faster than `b"\r" in chunk`


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One server-sent event, or one line of NDJSON. `data` is UTF-8 if the provider keeps to the standard."""

    data: bytes
    event: str = "message"
    id: str = ""


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """A frame over the limit. `count` is its length in bytes; a CRLF counts as one byte."""

    count: int


class Damaged(msgspec.Struct, frozen=True, gc=False):
    """Framing that cannot be read. After a `final` one, the stream cannot be read any more."""

    why: str
    final: bool = False


Framed: TypeAlias = Frame | Skipped | Damaged


class FrameDecoder(ABC):
    """Finds the ends of frames in any partition of the bytes. Subclasses define the end and read the frames."""

    _end: ClassVar[bytes]
    _split: ClassVar[Callable[..., list[bytes]]]

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        self._limit = limit
        self._start: bytes | None = b""  # a possible part of the byte order mark; None after it
        self._after_cr = False
        self._buffer = bytearray()  # the beginning of an incomplete frame
        self._dropped = 0  # dropped bytes of a frame over the limit
        self.ignored = b""
        """The beginning of the first line that is no field, as of a document that is no stream."""

    def feed(self, chunk: bytes) -> list[Framed]:
        """Return the frames that are complete now."""
        if self._start is not None:
            chunk = self._without_mark(chunk)
        if self._after_cr or _CR in chunk:
            chunk = self._with_lf(chunk)
        if self._buffer or self._dropped:
            seen = len(self._buffer)
            self._buffer += chunk
            if self._buffer.find(self._end, seen and seen - 1) < 0:
                self._enforce_limit()
                return []
            chunk = bytes(self._buffer)
            self._buffer.clear()
        blocks = self._split(chunk)
        rest = blocks.pop()
        if rest:
            self._buffer += rest
        if self._dropped or len(chunk) > self._limit:
            return self._read_within_limit(blocks)
        return [frame for block in blocks if block and (frame := self._read(block)) is not None]

    def close(self) -> list[Framed]:
        """Return the last frame, if the stream ended without ending it."""
        block = bytes(self._buffer) or self._start or b""
        self._buffer.clear()
        self._start = None
        return self._read_within_limit([block[:-1] if block.endswith(b"\n") else block])

    @abstractmethod
    def _read(self, block: bytes) -> Frame | None:
        """Return the frame in `block`, which has LF line ends and does not end with one."""

    def _read_within_limit(self, blocks: list[bytes]) -> list[Framed]:
        """Return the frames of `blocks`. The first block may have lost its beginning because of the limit."""
        frames: list[Framed] = []
        for block in blocks:
            size = self._dropped + len(block)
            self._dropped = 0
            if size > self._limit:
                frames.append(Skipped(size))
            elif block and (frame := self._read(block)) is not None:
                frames.append(frame)
        self._enforce_limit()
        return frames

    def _enforce_limit(self) -> None:
        """Drop the buffer if it exceeds the limit. A last LF stays, because it may belong to the end of the frame."""
        last = self._buffer[-1:] == b"\n"
        size = len(self._buffer) - last
        if self._dropped or size > self._limit:
            self._dropped += size
            self._buffer = bytearray(b"\n" if last else b"")

    def _without_mark(self, chunk: bytes) -> bytes:
        chunk = (self._start or b"") + chunk
        if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
            self._start = chunk
            return b""
        self._start = None
        return chunk.removeprefix(_BOM)

    def _with_lf(self, chunk: bytes) -> bytes:
        """Return `chunk` with LF for CRLF and CR. A CR at the end becomes an LF, and the next LF is dropped."""
        if not chunk:
            return chunk
        if self._after_cr and chunk[0] == _LF:
            chunk = chunk[1:]
            self._after_cr = False
            if not chunk:
                return chunk
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()  # at CR, LF and CRLF; this takes a third of the time of `replace`
        if chunk[-1] in b"\r\n":
            lines.append(b"")
        return b"\n".join(lines)


class SSEDecoder(FrameDecoder):
    """`text/event-stream` into frames. A frame over `limit` bytes is skipped and not stored."""

    _end = b"\n\n"
    _split = re.compile(_end).split  # takes half of the time of `bytes.split`

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        super().__init__(limit)
        self._id = ""

    def _read(self, block: bytes) -> Frame | None:
        if block[:6] == b"data: " and _LF not in block:  # half of the time, because most frames are one line of data
            return Frame(block[6:], id=self._id)
        data: list[bytes] = []
        bare = bytearray()  # lines of bare JSON
        event = ""
        for line in BytesIO(block):  # not `split`, whose result takes many times the size of a hostile frame
            name, _, value = line.rstrip(b"\n").partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if name == b"data":
                data.append(value)
            elif name == b"event":
                event = value.decode(errors="replace")
            elif name == b"id":
                if 0 not in value:
                    self._id = value.decode(errors="replace")
            elif bare or line[:1] == b"{" or line.rstrip() in (b"[", b"[{"):
                bare += line
            elif _DAMAGED.search(name):
                data.append(line.rstrip(b"\n"))
            elif name and not self.ignored and name != b"retry":
                self.ignored = line[:100].strip()
        if not data and not event and not bare:
            return None
        return Frame(b"\n".join(data) if data else bytes(bare.rstrip(b"\n")), event or "message", self._id)


class LineDecoder(FrameDecoder):
    """Lines that are not empty into frames, for NDJSON."""

    _end = b"\n"
    _split = methodcaller("split", _end)

    def _read(self, block: bytes) -> Frame | None:
        return Frame(block) if block.strip() else None


_bare = re.compile(rb'["{}\[\],]')
_quoted = re.compile(rb'["\\]')


class ArrayDecoder(FrameDecoder):
    """The elements of a JSON array into frames. It counts brackets and strings, and decodes nothing."""

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        super().__init__(limit)
        self._depth = 0
        self._in_string = self._escaped = self._over = False

    def feed(self, chunk: bytes) -> list[Framed]:
        """Return the elements that are complete now."""
        frames: list[Framed] = []
        at, start = (1, 0) if self._escaped and chunk else (0, 0)
        self._escaped = self._escaped and not chunk
        while not self._over and (found := (_quoted if self._in_string else _bare).search(chunk, at)):
            at = found.end()
            mark = found[0]
            if mark == b'"':
                self._in_string = not self._in_string
            elif mark == b"\\":
                self._escaped = at == len(chunk)
                at += 1
            elif mark in b"{[":
                self._depth += 1
                start = at if self._depth == 1 else start
            else:
                self._depth -= mark != b","
                if self._depth <= 1:  # an element has ended
                    end = at if self._depth == 1 and mark != b"," else found.start()
                    self._buffer += chunk[start:end]
                    frames += self._read_within_limit([bytes(self._buffer).strip()])
                    start = at
                    self._over = self._depth <= 0
        self._buffer = self._buffer[: 0 if self._over else None] + chunk[start : 0 if self._over else None]
        self._enforce_limit()
        return frames

    def close(self) -> list[Framed]:
        """Return the last element, if it is not complete."""
        return self._read_within_limit([bytes(self._buffer).strip()])

    def _read_within_limit(self, blocks: list[bytes]) -> list[Framed]:
        self._buffer.clear()
        return super()._read_within_limit(blocks)

    def _read(self, block: bytes) -> Frame | None:
        return Frame(block)


class EventsOrArray(SSEDecoder):
    """Server-sent events or the elements of a JSON array. The first character shows which."""

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        super().__init__(limit)
        self._head = b""
        self._array: ArrayDecoder | None = None
        self.feed = self._begin  # type: ignore[method-assign]  # replaced after the first character, so that it costs nothing then

    def _begin(self, chunk: bytes) -> list[Framed]:
        self._head += chunk
        begun = self._head.lstrip(_BOM + b" \t\r\n")
        if not begun and len(self._head) < _MAX_HEAD:
            return []
        if begun[:1] == b"[":
            self._array = ArrayDecoder(self._limit)
            self.feed = self._array.feed  # type: ignore[method-assign]
        else:
            del self.feed
        chunk, self._head = self._head, b""
        return self.feed(chunk)

    def close(self) -> list[Framed]:
        """Return the last frame, if the stream ended without ending it."""
        return super().close() if self._array is None else self._array.close()


def as_frame(item: object) -> Frame | None:
    """Return the frame of an event or an SDK object, or None for any other object.

    Data that nests too deep to be written as JSON becomes a frame that cannot be decoded. Raises `UnreadableSource` for
    an object with parts that are no JSON values: no provider sent it.
    """
    data, event = getattr(item, "data", None), getattr(item, "event", None)
    if isinstance(data, str) and isinstance(event, str):  # a ServerSentEvent of httpx-sse or httpx2
        return Frame(whole(data).encode(), event or "message")
    try:
        value = as_dict(item)
        if value is None:
            return None
        event, data = value.get("event"), value.get("data")
        if (
            isinstance(event, str) and isinstance(data, str | dict) and _ENVELOPE.issuperset(value)
        ):  # an event as a dict
            return Frame(whole(data).encode() if isinstance(data, str) else _write(data), event or "message")
        return Frame(_write(value))
    except (ValueError, RecursionError):
        return Frame(f"{type(item)!r} that cannot be written as JSON".encode())
    except Exception as error:
        raise UnreadableSource(f"{type(item)!r} cannot be written as JSON: {error}") from error


def _write(value: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_inner)
    except UnicodeEncodeError:  # half of a surrogate pair; the next object may have the other half
        return json.dumps(msgspec.to_builtins(value, enc_hook=_inner)).encode()


def _inner(value: object) -> dict[str, Any]:
    """Return the plain data of an object inside a dict."""
    plain = as_dict(value)
    if plain is None:
        raise TypeError(f"{type(value)!r} is no value of JSON")
    return plain
