"""Delivers one response to one client, over HTTP, a websocket or the gateway.

A `ResponseWriter` sends messages in order and keeps an idle connection alive. It detects a client that accepts no more
data. Its method `deliver` runs the function that produces the response, until it returns or the client leaves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from time import monotonic
from typing import Any

import anyio
import anyio.lowlevel
from anyio import sleep
from anyio.abc import TaskGroup
from starlette.requests import ClientDisconnect

from streamtools.errors import check_number
from streamtools.serving.shutdown import Shutdown
from streamtools.sources.read_pace import slot_end

DISCONNECT_ERRORS: tuple[type[Exception], ...] = (OSError, ClientDisconnect)
"""Exceptions with which an ASGI server or a middleware reports that the client has left."""

_SENDS_PER_CHECKPOINT = 4
"""After this many messages, the writer yields to the event loop. Only then can the server notice that a client has
left. For the sixth and each later message to a lost client, asyncio logs a warning."""


class ResponseWriter:
    """Sends the messages of one response through `send`, one at a time. Any task may send.

    After `keep_alive` seconds without a message, `deliver` sends a heartbeat (None: never). The client is treated as
    disconnected if a message takes more than `send_timeout` seconds (None: no limit), or if `send` raises an exception
    of a type in `disconnect_errors`. `send_in_slot` limits the number of messages per second to `max_rate` (None: no
    limit).
    """

    def __init__(
        self,
        send: Callable[[Any], Awaitable[None]],
        *,
        keep_alive: float | None,
        send_timeout: float | None,
        disconnect_errors: tuple[type[Exception], ...] = DISCONNECT_ERRORS,
        max_rate: float | None = None,
    ) -> None:
        check_number("max_rate", max_rate, optional=True)
        self.max_rate = max_rate
        self.client_left = False
        """True after a message that failed or took too long. Later messages are not sent."""
        self._send = send
        self._keep_alive = check_seconds("keep_alive", keep_alive)
        self._send_timeout = check_seconds("send_timeout", send_timeout)
        self._disconnect_errors = disconnect_errors
        self._sending = False
        self._last_send_at = monotonic()
        self._sends_since_checkpoint = 0
        # Set when the current message has been sent; not None only while a task waits. A lock would also cancel a task
        # that need not wait, so that a message which can be sent is not sent.
        self._send_finished: anyio.Event | None = None
        self._scope: anyio.CancelScope | None = None  # the cancel scope of `deliver`
        self._slot_length = 1 / max_rate if max_rate is not None else 0.0
        self._next_slot = -inf  # the earliest time of the next call by `send_in_slot`
        self._delayed: list[Callable[[], Awaitable[object]]] = []  # functions to call in the next slot
        self._has_delayed = anyio.Event()
        self._on_disconnect: Callable[[], object] = lambda: None

    async def send(self, message: Any) -> None:
        """Send one message. Waits while another task sends a message. Sends nothing after the client has left.

        `message` may also be a function. It is called when the earlier messages have been sent, and returns the
        message, or None to send nothing.
        """
        while self._sending:
            if self._send_finished is None:
                self._send_finished = anyio.Event()
            await self._send_finished.wait()
        if self.client_left:
            await anyio.lowlevel.checkpoint()
            return
        if callable(message) and (message := message()) is None:
            return
        self._last_send_at = monotonic()
        self._sending = True
        try:
            await self._send(message)
            self._sends_since_checkpoint += 1
            if self._sends_since_checkpoint >= _SENDS_PER_CHECKPOINT:
                self._sends_since_checkpoint = 0
                await anyio.lowlevel.checkpoint()
        except self._disconnect_errors:
            self._lose_client()
            await anyio.lowlevel.checkpoint()
        finally:
            self._sending = False
            if self._send_finished is not None:
                self._send_finished.set()
                self._send_finished = None

    async def send_in_slot(self, send: Callable[[], Awaitable[object]]) -> None:
        """Call `send`, which sends messages, if no call has used the current slot. Otherwise call it in the next slot.

        In the second case, this method returns immediately, and `deliver` calls `send` later.
        """
        now = monotonic()
        if now >= self._next_slot:
            self._next_slot = slot_end(now, self._slot_length)
            await send()
        elif send not in self._delayed:
            self._delayed.append(send)
            self._has_delayed.set()

    async def _use_slots(self) -> None:
        """Call the delayed functions in each slot."""
        while True:
            if (delay := self._next_slot - monotonic()) > 0:
                await sleep(delay)
            elif self._delayed:
                self._next_slot = slot_end(monotonic(), self._slot_length)
                delayed, self._delayed = self._delayed, []
                for send in delayed:
                    await send()
            else:
                self._has_delayed = anyio.Event()
                await self._has_delayed.wait()

    async def deliver(
        self,
        work: Callable[[], Awaitable[object]],
        *,
        listen: Callable[[TaskGroup], Awaitable[object]],
        heartbeat: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint,
        on_disconnect: Callable[[], object] = lambda: None,
        shutdown: Shutdown | None = None,
        on_shutdown: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint,
    ) -> Exception | None:
        """Run `work` until it returns or the client leaves. Returns the exception that `work` raised, or None.

        `listen` waits until the client disconnects, and then returns. It may start tasks in the task group that it
        receives. When `listen` returns, or a message fails or takes too long, `work` is cancelled, and `on_disconnect`
        is called, possibly repeatedly. `on_disconnect` is also called if `work` raises an exception, but not after
        `work` has returned.

        After the drain of `shutdown`, `on_shutdown` is called, and must make `work` return. `heartbeat` is called when
        no message was sent for `keep_alive` seconds.
        """
        error: Exception | None = None
        self._on_disconnect = on_disconnect

        async def run_work() -> None:
            await work()
            self._on_disconnect = lambda: None

        async def run_to_end(function: Callable[[], Awaitable[object]]) -> None:
            nonlocal error
            try:
                await function()
            except Exception as raised:  # returned, because a task group would wrap it in an ExceptionGroup
                error = raised
            finally:
                group.cancel_scope.cancel()

        async def wait_for_client() -> None:
            await listen(group)
            self._on_disconnect()
            group.cancel_scope.cancel()

        async def wait_for_shutdown(shutdown: Shutdown) -> None:
            await shutdown.wait_over()
            await on_shutdown()

        async with anyio.create_task_group() as group:
            self._scope = group.cancel_scope
            group.start_soon(run_to_end, run_work)
            if self.max_rate is not None:
                group.start_soon(run_to_end, self._use_slots)
            group.start_soon(wait_for_client)
            if shutdown is not None:
                group.start_soon(wait_for_shutdown, shutdown)
            try:
                # No child of the group is cancelled after a response, because it would leave many objects to the
                # garbage collector. That would take 5 % of the time of a short response.
                await self._watch_sending(heartbeat)
            finally:
                self._on_disconnect()
            self._lose_client()
        return error

    async def _watch_sending(self, heartbeat: Callable[[], Awaitable[object]]) -> None:
        """Call `heartbeat` after each `keep_alive` seconds without a message. Returns when a message takes too long."""
        longest_sleep = min(self._keep_alive, self._send_timeout, 3600.0)
        while True:
            now = monotonic()
            due = self._last_send_at + (self._send_timeout if self._sending else self._keep_alive)
            if due > now:
                await sleep(min(due - now, longest_sleep))
                continue
            if self._sending:
                return
            with anyio.move_on_after(self._send_timeout) as scope:
                await heartbeat()
            if scope.cancelled_caught:
                return
            self._last_send_at = now

    def _lose_client(self) -> None:
        self.client_left = True
        self._on_disconnect()
        if self._scope is not None:
            self._scope.cancel()


async def wait_for_disconnect(
    beside: Callable[[], Coroutine[Any, Any, object]], receive: Callable[[], Awaitable[Any]], group: TaskGroup
) -> None:
    """Wait until the client of an HTTP request disconnects. Runs `beside` in the task group meanwhile."""
    group.start_soon(beside)
    while (await receive())["type"] != "http.disconnect":
        pass


def check_seconds(name: str, value: float | None) -> float:
    """Return `value` if it is a positive number, or infinity if it is None. Raises ValueError for any other value."""
    check_number(name, value, optional=True)
    return inf if value is None else value
