"""Splits the bytes of a response into frames: server-sent events, NDJSON lines, or JSON array elements. Sans-IO.

First, every line end (CR, LF or CRLF) is replaced with LF, also if a chunk ends between CR and LF. A frame then ends at
two LFs, or at one LF in NDJSON. A network chunk of whole frames therefore needs only one split. An incomplete frame is
stored in one `bytearray`, and only its new bytes are searched. The cost of a large frame thus does not depend on the
size of the chunks.

The decoder of server-sent events deviates from the WHATWG standard, because real streams do:

- The last event needs no blank line, because several providers end without one.
- An event with a name but without data is delivered, because Anthropic sends such pings.
- If an event has no data, its lines of bare JSON become the data, because Gemini sends errors in this form.
- `retry` is ignored, because a client cannot reconnect to a completion.
- A line becomes data if its field name contains control characters or non-ASCII bytes. Such a line is probably a
  damaged field. Its data cannot be decoded, and therefore the loss is reported.

The `data` of a frame is `bytes`, because the JSON decoder reads bytes.

An object of a provider's SDK is converted back into the frame that the SDK decoded. One reader per format is therefore
enough. It produces the same events from objects as from bytes, including fields that the SDK does not know.
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
_DAMAGED = re.compile(rb"[^\t -~]")  # a byte that a valid field name does not contain
_ENVELOPE = {"event", "data", "id", "retry"}  # the keys of a server-sent event as a dict
_MAX_HEAD = 1024  # the maximum number of bytes of white space before the start of a stream
_CR, _LF = b"\r\n"  # integers, because `13 in chunk` is faster than `b"\r" in chunk`


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One server-sent event, one line of NDJSON, or one element of a JSON array.

    `data` should be UTF-8, but a provider may send any bytes.
    """

    data: bytes
    event: str = "message"
    id: str = ""


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """Reports a frame that exceeds the limit. `count` is its length in bytes, where a CRLF is one byte."""

    count: int


class Damaged(msgspec.Struct, frozen=True, gc=False):
    """Reports bytes that cannot be split into frames. With `final`, the rest of the stream cannot be read either."""

    why: str
    final: bool = False


Framed: TypeAlias = Frame | Skipped | Damaged


class FrameDecoder(ABC):
    """Splits a stream of bytes into frames. The chunks may end at any byte.

    Subclasses define the separator of frames and how a frame is read.
    """

    _end: ClassVar[bytes]
    _split: ClassVar[Callable[..., list[bytes]]]

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        self._limit = limit
        self._start: bytes | None = b""  # the first bytes, if they may begin a byte order mark; later None
        self._after_cr = False
        self._buffer = bytearray()  # the beginning of an incomplete frame
        self._dropped = 0  # the number of dropped bytes of a frame over the limit
        self.ignored = b""
        """The beginning of the first line that is not a field of an event, for example of an HTML document."""

    def feed(self, chunk: bytes) -> list[Framed]:
        """Return the frames that `chunk` completes."""
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
        """Return the last frame if the stream ended without its separator."""
        block = bytes(self._buffer) or self._start or b""
        self._buffer.clear()
        self._start = None
        return self._read_within_limit([block[:-1] if block.endswith(b"\n") else block])

    @abstractmethod
    def _read(self, block: bytes) -> Frame | None:
        """Return the frame in `block`, or None if it is empty. LF separates the lines of `block`."""

    def _read_within_limit(self, blocks: list[bytes]) -> list[Framed]:
        """Return the frames of `blocks`. The beginning of the first block may have been dropped at the limit."""
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
        """Drop the buffered bytes if they exceed the limit. Keeps a final LF, which may begin the frame's separator."""
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
        """Return `chunk` with each CRLF and CR replaced with LF.

        If the chunk ends with CR, and the next chunk begins with LF, that LF is dropped.
        """
        if not chunk:
            return chunk
        if self._after_cr and chunk[0] == _LF:
            chunk = chunk[1:]
            self._after_cr = False
            if not chunk:
                return chunk
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()  # splits at CR, LF and CRLF; three times as fast as `replace`
        if chunk[-1] in b"\r\n":
            lines.append(b"")
        return b"\n".join(lines)


