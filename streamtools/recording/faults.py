"""Put a fault into a recorded stream: garbage at a place, or nothing more behind one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamtools.errors import RecordingError
from streamtools.recording.format import Chunk
from streamtools.recording.playback import Playback


def spoil(chunks: Iterable[Chunk], playback: Playback, name: str) -> Iterator[Chunk]:
    """Yield the chunks with the garbage of `playback`, up to the place where its fault ends the stream.

    Nothing is read behind that place. Raises `RecordingError`, which calls the recording `name`, if it is not reached.
    """
    if playback.garbage_at is not None:
        chunks = _insert(chunks, playback.garbage_at, playback.garbage, name)
    if playback.ending is not None:
        inserted = 0 if playback.garbage_at is None else len(playback.garbage)
        chunks = _stop(chunks, *playback.ending, inserted, name)
    return iter(chunks)


def _insert(chunks: Iterable[Chunk], place: int, garbage: bytes, name: str) -> Iterator[Chunk]:
    """Yield the chunks, with `garbage` before the byte at `place`, or behind the last one."""
    count, at, missing = 0, 0.0, True
    for at, data in chunks:
        split, count = place - count, count + len(data)
        if missing and place < count:
            missing = False
            yield Chunk(at, data[:split] + garbage + data[split:])
        else:
            yield Chunk(at, data)
    if missing:
        if count < place:
            raise RecordingError(unreached(name, "garbage_at", place, count))
        yield Chunk(at, garbage)


def _stop(chunks: Iterable[Chunk], fault: str, place: int, inserted: int, name: str) -> Iterator[Chunk]:
    """Yield `place` bytes, and the `inserted` ones before them."""
    count, limit = 0, place + inserted
    if not limit:
        return
    for at, data in chunks:
        if count + len(data) >= limit:
            yield Chunk(at, data[: limit - count])
            return
        count += len(data)
        yield Chunk(at, data)
    raise RecordingError(unreached(name, fault, place, count - inserted))


def unreached(name: str, fault: str, place: int, size: int) -> str:
    """Return the words for a fault whose place is behind the end of a response."""
    return f"{name}: {fault}={place} was not reached: the response has {size:,} bytes"
