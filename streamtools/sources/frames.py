"""Bytes of a response, or objects of an SDK, into frames: server-sent events, and lines of NDJSON. Sans-IO.

The idea: line ends are made LF first, and then a frame ends where two of them meet (one, in NDJSON). So the common
case, a network chunk that holds whole frames, is one split, and CR, CRLF, a CRLF cut in two and frames cut
anywhere are the same case once they are joined. What is not complete waits in one `bytearray` that is searched only
where it is new, so that a frame of many megabytes which comes in drips costs as much as one that comes at once.

Differences from the WHATWG event stream, all on purpose and each met in the wild: the last event needs no blank line
(several providers end without one); an event that has a name but no data is delivered (Anthropic's pings); lines of
bare JSON count as data where there is no other (Gemini's errors in mid-stream); `retry` is ignored, because nobody may
reconnect to a completion; and a line whose name holds what no name does (control characters, bytes beyond ASCII) counts
as data, which nobody can decode: it may have been a field before it was damaged, and a loss has to be reported. `data`
stays bytes: it is JSON for a decoder that reads bytes.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from io import BytesIO
from operator import methodcaller
from typing import ClassVar, TypeAlias

import msgspec

from streamtools.limits import DEFAULT_LIMITS

_BOM = b"\xef\xbb\xbf"
_DAMAGED = re.compile(rb"[^\t -~]")  # in the name of a field
_HEAD = 1024  # bytes of white space, at most, before what a stream begins with
_CR, _LF = b"\r\n"  # numbers: `13 in chunk` is one memchr, `b"\r" in chunk` fails at being a number first


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One server-sent event, or one line of NDJSON. `data` is UTF-8, as far as the provider keeps to the standard."""

    data: bytes
    event: str = "message"
    id: str = ""


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """A frame that was longer than the limit; `count` is its length in bytes, a CRLF counting as one."""

    count: int


class Damaged(msgspec.Struct, frozen=True, gc=False):
    """A piece of the framing that cannot be read; a `final` one is the end of the stream."""

    why: str
    final: bool = False


Framed: TypeAlias = Frame | Skipped | Damaged


class FrameDecoder(ABC):
    """Finds where frames end, in any partition of the bytes; subclasses say what an end is and read what is between."""

    _end: ClassVar[bytes]
    _split: ClassVar[Callable[..., list[bytes]]]  # where they end

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        self._limit = limit
        self._start: bytes | None = b""  # what may be a part of the byte order mark; None once that is decided
        self._after_cr = False
        self.between = False  # what comes next is the beginning of a frame
        self._held = bytearray()  # the beginning of a frame, without any end in it
        self._dropped = 0  # bytes of an over-long frame that are gone already
        self.ignored = b""
        """The beginning of the first line that is nothing at all: a document begins so, where a stream was expected."""

    def feed(self, chunk: bytes) -> list[Framed]:
        """Return the frames that are complete now."""
        frames = self._feed(chunk)
        self.between = self._start is None and not (self._held or self._dropped or self._after_cr)
        return frames

    def _feed(self, chunk: bytes) -> list[Framed]:
        if self._start is not None:
            chunk = self._without_mark(chunk)
        if self._after_cr or _CR in chunk:
            chunk = self._with_lf(chunk)
        if self._held or self._dropped:
            seen = len(self._held)
            self._held += chunk
            if self._held.find(self._end, seen and seen - 1) < 0:
                self._bound()
                return []
            chunk = bytes(self._held)
            self._held.clear()
        blocks = self._split(chunk)
        rest = blocks.pop()
        if rest:
            self._held += rest
        if self._dropped or len(chunk) > self._limit:
            return self._bounded(blocks)
        return [frame for block in blocks if block and (frame := self._read(block)) is not None]

    def close(self) -> list[Framed]:
        """Return the last frame, if the stream ended without ending it."""
        block = bytes(self._held) or self._start or b""
        self._held.clear()
        self._start = None
        return self._bounded([block[:-1] if block.endswith(b"\n") else block])

    @abstractmethod
    def _read(self, block: bytes) -> Frame | None:
        """Return the frame that stands in `block`, which has LF for line ends and does not end in one."""

    def _bounded(self, blocks: list[bytes]) -> list[Framed]:
        """Return the frames of `blocks`, the first of which may have lost its beginning to the limit."""
        frames: list[Framed] = []
        for block in blocks:
            size = self._dropped + len(block)
            self._dropped = 0
            if size > self._limit:
                frames.append(Skipped(size))
            elif block and (frame := self._read(block)) is not None:
                frames.append(frame)
        self._bound()
        return frames

    def _bound(self) -> None:
        """Let go of what is held once it is over the limit. A last LF stays: it may belong to the end of the frame."""
        last = self._held[-1:] == b"\n"
        size = len(self._held) - last
        if self._dropped or size > self._limit:
            self._dropped += size
            self._held = bytearray(b"\n" if last else b"")

    def _without_mark(self, chunk: bytes) -> bytes:
        chunk = (self._start or b"") + chunk
        if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
            self._start = chunk
            return b""
        self._start = None
        return chunk.removeprefix(_BOM)

    def _with_lf(self, chunk: bytes) -> bytes:
        """Return `chunk` with each CRLF and CR as an LF; one CR at the end is an LF at once, and eats an LF to come."""
        if not chunk:
            return chunk
        if self._after_cr and chunk[0] == _LF:
            chunk = chunk[1:]
            self._after_cr = False
            if not chunk:
                return chunk
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()  # at these three, in a third of the time that replacing takes
        if chunk[-1] in b"\r\n":
            lines.append(b"")
        return b"\n".join(lines)


