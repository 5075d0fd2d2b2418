"""Event loops that count their steps, and let something happen before any of them; time stands still in them.

A step is what a loop does between two looks at what is ready: on asyncio one callback, on trio one step of one task. So
between two steps everybody stands at an `await`, and to strike before step 0, 1, 2… is to strike at each of them. What
a run does is the same each time, but for threads, which come back when they like, and for trio's own dice, which are
thrown from a seed.

The clock moves only when it is told to. A loop in which nothing is ready waits for threads and sockets, in real time;
where none of them comes, the run has lost a wake-up, which in the world outside a timeout may have hidden for years. It
is a `stall`, which is told, and the clock moves on to the next deadline, or, where there is none, all is cancelled.
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
"""Real seconds that threads and sockets have, on a busy machine, until a loop counts as stalled."""


class Deadlock(Exception):
    """Nothing is ready, nothing is waited for that has an end, and to cancel everything has not helped."""


class Steps:
    """Counts the steps of one run while `active`, and calls what is to happen before some of them."""

    def __init__(self) -> None:
        self.count = 0
        self.active = False
        self.now = 0.0
        self.context = Context()  # what came from a thread has the thread's, in which there is no loop
        self.stalls: list[str] = []
        self.at: dict[int, list[Callable[[], object]]] = {}
        self.always: Callable[[], object] | None = None
        self.cancel_all: Callable[[], object] = lambda: None
        self.dump: Callable[[], str] = str

    def take(self) -> None:
        """Be about to take a step."""
        if self.active:
            step, self.count = self.count, self.count + 1
            for strike in self.at.pop(step, ()):
                self.context.run(strike)
            if self.always is not None:
                self.context.run(self.always)

    def stall(self, left: float) -> None:
        """Take note that nothing moves, though the next deadline is `left` seconds ahead."""
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
    """asyncio's loop, step by step."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        selector = _Selector()
        selector.steps = steps
        super().__init__(selector)

    def time(self) -> float:
        """Return the time, which stands still."""
        return self._steps.now

    def call_soon(  # type: ignore[override]  # the types of its arguments are nothing to us
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Have something called in a step of its own."""
        return super().call_soon(self._take, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Have something called in a step of its own, from another thread."""
        return super().call_soon_threadsafe(self._take, callback, *args, context=context)

    def _take(self, callback: Callable[..., object], *args: Any) -> None:
        self._steps.take()
        try:
            callback(*args)
        except (KeyboardInterrupt, SystemExit):  # ends the loop; what it does then is its own clean-up
            self._steps.active = False
            raise


class _Clock(trio.abc.Clock):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.deadline = math.inf

    def start_clock(self) -> None:
        """Have nothing to start."""

    def current_time(self) -> float:
        """Return the time, which stands still."""
        return self._steps.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return how long to wait for sockets and threads."""
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
        """Count it."""
        self._steps.take()

    def before_io_wait(self, timeout: float) -> None:
        """Take the time."""
        self._asleep = time.monotonic()

    def after_io_wait(self, timeout: float) -> None:
        """Look whether all of it has been waited for."""
        if timeout >= PATIENCE and time.monotonic() - self._asleep >= PATIENCE:
            self._steps.stall(self._clock.deadline - self._steps.now)


def run_in_steps(backend: str, main: Callable[[], Awaitable[None]], steps: Steps, seed: int = 0) -> None:
    """Run `main` in a loop that counts its steps. Raises what `main` raises, and `Deadlock`."""
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
