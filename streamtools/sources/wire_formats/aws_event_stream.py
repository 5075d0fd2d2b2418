"""`application/vnd.amazon.eventstream` into frames: the binary messages in which AWS streams. Sans-IO.

A message is a prelude (its length and that of its headers, with a checksum), headers, a payload, and a checksum of all.
A message whose own checksum fails is lost, and the next one is read; a prelude that fails leaves nobody to say where
the next one begins, so the stream ends there. A message longer than the limit is passed over without being stored.

An event is a frame with the name that its headers give. An exception, and an error of the transport, is a frame named
`error` whose data is an object with the `type` and the `message` of it.
"""

from __future__ import annotations

import struct
from zlib import crc32

import msgspec

from streamtools.limits import DEFAULT_LIMITS
from streamtools.sources.frames import Damaged, Frame, Framed, FrameDecoder, Skipped

_prelude = struct.Struct(">III")
_LEAST = _prelude.size + 4
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value, by its type; those of 6 (bytes) and 7 (text) come with their length, in two bytes."""
_TEXT = 7


class EventStreamDecoder(FrameDecoder):
    """Messages into frames, in any partition of the bytes. `limit` is that of a message, in bytes."""

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        super().__init__(limit)
        self._over = False
        self._size = 0  # of a message that is passed over
        self._left = 0  # how much of it is still to come

    def feed(self, chunk: bytes) -> list[Framed]:
        """Return the messages that are complete now."""
        frames: list[Framed] = []
        if self._left:
            chunk = self._pass_over(chunk, frames)
        self._held += chunk
        at = 0
        while not self._over and len(self._held) - at >= _prelude.size:
            total, headers, checksum = _prelude.unpack_from(self._held, at)
            if crc32(self._held[at : at + 8]) != checksum or total < _LEAST or headers > total - _LEAST:
                self.ignored = self.ignored or bytes(self._held[at : at + _prelude.size])
                frames.append(Damaged("the prelude of a message fails its checksum", final=True))
                self._over = True
            elif total > self._limit:
                self._size = self._left = total
                rest = self._pass_over(bytes(self._held[at:]), frames)
                self._held, at = bytearray(rest), 0
                if self._left:
                    break
            elif len(self._held) - at < total:
                break
            else:
                frames.append(_read(bytes(self._held[at : at + total]), headers))
                at += total
        del self._held[: len(self._held) if self._over else at]
        return frames

    def close(self) -> list[Framed]:
        """Return that the last message has not ended, if there is one."""
        if self._left:
            return [Skipped(self._size - self._left)]
        return [Damaged("the last message is cut off")] if self._held else []

    def _pass_over(self, chunk: bytes, frames: list[Framed]) -> bytes:
        """Return what stands behind a message that is too long."""
        taken = min(len(chunk), self._left)
        self._left -= taken
        if not self._left:
            frames.append(Skipped(self._size))
        return chunk[taken:]

    def _read(self, block: bytes) -> Frame | None:
        raise NotImplementedError  # nothing separates messages


def _read(message: bytes, length: int) -> Framed:
    """Return what a whole message says, whose headers have this length."""
    if crc32(message[:-4]) != int.from_bytes(message[-4:], "big"):
        return Damaged("a message fails its checksum")
    headers = _read_headers(message[_prelude.size : _prelude.size + length])
    if headers is None:
        return Damaged("the headers of a message cannot be read")
    payload = message[_prelude.size + length : -4]
    match headers.get(":message-type", "event"):
        case "exception":
            return Frame(_fault(headers.get(":exception-type", "exception"), payload), "error")
        case "error":
            written = {"message": headers.get(":error-message", "")}
            return Frame(_fault(headers.get(":error-code", "error"), msgspec.json.encode(written)), "error")
    return Frame(payload, headers.get(":event-type") or "message")


def _read_headers(data: bytes) -> dict[str, str] | None:
    """Return the headers that are texts, or None where they are none."""
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name = data[at + 1 : at + 1 + data[at]]
            at += 1 + data[at]
            kind, at = data[at], at + 1
            size = _SIZES.get(kind)
            if size is None:
                if kind > _TEXT:
                    return None
                size, at = int.from_bytes(data[at : at + 2], "big"), at + 2
            if at + size > len(data):
                return None
            if kind == _TEXT:
                headers[name.decode(errors="replace")] = data[at : at + size].decode(errors="replace")
            at += size
    except IndexError:
        return None
    return headers


def _fault(name: str, payload: bytes) -> bytes:
    """Return the object of an error."""
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = {"message": payload[:4096].decode(errors="replace")}
    text = value.get("message") or value.get("Message") if isinstance(value, dict) else value
    return msgspec.json.encode({"type": name, "message": text if isinstance(text, str) else ""})
