"""Runs work that would block the event loop in a thread, with garbage collection paused.

While a thread works, Python switches to the event loop between any two instructions, but not during a garbage
collection. A collection takes longer the more objects exist. Parsing a large body creates several hundred thousand
objects, and most of them are freed without a collection when the work ends. So collections wait until then. While a
request of 7 MB is read, the event loop stands still for at most 0.4 s at a time, and with collections for 1 s.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

IN_THREAD = 64 * 1024
"""A body of more bytes than this is read in a thread."""

_Returned = TypeVar("_Returned")

_pausing = threading.Lock()  # held while collection is paused, so that pauses do not overlap


async def in_thread(work: Callable[[], _Returned]) -> _Returned:
    """Run `work` in a thread and return its result. Other tasks run meanwhile.

    This pauses garbage collection in the whole process. If collection is already off or paused, it stays so.
    """
    return await anyio.to_thread.run_sync(_without_collections, work)


async def in_thread_if(is_long: bool, work: Callable[[], _Returned]) -> _Returned:
    """Run `work` in a thread if `is_long` is True. Otherwise run it in the calling task."""
    return await in_thread(work) if is_long else work()


def _without_collections(work: Callable[[], _Returned]) -> _Returned:
    if not gc.isenabled() or not _pausing.acquire(blocking=False):
        return work()
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()
        _pausing.release()
