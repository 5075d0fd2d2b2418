"""Work that is too long for an event loop: in a thread, and without the collections of garbage in the middle of it.

Python lets the loop go on between any two steps of a thread, but not while it looks for garbage, and that takes the
longer the more objects there are: while a body becomes messages, and messages a request, several hundred thousand,
of which most are gone at the end without being looked for. So the collector waits until then.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

IN_THREAD = 64 * 1024
"""Bytes of what is read in a thread, if it has more."""

_Returned = TypeVar("_Returned")
_Told = TypeVar("_Told")

_pausing = threading.Lock()  # one at a time, so that the collector has its turn between any two


async def in_thread(work: Callable[[], _Returned]) -> _Returned:
    """Return what `work` returns, or raise what it raises, from a thread; others in the loop go on meanwhile.

    The collector stands still as long, in the whole process, unless somebody has turned it off or other work has
    stopped it already.
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
