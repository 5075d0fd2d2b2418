"""Event loops that count their steps, and can run a function before each step. Their clock stands still.

A step is one callback on asyncio, and one step of one task on trio. Between two steps, each task waits at an `await`.
So a blow before step 0, 1, 2 and so on strikes at each `await`. A run is deterministic, except for threads. The order
of tasks on trio depends on a seed.

The clock moves only when a blow moves it. If no task is ready, the loop waits for threads and sockets in real time. If
none of them wakes it, the run has lost a wake-up, which a timeout would hide in a real program. This is a `stall`. It
is recorded, and the clock moves to the next deadline. Without a deadline, all tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any

import anyio
import trio

PATIENCE = 10.0
"""Real seconds without a wake-up by a thread or a socket after which a loop counts as stalled."""


class Deadlock(Exception):
    """No task is ready, no deadline is left, and cancelling all tasks has not helped."""


class Steps:
    """Counts the steps of one run while `active`, and calls functions before some of them."""

    def __init__(self) -> None:
        self.count = 0
        self.active = False
        self.now = 0.0
        self.context = Context()  # of the main task; callbacks from threads have a context without a loop
        self.stalls: list[str] = []
        self.at: dict[int, list[Callable[[], object]]] = {}
        self.always: Callable[[], object] | None = None
        self.cancel_all: Callable[[], object] = lambda: None
        self.dump: Callable[[], str] = str

    def take(self) -> None:
        """Call the functions for the next step. Called before each step."""
        if self.active:
            step, self.count = self.count, self.count + 1
            for strike in self.at.pop(step, ()):
                self.context.run(strike)
            if self.always is not None:
                self.context.run(self.always)

    def stall(self, left: float) -> None:
        """Record a stall. The next deadline is `left` seconds ahead."""
        self.stalls.append(f"nothing moves before step {self.count}, for the next {left:g} s\n{self.dump()}")
        if left < math.inf:
            self.now += left
        elif len([each for each in self.stalls if "inf s" in each]) == 1:
            self.cancel_all()
        else:
            raise Deadlock("\n".join(self.stalls))


class _Selector(selectors.DefaultSelector):
    steps: Steps

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        ready = super().select(PATIENCE)
        if not ready:
            self.steps.stall(math.inf if timeout is None else timeout)
        return ready


class StepLoop(asyncio.SelectorEventLoop):
    """The event loop of asyncio with counted steps."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        selector = _Selector()
        selector.steps = steps
        super().__init__(selector)

    def time(self) -> float:
        """Return the time of `steps`."""
        return self._steps.now

    def call_soon(  # type: ignore[override]  # simpler argument types
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call a function in a separate step."""
        return super().call_soon(self._take, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call a function in a separate step. For other threads."""
        return super().call_soon_threadsafe(self._take, callback, *args, context=context)

    def _take(self, callback: Callable[..., object], *args: Any) -> None:
        self._steps.take()
        try:
            callback(*args)
        except (KeyboardInterrupt, SystemExit):  # it ends the loop, whose cleanup is not counted
            self._steps.active = False
            raise


class _Clock(trio.abc.Clock):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.deadline = math.inf

    def start_clock(self) -> None:
        """Do nothing."""

    def current_time(self) -> float:
        """Return the time of `steps`."""
        return self._steps.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the time to wait for sockets and threads."""
        self.deadline = deadline
        if len(self._steps.stalls) > 20:
            raise Deadlock("\n".join(self._steps.stalls))
        return PATIENCE if deadline > self._steps.now else 0.0


class _Instrument(trio.abc.Instrument):
    def __init__(self, steps: Steps, clock: _Clock) -> None:
        self._steps = steps
        self._clock = clock
        self._asleep = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count the step."""
        self._steps.take()

    def before_io_wait(self, timeout: float) -> None:
        """Record the start of the wait."""
        self._asleep = time.monotonic()

    def after_io_wait(self, timeout: float) -> None:
        """Report a stall if the wait took all of `PATIENCE`."""
        if timeout >= PATIENCE and time.monotonic() - self._asleep >= PATIENCE:
            self._steps.stall(self._clock.deadline - self._steps.now)


def run_in_steps(backend: str, main: Callable[[], Awaitable[None]], steps: Steps, seed: int = 0) -> None:
    """Run `main` in a loop that counts its steps. Raises the exceptions of `main`, and `Deadlock`."""
    options: dict[str, Any]
    if backend == "asyncio":
        options = {"loop_factory": lambda: StepLoop(steps)}
    else:
        clock = _Clock(steps)
        options = {"clock": clock, "instruments": [_Instrument(steps, clock)]}
        dice: Any = trio._core._run
        dice._ALLOW_DETERMINISTIC_SCHEDULING = True  # as trio's plugin for Hypothesis does
        dice._r.seed(seed)
    anyio.run(main, backend=backend, backend_options=options)
