"""The state of one run of a scenario: it counts the points in code of the test, strikes there, and records the run."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from streamtools.calls import ToolCall
from streamtools.events import UIEvent
from streamtools.runs import Run
from streamtools.tools import ToolOutcome
from tests.support.options import grouped
from tests.torture.loops import Steps
from tests.torture.noted import NotedChat, NotedStream, Noting, Tracked

if TYPE_CHECKING:
    from tests.torture.blows import Blow
    from tests.torture.wires import Wire

READ = 1e-6
"""Seconds for which an impatient consumer waits for one event. A blow that moves the clock exceeds only this time,
because all other timeouts are much longer."""


class Boom(Exception):
    """An exception in code of the test."""


class Bang(BaseException):
    """An exception that must reach the program."""


@dataclass
class Rack:
    """The state of one run."""

    backend: str
    steps: Steps
    blows: list[Blow]
    depth: int = 0
    reads: str = "plain"
    noted_stream: type[NotedStream] = NotedStream
    points: Counter[str] = field(default_factory=Counter)
    streams: list[Tracked] = field(default_factory=list)
    run_events: list[UIEvent] | None = None  # as a reader gets them after the end of the run
    runs: list[Run] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    begun: Counter[str] = field(default_factory=Counter)  # by call id: how often its tool has started
    returned: set[str] = field(default_factory=set)
    told: Counter[str] = field(default_factory=Counter)  # by call id: calls of `on_tool_result`
    at_work: int = 0  # number of tools in threads
    cleanups: list[Callable[[], object]] = field(default_factory=list)  # called after the trial
    doors: list[threading.Event] = field(default_factory=list)
    actions: dict[str, Callable[[], Awaitable[object] | None]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    ended: str = ""  # "returned", "cancelled" or "raised"
    error: BaseException | None = None
    natively: int = 0  # number of calls of asyncio's `Task.cancel`
    lock: threading.Lock = field(default_factory=threading.Lock)

    scope: anyio.CancelScope = field(init=False)
    task: asyncio.Task[None] = field(init=False)
    main: asyncio.Task[None] | None = field(init=False, default=None)
    helpers: anyio.abc.TaskGroup = field(init=False)
    sibling: anyio.Event = field(init=False)
    sibling_blow: Blow | None = None
    sent: list[dict[str, Any]] = field(default_factory=list)  # messages to a client
    resumes: bool = False  # whether one run resumes another, so that outcomes are reported twice
    is_calm: bool = False  # whether blows no longer strike
    afterwards: Callable[[], Awaitable[object]] | None = None  # called after the run, without blows
    leaves_first: bool = False  # whether the client leaves before it gets the end

    # For scenarios.

    def stream(self, source: Any, **options: Any) -> NotedStream:
        """Return a stream over `source` that records its events and outcomes."""
        stream = self.noted_stream(source, **grouped(on_tool_result=self.tell, **options))
        self.track(stream)
        return stream

    def chat(self, model: Any, messages: Any, **options: Any) -> NotedChat:
        """Return a chat that records its events and outcomes."""
        stream = NotedChat(model, messages, **grouped(on_tool_result=self.tell, **options))
        self.track(stream)
        return stream

    def track(self, stream: Noting) -> None:
        """Check a stream after the run."""
        stream.taken = []
        self.streams.append(Tracked(stream, stream.taken, stream))
        self.actions.setdefault("aclose", stream.aclose)

    async def tell(self, call: ToolCall, outcome: ToolOutcome) -> None:
        """Record an outcome. The `on_tool_result` of the streams."""
        self.told[call.id] += 1
        self.hit("told")
        await anyio.lowlevel.checkpoint()
        self.hit("told")

    def hit(self, place: str) -> object:
        """Count a point in code of the test. Returns the word of a blow for this point, or raises its exception."""
        with self.lock:
            number = self.points[place]
            self.points[place] += 1
        word: object = None
        for blow in self.blows:
            if not self.is_calm and blow.kind.place == place and blow.at == number:
                blow.struck = True
                word = blow.kind.strike(self, blow)
        return word

    async def read(self, events: Any) -> None:
        """Read events to their end, as the consumer of the run."""
        iterator = aiter(events)
        while True:
            try:
                await self._next(iterator)
            except StopAsyncIteration:
                return
            word = self.hit("consumer")
            if word == "break":
                return
            if word == "aclose":
                await events.aclose()

    async def _next(self, events: AsyncIterator[UIEvent]) -> UIEvent:
        while True:
            if self.reads == "wait_for":
                try:
                    return await asyncio.wait_for(anext(events), READ)
                except TimeoutError:
                    continue
            if self.reads == "plain":
                return await anext(events)
            with anyio.move_on_after(READ):
                return await anext(events)

    # For blows.

    def act(self, name: str) -> None:
        """Start an action of the scenario in a separate task."""
        doing = self.actions.get(name)
        if doing is not None:
            self.helpers.start_soon(_do, doing, name="helper")

    def act_for_a_while(self, name: str, steps: int) -> None:
        """Start an action, and cancel it after so many steps."""
        doing = self.actions.get(name)
        if doing is None:
            return
        scope = anyio.CancelScope()
        self.helpers.start_soon(_do, doing, scope, name="helper")
        self.steps.at.setdefault(self.steps.count + steps, []).append(scope.cancel)

    # The consumer's task.

    async def run(self, scenario: Callable[[Rack], Coroutine[Any, Any, None]]) -> None:
        """Run the scenario as the task of the consumer, in a cancel scope and `depth` task groups."""
        try:
            with self.scope:
                await self._nest(scenario, self.depth)
                await anyio.lowlevel.checkpoint()  # a late cancellation is raised here
                self.ended = "returned"
            self.ended = self.ended or "cancelled"
        except BaseException as error:
            is_cancelled = isinstance(error, anyio.get_cancelled_exc_class())
            self.ended, self.error = ("cancelled", None) if is_cancelled else ("raised", error)
            if is_cancelled or isinstance(error, KeyboardInterrupt):
                raise
        finally:
            self.steps.active = False
            for door in self.doors:
                door.set()

    async def _nest(self, scenario: Callable[[Rack], Coroutine[Any, Any, None]], depth: int) -> None:
        if not depth:
            await scenario(self)
            return
        async with anyio.create_task_group() as group:
            if depth == 1:
                group.start_soon(self._stand_by, name="sibling")
            await self._nest(scenario, depth - 1)
            group.cancel_scope.cancel()

    async def _stand_by(self) -> None:
        await self.sibling.wait()
        if self.sibling_blow is not None:
            self.sibling_blow.struck = True
            self.sibling_blow.error = Boom("sibling")
            raise self.sibling_blow.error


async def _do(doing: Callable[[], Awaitable[object] | None], scope: anyio.CancelScope | None = None) -> None:
    with scope or anyio.CancelScope():
        waiting = doing()
        if waiting is not None:
            await waiting
