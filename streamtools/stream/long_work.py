"""Work that is too long for an event loop: it runs in a thread, with garbage collection paused.

Python lets the loop run between any two steps of a thread, but not during a garbage collection, which takes longer the
more objects there are. Reading a large body makes several hundred thousand objects. Most of them are freed at the end
without a collection, so the collector waits until then.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

IN_THREAD = 64 * 1024
"""Bytes above which a body is read in a thread."""

_Returned = TypeVar("_Returned")
_Argument = TypeVar("_Argument")

_pausing = threading.Lock()  # one pause at a time, so that the collector runs between two of them


async def in_thread(work: Callable[[], _Returned]) -> _Returned:
    """Run `work` in a thread and return its result. Other tasks run meanwhile.

    Garbage collection pauses in the whole process, unless it is off or other work has paused it.
    """
    return await anyio.to_thread.run_sync(_without_collections, work)


async def in_thread_if(is_long: bool, work: Callable[[], _Returned]) -> _Returned:
    """Run `work` in a thread if it is long; otherwise run it here."""
    return await in_thread(work) if is_long else work()


def one_at_a_time(function: Callable[[_Argument], object]) -> Callable[[_Argument], None]:
    """Return a function that any thread may call: it calls `function` in one thread at a time."""
    lock = threading.Lock()

    def call_alone(argument: _Argument) -> None:
        with lock:
            function(argument)

    return call_alone


def _without_collections(work: Callable[[], _Returned]) -> _Returned:
    if not gc.isenabled() or not _pausing.acquire(blocking=False):
        return work()
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()
        _pausing.release()
