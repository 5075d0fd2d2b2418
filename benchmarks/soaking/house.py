"""The objects that all streams of the measured process share: clients, runs, and requests to the provider."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Self

import httpx

from benchmarks.soaking.errands import allowed, registry
from benchmarks.soaking.plans import Plan
from benchmarks.soaking.tally import Tally
from streamtools import ApprovalOptions, RunnerOptions, ToolStream, sources
from streamtools.errors import DecisionRefused
from streamtools.events import ApprovalRequested, UIEvent
from streamtools.runs import Run, Runs

SOURCES: dict[str, Any] = {
    "openai": sources.openai,
    "anthropic": sources.anthropic,
    "ollama": sources.ollama,
    "gemini": sources.gemini,
}
KEPT = 20.0
"""Seconds for which a run is kept that has ended."""

_STREAMS = 16  # of one client, about: its pool looks at all of its connections for each request
# Nothing expires: a request that `task.cancel()` ends while httpcore closes what has expired leaves that open.
_LIMITS = httpx.Limits(max_connections=None, keepalive_expiry=None)
_PATIENCE = 120.0  # seconds of silence, but where it is the fault
_SLOW = 600.0  # seconds that a tool may take on a busy machine, but for those that are to come too late


class House:
    """A context manager. Streams run inside of it."""

    def __init__(self, url: str, streams: int, *, idle: float, life: float, seed: int, count: int | None) -> None:
        self.tally = Tally()
        self.runs = Runs(max_running=streams + 1, keep=KEPT, max_kept=2_000)
        self.open = 0
        self.life = life
        """Seconds that a stream takes, about."""
        self._url = url
        self._idle = idle
        self._seeds: Iterator[int] = itertools.islice(itertools.count(seed), count)
        self._clients = [
            httpx.AsyncClient(verify=False, trust_env=False, limits=_LIMITS) for _ in range(-(-streams // _STREAMS))
        ]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for client in self._clients:
            await self._stack.enter_async_context(client)
        await self._stack.enter_async_context(self.runs)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def next_seed(self) -> int | None:
        """Return the seed of the next stream, or None if no further stream may begin."""
        return next(self._seeds, None)

    def stop(self) -> None:
        """Let no further stream begin."""
        self._seeds = iter(())

    def _ask(self, plan: Plan) -> AbstractAsyncContextManager[httpx.Response]:
        client = self._clients[plan.seed % len(self._clients)]
        timeout = httpx.Timeout(_PATIENCE, read=self._idle if plan.ending == "stall" else _PATIENCE)
        return client.stream("POST", f"{self._url}/{plan.seed}", content=b"{}", timeout=timeout)

    @asynccontextmanager
    async def answer(self, plan: Plan, ran: Counter[str], *, asks: bool) -> AsyncIterator[ToolStream]:
        """Request the provider, and read its answer."""
        source = SOURCES[plan.format]
        async with self._ask(plan) as response:
            stream = ToolStream(
                source(response),
                tools=registry,
                runner=RunnerOptions(timeout=_SLOW, state=ran),
                approvals=ApprovalOptions(ask="now" if asks else "later"),
            )
            async with stream as events:
                self.open += 1
                try:
                    yield events
                finally:
                    self.open -= 1


async def decide(asking: ToolStream | Run, event: UIEvent, *, late: bool) -> None:
    """Approve or deny a call if the event requires it. With `late`, the decision may arrive too late."""
    if not isinstance(event, ApprovalRequested):
        return
    try:
        if not allowed(event.call.arguments):
            said = asking.deny(event.call.id, "too much")
        else:
            said = asking.approve(event.call.id, digest=event.digest)
        if said is not None:  # a run's may be on its way to another process
            await said
    except DecisionRefused:
        if not late:
            raise
