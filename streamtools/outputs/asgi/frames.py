"""What a websocket's client may say: one JSON object a text frame. Sans-IO.

Control frames have one of the keys below and nothing else; any other object is a message for the application. What is
neither is `BadFrame`, whose words the client may read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

RESERVED = ("cancel", "resume", "tool_result", "approval")
"""Keys that make an object a control frame."""

_MAX_ID = 1024  # characters of an id; ids of ours have two dozen, and providers' fewer than a hundred


class BadFrame(Exception):
    """A frame that says nothing; `code` names why, and `closing` is the close code for a client that says no other."""

    def __init__(self, code: str, message: str, closing: int = 1008) -> None:
        super().__init__(message)
        self.code = code
        self.closing = closing

    @property
    def told(self) -> dict[str, str]:
        """What the client is told."""
        return {"code": self.code, "message": str(self)}


class RefusedFrame(BadFrame):
    """A frame that says something about a call which does not wait for it, any more perhaps: no fault of a client's."""

    def __init__(self, code: str, message: str, call_id: str) -> None:
        super().__init__(code, message)
        self.call_id = call_id

    @property
    def told(self) -> dict[str, str]:
        """What the client is told."""
        return {**super().told, "call_id": self.call_id}


@dataclass(frozen=True)
class CancelFrame:
    """`{"cancel": true}`: end the run that is read."""


@dataclass(frozen=True)
class ResumeFrame:
    """`{"resume": seq, "run_id": id}`: read a run behind the event that was seen last."""

    after: int
    run_id: str | None


@dataclass(frozen=True)
class ResultFrame:
    """`{"tool_result": {"call_id": id, "result": …}}`, or `"error": message` in the place of the result."""

    call_id: str
    result: Any = None
    error: str | None = None


@dataclass(frozen=True)
class ApprovalFrame:
    """`{"approval": {"call_id": id, "approved": true, "digest"?: …}}`, or `false` with a `reason` if there is one."""

    call_id: str
    approved: bool
    reason: str = ""
    digest: str | None = None


@dataclass(frozen=True)
class MessageFrame:
    """Any other object."""

    message: dict[str, Any]


Frame: TypeAlias = CancelFrame | ResumeFrame | ResultFrame | ApprovalFrame | MessageFrame


def read_frame(text: str | None, max_frame: int) -> Frame:
    """Return what a frame says; None stands for one of bytes. Raises `BadFrame` for one that says nothing."""
    if text is None:
        raise BadFrame("not_text", "frames are text; this one is binary", 1003)
    if len(text) > max_frame:
        raise BadFrame("too_large", f"a frame has at most {max_frame} characters; this one has {len(text)}", 1009)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise BadFrame("not_json", "this frame is not JSON") from None
    if not isinstance(value, dict):
        raise BadFrame("not_an_object", "a frame is a JSON object")
    key = next((key for key in RESERVED if key in value), None)
    match key:
        case None:
            return MessageFrame(value)
        case "cancel":
            _only(value, {"cancel"})
            if value["cancel"] is not True:
                raise _wrong("cancel", "true")
            return CancelFrame()
        case "resume":
            _only(value, {"resume", "run_id"})
            after, run_id = value["resume"], value.get("run_id")
            if type(after) is not int or after < 0:
                raise _wrong("resume", "the seq of the last event that was seen, or 0")
            if run_id is not None:
                _check_id("run_id", run_id)
            return ResumeFrame(after, run_id)
        case "tool_result":
            _only(value, {"tool_result"})
            return _read_result(value["tool_result"])
        case _:
            _only(value, {"approval"})
            return _read_approval(value["approval"])


def _read_result(value: object) -> ResultFrame:
    if not isinstance(value, dict) or "call_id" not in value or ("result" in value) == ("error" in value):
        raise _wrong("tool_result", "an object with call_id and either result or error")
    if unknown := value.keys() - {"call_id", "result", "error"}:
        raise BadFrame("wrong_type", f"tool_result has no {min(unknown)[:50]!r}")
    _check_id("call_id", value["call_id"])
    if "result" in value:
        return ResultFrame(value["call_id"], result=value["result"])
    if not isinstance(value["error"], str):
        raise _wrong("error", "a text")
    return ResultFrame(value["call_id"], error=value["error"])


def _read_approval(value: object) -> ApprovalFrame:
    if not isinstance(value, dict) or type(value.get("approved")) is not bool:
        raise _wrong("approval", "an object with call_id and approved, which is true or false")
    if unknown := value.keys() - {"call_id", "approved", "reason", "digest"}:
        raise BadFrame("wrong_type", f"approval has no {min(unknown)[:50]!r}")
    _check_id("call_id", value.get("call_id"))
    for name in ("reason", "digest"):
        if not isinstance(value.get(name, ""), str):
            raise _wrong(name, "a text")
    if value["approved"] and "reason" in value:
        raise BadFrame("wrong_type", "a reason is given to deny a call")
    return ApprovalFrame(value["call_id"], value["approved"], value.get("reason", ""), value.get("digest"))


def _only(value: dict[str, Any], keys: set[str]) -> None:
    if unknown := value.keys() - keys:
        raise BadFrame("wrong_type", f"a frame with {min(keys)!r} has no {min(unknown)[:50]!r}")


def _check_id(name: str, value: object) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_ID:
        raise _wrong(name, "an id, as an event tells it")


def _wrong(name: str, what: str) -> BadFrame:
    return BadFrame("wrong_type", f"{name} is {what}")
