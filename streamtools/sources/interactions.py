"""Events of Gemini's Interactions API: steps that start, grow and stop, each with an `event_type`. Sans-IO.

A step is a thought, a piece of the model's output, a function call, or work of Google's own tools; its index tells
which one a delta belongs to. `interaction.completed` is the terminator, and its status is why the turn ended. What
Google's tools do passes as it came: they have run already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streamtools.errors import Code
from streamtools.events import (
    FinishReason,
    NativeToolCall,
    ReasoningDelta,
    SourceEvent,
    SourceRaw,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from streamtools.sources.pairs import Pairs
from streamtools.sources.words import Fault, finish_reason, read_fault, read_usage

_COUNTS = {
    "input": ("total_input_tokens",),
    "output": ("total_output_tokens",),
    "total": ("total_tokens",),
    "cache_read": ("total_cached_tokens",),
}
_BESIDES = {
    "input": ("total_tool_use_tokens",),
    "output": ("total_thought_tokens",),
    "reasoning": ("total_thought_tokens",),
}
_REASONS: dict[str, FinishReason] = {
    "requires_action": "tool_calls",
    "incomplete": "length",
    "budget_exceeded": "length",
    "requires_continuation": "pause",
}
_UNTOLD = "None"  # the index of a step that has none
_BOOKKEEPING = ("interaction.created", "interaction.status_update")


class _Call:
    """A function call whose step has not stopped."""

    __slots__ = ("given", "id", "key", "name", "signature", "streamed")

    def __init__(self, key: str, step: Mapping[str, Any]) -> None:
        self.key = key
        self.id = text_in(step, "id")
        self.name = text_in(step, "name")
        self.signature = text_in(step, "signature")
        self.given: Any = step.get("arguments")  # {} says that they are to come
        if self.given in ("", {}):
            self.given = None
        self.streamed = False


class Interactions:
    """The steps of one interaction. `status` is None until it has completed; `usage` is what was told last."""

    def __init__(self, text: Pairs, thought: Pairs) -> None:
        self._text = text
        self._thought = thought
        self._calls: dict[str, _Call] = {}  # by the index of their step
        self._begun = 0
        self.status: str | None = None
        self.usage: Usage | None = None

    @property
    def reason(self) -> FinishReason:
        """Why the turn ended."""
        return _REASONS.get(self.status or "") or finish_reason(self.status)

    def read(self, value: dict[str, Any], events: list[SourceEvent]) -> Fault | None:
        """Append what one event says, and return the fault that it reports."""
        kind, index = value["event_type"], str(value.get("index"))
        interaction = value.get("interaction")
        if not isinstance(interaction, dict):
            interaction = {}
        self.usage = read_sums(interaction.get("usage", value.get("usage")), _COUNTS, _BESIDES) or self.usage
        step, delta = value.get("step"), value.get("delta")
        if kind == "error" or (kind == "interaction.completed" and interaction.get("status") == "failed"):
            return read_fault(value.get("error") or interaction.get("error"))
        if kind == "interaction.completed":
            self.status = self.status or text_in(interaction, "status") or "completed"
        elif kind == "step.start" and isinstance(step, dict):
            self._start(index, step, value, events)
        elif kind == "step.delta" and isinstance(delta, dict):
            self._add(index, delta, value, events)
        elif kind == "step.delta":
            self._doubt(index, events)
            events.append(SourceRaw(value))
        elif kind == "step.stop":
            self._stop(index, events)
        elif kind not in _BOOKKEEPING:
            events.append(SourceRaw(value))
        return None

    def _start(self, index: str, step: dict[str, Any], value: Any, events: list[SourceEvent]) -> None:
        if step.get("type") == "function_call":
            self._begun += 1
            call = self._calls[index] = _Call(f"step {self._begun}", step)
            events.append(ToolCallStart(call.key, call.id, call.name))
        elif step.get("type") == "thought":
            self._think(step.get("summary"), text_in(step, "signature"), events)
        elif step.get("type") == "model_output":
            for text in _texts(step.get("content")):
                self._say(text, events)
        else:
            events.append(SourceRaw(value))

    def _add(self, index: str, delta: dict[str, Any], value: Any, events: list[SourceEvent]) -> None:
        call = self._calls.get(index)
        match delta.get("type"):
            case "text" if isinstance(delta.get("text"), str):
                self._say(delta["text"], events)
            case "thought_summary":
                self._think(delta.get("content"), None, events)
            case "thought_signature" if call is not None:
                call.signature = text_in(delta, "signature")
            case "thought_signature":
                self._think(None, text_in(delta, "signature"), events)
            case "arguments_delta" if call is not None and isinstance(delta.get("arguments"), str):
                if delta["arguments"]:
                    call.streamed = True
                    events.append(ToolCallDelta(call.key, delta["arguments"]))
            case other:
                if delta.get("arguments") is not None or not isinstance(other, str):
                    self._doubt(index, events)
                events.append(SourceRaw(value))

    def _doubt(self, index: str, events: list[SourceEvent]) -> None:
        """End the calls that a piece may belong to which cannot be read: without it they say something else."""
        for place in list(self._calls):
            if place == index or _UNTOLD in (place, index):
                call = self._calls.pop(place)
                fault = Code.INVALID_ARGUMENTS
                events.append(NativeToolCall(call.key, call.name, None, call.id, signature=call.signature, fault=fault))

    def _stop(self, index: str, events: list[SourceEvent]) -> None:
        call = self._calls.pop(index, None)
        if call is not None:
            given = None if call.streamed else call.given
            events.append(NativeToolCall(call.key, call.name, given, call.id, signature=call.signature))

    def _say(self, text: str, events: list[SourceEvent]) -> None:
        if text := self._text.join(text) if text else "":
            events.append(TextDelta(text))

    def _think(self, content: Any, signature: str | None, events: list[SourceEvent]) -> None:
        text = "".join(_texts(content))
        text = self._thought.join(text) if text else ""
        if text or signature:
            events.append(ReasoningDelta(text, signature))


def read_sums(
    value: Any, counts: Mapping[str, tuple[str, ...]], besides: Mapping[str, tuple[str, ...]]
) -> Usage | None:
    """Return the usage that `value` holds, where some fields are the sum of two counts of which each may be missing."""
    told, more = read_usage(value, counts), read_usage(value, besides)
    return told + more if told and more else told or more


def text_in(value: Mapping[str, Any], name: str) -> str | None:
    """Return a member that is a text with something in it."""
    text = value.get(name)
    return text if isinstance(text, str) and text else None


def _texts(content: Any) -> Iterator[str]:
    """Yield the text of a content, or of a list of them."""
    for part in content if isinstance(content, list) else (content,):
        if isinstance(part, dict) and (text := text_in(part, "text")):
            yield text
