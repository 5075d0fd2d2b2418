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

_Returned = TypeVar("_Returned")

_pausing = threading.Lock()  # one at a time, so that the collector has its turn between any two


async def in_thread(work: Callable[[], _Returned]) -> _Returned:
    """Return what `work` returns, or raise what it raises, from a thread; others in the loop go on meanwhile.

    The collector stands still as long, in the whole process, unless somebody has turned it off or other work has
    stopped it already.
    """
    return await anyio.to_thread.run_sync(_without_collections, work)


def _without_collections(work: Callable[[], _Returned]) -> _Returned:
    if not gc.isenabled() or not _pausing.acquire(blocking=False):
        return work()
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()
        _pausing.release()
