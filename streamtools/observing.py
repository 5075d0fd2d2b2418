"""Defines the interface between runs and telemetry.

When a run starts, it obtains an `ObservedRun` from the installed observer. The run reports its progress to this object:
a request starts, its first bytes arrive, a tool runs, or a batch of events was delivered. Single deltas are not
reported. `streamtools.telemetry.instrument` installs one observer for the whole process. This module does not import
`streamtools.telemetry`, so that telemetry is optional.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

from streamtools.calls import ToolCall


class ObservedRun(Protocol):
    """One observed run.

    `tool_runs` is called in the task of the call, and the other methods in the task of the run.
    """

    def current(self) -> AbstractContextManager[object]:
        """Return a context manager that makes the span of the run current. The task of the run starts inside it."""

    def request_started(self, origin: Sequence[Any], source: object) -> None:
        """Report that a request starts.

        If the application itself sent the request, report that the reading of its response starts.

        All earlier requests of the run have ended.

        `origin` holds the message format, the host and the model of the provider. It is empty if they are unknown.
        `source` yields the events of the response.
        """

    def first_batch_received(self) -> None:
        """Report that the first batch of a response arrived from the source."""

    def answer_completed(self) -> None:
        """Report that the answer is complete. Its tools may run now."""

    def model_failed(self, cause: str) -> None:
        """Report that the model failed and another model is used."""

    def source_read(self, raised: BaseException | None) -> None:
        """Report that the source was read to its end, or until the exception `raised`."""

    def events_shown(self, events: Sequence[Any]) -> None:
        """Report that these events were delivered. The report may be delayed."""

    def tool_runs(self, call: ToolCall, tool: Any) -> AbstractContextManager[Callable[[Any], None]]:
        """Return a context manager in which a tool runs. `tool` is None for an unknown name.

        The context manager yields a function. The body of the `with` statement calls it with the outcome of the call.
        """

    def run_ended(self) -> None:
        """Report that the run has ended. All its events were reported before."""


class Observer(Protocol):
    """Observes all runs of the process."""

    def begin(self, run_id: str, clean: Callable[[Any], Any]) -> ObservedRun:
        """Return the observed run for a run that starts.

        `clean` returns JSON-like data without the text that rules remove, and without the values of a vault.
        """

    def report(self, name: str, value: float) -> None:
        """Add `value` to a counter. The function `report` of this module lists the names."""


class _Installed:
    observer: Observer | None = None


_run: ContextVar[ObservedRun | None] = ContextVar("streamtools_observed_run", default=None)


def install(observer: Observer | None) -> None:
    """Install the observer of all runs that start from now on. None removes the observer."""
    _Installed.observer = observer


def begin(run_id: str, clean: Callable[[Any], Any]) -> ObservedRun | None:
    """Return the observed run for a run that starts; see `Observer.begin`. Returns None if no observer is installed."""
    observer = _Installed.observer
    return None if observer is None else observer.begin(run_id, clean)


def observed_run() -> ObservedRun | None:
    """Return the observed run of the current task. Returns None if there is none."""
    return _run.get()


@contextmanager
def surrounding(run: ObservedRun | None) -> Iterator[None]:
    """Return a context manager. Tasks that start inside it belong to `run`. If `run` is None, it changes nothing."""
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
    """Return a context manager in which a tool runs. See `ObservedRun.tool_runs`."""
    run = _run.get()
    return nullcontext(lambda outcome: None) if run is None else run.tool_runs(call, tool)


def report(name: str, value: float = 1) -> None:
    """Add a value to a counter that belongs to no observed run. Does nothing if no observer is installed.

    The names are:

    - `readers`: 1 for a reader that connects to a run, -1 for a reader that disconnects
    - `resumes`: readers that reconnect
    - `fenced_appends`: runs that this process no longer writes, because another process has taken them over
    - `runs.lost`: runs of crashed processes that this process has taken over
    - `runs.handed_over`: runs of closing processes that this process has taken over
    - `runs.recovered`: lost or handed over runs that this process continues
    - `calls.unknown`: calls of these runs whose outcome is unknown
    """
    if _Installed.observer is not None:
        _Installed.observer.report(name, value)
