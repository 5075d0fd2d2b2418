"""What a stream reports to telemetry: requests, first bytes, first text, and events in batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from streamtools.events import SourceError, SourceEvent, SourceWarning, Text, UIEvent
from streamtools.observing import ObservedRun
from streamtools.stream.reading import EventSource, read_into

TakeBatch: TypeAlias = Callable[[Sequence[SourceEvent]], Awaitable[bool] | bool]

_BATCH = 256  # events that are reported together


class Observation:
    """A stage that reports one run to its observer. No single delta is reported, except the first."""

    def __init__(self, observed: ObservedRun) -> None:
        self.observed = observed
        self._unreported: list[UIEvent] = []
        self._awaits_text = False  # a request has started, and none of its text has been shown
        self._awaits_batch = False

    def take(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Record events. An empty batch means that the machine or the judge holds text back."""
        if not events:
            self.observed.text_buffered()
            return events
        if self._awaits_text and any(type(event) is Text and not event.text.isspace() for event in events):
            self._awaits_text = False
            self.observed.text_shown()
        self._unreported += events
        if len(self._unreported) >= _BATCH:
            self.report()
        return events

    def report(self) -> None:
        """Report the recorded events."""
        if self._unreported:
            self.observed.events_shown(self._unreported)
            self._unreported = []

    async def read(self, source: EventSource, take: TakeBatch) -> None:
        """Read a source to its end, as `read_into` does, and report the start and the end of its answer."""
        self.observed.request_started(getattr(source, "origin", ()), source)
        self._awaits_text = self._awaits_batch = True

        def take_batch(batch: Sequence[SourceEvent]) -> Awaitable[bool] | bool:
            if self._awaits_batch and batch and not isinstance(batch[0], SourceError | SourceWarning):
                self._awaits_batch = self.observed.by_chunk
                self.observed.batch_received()
            return take(batch)

        raised: BaseException | None = None
        try:
            await read_into(source, take_batch)
        except BaseException as error:
            raised = error
            raise
        finally:
            self._awaits_text = False
            self.report()
            self.observed.source_read(raised)

    def end(self) -> None:
        """Report the end of the run."""
        self.report()
        self.observed.run_ended()
