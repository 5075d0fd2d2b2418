"""What readers of one run have in common: each event is written once for all who read it in the same format. Sans-IO.

A format that is resumable writes an event alike for everybody. Others write it by what went before, so there readers
share who began with the first event, with encoders of the same options, and have missed none. Whoever is behind takes
what the others have written; who is too far behind, or alone, keeps nothing alive for anybody but himself.

The formats of front ends are shared, as they are here: a subclass, an encoder of somebody else's, and one to which a
function was given write for one reader, because nobody knows on what that depends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from hashlib import sha256
from typing import cast
from weakref import ref

from streamtools.errors import Code
from streamtools.events import UIEvent, Warning
from streamtools.outputs.ag_ui import AGUIEncoder
from streamtools.outputs.ai_sdk_parts import AISDKEncoder
from streamtools.outputs.encoder import Encoder, NativeEncoder
from streamtools.outputs.plain_text import TextEncoder

ALONE = 2 * 1024
"""Bytes that are kept of what a single reader has had, for others who come at the same time."""
TOGETHER = 32 * 1024
"""Bytes, and one batch, that are kept for the slower ones of several."""

_SHARED = (NativeEncoder, AISDKEncoder, AGUIEncoder, TextEncoder)


class Shelf:
    """What is written of one run, as long as somebody reads there."""

    def __init__(self) -> None:
        self._written: list[ref[SharedBody]] = []
        self.is_single = False
        """Whether nothing else is written than what has been found."""

    def add(self, written: SharedBody) -> SharedBody:
        self._written.append(ref(written))
        self.is_single = len(self._written) == 1
        return written

    def find(self, key: bytes, position: int, *, beside: SharedBody | None = None) -> SharedBody | None:
        """Return what goes on behind a `seq` in a format, or ends there; `beside` something, what is ahead of it."""
        if beside is not None and len(self._written) == 1:
            return None
        there = [written for each in self._written if (written := each()) is not None]
        if len(there) < len(self._written):
            self._written = [ref(each) for each in there]
            self.is_single = len(there) == 1
        fit = [each for each in there if each.key == key and each.begin <= position <= each.end]
        best = max(fit, key=lambda each: each.end, default=None)
        return best if beside is None or (best is not None and best.end > beside.end) else None


class SharedBody:
    """What one encoder has made of the events behind `begin`, a `seq`, up to `end`."""

    __slots__ = ("__weakref__", "_joined", "_parts", "begin", "encoder", "end", "key", "readers", "size")

    def __init__(self, key: bytes, encoder: Encoder, position: int) -> None:
        self.key = key
        self.encoder = encoder
        self.begin = self.end = position
        self.readers = 0
        self.size = 0
        self._parts: list[bytes] = []
        self._joined = (0, 0, b"")  # what was asked for last

    def take(self, after: int, events: Sequence[UIEvent]) -> bytes:
        """Return what events are, which are those behind `after`; none is written twice."""
        first, last, data = self._joined
        end = after + len(events)
        if first == after and last == end:
            return data
        if after == self.end and len(events) == 1:  # as nearly always
            data = self.encoder.encode(events[0])
            self._parts.append(data)
            self.size += len(data)
            self.end = end
            self._joined = after, end, data
            return data
        for event in events[max(0, self.end - after) :]:
            part = self.encoder.encode(event)
            self._parts.append(part)
            self.size += len(part)
            self.end += 1
        data = self.between(after, end)
        self._joined = after, end, data
        return data

    def between(self, after: int, end: int) -> bytes:
        """Return what is written behind `after`, up to `end`."""
        return b"".join(self._parts[after - self.begin : end - self.begin])

    def forget(self) -> None:
        self._parts = []
        self.begin, self.size = self.end, 0


class Sharing:
    """Writes the events of a run for one reader, who has had those up to `position`, a `seq`."""

    def __init__(self, shelf: Shelf, encoder: Encoder, position: int) -> None:
        self._shelf = shelf
        self._encoder = encoder
        self._position = position
        self._key = _key(encoder)
        self._written: SharedBody | None = None

    def write(self, events: Sequence[UIEvent]) -> bytes:
        """Return what events are, at least one. Raises what the encoder does."""
        position, first, last = self._position, events[0], events[-1].seq
        if first.seq != position + 1 or last != position + len(events):
            return self._jump(events)
        if type(first) is Warning and first.code is Code.RESYNC:  # in the place of one event
            return self._jump(events)
        written = self._written
        if written is not None and position == written.end and written.size <= ALONE and self._shelf.is_single:
            pass  # as `_choose` finds, for whoever reads alone
        elif self._key is not None and (written is None or not written.begin <= position < written.end):
            written = self._choose(written, self._key)
        self._position = last
        return self._write_alone(events) if written is None else written.take(position, events)

    def close(self) -> bytes:
        """Return the end of a body whose `done` never came."""
        rest = self._part()
        return rest + self._encoder.close()

    def leave(self) -> None:
        if self._written is not None:
            self._written.readers -= 1
            self._written = None

    def _write_alone(self, events: Sequence[UIEvent]) -> bytes:
        return b"".join(map(self._encoder.encode, events))

    def _choose(self, written: SharedBody | None, key: bytes) -> SharedBody | None:
        """Find out where the next events are written."""
        position = self._position
        if written is not None and position == written.end:
            if (other := self._shelf.find(key, position, beside=written)) is not None:
                return self._move(other)
            if written.size <= (TOGETHER if written.readers > 1 else ALONE):
                return written
            if written.readers == 1:
                written.forget()
                return written
            return self._move(self._shelf.add(SharedBody(key, _copy(written.encoder), position)))
        other = self._shelf.find(key, position)
        if other is None and (self._encoder.resumable or not position):
            other = self._shelf.add(SharedBody(key, _copy(self._encoder), position))
        if other is None:
            self._key = None
        return other and self._move(other)

    def _move(self, to: SharedBody) -> SharedBody:
        self.leave()
        to.readers += 1
        self._written = to
        return to

    def _jump(self, events: Sequence[UIEvent]) -> bytes:
        """Write events, some of which are no neighbours: a log that has dropped what was next says so between them.

        What others have written of the dropped ones is there for this reader as well, and then nothing is missing.
        """
        if self._encoder.resumable:
            self._position = events[-1].seq
            return self._write_alone(events)
        rest = self._part()
        position = self._position
        self._position = max(position, events[-1].seq)
        return rest + self._write_alone([event for event in events if event.seq > position or not position])

    def _part(self) -> bytes:
        """Have an encoder of one's own again, in the state of the shared one; return what leads there."""
        written, self._key = self._written, None
        if written is None or self._encoder.resumable:
            self.leave()
            return b""
        rest = written.between(self._position, written.end)
        self._encoder, self._position = _copy(written.encoder), written.end
        self.leave()
        return rest


def _key(encoder: Encoder) -> bytes | None:
    """Return what is the same for encoders that write alike; None for one that writes for its own reader.

    It is a digest, since options come from clients, and may be long.
    """
    if type(encoder) not in _SHARED or not _is_plain(vars(encoder)):
        return None
    return sha256(f"{type(encoder)} {vars(encoder)!r}".encode("utf-8", "surrogatepass")).digest()


def _is_plain(value: object) -> bool:
    """Whether what Python writes of a value is all of it."""
    if type(value) is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if type(value) in (list, tuple, set):
        return all(map(_is_plain, cast("Iterable[object]", value)))
    return value is None or isinstance(value, type) or type(value) in (str, bytes, int, float, bool)


def _copy(encoder: Encoder) -> Encoder:
    """Return an encoder in the same state, which goes on by itself."""
    other = copy(encoder)
    if encoder.resumable:  # what it holds does not change
        return other
    for name, value in vars(other).items():
        if isinstance(value, dict):
            vars(other)[name] = {key: copy(each) for key, each in value.items()}
        elif isinstance(value, list | set):
            vars(other)[name] = copy(value)
    return other
