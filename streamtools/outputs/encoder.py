"""What all encoders share: UI events in, the bytes of a response out. Sans-IO.

An encoder serves one response. It knows no connection and no server: whoever has one sends its `headers`, then what
`encode` returns for each event, and what `close` returns at the end. A front end that was promised an end of each thing
that began gets it in any case: `done` ends the body as the run ended, and `close` ends one whose `done` never came.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from streamtools.errors import ClosedError
from streamtools.events import UIEvent

EVENT_STREAM = "text/event-stream"
EVENT_STREAM_HEADERS: Mapping[str, str] = MappingProxyType({"cache-control": "no-cache", "x-accel-buffering": "no"})
"""What server-sent events ask of what stands in between: to keep none of them, neither for later nor for a while."""


class Encoder(Protocol):
    """Writes the events of one run for one reader. What is a property here may be a plain attribute."""

    @property
    def content_type(self) -> str:
        """The content type of the response."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The other headers that the protocol asks for, with names in lower case."""
        ...

    @property
    def keep_alive(self) -> bytes:
        """What may be sent while nothing happens, so that nobody in between gives up; `b""` where the format has
        nothing. It may stand between any two events.
        """
        ...

    @property
    def resumable(self) -> bool:
        """Whether each event carries its `seq` and is written as if it were the only one, so that a reader may go on
        behind the last event that it saw. Where False, one that comes back needs all events from the start.
        """
        ...

    def encode(self, event: UIEvent) -> bytes:
        """Return what goes out for `event`, `b""` where the format has no words for it; `done` completes the body.

        Raises `ClosedError` behind `done` and behind `close`.
        """
        ...

    def close(self) -> bytes:
        """Return what ends the body, truthfully, of a run that did not come to its `done`; `b""` once it has ended."""
        ...


def closed_error() -> ClosedError:
    """Return what `encode` raises once the body has ended."""
    return ClosedError("the body has ended; another response needs another encoder")
