"""Samples the memory and objects of the measured process, and their growth. Needs the /proc of Linux."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import statistics
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from benchmarks.soaking.memory import held, in_use
from benchmarks.soaking.tally import Tally

GROWTH = 1.02
"""What the memory in use in the last quarter may be, at most, of that in the second."""

_EXPECTED = {
    "tool_call_failed",
    "stream_failed",
    "approval_without_ledger",  # no question of a soak is answered in another process
    "events_already_read",  # each consumer reads its stream a second time, to find events after the end
    "socket.send() raised exception.",  # asyncio, of more than five writes in the turn in which a client has gone
}
"""What is logged of faults such as ours; nothing else may be, above the level of information."""


class Sample(NamedTuple):
    """One moment. Seconds are processor times, of this process and of the provider's.

    `used` are the bytes in use and `held` those in memory, blocks those that Python's allocator has given out. `lag` is
    the longest, since the sample before, that the event loop came too late to what was due.
    """

    at: float
    streams: int
    lag: float
    used: int
    held: int
    blocks: int
    tasks: int
    threads: int
    files: int
    objects: int
    seconds: float
    seconds_outside: float


def _is_ours(kind: type) -> bool:
    module: object = kind.__module__  # a descriptor, for some types that C has made
    return isinstance(module, str) and module.partition(".")[0] == "streamtools"


def ours() -> Counter[str]:
    """Return the number of the package's objects that the garbage collector tracks, by type."""
    found = (type(thing) for thing in gc.get_objects())
    return Counter(kind.__qualname__ for kind in found if _is_ours(kind))


def take_sample(outside: int, streams: int, lag: float) -> Sample:
    """Return a sample. `outside` is the id of the other process, `streams` the number of open streams."""
    return Sample(
        time.monotonic(),
        streams,
        lag,
        in_use(),
        held(),
        sys.getallocatedblocks(),
        len(asyncio.all_tasks()),
        threading.active_count(),
        len(list(Path("/proc/self/fd").iterdir())),
        len(gc.get_objects()),
        time.process_time(),
        _seconds_of(outside),
    )


def _seconds_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def growth(figures: Sequence[int]) -> float:
    """Return the growth a second in the last quarter of the figures, from medians."""
    quarter = len(figures) // 4
    return statistics.median(figures[-quarter:]) / statistics.median(figures[quarter : 2 * quarter])


@contextmanager
def watched(tally: Tally) -> Iterator[Counter[str]]:
    """Add warnings, lost exceptions and logs to the problems of the tally. Yields the logged messages."""
    logged: Counter[str] = Counter()

    def note(logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        if method not in ("debug", "info"):
            name = str(event["event"])
            logged[name] += 1
            if name not in _EXPECTED:
                tally.blame(f"logged: {event}")
        raise structlog.DropEvent

    def lose(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        tally.blame(f"lost: {context}", context.get("exception"))

    def emit(record: logging.LogRecord) -> None:
        logged[record.getMessage()] += 1
        if record.getMessage() not in _EXPECTED:
            tally.blame(f"logged: {record.name}: {record.getMessage()}")

    handler = logging.Handler(logging.WARNING)
    handler.emit = emit  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    before, settings = structlog.is_configured(), structlog.get_config()
    structlog.configure(processors=[note])
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lose)
    hooks = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = lambda lost: tally.blame(f"lost: {lost.err_msg} {lost.object!r}", lost.exc_value)
    threading.excepthook = lambda lost: tally.blame(f"lost in a thread: {lost.thread}", lost.exc_value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, category, file, line, *_: tally.blame(
                f"warning: {category.__name__}: {message} ({file}:{line})"
            )
            yield logged
    finally:
        sys.unraisablehook, threading.excepthook = hooks
        loop.set_exception_handler(None)
        structlog.configure(**settings) if before else structlog.reset_defaults()
        logging.getLogger().removeHandler(handler)
