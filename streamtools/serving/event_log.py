"""The interface of logs that keep the events of runs for readers that arrive later or reconnect.

The position of a reader is the `seq` of the last event that it read. It needs nothing else to continue, neither a
connection nor a process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol
from urllib.parse import quote

from streamtools.errors import Code
from streamtools.events import UIEvent, Warning


def log_key(owner: str, run_id: str) -> str:
    """Return the key of a run in a log. It differs for each pair of owner and run, whatever characters they contain.

    >>> log_key("ann@example.org", "run_1")
    'ann%40example.org/run_1'
    """
    return "/".join(quote(name, safe="", errors="surrogatepass") for name in (owner, run_id))


def resync(seq: int) -> Warning:
    """Return the warning that a reader gets instead of the events up to `seq`."""
    return Warning(Code.RESYNC, "The events before the next one are no longer available.", seq=seq)


class EventLog(Protocol):
    """Keeps the events of runs. A `key` identifies an owner and a run (`log_key`), and its events arrive in order.

    A log limits itself: how many events of a run it keeps, and for how long. An exception of `append`, or ten seconds
    without a return, does not end the run: the event is missing in the log, and readers get `warning(resync)` instead.
    """

    async def append(self, key: str, event: UIEvent, /) -> int:
        """Keep an event, and return its `seq`. An event that the log already has stays unchanged."""
        ...

    def read(self, key: str, /, after: int = 0) -> AsyncIterator[UIEvent]:
        """Return an iterator of the events after the `seq` `after`: those that are kept, then new ones, up to `done`.

        If events after `after` are no longer kept, or the run has not reached it, the iterator first yields
        `warning(resync)` with the `seq` of the last dropped event (0 if none was dropped), then all events that are
        kept. Raises `RunNotFound` for an unknown key, here or at the first event. An asynchronous generator is allowed:
        after a cancelled read, reading starts again after the last event that was received.
        """
        ...
