"""One call of one tool, bounded in time, whatever kind of function it is.

Async functions run where we are, sync ones in a thread, so that they block nobody. Of generators each yield is
progress, and the last thing said is the result: what a sync generator returns, else what was yielded last (a
`ToolResult` that is yielded is only that).

Three endings look alike and must not be confused. Our own clock ran out: `ToolTimeout`. Somebody stops *us*: that
passes through, or nothing could ever be stopped. The tool failed: `ToolFailed`; `is_failure` tells it from the others.

A thread cannot be stopped, only left behind. One that is left behind is reported and counted, until it ends, and then
once more: what it returns so late is dropped.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread

from streamtools.calls import ToolCall
from streamtools.errors import Code, ToolCallFailed, ToolFailed, ToolInputError, ToolOutputError, ToolTimeout
from streamtools.events import UIEvent, Warning
from streamtools.logs import Logger
from streamtools.tools.call import Report, ToolContext, ToolError, ToolOutcome, ToolResult, Written, is_failure
from streamtools.tools.tool import Tool

log = Logger(__name__)

TIMEOUT = 60.0
"""Seconds that a tool may take if nobody says otherwise."""
_SHOWN_OF_LONG = 1000  # characters of a result that is too long for the model
_OF_ERROR = 1000  # characters of an error that the model gets in any case; what we say ourselves is shorter


async def invoke(
    tool: Tool,
    arguments: Mapping[str, Any],
    context: ToolContext | None = None,
    *,
    timeout: float = TIMEOUT,
    thread: Thread | None = None,
) -> Written:
    """Return what the tool makes of the arguments, in the forms for the interface and for the model.

    `timeout` is in seconds, for tools without
    their own; while the context's `report` waits, the clock stands still. Raises `ToolCallFailed`, of the kind that
    tells what happened, and whatever `report` raises: progress that cannot be told ends the call, also where the tool
    takes no notice. `context` and `thread` serve one call; afterwards `thread` tells whether the tool has been left
    behind at work.
    """
    context = ToolContext(name=tool.name) if context is None else context
    thread = Thread(Threads(), tool.name) if thread is None else thread
    try:
        args, kwargs = tool.read(arguments)
    except ToolInputError:
        raise
    except Exception as error:  # a validator of the user's own that breaks
        raise _failure(tool, error) from error
    if tool.context is not None:
        kwargs[tool.context] = context
    seconds = timeout if tool.timeout is None else tool.timeout
    scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
    report = context.report = _Reporting(tool, context, scope)
    context.deadline = time.monotonic() + seconds
    value: Any = None
    cause: BaseException | None = None
    try:
        with scope:
            value = await _run(tool, functools.partial(tool.function, *args, **kwargs), report, thread)
    except BaseException as error:
        cause = error
        while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:  # of a tool with a task group
            cause = cause.exceptions[0]
        if cause is not report.failure and not is_failure(error):
            raise
    finally:
        context.cancelled = True
    if report.failure is not None:
        raise report.failure
    if cause is None and not scope.cancelled_caught:
        return _write(tool, tool.write, value)
    if scope.cancel_called:
        raise ToolTimeout(tool.name, f"tool {tool.name!r} did not end within {seconds:g} seconds") from cause
    raise _failure(tool, cause) from cause


class _Reporting:
    """Reports the progress of a tool as its context does; while that waits, the clock of the call stands still."""

    def __init__(self, tool: Tool, context: ToolContext, scope: anyio.CancelScope) -> None:
        self.failure: BaseException | None = None
        self._tool, self._context, self._scope = tool, context, scope
        self._report = context.report
        self._waiting = 0
        self._left = math.inf

    async def __call__(self, progress: Any) -> None:
        with self.pause():
            try:
                await self._report(_write(self._tool, self._tool.write_progress, progress).value)
            except Exception as error:
                self.failure = error
                raise

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        if not self._waiting:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = self._context.deadline = math.inf
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._scope.deadline = anyio.current_time() + self._left
                self._context.deadline = time.monotonic() + self._left


def take(tool: Tool, value: Any) -> Written:
    """Return what came of a call that was carried out elsewhere, in the same forms. Raises `ToolOutputError`."""
    return _write(tool, lambda value: tool.write(tool.read_answer(value)), value)


def _failure(tool: Tool, cause: BaseException | None) -> ToolFailed:
    text = str(cause) if isinstance(cause, ToolError) else ""
    return ToolFailed(tool.name, text or f"tool {tool.name!r} failed")


def _write(tool: Tool, write: Callable[[Any], Written], value: Any) -> Written:
    try:
        return write(value)
    except ToolOutputError:
        raise
    except Exception as error:
        text = f"tool {tool.name!r} returned what cannot be written as JSON"
        code = getattr(inspect.unwrap(tool.function), "__code__", None)
        place = "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"
        error.add_note(f"tool {tool.name!r}{place} returned a value of type {type(value).__qualname__}")
        raise ToolOutputError(tool.name, text) from error


async def _run(tool: Tool, work: Callable[[], Any], report: Report, thread: Thread) -> Any:
    if tool.yields:
        return await (_last_of(work(), report) if tool.is_async else _last_in_thread(work, report, thread))
    value = work() if tool.is_async else await _in_thread(work, thread)
    return await value if inspect.isawaitable(value) else value


async def _last_of(steps: AsyncGenerator[Any, None], report: Report) -> Any:
    value = None
    async with contextlib.aclosing(steps):
        async for value in steps:
            if not isinstance(value, ToolResult):
                await report(value)
    return value


@dataclass(slots=True, eq=False)
class Threads:
    """How many threads have been left behind: those that are still at work, and those whose result came too late."""

    left: int = 0
    dropped: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


@dataclass(slots=True, eq=False)
class Thread:
    """The thread of one call; `is_left` once it has been left behind at work."""

    threads: Threads
    tool: str = ""
    call_id: str = ""
    is_left: bool = False
    is_working: bool = False
    is_stopped: bool = False

    def begin(self) -> bool:
        """Return, in the thread, whether to work, or to go on: it may have been stopped meanwhile."""
        with self.threads.lock:
            self.is_working = not self.is_stopped
            return self.is_working

    def end(self) -> None:
        """Take note, in the thread, that the work is done, or waits."""
        with self.threads.lock:
            self.is_working = False
            if not self.is_left:
                return
        try:  # in this order: whoever finds no thread left has all that they have logged
            log.warning("tool_result_dropped", tool=self.tool, call_id=self.call_id)
        finally:
            with self.threads.lock:
                self.threads.left -= 1
                self.threads.dropped += 1

    def leave(self) -> None:
        """Take note that nobody waits any more."""
        with self.threads.lock:
            self.is_stopped = True
            if self.is_working:
                self.is_left = True
                self.threads.left += 1


async def _in_thread(work: Callable[[], Any], thread: Thread) -> Any:
    """Return the result of `work`. If we are stopped, the thread goes on alone, and what it says then is dropped.

    Its limiter is its own: the runner bounds the calls, and an abandoned thread holds no place that others wait for.
    """

    def boxed() -> tuple[Any]:  # trio refuses a function that returns a coroutine, which a lambda may well do
        if not thread.begin():
            return (None,)
        try:
            return (work(),)
        finally:
            thread.end()

    try:
        (value,) = await anyio.to_thread.run_sync(boxed, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    except BaseException:
        thread.leave()
        raise
    return value


async def _last_in_thread(work: Callable[[], Generator[Any, None, Any]], report: Report, thread: Thread) -> Any:
    """Return what a generator says last, which lives in one thread from its start to its end.

    What it yields is handed over to our task, so that nothing is reported after we were stopped. A thread that was left
    behind ends at its next yield; one that waits there is not at work, and ends at once.
    """
    outbox, inbox = anyio.create_memory_object_stream[Any](0)
    result: Any = None
    failure: BaseException | None = None

    def step_through() -> Any:
        value = None
        with contextlib.closing(work()) as steps:
            while True:
                try:
                    value = next(steps)
                except StopIteration as end:
                    return value if end.value is None else end.value
                if thread.is_left:  # and the event loop may be closed by now
                    return None
                if not isinstance(value, ToolResult):
                    thread.end()
                    anyio.from_thread.run(outbox.send, value)
                    if not thread.begin():
                        return None

    async def work_in_thread() -> None:
        nonlocal result, failure
        with outbox:
            try:
                result = await _in_thread(step_through, thread)
            except BaseException as error:
                if not is_failure(error):
                    raise
                failure = error  # raised below, as it is and not in a group

    with inbox, outbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work_in_thread)
            async for value in inbox:
                await report(value)
    if failure is not None:
        raise failure
    return result


@dataclass(slots=True, eq=False, repr=False)
class Execution:
    """One call while it is run, and how its outcome is put for the model, whose text may be shorter, and the interface.

    `limit` is how many characters of a result the model gets; `clock` tells seconds.
    """

    call: ToolCall
    limit: int | None
    clock: Callable[[], float]
    shown: bool = False  # the interface knows that it is run
    began: float | None = None  # when its tool began to work
    thread: Thread | None = None
    tool: Tool | None = None  # what it is called with, as it was when the question was whether it may run
    outcome: ToolOutcome | None = None
    endings: list[UIEvent] = field(default_factory=list)  # what closes the call and has not been sent; without numbers
    place: object | None = None  # what it holds of those that may work at the same time

    def end(self, outcome: ToolOutcome) -> None:
        self.outcome = outcome
        if outcome.abandoned:
            tool = f"the thread of tool {self.call.name[:64]!r}"
            why = f"{tool} cannot be stopped and was left behind; its result will be dropped"
            self.endings.append(Warning(Code.ABANDONED, why, count=1))
        self.endings.append(outcome.event(0))

    def succeeded(self, tool: Tool, written: Written) -> ToolOutcome:
        message = written.value.get("message") if isinstance(written.value, dict) else None
        return ToolOutcome(
            call=self.call,
            result=written.value,
            text=self._shorten(written.text, self.limit),
            error=None,
            message=message if isinstance(message, str) and message else None,
            elapsed=self._elapsed(),
            stop=written.stop,
            neutralise=tool.neutralise,
        )

    def failed(self, code: Code, text: str, error: ToolCallFailed | None = None) -> ToolOutcome:
        """Return the outcome of a call that has failed, with `error`, or was never run; `text` says why."""
        abandoned = self.thread is not None and self.thread.is_left
        if abandoned:
            text += "; it could not be stopped, and may still be at work"
        # Which tools there are helps the model, and is not for the reader.
        message = f"no tool named {self.call.name[:64]!r}" if code is Code.UNKNOWN_TOOL else text
        return ToolOutcome(
            call=self.call,
            result=None,
            text=self._shorten(text, None if self.limit is None else max(self.limit, _OF_ERROR)),
            error=code,
            message=message,
            elapsed=self._elapsed(),
            abandoned=abandoned,
            exception=error.__cause__ if isinstance(error, ToolFailed | ToolOutputError) and error.__cause__ else error,
        )

    def _shorten(self, text: str, limit: int | None) -> str:
        """Return what the model gets of a text, and note that the interface is to know if that is not all."""
        if limit is None or len(text) <= limit:
            return text
        why = f"the result of tool {self.call.name[:64]!r} is too long for the model, which was told so instead"
        self.endings.append(Warning(Code.RESULT_TOO_LONG, why, count=len(text)))
        why = f"the result is too long to be shown: {len(text)} characters, and at most {limit} are; ask for less of it"
        begin = text[: min(_SHOWN_OF_LONG, limit)]
        return f"{why}. It begins: {begin}" if begin else why

    def _elapsed(self) -> float:
        return 0.0 if self.began is None else self.clock() - self.began
