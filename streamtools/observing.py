"""What watches runs, where something does: the seam through which telemetry sees what happens.

A run asks once, when it begins, whether it is watched, and tells from then on what happens at its boundaries: a request
is sent, its first bytes come, a tool runs, events have gathered. Nobody is told of a delta. What watches is installed
for the whole process (`streamtools.telemetry.instrument`), and nothing here knows what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

from streamtools.calls import ToolCall


class Holds(Protocol):
    """What holds text back, and knows what nobody is to keep of it: a machine."""

    @property
    def buffered(self) -> int: ...
    def without_matches(self, value: Any) -> Any: ...


class Observed(Protocol):
    """One run that is watched. Each of these is called in the task that drives it, `tool` in that of the call."""

    trace: str
    """Where the run stands, for a later one that goes on with it; the form is that of W3C's `traceparent`."""
    by_chunk: bool
    """Whether `came` is called for each batch of a source, and not for the first alone."""

    def current(self) -> AbstractContextManager[None]:
        """Make the run what surrounds a block, in which its task is begun."""

    def asked(self, origin: Sequence[Any], source: object) -> None:
        """A model is asked, or its answer is about to be read; another that was asked before has ended."""

    def came(self) -> None:
        """A batch has come from the source."""

    def shown(self) -> None:
        """The first text of the answer has been shown."""

    def answered(self) -> None:
        """The answer is complete, and tools may run."""

    def failed(self, cause: str) -> None:
        """The model that was asked has failed, and another takes over."""

    def sent_again(self) -> None:
        """The request is sent again, of which nothing has come."""

    def read(self, raised: BaseException | None) -> None:
        """The source has been read to its end, or until something was raised."""

    def saw(self, events: Sequence[Any]) -> None:
        """These have been handed out, some time ago."""

    def held(self) -> None:
        """A batch has come, and nothing could be shown."""

    def tool(self, call: ToolCall, tool: Any) -> AbstractContextManager[Callable[[Any], None]]:
        """A tool (None: there is none of that name) runs in this block, which is told the outcome."""

    def ended(self) -> None:
        """The run is over, and all its events have been seen."""


class Observer(Protocol):
    """What watches all runs."""

    def begin(self, run_id: str, machine: Holds, resumed: str) -> Observed:
        """A run begins; `resumed` is the `trace` of the one that it goes on with, or empty."""

    def count(self, what: str, by: int) -> None:
        """Something else has happened: see `count`."""


class _Installed:
    observer: Observer | None = None


_run: ContextVar[Observed | None] = ContextVar("streamtools_observed", default=None)


def install(observer: Observer | None) -> None:
    """Have the runs that begin from now on watched, or no longer."""
    _Installed.observer = observer


def begin(run_id: str, machine: Holds, resumed: str = "") -> Observed | None:
    """Return what a run that begins tells what happens in it; None if nobody watches."""
    observer = _Installed.observer
    return None if observer is None else observer.begin(run_id, machine, resumed)


def observed() -> Observed | None:
    """Return what watches the run whose task this is, if anything does."""
    return _run.get()


@contextmanager
def surrounding(run: Observed | None) -> Iterator[None]:
    """Let the tasks that are begun in a block belong to a run."""
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
    """Return a block in which a tool runs, and which is told the outcome."""
    run = _run.get()
    return nullcontext(lambda outcome: None) if run is None else run.tool(call, tool)


def count(what: str, by: int = 1) -> None:
    """Count what happens outside of a run's task: `readers` (one less, with -1), `resumes` and `fenced_appends`."""
    if _Installed.observer is not None:
        _Installed.observer.count(what, by)


__all__ = ["Holds", "Observed", "Observer", "begin", "count", "install", "observed", "surrounding", "tool_runs"]
