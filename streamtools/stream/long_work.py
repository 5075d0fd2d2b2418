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
_Told = TypeVar("_Told")

_pausing = threading.Lock()  # one at a time, so that the collector has its turn between any two


async def in_thread(work: Callable[[], _Returned]) -> _Returned:
    """Run `work` in a thread and return its result. Other tasks run meanwhile.

    Garbage collection pauses in the whole process, unless it is off or other work has paused it.
    """
    return await anyio.to_thread.run_sync(_without_collections, work)


async def in_thread_if(is_long: bool, work: Callable[[], _Returned]) -> _Returned:
    """Do so if the work is long, and else do it at once."""
    return await in_thread(work) if is_long else work()


def one_at_a_time(tell: Callable[[_Told], object]) -> Callable[[_Told], None]:
    """Return what calls a function from any thread, and from one at a time."""
    lock = threading.Lock()

    def tell_alone(told: _Told) -> None:
        with lock:
            tell(told)

    return tell_alone


def _without_collections(work: Callable[[], _Returned]) -> _Returned:
    if not gc.isenabled() or not _pausing.acquire(blocking=False):
        return work()
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()
        _pausing.release()
