"""Consumers of streams in the measured process. Most read to the end, and the others leave in all possible ways.

What a stream has said when it is left is still read, its `done` above all.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from benchmarks.soaking.house import House, decide
from benchmarks.soaking.plans import Plan
from benchmarks.soaking.witness import Witness
from streamtools import ToolStream
from streamtools.events import UIEvent

_EVENTS = 30  # behind which somebody leaves, at most
_HURRY = 0.1  # seconds that a hurried reader waits for one event


class Leaving(Exception):
    """The exception that a consumer raises."""


class Consumer:
    """One reader of one stream."""

    def __init__(self, house: House, plan: Plan) -> None:
        self._rng = random.Random(plan.seed + 2)
        self._house = house
        self._plan = plan
        self._asks = self._rng.random() < 0.5
        self._ran: Counter[str] = Counter()
        self._witness = Witness(plan, asks=self._asks, ran=self._ran)
        self._leaves_at = self._rng.randint(0, _EVENTS)
        self._left: str | None = None
        self._stream: ToolStream | None = None

    async def consume(self) -> None:
        """Read the stream in one of the ways. Raises `Wrong`."""
        await self._rng.choice(_WAYS)(self)
        witness, stream = self._witness, self._stream
        if stream is None:
            self._house.tally.streams += 1
            self._house.tally.left["cancelled before it began"] += 1
            return
        async for event in stream:  # what it has still to say
            witness.feed(event)
        witness.close(left=self._left is not None)
        witness.check_result(stream.result)
        self._house.tally.add(witness, self._left)

    # The ways to read.

    async def _read(self) -> None:
        """Read to the end."""
        async with self._house.answer(self._plan, self._ran, asks=self._asks) as self._stream:
            async for event in self._stream:
                await self._take(event)

    async def _break(self) -> None:
        async with self._house.answer(self._plan, self._ran, asks=self._asks) as self._stream:
            async for event in self._stream:
                await self._take(event)
                if self._is_time("break"):
                    break

    async def _raise(self) -> None:
        async def read() -> None:
            async with self._house.answer(self._plan, self._ran, asks=self._asks) as self._stream:
                async for event in self._stream:
                    await self._take(event)
                    if self._is_time("raise"):
                        raise Leaving

        with suppress(Leaving):
            await read()

    async def _cancel(self) -> None:
        """Leave through a cancel scope around the whole stream."""
        with anyio.CancelScope() as scope:
            async with self._house.answer(self._plan, self._ran, asks=self._asks) as self._stream:
                async for event in self._stream:
                    await self._take(event)
                    if self._is_time("cancel"):
                        scope.cancel()

    async def _be_cancelled(self) -> None:
        """Be cancelled as a task, at any point."""
        task = asyncio.current_task()
        inner = asyncio.create_task(self._read())

        def cancel() -> None:
            if inner.cancel():
                self._left = "task cancelled"

        timer = asyncio.get_running_loop().call_later(self._rng.uniform(0, self._house.life), cancel)
        try:
            await inner
        except asyncio.CancelledError:
            if task is not None and task.cancelling():
                raise
        finally:
            timer.cancel()

    async def _close(self) -> None:
        """Let another task close the stream, and read on."""
        async with (
            anyio.create_task_group() as group,
            self._house.answer(self._plan, self._ran, asks=self._asks) as self._stream,
        ):
            async for event in self._stream:
                await self._take(event)
                if self._is_time("aclose"):
                    group.start_soon(self._stream.aclose)

    async def _hurry(self) -> None:
        """Cancel each slow read."""
        async with self._house.answer(self._plan, self._ran, asks=self._asks) as self._stream:
            going = True
            while going:
                with anyio.move_on_after(_HURRY):
                    try:
                        event = await anext(self._stream)
                    except StopAsyncIteration:
                        going = False
                    else:
                        await self._take(event)

    async def _read_elsewhere(self) -> None:
        """Let two other tasks read the stream, one after the other."""

        async def read(events: ToolStream, most: int) -> None:
            async for event in events:
                await self._take(event)
                most -= 1
                if not most:
                    break

        async with self._house.answer(self._plan, self._ran, asks=self._asks) as self._stream:
            for most in (self._leaves_at + 1, 0):
                async with anyio.create_task_group() as group:
                    group.start_soon(read, self._stream, most)

    async def _dawdle(self) -> None:
        """Read the first events slowly."""
        async with self._house.answer(self._plan, self._ran, asks=self._asks) as self._stream:
            async for event in self._stream:
                await self._take(event)
                if self._witness.count < self._leaves_at:
                    await anyio.sleep(self._rng.random() * self._house.life / _EVENTS)

    async def _take(self, event: UIEvent) -> None:
        assert self._stream is not None
        self._witness.feed(event)
        if self._asks:
            await decide(self._stream, event, late=self._left is not None)

    def _is_time(self, way: str) -> bool:
        """Return once whether to leave now in this way."""
        if self._left or self._witness.count < self._leaves_at or self._witness.done is not None:
            return False
        self._left = way
        return True


_WAYS: tuple[Callable[[Consumer], Awaitable[None]], ...] = (
    *[Consumer._read] * 7,
    Consumer._break,
    Consumer._raise,
    Consumer._cancel,
    Consumer._be_cancelled,
    Consumer._close,
    Consumer._hurry,
    Consumer._read_elsewhere,
    Consumer._dawdle,
)
