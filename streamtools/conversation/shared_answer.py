"""`SharedAnswer`: one answer that several models give in turn, because each one before the last failed. Sans-IO.

It decides which model is asked next, finds failures, and removes repetitions. A chat uses it for its models, and the
gateway for its upstreams. `Circuits` remember failures across answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from streamtools.conversation.continuation import Continuation
from streamtools.conversation.models.prefill import Prefill
from streamtools.events import (
    ChainCompleted,
    ProviderCompleted,
    SourceError,
    SourceEvent,
    SourceUsage,
    SourceWarning,
    TextDelta,
)

GO_ON = (
    "Your last answer was interrupted by a technical fault, and the reader has already seen everything that you wrote. "
    "Go on exactly where it stops, in the middle of a word if need be. Repeat nothing, and do not mention this."
)
AGAIN = (408, 429)
"""Statuses below 500 after which another model gets the request."""


@dataclass
class Circuit:
    """The recent failures of one model. While its circuit is open, the model is asked last."""

    failures: int = 0
    """The number of consecutive failures."""
    open_until: float = 0.0
    """The time of the clock at which the circuit closes."""


class Circuits:
    """The circuits of `count` models: `failures` consecutive failures open one for `rest` seconds of the clock."""

    def __init__(
        self, count: int, clock: Callable[[], float] = monotonic, *, failures: int = 5, rest: float = 30.0
    ) -> None:
        if failures < 1 or not rest > 0:
            raise ValueError(
                f"`failures` must be at least 1 and `rest` above 0 seconds, got {failures!r} and {rest!r}."
            )
        self.each = [Circuit() for _ in range(count)]
        self._clock = clock
        self._failures = failures
        self._rest = rest
        self._lock = threading.Lock()  # the gateway reads long answers in threads

    def order(self, failed: Collection[int] = ()) -> list[int]:
        """Return the indexes of the models in the order in which they are asked; models that `failed` come last."""
        now = self._clock()
        return sorted(range(len(self.each)), key=lambda at: (at in failed, self.each[at].open_until > now, at))

    def note(self, at: int, *, failed: bool) -> None:
        """Record that a model has failed or has answered."""
        circuit = self.each[at]
        with self._lock:
            circuit.failures = circuit.failures + 1 if failed else 0
            if not failed:
                circuit.open_until = 0.0
            elif circuit.failures >= self._failures:
                circuit.open_until = self._clock() + self._rest


class SharedAnswer:
    """One answer of the models that `circuits` count; those that `failed` are asked last."""

    def __init__(self, circuits: Circuits, failed: Collection[int] = ()) -> None:
        self.fault: SourceError | None = None
        """The failure of the current model."""
        self.begun = False
        """Whether a part of the answer was returned."""
        self.complete = False
        """Whether the answer, or a turn of it, is complete."""
        self._circuits = circuits
        self._untried = circuits.order(failed)
        self.at = self._untried.pop(0)
        """The index of the current model."""
        self._continuation: Continuation | None = None

    @property
    def next(self) -> int | None:
        """The index of the next model; None if all were asked."""
        return self._untried[0] if self._untried else None

    def read(self, events: Iterable[SourceEvent], *, may_fail: bool = True) -> list[SourceEvent]:
        """Return the new events of the answer up to a failure, which becomes `fault` if the answer `may_fail`."""
        read: list[SourceEvent] = []
        for event in events:
            if self.fault is not None:
                break
            fault = None if self.complete else failure_of(event)
            if fault is not None and may_fail:
                self.fault = fault
                break
            if isinstance(event, ProviderCompleted | ChainCompleted):
                self.complete = True
                self._circuits.note(self.at, failed=fault is not None)
            elif isinstance(event, SourceError):
                self.complete = True
            elif not isinstance(event, SourceUsage | SourceWarning):
                self.begun = True
            if self._continuation is not None:
                self._continuation.read(event, read)
            else:
                read.append(event)
        return read

    def take_pending_text(self) -> list[SourceEvent]:
        """Return text of the failed model that was kept back as a possible repetition."""
        continuation, self._continuation = self._continuation, None
        pending = continuation.close() if continuation is not None else ""
        return [TextDelta(pending)] if pending else []

    def move_on(self) -> None:
        """Make the next model the current one."""
        self.fault = None
        self.at = self._untried.pop(0)

    def continue_text(self, written: str, prefill: Prefill | None) -> None:
        """Expect that the current model continues `written`, after a prefill or an instruction."""
        how: Literal["echoed", "prefilled", "instructed"] = "instructed"
        if prefill is not None:
            how = "echoed" if prefill.echoes else "prefilled"
        self._continuation = Continuation(written, how)


def failure_of(event: SourceEvent) -> SourceError | None:
    """Return the failure that an event reports, if another model can get the request."""
    if isinstance(event, ProviderCompleted) and event.finish_reason == "error":
        return SourceError("the provider ended the turn with an error")
    if not isinstance(event, SourceError) or event.failed_generation:
        return None
    status = event.status
    return event if status is None or status in AGAIN or status >= 500 or 200 <= status < 300 else None
