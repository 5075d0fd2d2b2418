"""Tools of each kind, which report a point at each await and in threads, and the answers that call them."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel

from streamtools.tools import Tool, ToolContext
from tests.support.chat_chunks import DONE, chunk
from tests.torture.rack import Rack


class Tools:
    """The tools of one run."""

    def __init__(self, rack: Rack) -> None:
        self._rack = rack
        self._door = threading.Event()
        rack.doors.append(self._door)

    def __getitem__(self, names: str) -> list[Tool]:
        """Return the tools with these names, which are separated by spaces."""
        return [Tool(getattr(self, name)) for name in names.split()]

    def _begin(self, context: ToolContext[Any]) -> None:
        with self._rack.lock:
            self._rack.begun[context.call_id] += 1

    def _end(self, context: ToolContext[Any]) -> None:
        with self._rack.lock:
            self._rack.returned.add(context.call_id)

    async def think(self, context: ToolContext[Any]) -> str:
        """Yield to the event loop twice."""
        self._begin(context)
        for _ in range(2):
            self._rack.hit("tool")
            await anyio.lowlevel.checkpoint()
        self._rack.hit("tool")
        self._end(context)
        return "thought"

    async def steps(self, context: ToolContext[Any]) -> AsyncIterator[int]:
        """Report progress."""
        self._begin(context)
        try:
            for number in range(2):
                self._rack.hit("tool")
                await anyio.lowlevel.checkpoint()
                yield number
            self._rack.hit("tool")
            self._end(context)
        finally:
            with anyio.CancelScope(shield=True):  # a cancellation would replace the exception
                await anyio.lowlevel.checkpoint()

    async def unlock(self, context: ToolContext[Any]) -> str:
        """Let `block` continue, unless the run is cancelled."""
        self._begin(context)
        try:
            for _ in range(4):
                self._rack.hit("tool")
                await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class():
            if self._rack.scope.cancel_called or self._rack.natively:
                raise
            self._door.set()
            raise
        except BaseException:
            self._door.set()
            raise
        self._door.set()
        self._end(context)
        return "open"

    def block(self, context: ToolContext[Any]) -> str:
        """Wait in a thread until `unlock` has been called."""
        self._begin(context)
        with _AtWork(self._rack):
            self._rack.hit("thread")
            self._door.wait()
            self._rack.hit("thread")
            self._end(context)
            return "unlocked"

    def quick(self, context: ToolContext[Any]) -> str:
        """Return immediately, in a thread."""
        self._begin(context)
        with _AtWork(self._rack):
            self._rack.hit("thread")
            self._end(context)
            return "done"

    def count(self, context: ToolContext[Any]) -> None:
        """Report progress from a thread."""
        self._begin(context)
        with _AtWork(self._rack):
            for number in range(2):
                self._rack.hit("thread")
                context.progress(number)
            self._rack.hit("thread")
            self._end(context)


class _AtWork:
    def __init__(self, rack: Rack) -> None:
        self._rack = rack

    def __enter__(self) -> None:
        with self._rack.lock:
            self._rack.at_work += 1

    def __exit__(self, *error: object) -> None:
        with self._rack.lock:
            self._rack.at_work -= 1


def new_ids() -> Any:
    """Return a function that makes the ids c1, c2 and so on."""
    return map("c{}".format, itertools.count(1)).__next__


def native(*names: str, text: str = "", finish: str = "tool_calls", between: str = "") -> list[bytes]:
    """Return the chunks of an answer with native calls of these tools."""
    chunks = [chunk({"content": text})] if text else []
    for index, name in enumerate(names):
        function = {"name": name, "arguments": json.dumps({})}
        chunks.append(chunk({"tool_calls": [{"index": index, "id": f"n{index}", "function": function}]}))
        if between:
            chunks.append(chunk({"content": between}))
    return [*chunks, chunk(finish=finish), DONE]


def said(*texts: str, finish: str | None = "stop") -> list[bytes]:
    """Return the chunks of an answer in text."""
    end = [chunk(finish=finish), DONE] if finish else []
    return [*(chunk({"content": text}) for text in texts), *end]


def called(name: str) -> str:
    """Return a call in text."""
    return f'###:{{"name":"{name}"}}\n'
