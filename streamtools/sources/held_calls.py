"""Calls of a stream whose other side has tools of its own, held until it is known who runs them. Sans-IO.

A call and its result are events of the same turn where the other side ran the tool; one without a result by the end of
the turn is left to us. So a call waits for either, and a turn that ends tells the calls which nobody has answered.
Their arguments come whole, so the pieces of them that come before are not kept. More calls than a turn may have are not
held, but told before it is known whose they are; so nobody here may run them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.events import NativeToolCall, SourceEvent, ToolCallStart
from streamtools.limits import Limits


class HeldCalls:
    """The calls of one turn, by the id that the other side gives them; `answerable` says whether it takes results."""

    def __init__(self, limits: Limits, *, answerable: bool = True) -> None:
        self._limit = limits.calls
        self._answerable = answerable
        self._begun: dict[str, str | None] = {}  # names of those whose arguments have not come
        self._whole: dict[str, NativeToolCall] = {}
        self._nameless = 0  # calls without an id
        self._left: set[str] = set()  # of the run: those that nobody here may run, also before they come
        self.settled: set[str] = set()
        """Ids of the turn's calls that the other side has run."""
        self.told: set[str] = set()
        """Ids of all calls of the run that were told, or run by the other side."""

    def begin(self, id: str, name: str | None, events: list[SourceEvent]) -> None:
        """Hold a call of which only the name is known. More than a turn may have are told at once."""
        if id not in self._whole:
            self._begun[id] = name
            if len(self._begun) > self._limit:
                self._tell_early(events)

    def complete(
        self, id: str | None, name: str | None, arguments: Any, events: list[SourceEvent], signature: str | None = None
    ) -> None:
        """Hold a complete call."""
        self._nameless += id is None
        key = f"call {self._nameless}" if id is None else id
        self._begun.pop(key, None)
        if key not in self.settled:
            answerable = self._answerable and key not in self._left
            self._whole[key] = NativeToolCall(key, name, arguments, id, signature=signature, answerable=answerable)
            if len(self._whole) > self._limit:
                self._tell_early(events)

    def settle(self, id: str) -> NativeToolCall | None:
        """Return a call that the other side has run or answered, if it was held."""
        self._begun.pop(id, None)
        self.settled.add(id)
        self.told.add(id)
        call = self._whole.pop(id, None)
        return None if call is None else msgspec.structs.replace(call, provider_executed=True, answerable=True)

    def leave(self, id: str) -> None:
        """Take note that nobody but the other side may run a call, which may still have to come."""
        self._left.add(id)
        if id in self._whole:
            self._whole[id] = msgspec.structs.replace(self._whole[id], answerable=False)

    def drop(self) -> None:
        """Forget what is held: the turn was taken back."""
        self._begun.clear()
        self._whole.clear()

    def release(self, events: list[SourceEvent], *, answerable: bool = True) -> None:
        """Append what is held; a call that never came whole only begins. The next turn holds nothing."""
        self._tell(events, answerable=answerable)
        self.settled.clear()

    def _tell_early(self, events: list[SourceEvent]) -> None:
        """Append what is held though the turn goes on, as calls that are not ours: they may still be settled."""
        self._left.update(self._whole)
        self._tell(events, answerable=False)

    def _tell(self, events: list[SourceEvent], *, answerable: bool) -> None:
        for call in self._whole.values():
            events.append(call if answerable else msgspec.structs.replace(call, answerable=False))
        events += [ToolCallStart(id, id, name) for id, name in self._begun.items()]
        self.told.update(self._whole, self._begun)
        self.drop()
