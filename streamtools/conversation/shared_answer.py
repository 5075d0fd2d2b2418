"""`SharedAnswer`: one answer, continued by the next model each time a model fails. Sans-IO.

It chooses the next model, detects failures, and removes text that the next model repeats. A chat uses it for its
models, and the gateway uses it for its upstreams. `Circuits` count failures across answers.
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

CONTINUE_PROMPT = (
    "Your last answer was interrupted by a technical fault, and the reader has already seen everything that you wrote. "
    "Go on exactly where it stops, in the middle of a word if need be. Repeat nothing, and do not mention this."
)
RETRYABLE_STATUSES = (408, 429)
"""The HTTP statuses below 500 after which the next model is tried."""


@dataclass
class Circuit:
    """The recent failures of one model. While its circuit is open, the model is tried after the others."""

    failures: int = 0
    """The number of consecutive failures."""
    open_until: float = 0.0
    """The clock time at which the circuit closes."""


class Circuits:
    """Circuit breakers for `count` models.

    After `failures` consecutive failures, a model's circuit stays open for `rest` seconds. Raises ValueError if
    `failures` is less than 1, or `rest` is not above 0.
    """

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
        """Return the model indexes in the order in which to try them. The models in `failed` come last."""
        now = self._clock()
        return sorted(
            range(len(self.each)), key=lambda index: (index in failed, self.each[index].open_until > now, index)
        )

    def note(self, index: int, *, failed: bool) -> None:
        """Record whether the model at `index` failed or answered."""
        circuit = self.each[index]
        with self._lock:
            circuit.failures = circuit.failures + 1 if failed else 0
            if not failed:
                circuit.open_until = 0.0
            elif circuit.failures >= self._failures:
                circuit.open_until = self._clock() + self._rest


class SharedAnswer:
    """One answer. The models of `circuits` are tried in order; the models in `failed` come last."""

    def __init__(self, circuits: Circuits, failed: Collection[int] = ()) -> None:
        self.fault: SourceError | None = None
        """The failure of the current model."""
        self.begun = False
        """Whether `read` has returned a part of the answer."""
        self.complete = False
        """Whether at least one turn of the answer is complete. Later failures no longer switch models."""
        self._circuits = circuits
        self._untried = circuits.order(failed)
        self.index = self._untried.pop(0)
        """The index of the current model."""
        self._continuation: Continuation | None = None

    @property
    def next(self) -> int | None:
        """The index of the next model; None if all models were tried."""
        return self._untried[0] if self._untried else None

    def read(self, events: Iterable[SourceEvent], *, may_fail: bool = True) -> list[SourceEvent]:
        """Return the events before the first failure, and store this failure in `fault`.

        With `may_fail=False`, failures are returned as events.
        """
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
                self._circuits.note(self.index, failed=fault is not None)
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
        """Return the failed model's text that is still buffered as a possible repetition."""
        continuation, self._continuation = self._continuation, None
        pending = continuation.close() if continuation is not None else ""
        return [TextDelta(pending)] if pending else []

    def move_on(self) -> None:
        """Make the next model the current one."""
        self.fault = None
        self.index = self._untried.pop(0)

    def continue_text(self, written: str, prefill: Prefill | None) -> None:
        """From now on, remove repetitions of `written` from the current model's text.

        With `prefill`, the server continues the prefilled text. Without it, an instruction asked the model to continue.
        """
        how: Literal["echoed", "prefilled", "instructed"] = "instructed"
        if prefill is not None:
            how = "echoed" if prefill.echoes else "prefilled"
        self._continuation = Continuation(written, how)


def failure_of(event: SourceEvent) -> SourceError | None:
    """Return the failure that `event` reports. Returns None if another model must not be tried."""
    if isinstance(event, ProviderCompleted) and event.finish_reason == "error":
        return SourceError("the provider ended the turn with an error")
    if not isinstance(event, SourceError) or event.failed_generation:
        return None
    status = event.status
    return event if status is None or status in RETRYABLE_STATUSES or status >= 500 or 200 <= status < 300 else None