class SSEDecoder(FrameDecoder):
    """`text/event-stream` into frames. Over `limit` bytes a frame is skipped without being stored."""

    _end = b"\n\n"
    _split = re.compile(_end).split  # which takes half of the time of `bytes.split`

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        super().__init__(limit)
        self._id = ""
        self._prefix = b"data: "  # what the last frame began with, up to its data, and most begin as the last one did
        self._size = len(self._prefix)
        self._name = "message"

    def feed(self, chunk: bytes) -> list[Framed]:
        """Return the frames that are complete now."""
        # Most chunks are one frame, and begin as the last one did.
        if self.between and chunk[: self._size] == self._prefix and len(chunk) <= self._limit:
            if _CR not in chunk:
                if chunk[-1] == _LF == chunk[-2]:
                    rest = chunk[self._size : -2]
                    if _LF not in rest:
                        return [Frame(rest, self._name, self._id)]
                    if (frame := self._read_rest(rest)) is not None:
                        return [frame]
            elif chunk[-4:] == b"\r\n\r\n" and _is_one_line(chunk[:-4]):
                return [Frame(chunk[self._size : -4], self._name, self._id)]  # as Google frames all that it sends
        return super().feed(chunk)

    def _read(self, block: bytes) -> Frame | None:
        if block[: self._size] == self._prefix or self._learn(block):
            rest = block[self._size :]
            if _LF not in rest:
                return Frame(rest, self._name, self._id)
            if (frame := self._read_rest(rest)) is not None:
                return frame
        return self._read_lines(block)

    def _learn(self, block: bytes) -> bool:
        """Take note of what `block` begins with, if that is a line of data, or a name and a line of data."""
        line, _, rest = block.partition(b"\n")
        if line[:6] == b"data: ":
            self._prefix, self._name = b"data: ", "message"
        elif line[:7] == b"event: " and rest[:6] == b"data: ":
            self._prefix, self._name = block[: len(line) + 7], line[7:].decode(errors="replace") or "message"
        else:
            return False
        self._size = len(self._prefix)
        return True

    def _read_rest(self, rest: bytes) -> Frame | None:
        """Return the frame whose data `rest` begins with, if an id is all that follows, and None otherwise."""
        data, _, last = rest.partition(b"\n")  # not of the id: there may be a whole chunk to be searched for it
        if last[:4] != b"id: " or _LF in last or 0 in last:
            return None
        id = last[4:]
        try:
            self._id = id.decode()
        except UnicodeDecodeError:
            self._id = id.decode(errors="replace")
        return Frame(data, self._name, self._id)

    def _read_lines(self, block: bytes) -> Frame | None:
        data: list[bytes] = []
        bare = bytearray()  # lines that are no fields, from one on that begins an object or an array of them
        event = ""
        for line in BytesIO(block):  # not `split`: a hostile frame of short lines would take many times its size
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


def _is_one_line(block: bytes) -> bool:
    return _CR not in block and _LF not in block


class LineDecoder(FrameDecoder):
    """Lines into frames, one for each that is not empty: NDJSON, for one."""

    _end = b"\n"
    _split = methodcaller("split", _end)

    def feed(self, chunk: bytes) -> list[Framed]:
        """Return the frames that are complete now."""
        if self.between and chunk[-1:] == b"\n" and _CR not in chunk and len(chunk) <= self._limit:
            line = chunk[:-1]  # most chunks are one
            if _LF not in line:
                return [Frame(line)] if line.strip() else []
        return super().feed(chunk)

    def _read(self, block: bytes) -> Frame | None:
        return Frame(block) if block.strip() else None


_bare = re.compile(rb'["{}\[\],]')
_quoted = re.compile(rb'["\\]')


class ArrayDecoder(FrameDecoder):
    """A JSON array into frames, one for each element: brackets and strings are counted, and nothing is understood."""

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
                if self._depth <= 1:  # an element has ended, if there was one
                    end = at if self._depth == 1 and mark != b"," else found.start()
                    self._held += chunk[start:end]
                    frames += self._bounded([bytes(self._held).strip()])
                    start = at
                    self._over = self._depth <= 0
        self._held = self._held[: 0 if self._over else None] + chunk[start : 0 if self._over else None]
        self._bound()
        return frames

    def close(self) -> list[Framed]:
        """Return the element that has not ended."""
        return self._bounded([bytes(self._held).strip()])

    def _bounded(self, blocks: list[bytes]) -> list[Framed]:
        self._held.clear()
        return super()._bounded(blocks)

    def _read(self, block: bytes) -> Frame | None:
        return Frame(block)


class EventsOrArray(SSEDecoder):
    """Server-sent events, or the elements of a JSON array, as the first character shows."""

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        super().__init__(limit)
        self._head = b""
        self._array: ArrayDecoder | None = None
        self.feed = self._begin  # type: ignore[method-assign]  # until it is known, so that it costs nothing after

    def _begin(self, chunk: bytes) -> list[Framed]:
        self._head += chunk
        begun = self._head.lstrip(_BOM + b" \t\r\n")
        if not begun and len(self._head) < _HEAD:
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
