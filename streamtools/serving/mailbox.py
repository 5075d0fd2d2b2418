"""Delivers results that a client sends to the tools of a run that wait for them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import anyio

from streamtools.events import Error, Executed, Executing, UIEvent
from streamtools.tools import ToolError

_MAX_CALLS = 64  # limit of running calls, and of answered calls, that a mailbox remembers


class Mailbox:
    """Accepts one result for each running call.

    The client learns of a call when its tool starts, so its result may arrive before the tool waits for it. The mailbox
    then keeps the result.
    """

    def __init__(self) -> None:
        self._slots: dict[str, _Slot] = {}
        self._answered: deque[str] = deque(maxlen=_MAX_CALLS)

    def follow(self, event: UIEvent) -> None:
        """Update the running calls: `executing` starts a call, and `executed` or `error` ends it."""
        match event:
            case Executing(call):
                self.expect(call.id)
            case Executed(call):
                self.forget(call.id)
            case Error(call_id=str(call_id)):
                self.forget(call_id)

    def expect(self, call_id: str) -> None:
        """Accept a result of this call from now on, because the call is running."""
        if call_id in self._slots or call_id in self._answered:
            return
        if len(self._slots) >= _MAX_CALLS:  # drop the oldest call that no tool waits for
            idle = next((call_id for call_id, slot in self._slots.items() if not slot.waiting), None)
            if idle is not None:
                del self._slots[idle]
        self._slots[call_id] = _Slot()

    def forget(self, call_id: str) -> None:
        """Accept no result of this call any more, because the call has ended."""
        slot = self._slots.get(call_id)
        if slot is not None and not slot.waiting:
            del self._slots[call_id]

    def close(self, call_id: str) -> None:
        """Accept no result of this call any more, because the run itself has received one."""
        self.forget(call_id)
        self._answered.append(call_id)

    def put(self, call_id: str, result: Any, error: str | None) -> str | None:
        """Deliver the result, or the error, of a call. Returns None, or the reason why it is refused."""
        slot = self._slots.get(call_id)
        if call_id in self._answered or (slot is not None and slot.filled.is_set()):
            return "this call already has a result"
        if slot is None:
            return "no call with this id waits for a result"
        slot.result, slot.error = result, error
        slot.filled.set()
        return None

    async def wait(self, call_id: str) -> Any:
        """Wait for the result of a call. Raises `ToolError` if the client sent an error instead."""
        slot = self._slots.setdefault(call_id, _Slot())
        slot.waiting += 1
        try:
            await slot.filled.wait()
        finally:
            slot.waiting -= 1
            if not slot.waiting and self._slots.get(call_id) is slot:
                del self._slots[call_id]
        self._answered.append(call_id)
        if slot.error is not None:
            raise ToolError(slot.error)
        return slot.result


@dataclass(eq=False)
class _Slot:
    filled: anyio.Event = field(default_factory=anyio.Event)
    result: Any = None
    error: str | None = None
    waiting: int = 0  # number of tools that wait for the result
