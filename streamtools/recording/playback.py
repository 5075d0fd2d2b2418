"""How a recording is played: how fast, cut how, and with which fault.

Real providers are slow, cut their bytes anywhere, break off, fall silent and sometimes send rubbish. A recording holds
what one of them did once; what it did not do is put in here, at a place that is given in bytes of the body as recorded,
so that it is the same place however the stream is cut. `replay`, `ReplayBytes` and `ReplayTransport` take these options
alike, as keywords.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TypedDict

from streamtools.recording.cutting import Cut

GARBAGE = b'\xff\x00"}\x1b{\xc3\x28\xfe'
"""What `garbage_at` inserts: bytes that are no UTF-8, a null byte, an escape, and a quote, so that no JSON survives."""


class VirtualClock:
    """A clock that nobody waits for: a replay sets it forward to the time of each thing that comes.

    Called, it returns its time in seconds. Only recordings that are given this clock go by it; tools, their time limits
    and the limits of a run have the time of the event loop. A reader that takes what comes as it comes finds it at the
    recorded time of that: before the clock moves on, others get their turn.
    """

    def __init__(self, start: float = 0.0) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Set the clock forward; it does not go back."""
        self.now += max(0.0, seconds)


class PlaybackOptions(TypedDict, total=False):
    """The fields of `Playback`, as keywords."""

    speed: float
    cut: Cut
    clock: VirtualClock | None
    drip: float | None
    cut_after: int | None
    reset_after: int | None
    stall_after: int | None
    garbage_at: int | None
    garbage: bytes
    read_timeout: float | None


@dataclass(frozen=True, kw_only=True)
class Playback:
    """How to play. Raises ValueError for a value that is not allowed, and for two faults that end the same stream.

    A place that the body does not reach is told by a `RecordingError` at its end: a fault that never came would let a
    test pass for the wrong reason.
    """

    speed: float = 0
    """0 for no waiting, 1 for the recorded timing, 2 for twice as fast."""
    cut: Cut = "recorded"
    """How the bytes are cut, see `recut`."""
    clock: VirtualClock | None = None
    """Is set forward by the recorded times (at `speed`, where that is not 0) instead of waiting for them."""
    drip: float | None = None
    """Bytes a second, at most: a piece is there when its last byte is. With `cut="byte"` they come one by one."""
    cut_after: int | None = None
    """Bytes behind which the response ends, as if it were complete."""
    reset_after: int | None = None
    """Bytes behind which the connection breaks."""
    stall_after: int | None = None
    """Bytes behind which nothing more comes, until the reader's time is up, or it is cancelled or closed."""
    garbage_at: int | None = None
    """Bytes behind which `garbage` is inserted."""
    garbage: bytes = GARBAGE
    read_timeout: float | None = None
    """Seconds that a reader waits for the next bytes, then TimeoutError; `ReplayTransport` takes the client's."""

    def __post_init__(self) -> None:
        if not 0 <= self.speed < math.inf:
            raise ValueError(f"speed is 0 or a factor, and {self.speed!r} is neither")
        for name in ("drip", "read_timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is a number above 0, not {value!r}")
        for name in (*_ENDINGS, "garbage_at"):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and value >= 0):
                raise ValueError(f"{name} is a number of bytes from 0, not {value!r}")
        given = [name for name in _ENDINGS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"a stream ends once: {' or '.join(given)}, not both")
        if given and self.garbage_at is not None and self.garbage_at > getattr(self, given[0]):
            raise ValueError(f"garbage_at is behind {given[0]}, where nothing comes")

    @property
    def timed(self) -> bool:
        """Whether there is any time to wait for."""
        return bool(self.speed) or self.clock is not None or self.drip is not None

    @property
    def ending(self) -> tuple[str, int] | None:
        """The fault that ends the stream, and behind how many bytes."""
        places = ((name, getattr(self, name)) for name in _ENDINGS)
        return next(((name, place) for name, place in places if place is not None), None)

    @property
    def last(self) -> int | None:
        """The number of bytes behind which a fault ends the stream."""
        return None if self.ending is None else self.ending[1]

    @property
    def faulty(self) -> bool:
        """Whether there is a fault."""
        return self.ending is not None or self.garbage_at is not None

    def due(self, at: float, count: int) -> float:
        """Return when something is there that was recorded at `at` milliseconds, behind `count` bytes: in seconds."""
        speed = self.speed or (0 if self.clock is None else 1)
        recorded = at / 1000 / speed if speed else 0.0
        return recorded if self.drip is None else max(recorded, count / self.drip)


_ENDINGS = ("cut_after", "reset_after", "stall_after")
PLAYBACK = frozenset(field.name for field in fields(Playback))
"""The names of the options."""
