"""Runs one trial: a scenario with its blows on an event loop. Records its events, warnings and remaining tasks."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import gc
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import structlog.testing

from tests.torture.blows import Blow
from tests.torture.loops import Steps, run_in_steps
from tests.torture.noted import NotedStream, Tracked
from tests.torture.rack import Rack
from tests.torture.streams import Scenario


@dataclass
class Trial:
    """The result of one run."""

    scenario: Scenario
    backend: str
    blows: list[Blow]
    rack: Rack
    escaped: BaseException | None  # the exception that ended the event loop
    noises: list[str]  # warnings and unraised exceptions
    logs: list[Any]

    @property
    def struck(self) -> list[Blow]:
        """The blows that struck."""
        return [blow for blow in self.blows if blow.struck]


def run_trial(
    scenario: Scenario, backend: str, blows: list[Blow], *, seed: int = 0, noted: type[Any] = NotedStream
) -> Trial:
    """Run a scenario with blows."""
    steps = Steps()
    _freeze()
    depth = max((blow.kind.depth for blow in blows), default=0)
    reads = next((blow.kind.reads for blow in blows if blow.kind.reads != "plain"), "plain")
    rack = Rack(backend, steps, blows, depth, reads, noted)
    for blow in blows:
        _schedule(rack, blow)
    escaped: BaseException | None = None
    with _listening() as noises, structlog.testing.capture_logs() as logs:
        try:
            run_in_steps(backend, lambda: _main(rack, scenario, noises), steps, seed)
        except BaseException as error:
            escaped = error
            if isinstance(error, KeyboardInterrupt) and all(blow.error is None for blow in blows):
                raise  # a user has pressed Ctrl-C
        for door in rack.doors:
            door.set()
        _wait_for_threads(rack)
        for clean_up in rack.cleanups:
            clean_up()
        for blow in blows:
            if blow.error is not None:
                traceback.clear_frames(blow.error.__traceback__)
        gc.collect()
    return Trial(scenario, backend, blows, rack, escaped, noises, logs)


@functools.cache
def _freeze() -> None:
    """Exclude existing objects from garbage collection, which would take longer than a trial."""
    gc.collect()
    gc.freeze()


def _schedule(rack: Rack, blow: Blow) -> None:
    def strike() -> None:
        blow.struck = True
        blow.kind.strike(rack, blow)

    if blow.kind.storm:
        rack.steps.always = strike
    elif blow.kind.place == "step":
        rack.steps.at.setdefault(blow.at, []).append(strike)


async def _main(rack: Rack, scenario: Scenario, noises: list[str]) -> None:
    """Run the consumer in a separate task, and examine what remains. No blow strikes this task."""
    rack.scope = anyio.CancelScope()
    rack.sibling = anyio.Event()
    is_asyncio = rack.backend == "asyncio"
    rack.steps.dump = _dump
    rack.steps.context = contextvars.copy_context()
    if is_asyncio:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: noises.append(f"asyncio says: {_line_of(context)}"))
        rack.main = asyncio.current_task()
        rack.steps.cancel_all = lambda: [each.cancel() for each in asyncio.all_tasks() if each is not rack.main]
    before = {task.id for task in anyio.get_running_tasks()}
    async with anyio.create_task_group() as helpers:
        rack.helpers = helpers
        over = anyio.Event()
        if not is_asyncio:
            rack.steps.cancel_all = helpers.cancel_scope.cancel

        async def consume() -> None:
            try:
                rack.steps.active = True
                await rack.run(scenario.run)
            finally:
                over.set()

        if is_asyncio:
            rack.steps.active = True
            rack.task = asyncio.create_task(consume(), name="consumer")
            await asyncio.wait([rack.task])
            _check_task(rack)
        else:
            helpers.start_soon(consume, name="consumer")
            await over.wait()
        for _ in range(3):  # a task that has finished its last step is removed later
            await anyio.lowlevel.checkpoint()
        left = [task for task in anyio.get_running_tasks() if task.id not in before]
        rack.complaints += [f"a task is left: {task.name}" for task in left if task.name not in ("helper", "consumer")]
        if rack.afterwards is not None:
            await rack.afterwards()
        await _read_remaining(rack)
        if any(task.name == "helper" for task in anyio.get_running_tasks() if task.id not in before):
            rack.complaints.append("an action has not ended with the run")
            helpers.cancel_scope.cancel()
    await anyio.lowlevel.checkpoint()


def _check_task(rack: Rack) -> None:
    """Check how the task of the consumer ended on asyncio."""
    task = rack.task
    if task.cancelled():
        rack.ended = rack.ended or "cancelled"  # before its first step
        if rack.ended != "cancelled":
            rack.complaints.append(f"the task is cancelled, but the scenario has {rack.ended}")
    elif task.exception() is not None:
        rack.error = rack.error or task.exception()
    elif rack.natively and rack.ended != "raised" and not rack.scope.cancel_called:
        rack.complaints.append("the task swallowed its cancellation")
    if task.cancelling() > rack.natively:
        rack.complaints.append(f"the task has {task.cancelling()} cancellations instead of {rack.natively}")


async def _read_remaining(rack: Rack) -> None:
    """Read the remaining events of the streams and runs."""
    for tracked in rack.streams:
        with anyio.move_on_after(100) as scope:
            await _read_rest(tracked)
        if scope.cancelled_caught:
            rack.complaints.append("a closed stream has no end")
    for run in rack.runs:
        with anyio.move_on_after(100) as scope:
            rack.run_events = [event async for event in run.attach()]
            await run.stop()
        if scope.cancelled_caught:
            rack.complaints.append("a run has no end")


async def _read_rest(tracked: Tracked) -> None:
    if tracked.entered:
        try:
            async for _ in tracked.reader:
                pass
        except Exception as error:
            tracked.unread = error


def _wait_for_threads(rack: Rack) -> None:
    for _ in range(2000):
        with rack.lock:
            if not rack.at_work:
                return
        threading.Event().wait(0.001)
    rack.complaints.append("a thread never ends")


@contextlib.contextmanager
def _listening() -> Iterator[list[str]]:
    """Record the warnings and unraisable exceptions of the block in the yielded list."""
    noises: list[str] = []
    unraisable, threads = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = lambda raised: noises.append(f"unraisable: {raised.exc_value!r} in {raised.object!r}")
    threading.excepthook = lambda raised: noises.append(f"in a thread: {raised.exc_value!r}")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield noises
            noises += [f"{each.category.__name__}: {each.message}" for each in caught]
    finally:
        sys.unraisablehook, threading.excepthook = unraisable, threads


def _line_of(context: dict[str, Any]) -> str:
    return f"{context.get('message')} {context.get('exception')!r} {context.get('task') or context.get('future')!r}"


def _dump() -> str:
    """Return the stack of each task."""
    lines: list[str] = []
    try:
        for task in anyio.get_running_tasks():
            lines.append(f"  {task.name}")
            coroutine: Any = task.coro
            while coroutine is not None and getattr(coroutine, "cr_frame", None) is not None:
                frame = coroutine.cr_frame
                lines.append(f"    {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
                coroutine = coroutine.cr_await
    except Exception as error:
        lines.append(f"  (the stacks cannot be read: {error!r})")
    return "\n".join(lines)
