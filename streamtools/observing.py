"""The interface between runs and telemetry.

A run asks once, when it starts, for its `ObservedRun`, and reports to it what happens at its boundaries: a request
starts, its first bytes arrive, a tool runs, a batch of events has been shown. It reports no single delta. One observer
is installed for the whole process (`streamtools.telemetry.instrument`); nothing here knows which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

from streamtools.calls import ToolCall


class Redactor(Protocol):
    """A machine: it buffers text, and removes from data what its rules remove."""

    @property
    def buffered(self) -> int: ...
    def without_matches(self, value: Any) -> Any: ...


class ObservedRun(Protocol):
    """One observed run. Its methods are called in the task of the run, `tool_runs` in the task of the call."""

    trace: str
    """The position of the run as a W3C `traceparent`, for a run that resumes it."""
    by_chunk: bool
    """Whether `batch_received` is called for each batch of a source, not only for the first one."""

    def current(self) -> AbstractContextManager[None]:
        """Make the run the current context of a block, in which its task starts."""

    def request_started(self, origin: Sequence[Any], source: object) -> None:
        """A request starts, or its answer is about to be read. An earlier request has ended."""

    def batch_received(self) -> None:
        """A batch arrived from the source."""

    def text_shown(self) -> None:
        """The first text of the answer was shown."""

    def answer_completed(self) -> None:
        """The answer is complete, and its tools may run."""

    def model_failed(self, cause: str) -> None:
        """The model failed, and another one takes over."""

    def request_retried(self) -> None:
        """The request is sent again: nothing of its answer has arrived."""

    def source_read(self, raised: BaseException | None) -> None:
        """The source was read to its end, or until an exception was raised."""

    def events_shown(self, events: Sequence[Any]) -> None:
        """These events were shown, some time ago."""

    def text_buffered(self) -> None:
        """A batch arrived, and no event could be shown."""

    def tool_runs(self, call: ToolCall, tool: Any) -> AbstractContextManager[Callable[[Any], None]]:
        """A tool (None for an unknown name) runs in this block. The block reports the outcome."""

    def run_ended(self) -> None:
        """The run has ended, and all its events were reported."""


class Observer(Protocol):
    """Observes all runs."""

    def begin(self, run_id: str, machine: Redactor, resumed: str) -> ObservedRun:
        """A run starts. `resumed` is the `trace` of the run that it resumes, or empty."""

    def count(self, name: str, by: int) -> None:
        """Count something outside of a run: see `count`."""


class _Installed:
    observer: Observer | None = None


_run: ContextVar[ObservedRun | None] = ContextVar("streamtools_observed_run", default=None)


def install(observer: Observer | None) -> None:
    """Observe the runs that start from now on; None observes no more runs."""
    _Installed.observer = observer


def begin(run_id: str, machine: Redactor, resumed: str = "") -> ObservedRun | None:
    """Return the observed run for a run that starts; None without an observer."""
    observer = _Installed.observer
    return None if observer is None else observer.begin(run_id, machine, resumed)


def observed_run() -> ObservedRun | None:
    """Return the observed run of the current task; None without an observer."""
    return _run.get()


@contextmanager
def surrounding(run: ObservedRun | None) -> Iterator[None]:
    """Make the tasks that start in a block belong to a run."""
    if run is None:
        yield
        return
    token = _run.set(run)
    try:
        with run.current():
            yield
    finally:
        _run.reset(token)


def tool_runs(call: ToolCall, tool: Any) -> AbstractContextManager[Callable[[Any], None]]:
    """Return a block in which a tool runs, and which reports the outcome."""
    run = _run.get()
    return nullcontext(lambda outcome: None) if run is None else run.tool_runs(call, tool)


def count(name: str, by: int = 1) -> None:
    """Count something outside of a run: `readers` (-1 for one that leaves), `resumes` and `fenced_appends`."""
    if _Installed.observer is not None:
        _Installed.observer.count(name, by)
