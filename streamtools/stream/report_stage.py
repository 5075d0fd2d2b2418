"""Reports one run to its observer, such as OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamtools.events import SourceError, SourceEvent, SourceWarning, UIEvent
from streamtools.observing import ObservedRun

_BATCH = 256  # events are reported when this many are unreported


class ReportStage:
    """A stage of `StreamRun` that reports one run to its observer.

    It reports events in batches, because a report for each delta is slow.
    """

    def __init__(self, observed: ObservedRun) -> None:
        self._observed = observed
        self._unreported: list[UIEvent] = []
        self._awaits_batch = False  # True from the start of a request until its first batch from the source

    def take(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Record events for the next report."""
        self._unreported += events
        if len(self._unreported) >= _BATCH:
            self._report()
        return events

    def take_batch(self, batch: Sequence[SourceEvent]) -> None:
        """Report the first batch of a response from the source.

        A batch that begins with an error or a warning of the source is not reported.
        """
        if self._awaits_batch and batch and not isinstance(batch[0], SourceError | SourceWarning):
            self._awaits_batch = False
            self._observed.first_batch_received()

    @contextmanager
    def reading(self, source: object) -> Iterator[None]:
        """Return a context manager in which a source is read. It reports the start and the end of the request."""
        self._observed.request_started(getattr(source, "origin", ()), source)
        self._awaits_batch = True
        raised: BaseException | None = None
        try:
            yield
        except BaseException as error:
            raised = error
            raise
        finally:
            self._report()
            self._observed.source_read(raised)

    def end(self) -> None:
        """Report the remaining events and the end of the run."""
        self._report()
        self._observed.run_ended()

    def _report(self) -> None:
        if self._unreported:
            self._observed.events_shown(self._unreported)
            self._unreported = []
