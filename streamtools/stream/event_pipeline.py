"""The stages that see or change events between the machine and the buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streamtools.events import UIEvent


class EventStage(Protocol):
    """One stage: the text judge, telemetry, the collector of the result, rules in arguments."""

    def take(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Return the events for the next stage. A stage may hold events back and return them from a later call."""


class EventPipeline:
    """Passes events through its stages, in order."""

    def __init__(self, *stages: EventStage | None) -> None:
        """Make a pipeline of these stages; None stands for a stage that the run does not need."""
        self._stages = [stage for stage in stages if stage is not None]

    def take(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Return the events that the consumer gets now. An empty batch only releases events that a stage held back."""
        for stage in self._stages:
            events = stage.take(events)
        return events
