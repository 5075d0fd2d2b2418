"""Measures the runner's overhead from a parsed call to its `executed` event.

    python benchmarks/bench_tools.py

The tool does almost nothing, so the figure is the overhead: validating the arguments, setting a timeout, scheduling the
call, creating events and the outcome, and writing the result as JSON. The references are code without streamtools: a
bare call, `pydantic.validate_call` for the arguments alone, and `to_thread.run_sync`. The figure is the difference in
microseconds of processor time, because a user pays it for each call.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
import anyio.to_thread
import pydantic

from benchmarks.measure import Case, Result, Work, interleave, main
from streamtools import Tool, ToolCall, ToolRegistry
from streamtools.events import Executed, UIEvent
from streamtools.tools.runner import Runner

TARGET = 150.0
UNIT = "µs added"
ARGUMENTS: dict[str, Any] = {"city": "Bern", "days": 3, "units": "metric"}
ANSWER = {"city": "Bern", "days": 3, "celsius": [12.5, 13.0, 9.5], "message": "Rain in Bern"}


async def forecast(city: str, days: int, units: str = "metric") -> dict[str, Any]:
    """Return the weather of some days."""
    return ANSWER


def forecast_in_thread(city: str, days: int, units: str = "metric") -> dict[str, Any]:
    """Return the weather of some days, from a thread."""
    return ANSWER


async def bare() -> Any:
    return await forecast(**ARGUMENTS)


async def validated() -> Any:
    return await _validated(**ARGUMENTS)


async def in_thread() -> Any:
    return await anyio.to_thread.run_sync(partial(forecast_in_thread, **ARGUMENTS))


_validated = pydantic.validate_call(forecast)


@dataclass(frozen=True)
class Added:
    """How many microseconds a call of `subject` takes more than a call of `reference`."""

    section: str
    name: str
    calls: int
    subject: Work
    reference: Work
    check: Callable[[], None]
    target: float | None = None

    def measure(self, repeats: int) -> Result:
        times = interleave([self.subject, self.reference], repeats)
        subject, reference = (min(each) / self.calls * 1e6 for each in times)
        details = {
            "µs": subject,
            "beside": reference,
            "spread %": max(median(each) / min(each) - 1 for each in times) * 100,
        }
        return Result(self.section, self.name, subject - reference, UNIT, self.target, details)


def repeated(work: Callable[[], Awaitable[Any]], count: int, backend: str) -> Work:
    """Return `work`, repeated `count` times in one event loop. Starting the loop is not measured."""

    async def clocked() -> float:
        await work()
        started = process_time()
        for _ in range(count):
            await work()
        return process_time() - started

    return partial(anyio.run, clocked, backend=backend)


def calling(function: Callable[..., Any], size: int, events: list[UIEvent]) -> Callable[[], Awaitable[Any]]:
    """Return the work of running a turn with `size` calls."""
    tool: Tool = Tool(function, timeout=30.0)
    runner = Runner(ToolRegistry(tool), number=itertools.count(1).__next__)
    calls = [
        ToolCall(id=f"call_{number}", name=tool.name, arguments=ARGUMENTS, dialect="hash_marker")
        for number in range(size)
    ]

    async def send(event: UIEvent) -> None:
        events.append(event)

    async def run() -> None:
        events.clear()
        await runner.run(calls, send)

    return run


def cases(smoke: bool) -> Iterator[Case]:
    """Yield all rows."""
    count = 8 if smoke else 200
    rows: list[tuple[str, str, Callable[..., Any], Callable[[], Awaitable[Any]], int]] = [
        ("async tool with a timeout", "a bare await", forecast, bare, 1),
        ("async tool with a timeout", "pydantic.validate_call", forecast, validated, 1),
        ("async tool with a timeout", "a bare await, 8 concurrent calls", forecast, bare, 8),
        ("sync tool with a timeout", "anyio.to_thread.run_sync", forecast_in_thread, in_thread, 1),
        ("sync tool with a timeout", "anyio.to_thread.run_sync, 8 concurrent calls", forecast_in_thread, in_thread, 8),
    ]
    for backend in ("asyncio", "trio"):
        for section, name, function, reference, size in rows:
            events: list[UIEvent] = []
            subject = calling(function, size, events)

            def check(
                subject: Callable[[], Awaitable[Any]] = subject,
                reference: Callable[[], Awaitable[Any]] = reference,
                events: list[UIEvent] = events,
                size: int = size,
                backend: str = backend,
            ) -> None:
                anyio.run(subject, backend=backend)
                executed = [event for event in events if isinstance(event, Executed)]
                assert len(executed) == size, events
                assert all(event.result == ANSWER for event in executed), executed
                assert anyio.run(reference, backend=backend) == ANSWER

            yield Added(
                f"{section}, {backend}",
                f"beside {name}",
                count,
                repeated(subject, count // size, backend),
                repeated(reference, count, backend),
                check,
                TARGET if backend == "asyncio" else None,
            )


if __name__ == "__main__":
    main("tools", cases)
