"""Reads the events of Google's Interactions API, which have an `event_type`. Sans-IO.

A response consists of steps. Each step starts, grows by deltas and stops. A step is a thought, model output, a function
call, or the work of a tool that Google runs. A delta holds the index of its step. Steps of Google's tools and steps
with images are forwarded whole, because the next request must contain them. `interaction.completed` is the terminator.
Its status is the finish reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamtools.events import SourceEvent, Usage
from streamtools.limits import Limits
from streamtools.sources.adapter import EventsOrArray, FrameAdapter
from streamtools.sources.pieces import OpenCall, end_doubtful
from streamtools.sources.provider_terms import object_in, read_usage, text_in

_FORMAT = "interactions"
_BOOKKEEPING = ("interaction.created", "interaction.status_update")


class Interactions(FrameAdapter):
    """Converts the events of an interaction into source events. The last usage is reported.

    `_status` is the status of the completed interaction, or None until then.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(EventsOrArray(limits.frame), limits)
        self._steps: dict[str | None, OpenCall] = {}  # open function calls, by the index of their step
        self._hosted: dict[str | None, _Hosted] = {}  # open steps of Google's tools, by index
        self._room = limits.text  # the number of bytes that these steps may still store
        self._begun = 0  # the number of calls that have started
        self._status: str | None = None
        self._usage: Usage | None = None

    def _read_interaction(self, value: dict[str, Any], size: int, events: list[SourceEvent]) -> None:
        """Append the source events of one event. `size` is its size in bytes."""
        self.format = _FORMAT
        kind, interaction, step = value.get("event_type"), object_in(value, "interaction"), value.get("step")
        index = None if value.get("index") is None else str(value["index"])
        self._usage = read_usage(interaction.get("usage", value.get("usage"))) or self._usage
        self._name_response(interaction.get("id"), interaction.get("model"))
        if kind == "error" or (kind == "interaction.completed" and interaction.get("status") == "failed"):
            self._report(value.get("error") or interaction.get("error"), events)
        elif kind == "interaction.completed":
            self._status = self._status or text_in(interaction, "status") or "completed"
            for index in [*self._hosted]:
                self._end_hosted(index, events)
        elif kind == "step.start" and isinstance(step, dict):
            self._start_step(index, step, value, size, events)
        elif kind == "step.delta":
            self._add_to_step(index, object_in(value, "delta"), value, size, events)
        elif kind == "step.stop":
            if (call := self._steps.pop(index, None)) is not None:
                call.close(events)
            self._end_hosted(index, events)
        elif kind not in _BOOKKEEPING:
            self._pass_raw(value, events)

    def _start_step(
        self, index: str | None, step: dict[str, Any], value: Any, size: int, events: list[SourceEvent]
    ) -> None:
        signature, given = text_in(step, "signature"), step.get("arguments")
        self._end_hosted(index, events)
        match step.get("type"):
            case "function_call":
                self._begun += 1
                given = None if given in ("", {}) else given  # Google sends {} if the arguments arrive in deltas
                call = OpenCall(f"step {self._begun}", text_in(step, "id"), text_in(step, "name"), given, signature)
                self._open_call(self._steps, index, call, events)
            case "thought":
                self._think("".join(_texts(step.get("summary"))), events, signature)
            case "model_output":
                content = step.get("content")
                for part in content if isinstance(content, list) else (content,):
                    if isinstance(part, dict) and part.get("type") == "image" and (part.get("data") or part.get("uri")):
                        self._pass_item({"type": "model_output", "content": [part]}, events)
                    for text in _texts(part):
                        self._say(text, events)
            case str() if size <= self._room and len(self._hosted) < self._limits.calls:
                self._room -= size
                self._hosted[index] = _Hosted(step)
            case _:
                self._pass_raw(value, events)

    def _add_to_step(
        self, index: str | None, delta: dict[str, Any], value: Any, size: int, events: list[SourceEvent]
    ) -> None:
        call, signature, arguments = self._steps.get(index), text_in(delta, "signature"), delta.get("arguments")
        hosted = self._hosted.get(index)
        match delta.get("type"):
            case "text" if isinstance(delta.get("text"), str):
                self._say(delta["text"], events)
            case "thought_summary":
                self._think("".join(_texts(delta.get("content"))), events)
            case "thought_signature" if call is not None:
                call.signature = signature
            case "thought_signature":
                self._think("", events, signature)
            case "arguments_delta" if call is not None and isinstance(arguments, str):
                if arguments:
                    call.given = None  # the arguments in `step.start` were only their beginning
                    call.add(arguments, events)
            case "image" if delta.get("data") or delta.get("uri"):
                self._pass_item({"type": "model_output", "content": [delta]}, events)
            case kind if hosted is not None and kind == hosted.step["type"] and size <= self._room:
                self._room -= size
                hosted.add(delta)
            case other:
                if arguments is not None or not isinstance(other, str):
                    end_doubtful(self._steps, index, events)
                if hosted is not None and other == hosted.step["type"]:  # the step would exceed the limit
                    self._pass_raw(self._hosted.pop(index).whole(), events)
                self._pass_raw(value, events)

    def _end_hosted(self, index: str | None, events: list[SourceEvent]) -> None:
        if (hosted := self._hosted.pop(index, None)) is not None:
            self._pass_item(hosted.whole(), events)


class _Hosted:
    """A step of a tool that Google runs. Deltas add results and other fields to it."""

    def __init__(self, step: dict[str, Any]) -> None:
        self.step = dict(step)
        self._texts: list[str] = []  # the pieces of a result that is text

    def add(self, delta: dict[str, Any]) -> None:
        """Add the content of a delta."""
        for name, value in delta.items():
            held = self.step.get(name)
            if name == "result" and isinstance(value, str) and isinstance(held, str | None):
                if not self._texts:
                    self._texts.append(held or "")
                self._texts.append(value)
                self.step[name] = held or ""
            elif isinstance(value, list) and isinstance(held, list):
                held += value
            elif isinstance(value, dict) and isinstance(held, dict):
                held.update(value)
            elif value not in (None, ""):
                self.step[name] = value

    def whole(self) -> dict[str, Any]:
        """Return the step with the joined text of its result."""
        return self.step | ({"result": "".join(self._texts)} if self._texts else {})


def _texts(content: Any) -> Iterator[str]:
    """Yield the text of each content part. `content` is one part or a list of parts."""
    for part in content if isinstance(content, list) else (content,):
        if isinstance(part, dict) and (text := text_in(part, "text")):
            yield text
