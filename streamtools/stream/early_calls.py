"""Tools that begin before their call is complete, and are given the items of a list while the model writes them.

It is the one exception to the rule that a call which may yet be cut is never run, and only tools that read ask for it
(`begins_early`). One begins when its list does, if all of its other arguments are there, and if the call would run as
soon as it is complete: eagerly, with nobody to be asked, and without a choice of tools that the whole turn is held to.
What it returns waits for the call. If that is cut, malformed, superseded, refused, or says something else in the end,
the list ends in `CallEnded`, the tool is cancelled, and nothing of it goes to the model.

A tool that takes its items slowly slows the source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import anyio
import msgspec
from anyio.abc import TaskGroup

from streamtools.calls import ToolCall
from streamtools.errors import ToolCallFailed, ToolFailed
from streamtools.events import Call, CallStart, Error, Executed, Partial, StepEnd, Thinking, UIEvent
from streamtools.json_values import Draft
from streamtools.parsing.dialects.base import restore
from streamtools.stream.step import StepCalls
from streamtools.tools import Tool, ToolContext, ToolRegistry
from streamtools.tools.call import CallEnded, Report, Written
from streamtools.tools.invocation import invoke

ITEMS = 16
"""Items that wait for a tool before the source has to; those that one network chunk brings come on top."""
_PROGRESS = 100  # what a tool tells before its call is complete waits for that; only the last of it does

_encode = msgspec.json.Encoder().encode


class EarlyCalls:
    """The calls of a stream that are being written, and the tools that have begun with them.

    `look` is given all events, before the consumer is; `begun` is what a `Runner` asks. Tools are run in `tasks`.
    """

    def __init__(self, step: StepCalls, registry: ToolRegistry, concurrency: int, timeout: float, state: Any) -> None:
        self.tasks: TaskGroup | None = None
        self._machine = step.machine
        self._dialects = step.dialects
        self._watch = step.watch
        self._registry = registry
        self._most = concurrency
        self._timeout = timeout
        self._state = state
        self._written: dict[str, _WrittenCall] = {}
        self._works: dict[str, EarlyWork] = {}
        step.begun = self.begun

    def look(self, events: Sequence[UIEvent]) -> bool:
        """Take note of events: calls begin, grow and end. Return whether the source has to wait for a tool."""
        for event in events:
            kind = type(event)
            if kind is Partial:
                if (written := self._written.get(event.call_id or "")) is not None:  # type: ignore[union-attr]
                    self._grow(written, event)  # type: ignore[arg-type]  # as `kind` says
            elif kind is CallStart:
                self._start(event)  # type: ignore[arg-type]
            elif kind is Call:
                self._written.pop(event.call.id, None)  # type: ignore[union-attr]
            elif kind is Error or kind is Executed or (kind is Thinking and not event.active):  # type: ignore[union-attr]
                self._end(event)
            elif kind is StepEnd:
                self._written.clear()
                for call_id in list(self._works):
                    self._drop(call_id)
        return any(work.items.full for work in self._works.values())

    def begun(self, call: ToolCall, report: Report) -> Any:
        """Return what comes of a complete call whose tool has begun, to be awaited; None if it has not."""
        work = self._works.get(call.id)
        return None if work is None else work.finish(call, report)

    async def wait_for_room(self) -> None:
        """Wait until each tool has room for items."""
        for work in list(self._works.values()):
            await work.items.wait_for_room()

    def _start(self, event: CallStart) -> None:
        tool = self._registry.get(event.name)
        if tool is not None and tool.begins_early:
            self._written[event.call_id] = _WrittenCall(event.call_id, tool)

    def _grow(self, written: _WrittenCall, event: Partial) -> None:
        draft, path, items = written.draft, event.path, written.tool.items
        draft.add(path, event.value, event.complete)
        assert items is not None
        if not path or path[0] != items.name:
            return
        if len(path) == 1 and not event.complete:
            self._begin(written)
        elif len(path) == 2 and event.complete and (work := self._works.get(written.call_id)) is not None:
            work.items.add(restore(draft.at(path), self._dialects))

    def _begin(self, written: _WrittenCall) -> None:
        """Begin with a call whose list has just begun, if that may be."""
        tool, items, call_id = written.tool, written.tool.items, written.call_id
        others = {name: value for name, value in written.draft.value.items() if items and name != items.name}
        all_there = others.keys() | {items and items.name} == tool.parameters["properties"].keys()
        may_run = self._machine.runs_at_once(call_id, native_only=tool.trust != "text")
        if items is None or self.tasks is None or not (all_there and may_run and self._watch.admits):
            return
        if len(self._works) >= self._most:
            return
        others = restore(others, self._dialects)
        try:
            args, kwargs = tool.read({**others, items.name: []})
        except Exception:  # what is wrong is told when the call is complete
            return
        work = self._works[call_id] = EarlyWork(tool, ToolContext(call_id, tool.name, state=self._state), others)
        kwargs[items.parameter] = work.items
        self.tasks.start_soon(work.run, (args, kwargs), self._timeout)

    def _end(self, event: Any) -> None:
        call_id = event.call.id if type(event) is Executed else event.call_id
        if type(event) is Thinking and call_id not in self._written:  # the call is complete
            return
        self._written.pop(call_id, None)
        self._drop(call_id)

    def _drop(self, call_id: str) -> None:
        work = self._works.pop(call_id, None)
        if work is not None:
            work.cancel()


@dataclass
class _WrittenCall:
    """A call that is being written, of a tool that may begin early."""

    call_id: str
    tool: Tool
    draft: Draft = field(default_factory=Draft)


class EarlyWork:
    """The work of one tool that has begun before its call was complete."""

    def __init__(self, tool: Tool, context: ToolContext, others: dict[str, Any]) -> None:
        assert tool.items is not None
        self._tool = tool
        self._others = others
        self._scope = anyio.CancelScope()
        self.items = ItemsAsTheyCome(tool.items.read, context, self._scope)
        self._context = context
        self._over = anyio.Event()
        self._result: Written | None = None
        self._error: ToolCallFailed | None = None
        self._said: deque[Any] = deque(maxlen=_PROGRESS)
        self._report: Report | None = None
        context.report = self._tell

    async def run(self, given: Any, timeout: float) -> None:
        """Run the tool to its end, in a task of its own."""
        try:
            with self._scope:
                self._result = await invoke(self._tool, {}, self._context, timeout=timeout, given=given)
        except ToolCallFailed as error:
            self._error = error
        finally:
            self.items.leave()
            self._over.set()

    async def finish(self, call: ToolCall, report: Report) -> Written:
        """Return what the tool makes of the call, which is complete now. Raises `ToolCallFailed`."""
        try:
            self._tool.read(call.arguments)
            rest = self._behind(call)
        except Exception as error:
            self.cancel()
            if isinstance(error, ToolCallFailed):
                raise
            raise ToolFailed(call.name, f"tool {call.name!r} failed") from error
        for item in rest:
            self.items.add(item)
        self.items.end()
        while self._said:
            await report(self._said.popleft())
        self._report = report
        await self._over.wait()
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise ToolFailed(call.name, f"tool {call.name!r} was cancelled")
        return self._result

    def cancel(self) -> None:
        """End the list with `CallEnded`, and the tool."""
        self.items.cut()

    def _behind(self, call: ToolCall) -> list[Any]:
        """Return the items that the tool has not been given. Raises `ToolFailed` if it was given others than these."""
        assert self._tool.items is not None
        arguments = dict(call.arguments)
        items, taken = arguments.pop(self._tool.items.name), self.items.taken
        if _encode([self._others, taken]) != _encode(
            [{name: arguments[name] for name in self._others}, items[: len(taken)]]
        ):
            raise ToolFailed(call.name, f"tool {call.name!r} had begun with other arguments than those of the call")
        rest: list[Any] = items[len(taken) :]
        return rest

    async def _tell(self, progress: Any) -> None:
        if self._report is None:
            self._said.append(progress)
        else:
            await self._report(progress)


class ItemsAsTheyCome:
    """The items of a list that is being written, as the tool takes them: each as a validated value.

    Raises `CallEnded` to the tool, which is cancelled then, if the call turns out not to count.
    """

    def __init__(self, read: Callable[[bytes], Any], context: ToolContext, scope: anyio.CancelScope) -> None:
        self.taken: list[Any] = []
        """All items that have been added, as plain values."""
        self._read = read
        self._context = context
        self._scope = scope
        self._ready: deque[Any] = deque()
        self._news: anyio.Event | None = None
        self._room: anyio.Event | None = None
        self._ended = self._cut = self._left = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while not (self._ready or self._ended or self._cut):
            if self._news is None:
                self._news = anyio.Event()
            with self._context.pause():
                await self._news.wait()
        if self._cut:
            self._scope.cancel()
            raise CallEnded(f"the call of tool {self._context.name!r} is none")
        if not self._ready:
            raise StopAsyncIteration
        item = self._ready.popleft()
        if self._room is not None and len(self._ready) <= ITEMS // 2:
            self._room.set()
            self._room = None
        return item

    def add(self, item: Any) -> None:
        """Add an item that is complete. One that does not fit ends the list: the call is wrong."""
        if self._cut:
            return
        self.taken.append(item)
        if self._left:
            return
        try:
            self._ready.append(self._read(_encode(item)))
        except Exception:  # what is wrong is told when the call is complete
            self.cut()
            return
        self._wake()

    def end(self) -> None:
        """Note that all items have come."""
        self._ended = True
        self._wake()

    def cut(self) -> None:
        """Note that the call is none: the tool is cancelled, behind what it gets if it waits here."""
        self._cut = True
        self._give_room()
        if self._news is not None:
            self._wake()
        else:
            self._scope.cancel()

    def leave(self) -> None:
        """Note that nobody takes items any more."""
        self._left = True
        self._ready.clear()
        self._give_room()

    @property
    def full(self) -> bool:
        """Whether no more items should come for now."""
        return len(self._ready) >= ITEMS and not self._cut

    async def wait_for_room(self) -> None:
        """Wait until the tool has taken items, or takes no more."""
        while self.full:
            if self._room is None:
                self._room = anyio.Event()
            await self._room.wait()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    def _give_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None
