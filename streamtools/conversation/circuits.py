"""Which of several models is asked first: one that has kept failing rests for a while."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from time import monotonic


@dataclass
class Circuit:
    """What is known of one model: how it has failed lately. It is asked last while its circuit is open."""

    failures: int = 0
    """In a row."""
    open_until: float = 0.0
    """The time, of the clock, until which it rests."""
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=100))
    """Seconds until the last answers began."""

    @property
    def patience(self) -> float | None:
        """The seconds in which 95 of 100 answers begin; None if fewer than 20 are known."""
        return sorted(self.waits)[len(self.waits) * 95 // 100] if len(self.waits) >= 20 else None


class Circuits:
    """The circuits of so many models: `failures` in a row open one for `rest` seconds of a clock."""

    def __init__(
        self, count: int, clock: Callable[[], float] = monotonic, *, failures: int = 5, rest: float = 30.0
    ) -> None:
        if failures < 1 or not rest > 0:
            raise ValueError(f"failures is at least 1 and rest a time above 0 seconds, not {failures!r} and {rest!r}")
        self.each = [Circuit() for _ in range(count)]
        self._clock = clock
        self._failures = failures
        self._rest = rest
        self._lock = threading.Lock()  # the gateway reads long answers in threads

    def order(self, failed: Collection[int] = ()) -> list[int]:
        """Return the places of the models in the order in which they are asked, where some have `failed` in a run."""
        now = self._clock()
        return sorted(range(len(self.each)), key=lambda at: (at in failed, self.each[at].open_until > now, at))

    def note(self, at: int, *, failed: bool) -> None:
        """Take note that a model has failed, or has given an answer."""
        circuit = self.each[at]
        with self._lock:
            circuit.failures = circuit.failures + 1 if failed else 0
            if not failed:
                circuit.open_until = 0.0
            elif circuit.failures >= self._failures:
                circuit.open_until = self._clock() + self._rest
