"""Streams with one planted fault each, which the torture must find."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
from msgspec.structs import replace

from streamtools.events import Done, Executed, UIEvent
from streamtools.stream.event_buffer import EventBuffer
from tests.torture.noted import NotedStream


class LeavesTask(NotedStream):
    """Starts a task that never ends."""

    async def __aenter__(self) -> Any:
        self.forgotten = asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="forgotten")
        return await super().__aenter__()


class SwallowsCancel(NotedStream):
    """Treats a cancellation as the end of the stream."""

    async def __anext__(self) -> UIEvent:
        try:
            return await super().__anext__()
        except asyncio.CancelledError:
            raise StopAsyncIteration from None


class SaysDoneTwice(NotedStream):
    """Repeats `done` if it was closed early."""

    async def __anext__(self) -> UIEvent:
        if self.taken and isinstance(self.taken[-1], Done) and self.taken[-1].reason == "cancelled":
            self.taken.append(self.taken[-1])
        return await super().__anext__()


class NeverCloses(NotedStream):
    """Leaves the response open if another task closed the stream."""

    async def _close_source(self) -> None:
        if not (self._scope and self._scope.cancel_called):
            await super()._close_source()


class LosesEvents(NotedStream):
    """Takes an event, and loses it if it is cancelled before it returns it."""

    async def __anext__(self) -> UIEvent:
        event = await super().__anext__()
        self.taken.pop()
        await anyio.lowlevel.checkpoint()
        self.taken.append(event)
        return event


class Wraps(NotedStream):
    """Raises an exception of the block in an exception group."""

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await super().__aexit__(kind, error, trace)
        if isinstance(error, Exception):
            raise ExceptionGroup("in the block", [error])


class Pretends(NotedStream):
    """Reports each call as successful."""

    async def __anext__(self) -> UIEvent:
        event = await super().__anext__()
        call = getattr(event, "call", None)
        if event.type == "error" and call is not None:
            self.taken[-1] = Executed(call, "fine", None, 0.0, seq=event.seq)
        return event


class _ForgetfulBuffer(EventBuffer):
    def close(self) -> None:
        self.is_closed = True


class NeverWakes(NotedStream):
    """Does not wake the readers that wait for the end."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._buffer = self._run.buffer = _ForgetfulBuffer()


class ForgetsToAwait(NotedStream):
    """Creates a coroutine without awaiting it when it is closed."""

    async def aclose(self) -> None:
        super().aclose()  # type: ignore[unused-coroutine]  # this is the fault


class HidesEnd(NotedStream):
    """Reports that it finished although it was closed."""

    async def __anext__(self) -> UIEvent:
        event = await super().__anext__()
        if isinstance(event, Done):
            self.taken[-1] = event = replace(event, reason="finished")
        return event


PLANTED: dict[str, tuple[type[NotedStream], str, str]] = {
    "a remaining task": (LeavesTask, "break@1", "a task is left: forgotten"),
    "a swallowed cancellation": (SwallowsCancel, "cancel-task", "should have cancelled"),
    "two ends": (SaysDoneTwice, "aclose", "nothing follows done"),
    "a response that stays open": (NeverCloses, "aclose", "closed 0 times"),
    "a lost event": (LosesEvents, "timeout", "out of order"),
    "an exception in a group": (Wraps, "raise", "in 1 groups instead of 0"),
    "a false success": (Pretends, "cancel", "reported as executed, but have not returned"),
    "a lost wake-up": (NeverWakes, "timeout", "nothing moves"),
    "a coroutine that is never awaited": (ForgetsToAwait, "aclose", "was never awaited"),
    "a false end": (HidesEnd, "aclose", "but the result is cancelled"),
}
"""The planted faults: the stream, the blow that reveals the fault, and a part of the complaint."""

OF_ASYNCIO = ("a remaining task", "a swallowed cancellation")
"""Faults that are impossible on trio."""
