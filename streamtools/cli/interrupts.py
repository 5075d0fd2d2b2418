"""Ctrl-C while something goes on that can be stopped."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import anyio


@contextlib.contextmanager
def stopped_by_interrupt(scope: anyio.CancelScope) -> Iterator[None]:
    """While the block lasts, the first Ctrl-C cancels `scope`, and a second one raises KeyboardInterrupt.

    It is the handler of asyncio's loop that is replaced: there the first one would end the loop. Where interrupts are
    ignored, as in the background of a shell, they stay ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    loop = asyncio.get_running_loop()

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        loop.call_soon_threadsafe(scope.cancel)  # which also wakes the loop

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
