"""The frames of a websocket's client, each one JSON object as text; and the results of calls that it sends.

Control frames have one of the keys below and nothing else; any other object is a message for the application. Anything
else raises `BadFrame`, whose message is for the client.
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any, NamedTuple, TypeAlias

import anyio
import msgspec

from streamtools.events import Error, Executed, Executing, UIEvent
from streamtools.json_values import count_values
from streamtools.tools import Approve, Deny, ToolError

Id: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
"""An id, as in an event: those of ours have two dozen characters, and providers' fewer than a hundred."""

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


class CancelFrame(msgspec.Struct, forbid_unknown_fields=True):
    """`{"cancel": true}`: end the run that is read."""

    cancel: bool

    def __post_init__(self) -> None:
        if not self.cancel:
            raise ValueError("cancel is true")


class ResumeFrame(msgspec.Struct, forbid_unknown_fields=True):
    """`{"resume": seq, "run_id": id}`: read a run behind the event that was seen last."""

    after: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(name="resume")
    run_id: Id | None = None


class ResultFrame(msgspec.Struct, forbid_unknown_fields=True):
    """`{"tool_result": {"call_id": id, "result": …}}`, or `"error": message` in the place of the result."""

    call_id: Id
    result: Any = msgspec.UNSET
    error: str | None = None

    def __post_init__(self) -> None:
        if (self.result is msgspec.UNSET) == (self.error is None):
            raise ValueError("a tool_result has either a result or an error")
        if self.error is not None:
            self.result = None


class ApprovalFrame(msgspec.Struct, forbid_unknown_fields=True):
    """`{"approval": {"call_id": id, "approved": true, "digest"?: …}}`, or `false` with a `reason` if there is one."""

    call_id: Id
    approved: bool
    reason: str | msgspec.UnsetType = msgspec.UNSET
    digest: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.approved and self.reason is not msgspec.UNSET:
            raise ValueError("a reason is given to deny a call")

    @property
    def decision(self) -> Approve | Deny:
        digest = None if self.digest is msgspec.UNSET else self.digest
        return Approve(digest) if self.approved else Deny(self.reason or "")


class MessageFrame(NamedTuple):
    """Any other object."""

    message: dict[str, Any]


Frame: TypeAlias = CancelFrame | ResumeFrame | ResultFrame | ApprovalFrame | MessageFrame
_INSIDE: dict[str, type[ResultFrame | ApprovalFrame]] = {"tool_result": ResultFrame, "approval": ApprovalFrame}
_CONTROL: dict[str, type[Frame]] = {"cancel": CancelFrame, "resume": ResumeFrame, **_INSIDE}
"""Frames by the key that makes an object one of them."""


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
    key = next((key for key in _CONTROL if key in value), None)
    if key is None:
        return MessageFrame(value)
    if key in _INSIDE and len(value) > 1:
        raise BadFrame("wrong_type", f"a frame with {key!r} has nothing else")
    try:
        return msgspec.convert(value[key] if key in _INSIDE else value, _CONTROL[key])
    except msgspec.ValidationError as error:
        raise BadFrame("wrong_type", f"{key}: {str(error)[:200]}") from None


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
