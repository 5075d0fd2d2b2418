"""The frames of a websocket's client, each one JSON object as text; and the results of calls that it sends.

Control frames have one of the keys below and nothing else; any other object is a message for the application. Anything
else raises `BadFrame`, whose message is for the client.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, TypeAlias

import anyio
import msgspec

from streamtools.events import Error, Executed, Executing, UIEvent
from streamtools.json_values import count_values
from streamtools.tools import ToolError

RESERVED = ("cancel", "resume", "tool_result", "approval")
"""Keys that make an object a control frame."""

_MAX_ID = 1024  # characters of an id; ids of ours have two dozen, and providers' fewer than a hundred
_REMEMBERED = 64  # calls that are at work, or were, and whose results may still come


class BadFrame(Exception):
    """A frame that says nothing; `code` names why, and `closing` is the close code for a client that says no other."""

    def __init__(self, code: str, message: str, closing: int = 1008) -> None:
        super().__init__(message)
        self.answer: dict[str, Any] = {"code": code, "message": message}
        self.code = code
        self.closing = closing


class RefusedFrame(BadFrame):
    """A frame that says something about a call which does not wait for it, any more perhaps: no fault of a client's."""

    def __init__(self, code: str, message: str, call_id: str) -> None:
        super().__init__(code, message)
        self.answer["call_id"] = call_id


class CancelFrame(NamedTuple):
    """`{"cancel": true}`: end the run that is read."""


class ResumeFrame(NamedTuple):
    """`{"resume": seq, "run_id": id}`: read a run behind the event that was seen last."""

    after: int
    run_id: str | None


class ResultFrame(NamedTuple):
    """`{"tool_result": {"call_id": id, "result": …}}`, or `"error": message` in the place of the result."""

    call_id: str
    result: Any = None
    error: str | None = None


class ApprovalFrame(NamedTuple):
    """`{"approval": {"call_id": id, "approved": true, "digest"?: …}}`, or `false` with a `reason` if there is one."""

    call_id: str
    approved: bool
    reason: str = ""
    digest: str | None = None


class MessageFrame(NamedTuple):
    """Any other object."""

    message: dict[str, Any]


Frame: TypeAlias = CancelFrame | ResumeFrame | ResultFrame | ApprovalFrame | MessageFrame


def read_frame(text: str | None, max_frame: int, max_values: int | None = None) -> Frame:
    """Return what a frame says; None stands for one of bytes. Raises `BadFrame` for one that says nothing.

    One of more than `max_frame` characters, or `max_values` values, is not read.
    """
    if text is None:
        raise BadFrame("not_text", "frames are text; this one is binary", 1003)
    if len(text) > max_frame:
        raise BadFrame("too_large", f"a frame has at most {max_frame} characters; this one has {len(text)}", 1009)
    try:
        if max_values is not None and len(text) > max_values and count_values(text.encode()) > max_values:
            raise BadFrame("too_large", f"a frame has at most {max_values} values", 1009)
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise BadFrame("not_json", "this frame is not JSON") from None
    if not isinstance(value, dict):
        raise BadFrame("not_an_object", "a frame is a JSON object")
    key = next((key for key in RESERVED if key in value), None)
    if key is None:
        return MessageFrame(value)
    said = value[key]
    _check_keys(f"a frame with {key!r}", value, {key, "run_id"} if key == "resume" else {key})
    match key:
        case "cancel":
            _check(said is True, "cancel", "true")
            return CancelFrame()
        case "resume":
            run_id = value.get("run_id")
            _check(type(said) is int and said >= 0, "resume", "the seq of the last event that was seen, or 0")
            if run_id is not None:
                _check_id("run_id", run_id)
            return ResumeFrame(said, run_id)
        case "tool_result":
            is_one = isinstance(said, dict) and "call_id" in said and ("result" in said) != ("error" in said)
            _check(is_one, "tool_result", "an object with call_id and either result or error")
            _check_keys("tool_result", said, {"call_id", "result", "error"})
            _check_id("call_id", said["call_id"])
            _check("result" in said or isinstance(said["error"], str), "error", "a text")
            return ResultFrame(**said)
        case _:
            is_one = isinstance(said, dict) and type(said.get("approved")) is bool
            _check(is_one, "approval", "an object with call_id and approved, which is true or false")
            _check_keys("approval", said, {"call_id", "approved", "reason", "digest"})
            _check_id("call_id", said.get("call_id"))
            for name in ("reason", "digest"):
                _check(isinstance(said.get(name, ""), str), name, "a text")
            if said["approved"] and "reason" in said:
                raise BadFrame("wrong_type", "a reason is given to deny a call")
            return ApprovalFrame(**said)


def _check(is_right: bool, name: str, what: str) -> None:
    if not is_right:
        raise BadFrame("wrong_type", f"{name} is {what}")


def _check_id(name: str, value: object) -> None:
    _check(isinstance(value, str) and 0 < len(value) <= _MAX_ID, name, "an id, as in an event")


def _check_keys(name: str, value: dict[str, Any], keys: set[str]) -> None:
    if unknown := value.keys() - keys:
        raise BadFrame("wrong_type", f"{name} has no {min(unknown)[:50]!r}")


class Mailbox:
    """The results of calls that the client carries out, for which a tool of the run waits.

    A result is for a call that is at work, and for it once. It may come before the tool has begun to wait, because the
    other side hears of the call as early as the tool does.
    """

    def __init__(self) -> None:
        self._slots: dict[str, _Slot] = {}
        self._answered: deque[str] = deque(maxlen=_REMEMBERED)

    def follow(self, event: UIEvent) -> None:
        """Expect a result of a call that is at work from now on, or none any more of one that has ended."""
        match event:
            case Executing(call):
                self.expect(call.id)
            case Executed(call):
                self.forget(call.id)
            case Error(call_id=str(call_id)):
                self.forget(call_id)

    def expect(self, call_id: str) -> None:
        """Take a result of this call, if one comes: it is at work."""
        if call_id not in self._slots and call_id not in self._answered:
            if len(self._slots) >= _REMEMBERED:  # room is made by the oldest that nobody waits for
                idle = next((call_id for call_id, slot in self._slots.items() if not slot.readers), None)
                if idle is not None:
                    del self._slots[idle]
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
        """Return the result of a call. Raises `ToolError` with the message that came in its place."""
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


class _Slot:
    __slots__ = ("come", "error", "readers", "result")

    def __init__(self) -> None:
        self.come = anyio.Event()
        self.result: Any = None
        self.error: str | None = None
        self.readers = 0
