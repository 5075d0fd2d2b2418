"""The tests of `Runs` with two processes: runs start in one, and are found in the other.

These are those tests themselves, with two `Runs`, each with its own connections. Tests that hold only in the process
that drives the run are left out by name, with the reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from types import ModuleType
from typing import Any, Self
from uuid import uuid4

import anyio
import pytest

from streamtools.runs import MemoryEventLog, RedisStore, Run, Runs
from tests.serving import test_runs, test_runs_approval, test_runs_faults, test_runs_keeping, test_runs_resuming
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.asyncio_only, pytest.mark.servers]


MODULES = (test_runs, test_runs_approval, test_runs_keeping, test_runs_resuming, test_runs_faults)
RAISES = "`wait()` raises the exception of a stream only in the driving process"
TIME = "the limits of the store and the clock of the server decide how long runs and events are kept"
BEGINS = "a run may start before `start` returns"
ASYNCIO = "asyncio cancels a task of the driving process"
COMES = "events may still be on their way from the server when all tasks wait"
LEFT = "a process cannot read runs after it has left the context of its `Runs`"
LEFT_OUT = {
    "test_detach_ends_waiting_reads": COMES,
    "test_a_tool_may_stop_its_own_run": BEGINS,
    "test_runs_start_only_inside_the_context": LEFT,
    "test_an_exception_for_the_program": LEFT,
    "test_the_application_ends_during_a_run": LEFT,
    "test_the_application_is_cancelled": LEFT,
    "test_a_slow_exit_is_cancelled_after_the_grace": LEFT,
    "test_a_stream_that_cannot_be_entered": RAISES,
    "test_the_error_of_a_run_is_logged": RAISES,
    "test_a_failed_entry_is_logged_if_the_caller_has_left": RAISES,
    "test_a_source_that_raises": RAISES,
    "test_an_exception_after_the_last_event": RAISES,
    "test_ended_runs_are_kept_for_a_time": TIME,
    "test_only_some_ended_runs_are_kept": TIME,
    "test_the_conversation_of_another_owner": TIME,
    "test_stop_before_the_start": BEGINS,
    "test_a_long_read_yields_to_other_tasks": "readers on Redis yield at other times",
    "test_tasks_that_are_cancelled_before_their_first_step": ASYNCIO,
    "test_a_stray_cancellation_fails_the_run": ASYNCIO,
}


class Two:
    """Two processes with one store, which a test uses as its `Runs`."""

    url = ""

    def __init__(self, log: object = None, **options: Any) -> None:
        prefix = uuid4().hex
        assert log is None or isinstance(log, MemoryEventLog)
        self._here, self._there = (Runs(RedisStore(self.url, prefix=prefix, lease=2.0), **options) for _ in range(2))
        self._stack = AsyncExitStack()
        self._found: dict[tuple[str, str], Run] = {}

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._there)
        await self._stack.enter_async_context(self._here)
        return self

    async def __aexit__(self, *of_error: Any) -> None:
        await self._stack.__aexit__(*of_error)

    @property
    def running(self) -> int:
        """The number of runs."""
        return self._here.running

    async def start(self, stream: Any, *, owner: str, **options: Any) -> Run:
        """Start a run in the first process, and find it in the second."""
        run = await self._here.start(stream, owner=owner, **options)
        return await self.find(run.id, owner=owner)

    async def find(self, run_id: str, *, owner: str) -> Run:
        """Find a run in the second process. Returns the same object each time."""
        found = await self._there.find(run_id, owner=owner)
        return self._found.setdefault((owner, run_id), found)

    async def latest(self, conversation: str, *, owner: str) -> Run | None:
        """Find the last run of a conversation in the second process."""
        found = await self._there.latest(conversation, owner=owner)
        return None if found is None else self._found.setdefault((owner, found.id), found)

    async def list(self, owner: str) -> Sequence[Run]:
        """List an owner's runs in the second process."""
        return await self._there.list(owner)

    async def decide(self, run_id: str, call_id: str, decision: Any, *, owner: str) -> Run:
        """Decide about a call in the second process."""
        return await self._there.decide(run_id, call_id, decision, owner=owner)

    async def forget(self, run_id: str, *, owner: str) -> None:
        """Forget a run from the second process."""
        await self._there.forget(run_id, owner=owner)

    async def aclose(self) -> None:
        """Close both."""
        await self._here.aclose()
        await self._there.aclose()


def _cases() -> Iterator[Any]:
    for module in MODULES:
        for name, function in vars(module).items():
            if (
                name.startswith("test_")
                and name not in LEFT_OUT
                and inspect.iscoroutinefunction(function)
                and function.__module__ == module.__name__
            ):
                rows: list[tuple[str, Any]] = [(name, {})]
                for mark in getattr(function, "pytestmark", []):
                    if mark.name == "parametrize":
                        argument, values = mark.args
                        plain = [getattr(value, "values", (value,))[0] for value in values]
                        rows = [(f"{name}-{at}", {argument: value}) for at, value in enumerate(plain)]
                        rows = rows[:1] if module is test_runs_resuming else rows  # the others are other recordings
                for id, given in rows:
                    yield pytest.param(module, function, given, id=id)


@pytest.mark.parametrize(("module", "function", "given"), [*_cases()])
async def test_runs_behave_the_same_in_another_process(
    module: ModuleType,
    function: Callable[..., Any],
    given: dict[str, Any],
    server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that is found elsewhere behaves like a run of this process."""
    monkeypatch.setattr(Two, "url", server.url)
    monkeypatch.setattr(module, "Runs", Two)
    with anyio.fail_after(60):
        await function(**given)


def test_each_exception_names_a_test() -> None:
    """Each is the name of a test."""
    assert {name for name in LEFT_OUT if not any(hasattr(module, name) for module in MODULES)} == set()