class SSEDecoder(FrameDecoder):
    """Splits a `text/event-stream` into frames. A frame over `limit` bytes is skipped and not stored."""

    _end = b"\n\n"
    _split = re.compile(_end).split  # twice as fast as `bytes.split`

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        super().__init__(limit)
        self._id = ""

    def _read(self, block: bytes) -> Frame | None:
        # Most frames are one line of data, with or without a name. These fast paths take half of the time.
        if block[:6] == b"data: " and _LF not in block:
            return Frame(block[6:], "message", self._id)
        if block[:7] == b"event: ":
            end = block.find(b"\n")
            rest = block[end + 7 :]
            if block[end + 1 : end + 7] == b"data: " and _LF not in rest:
                return Frame(rest, block[7:end].decode(errors="replace") or "message", self._id)
        data: list[bytes] = []
        bare = bytearray()  # the lines of bare JSON
        event = ""
        for line in BytesIO(block):  # `split` would need many times the memory of a hostile frame
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
    """Splits NDJSON into frames, one per line. Empty lines are ignored."""

    _end = b"\n"
    _split = methodcaller("split", _end)

    def _read(self, block: bytes) -> Frame | None:
        return Frame(block) if block.strip() else None


_bare = re.compile(rb'["{}\[\],]')
_quoted = re.compile(rb'["\\]')


class ArrayDecoder(FrameDecoder):
    """Splits a JSON array into frames, one per element. Finds the ends of elements by counting brackets and quotes."""

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        super().__init__(limit)
        self._depth = 0
        self._in_string = self._escaped = self._over = False

    def feed(self, chunk: bytes) -> list[Framed]:
        """Return the elements that `chunk` completes."""
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
                if self._depth <= 1:  # an element or the array has ended
                    end = at if self._depth == 1 and mark != b"," else found.start()
                    self._buffer += chunk[start:end]
                    frames += self._read_within_limit([bytes(self._buffer).strip()])
                    start = at
                    self._over = self._depth <= 0
        self._buffer = self._buffer[: 0 if self._over else None] + chunk[start : 0 if self._over else None]
        self._enforce_limit()
        return frames

    def close(self) -> list[Framed]:
        """Return the last element if it is incomplete."""
        return self._read_within_limit([bytes(self._buffer).strip()])

    def _read_within_limit(self, blocks: list[bytes]) -> list[Framed]:
        self._buffer.clear()
        return super()._read_within_limit(blocks)

    def _read(self, block: bytes) -> Frame | None:
        return Frame(block)


class EventsOrArray(SSEDecoder):
    """Splits server-sent events or a JSON array into frames. The first character of the stream decides which."""

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        super().__init__(limit)
        self._head = b""
        self._array: ArrayDecoder | None = None
        self.feed = self._begin  # type: ignore[method-assign]  # used only until the first character has arrived

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
        """Return the last frame if the stream ended without its separator."""
        return super().close() if self._array is None else self._array.close()


def as_frame(item: object) -> Frame | None:
    """Return the frame of a server-sent event, a dict or an SDK object. Returns None for any other object.

    Data that nests too deep to be serialized as JSON becomes a frame that cannot be decoded. Raises `UnreadableSource`
    for an object that contains values other than JSON, because it does not come from a provider.
    """
    data, event = getattr(item, "data", None), getattr(item, "event", None)
    if isinstance(data, str) and isinstance(event, str):  # a ServerSentEvent of httpx-sse or httpx2
        return Frame(whole(data).encode(), event or "message")
    try:
        value = as_dict(item)
        if value is None:
            return None
        event, data = value.get("event"), value.get("data")
        # The value may be a server-sent event as a dict.
        if isinstance(event, str) and isinstance(data, str | dict) and _ENVELOPE.issuperset(value):
            return Frame(whole(data).encode() if isinstance(data, str) else _write(data), event or "message")
        return Frame(_write(value))
    except (ValueError, RecursionError):
        return Frame(f"{type(item)!r} that cannot be written as JSON".encode())
    except Exception as error:
        raise UnreadableSource(f"{type(item)!r} cannot be written as JSON: {error}") from error


def _write(value: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_inner)
    except UnicodeEncodeError:  # a string contains half of a surrogate pair; the next object may hold the other half
        return json.dumps(msgspec.to_builtins(value, enc_hook=_inner)).encode()


def _inner(value: object) -> dict[str, Any]:
    """Return the dict of an SDK object that is nested in a dict. Raises TypeError for any other value."""
    plain = as_dict(value)
    if plain is None:
        raise TypeError(f"{type(value)!r} is no value of JSON")
    return plain
