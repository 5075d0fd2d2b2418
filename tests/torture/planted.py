"""Streams with a fault each, which the torture has to find."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
from msgspec.structs import replace

from streamtools.events import Done, Executed, UIEvent
from streamtools.stream.event_buffer import EventBuffer
from tests.torture.noted import NotedStream


class LeavesTask(NotedStream):
    """Begins a task that nobody ends."""

    async def __aenter__(self) -> Any:
        self.forgotten = asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="forgotten")
        return await super().__aenter__()


class SwallowsCancel(NotedStream):
    """Takes a cancellation for the end of the stream."""

    async def __anext__(self) -> UIEvent:
        try:
            return await super().__anext__()
        except asyncio.CancelledError:
            raise StopAsyncIteration from None


class SaysDoneTwice(NotedStream):
    """Repeats its end if it was left early."""

    async def __anext__(self) -> UIEvent:
        if self.taken and isinstance(self.taken[-1], Done) and self.taken[-1].reason == "cancelled":
            self.taken.append(self.taken[-1])
        return await super().__anext__()


class NeverCloses(NotedStream):
    """Leaves the response open where it was closed from outside."""

    async def _close_source(self) -> None:
        if not (self._scope and self._scope.cancel_called):
            await super()._close_source()


class LosesEvents(NotedStream):
    """Takes an event away, and waits once more before it hands it over."""

    async def __anext__(self) -> UIEvent:
        event = await super().__anext__()
        self.taken.pop()
        await anyio.lowlevel.checkpoint()
        self.taken.append(event)
        return event


class Wraps(NotedStream):
    """Shows its task group what went wrong in the block, which is then in a group."""

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await super().__aexit__(kind, error, trace)
        if isinstance(error, Exception):
            raise ExceptionGroup("in the block", [error])


class Pretends(NotedStream):
    """Says that each call has succeeded."""

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
    """Makes a coroutine that nobody awaits, when it is closed."""

    async def aclose(self) -> None:
        super().aclose()  # type: ignore[unused-coroutine]  # this is the fault


class TellsNobody(NotedStream):
    """Ends as if it were complete when it was closed."""

    async def __anext__(self) -> UIEvent:
        event = await super().__anext__()
        if isinstance(event, Done):
            self.taken[-1] = event = replace(event, reason="finished")
        return event


PLANTED: dict[str, tuple[type[NotedStream], str, str]] = {
    "a task that is left": (LeavesTask, "break@1", "a task is left: forgotten"),
    "a cancellation that is swallowed": (SwallowsCancel, "cancel-task", "should have cancelled"),
    "an end that is told twice": (SaysDoneTwice, "aclose", "nothing follows done"),
    "a response that stays open": (NeverCloses, "aclose", "closed 0 times"),
    "an event that is lost": (LosesEvents, "timeout", "out of order"),
    "an exception in a group": (Wraps, "raise", "in 1 groups, and there are 0"),
    "a success that was none": (Pretends, "cancel", "told as executed, and have not returned"),
    "a wake-up that is lost": (NeverWakes, "timeout", "nothing moves"),
    "a coroutine that nobody awaits": (ForgetsToAwait, "aclose", "was never awaited"),
    "an end that is not true": (TellsNobody, "aclose", "and the result is cancelled"),
}
"""By what is wrong: the stream, the blow that brings it out, and a part of the complaint."""

OF_ASYNCIO = ("a task that is left", "a cancellation that is swallowed")
"""Those that trio does not let happen."""
