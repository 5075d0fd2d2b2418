"""The moves that the protocols for chat interfaces share, and that each of them writes in its own words. Sans-IO."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, TypeAlias

import msgspec

from streamtools.calls import ToolCall
from streamtools.events import Done, Error, Usage

Channel: TypeAlias = Literal["text", "reasoning"]

UNNAMED = "unknown"
"""What a call is called that ended before its name was known; protocols do not let a call have none."""


class KnownCall(msgspec.Struct):
    """What the reader knows of a call that has not ended."""

    id: str
    name: str
    pieces: bool = False
    """Some of its arguments went out as they were written."""
    whole: bool = False
    """All of its arguments went out."""


class Moves(ABC):
    """How a protocol writes each move; `PairedEncoder` says when."""

    _delta_head: bytes = b""

    @abstractmethod
    def _write_start(self, run_id: str | None) -> bytes:
        """Return what opens the body; `run_id` is None where the reader's events begin in the middle of a run."""
        ...

    @abstractmethod
    def _write_step_start(self, step: int) -> bytes: ...

    @abstractmethod
    def _write_step_end(self, step: int) -> bytes: ...

    @abstractmethod
    def _write_stretch_start(self, channel: Channel, number: int) -> bytes:
        """Return the start of a stretch, and set `_delta_head` to what stands before the JSON of each of its deltas."""
        ...

    @abstractmethod
    def _write_stretch_end(self, channel: Channel, number: int) -> bytes: ...

    @abstractmethod
    def _write_call_start(self, call_id: str, name: str) -> bytes: ...

    @abstractmethod
    def _write_call_delta(self, call_id: str, text: str) -> bytes: ...

    @abstractmethod
    def _write_call(self, call: ToolCall, known: KnownCall) -> bytes:
        """Return what completes a call, which has been announced."""
        ...

    @abstractmethod
    def _write_question(self, call: ToolCall) -> bytes:
        """Return what asks for the approval of a call, which has been told."""
        ...

    @abstractmethod
    def _write_progress(self, known: KnownCall, data: Any) -> bytes: ...

    @abstractmethod
    def _write_result(self, call: ToolCall, result: Any) -> bytes: ...

    @abstractmethod
    def _write_refusal(self, error: Error, known: KnownCall | None) -> bytes:
        """Return how a call ends without a result; `known` is None where the reader has not heard of it."""
        ...

    @abstractmethod
    def _write_usage(self, usage: Usage) -> bytes:
        """Return what tells the tokens of the run so far."""
        ...

    @abstractmethod
    def _write_failure(self, failure: Error) -> bytes:
        """Return the end of the body of a run that failed."""
        ...

    @abstractmethod
    def _write_end(self, done: Done) -> bytes:
        """Return the end of the body of any other run."""
        ...
