"""One connection's way out: what is sent one at a time, and a clock that looks on.

The clock is one task for each connection. It speaks up when nothing was sent for a while, and gives up on a client that
takes nothing; it never interrupts a reader, who therefore loses no event, and it does not speak while a client is slow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from time import monotonic
from typing import Any

import anyio


class Outlet:
    """Sends messages through `send`, one after the other, whichever task they come from.

    `keep_alive` and `send_timeout` are in seconds; None is never. Raises ValueError for others. `now` and
    `sleep` are the clock.
    """

    def __init__(
        self,
        send: Callable[[Any], Awaitable[None]],
        *,
        keep_alive: float | None,
        send_timeout: float | None,
        now: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._send = send
        self._keep_alive = seconds("keep_alive", keep_alive)
        self._send_timeout = seconds("send_timeout", send_timeout)
        self._now = now
        self._sleep = sleep
        self._since = now()  # when the last sending began
        self._sending = False
        self._free: anyio.Event | None = (
            None  # for those who wait until nobody sends; a lock would cost each event more
        )

    async def put(self, message: Any) -> None:
        """Send one message, once nobody else sends. Raises what the server raises."""
        while self._sending:
            if self._free is None:
                self._free = anyio.Event()
            await self._free.wait()
        self._since = self._now()
        self._sending = True
        try:
            await self._send(message)
        finally:
            self._sending = False
            if self._free is not None:
                self._free.set()
                self._free = None

    async def watch(self, fill: Callable[[], Awaitable[None]]) -> None:
        """Call `fill` in each silence; return when a message takes too long."""
        look = min(self._keep_alive, self._send_timeout)
        while look < inf:
            now = self._now()
            if self._sending:
                due = self._since + self._send_timeout
                if due <= now:
                    return
            else:
                due = self._since + self._keep_alive
                if due <= now:
                    with anyio.move_on_after(self._send_timeout) as scope:
                        await fill()
                    if scope.cancelled_caught:
                        return
                    self._since = now
                    continue
            await self._sleep(min(due - now, look))
        await anyio.sleep_forever()


def seconds(name: str, value: float | None) -> float:
    """Return a number of seconds, endless for None. Raises ValueError for one that is not positive."""
    if value is None:
        return inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{name} is a positive number of seconds or None, not {value!r}")
    return value
