"""Parses the frames that a websocket client sends. Each frame is a text that contains one JSON object.

A control frame has a key of `_CONTROL_FRAMES` and no unknown keys. An object without a key of `_CONTROL_FRAMES` is a
message for the application. An invalid frame raises `FrameError`, whose message is sent to the client.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from streamtools.json_values import count_values
from streamtools.tools import Approve, Deny

Id: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
"""An id of a run or a call. Ids of this package have about 24 characters, and ids of providers fewer than 100."""


class FrameError(Exception):
    """An invalid frame. The client receives `answer`.

    If the client sends too many invalid frames, the websocket is closed with the `close_code` of the last one.
    """

    def __init__(self, code: str, message: str, close_code: int = 1008) -> None:
        super().__init__(message)
        self.answer: dict[str, Any] = {"code": code, "message": message}
        self.code = code
        self.close_code = close_code


class CallNotPending(FrameError):
    """A decision or a result for a call that does not wait for it. It may be late, so it is not counted as invalid."""

    def __init__(self, code: str, message: str, call_id: str) -> None:
        super().__init__(code, message)
        self.answer["call_id"] = call_id


class CancelFrame(msgspec.Struct, forbid_unknown_fields=True):
    """`{"cancel": true}`: stop the run or the stream that is being sent."""

    cancel: bool

    def __post_init__(self) -> None:
        if not self.cancel:
            raise ValueError("`cancel` must be true")


class ResumeFrame(msgspec.Struct, forbid_unknown_fields=True):
    """`{"resume": seq, "run_id": id}`: send the events of a run after the one with this `seq`."""

    after: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(name="resume")
    run_id: Id | None = None


class ResultFrame(msgspec.Struct, forbid_unknown_fields=True):
    """`{"tool_result": {"call_id": id, "result": …}}`: the result of a call, or its `"error"` as text."""

    call_id: Id
    result: Any = msgspec.UNSET
    error: str | None = None

    def __post_init__(self) -> None:
        if (self.result is msgspec.UNSET) == (self.error is None):
            raise ValueError("pass either a result or an error")
        if self.error is not None:
            self.result = None


class ApprovalFrame(msgspec.Struct, forbid_unknown_fields=True):
    """`{"approval": {"call_id": id, "approved": true}}`: a decision about a call.

    An approval may have the `digest` of the call. With `"approved": false`, the call is denied, and the frame may have
    a `reason`.
    """

    call_id: Id
    approved: bool
    reason: str | msgspec.UnsetType = msgspec.UNSET
    digest: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.approved and self.reason is not msgspec.UNSET:
            raise ValueError("`reason` is allowed only when a call is denied")

    @property
    def decision(self) -> Approve | Deny:
        digest = None if self.digest is msgspec.UNSET else self.digest
        return Approve(digest) if self.approved else Deny(self.reason or "")


class MessageFrame(NamedTuple):
    """A JSON object that is not a control frame: a message for the application."""

    message: dict[str, Any]


Frame: TypeAlias = CancelFrame | ResumeFrame | ResultFrame | ApprovalFrame | MessageFrame
_NESTED_FRAMES: dict[str, type[ResultFrame | ApprovalFrame]] = {"tool_result": ResultFrame, "approval": ApprovalFrame}
_CONTROL_FRAMES: dict[str, type[Frame]] = {"cancel": CancelFrame, "resume": ResumeFrame, **_NESTED_FRAMES}


def read_frame(text: str | None, max_characters: int, max_values: int | None = None) -> Frame:
    """Parse the text of a frame. `text` is None for a binary frame. Raises `FrameError` for an invalid frame.

    A frame with more than `max_characters` characters or `max_values` JSON values is invalid, and is not parsed.
    """
    if text is None:
        raise FrameError("not_text", "The frame is binary; send text.", 1003)
    if len(text) > max_characters:
        raise FrameError("too_large", f"The frame has {len(text)} characters; the limit is {max_characters}.", 1009)
    try:
        if max_values is not None and len(text) > max_values and count_values(text.encode()) > max_values:
            raise FrameError("too_large", f"The frame has more than {max_values} values.", 1009)
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise FrameError("not_json", "The frame is not valid JSON.") from None
    if not isinstance(value, dict):
        raise FrameError("not_an_object", "The frame is not a JSON object.")
    key = next((key for key in _CONTROL_FRAMES if key in value), None)
    if key is None:
        return MessageFrame(value)
    if key in _NESTED_FRAMES and len(value) > 1:
        raise FrameError("wrong_type", f"A frame with {key!r} must not have other members.")
    try:
        return msgspec.convert(value[key] if key in _NESTED_FRAMES else value, _CONTROL_FRAMES[key])
    except msgspec.ValidationError as error:
        raise FrameError("wrong_type", f"{key}: {str(error)[:200]}") from None
