"""The results of tools that somebody else runs: a tool of ours waits here, and its result comes from elsewhere.

A result is for a call that is at work, and for it once. It may come before the tool has begun to wait, because the
other side hears of the call as early as the tool does.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import anyio

from streamtools.tools import ToolError

_REMEMBERED = 64  # calls that are at work, or were, and whose results may still come


class Mailbox:
    """The results of one run's calls, by their ids."""

    def __init__(self) -> None:
        self._slots: dict[str, _Slot] = {}
        self._answered: deque[str] = deque(maxlen=_REMEMBERED)

    def expect(self, call_id: str) -> None:
        """Take a result of this call, if one comes: it is at work."""
        if call_id not in self._slots and call_id not in self._answered:
            if len(self._slots) >= _REMEMBERED:
                self._drop_one()
            self._slots[call_id] = _Slot()

    def forget(self, call_id: str) -> None:
        """Take none any more: the call has ended."""
        slot = self._slots.get(call_id)
        if slot is not None and not slot.readers:
            del self._slots[call_id]

    def close(self, call_id: str) -> None:
        """Take none: the call has got its result elsewhere."""
        self.forget(call_id)
        self._answered.append(call_id)

    def put(self, call_id: str, result: Any, error: str | None) -> str | None:
        """Hand over a result; return what is wrong with that, if something is."""
        slot = self._slots.get(call_id)
        if call_id in self._answered or (slot is not None and slot.come.is_set()):
            return "this call has a result already"
        if slot is None:
            return "no call of this id waits for a result"
        slot.result, slot.error = result, error
        slot.come.set()
        return None

    async def wait(self, call_id: str) -> Any:
        """Return the result of a call. Raises `ToolError` with the words that came in its place."""
        slot = self._slots.setdefault(call_id, _Slot())
        slot.readers += 1
        try:
            await slot.come.wait()
        finally:
            slot.readers -= 1
            if not slot.readers and self._slots.get(call_id) is slot:
                del self._slots[call_id]
        self._answered.append(call_id)
        if slot.error is not None:
            raise ToolError(slot.error)
        return slot.result

    def _drop_one(self) -> None:
        """Make room: drop the oldest that nobody waits for."""
        idle = next((call_id for call_id, slot in self._slots.items() if not slot.readers), None)
        if idle is not None:
            del self._slots[idle]


class _Slot:
    __slots__ = ("come", "error", "readers", "result")

    def __init__(self) -> None:
        self.come = anyio.Event()
        self.result: Any = None
        self.error: str | None = None
        self.readers = 0
