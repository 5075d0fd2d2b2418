"""Mistral's conversations: outputs of messages, of function calls, and of tools that Mistral runs, by their events.

The event's `type` says what it is; pieces of one call share its `tool_call_id`. A message's content is a text, or one
part of it. What is neither text nor thinking passes as it came; what Mistral's own tools have done, and the hand-over
from one agent to another, once they are done, as entries for the next request. A call is complete when the response is.
"""

from __future__ import annotations

from typing import Any

from streamtools.events import ChainCompleted, NativeToolCall, SourceEvent, Usage
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import FrameAdapter
from streamtools.sources.frames import Frame, SSEDecoder
from streamtools.sources.open_call import OpenCall, end_doubtful
from streamtools.sources.provider_terms import bounded_id, read_usage, string, text_in

_FORMAT = "mistral"
_OF_EVENTS = ("type", "created_at", "output_index")  # members that no entry has
_USAGE = {"input": ("prompt_tokens",), "output": ("completion_tokens",), "total": ("total_tokens",)}


class MistralConversations(FrameAdapter):
    """Events of a conversation over SSE into source events; `conversation.response.done` ends the run."""

    name = "mistral"
    format = _FORMAT

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._conversation: str | None = None
        self._calls: dict[str | None, OpenCall] = {}  # in the order in which they began
        self._excess: set[str | None] = set()  # the last of those that were too many
        self._count = 0
        self._usage: Usage | None = None
        self._entries: dict[str | None, dict[str, Any]] = {}  # of tools and hand-overs that are not done, by their ids
        self._arguments: dict[str | None, list[str]] = {}  # of those tools
        self._room = limits.text  # bytes of events that these may still hold

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if (value := self._decode_object(frame, events)) is None:
            return
        match value["type"] if isinstance(value.get("type"), str) else frame.event:
            case "conversation.response.started":
                self._conversation = self._conversation or bounded_id(value.get("conversation_id"))
                self._blank = False
            case "message.output.delta":
                self._name_response(value.get("id"), value.get("model"))
                self._add_content(value.get("content"), events)
            case "function.call.delta":
                self._name_response(None, value.get("model"))
                self._change_call(value, events)
            case "tool.execution.started" | "agent.handoff.started" as kind:
                if kind == "tool.execution.started":
                    self._add_executed(value, events)
                self._begin_entry(kind.removesuffix(".started"), value, len(frame.data), events)
            case "tool.execution.delta" if (pieces := self._arguments.get(text_in(value, "id"))) is not None:
                self._room -= len(frame.data)
                pieces += [value["arguments"]] if self._room >= 0 and isinstance(value.get("arguments"), str) else []
            case "tool.execution.done" | "agent.handoff.done" if text_in(value, "id") in self._entries:
                self._end_entry(value, events)
            case "conversation.response.error":
                self._report(value, events)
            case "conversation.response.done":
                self._finish(value, events)
            case _:
                self._pass_unknown(frame, value, events)

    def _add_content(self, content: Any, events: list[SourceEvent]) -> None:
        for part in content if isinstance(content, list) else (content,):
            known = part if isinstance(part, dict) else {"type": "text", "text": part}
            thought = known.get("thinking")
            if known.get("type") == "text" and isinstance(known.get("text"), str):
                self._say(known["text"], events)
            elif known.get("type") == "thinking" and isinstance(thought, str | list):
                for each in thought if isinstance(thought, list) else (thought,):
                    self._think(each.get("text") if isinstance(each, dict) else each, events)
                if signature := string(known.get("signature")):
                    self._think("", events, signature)
            elif isinstance(known.get("type"), str) and known is part:  # it says what it is
                self._pass_item(part, events)
            else:
                self._pass_raw(part, events)

    def _begin_entry(self, kind: str, value: dict[str, Any], size: int, events: list[SourceEvent]) -> None:
        """Keep what has begun until it is done; where there is no room for it, pass it as it came."""
        id = text_in(value, "id")
        self._room -= size
        if self._room < 0 or len(self._entries) >= self._limits.calls:
            self._pass_raw(value, events)
            return
        self._entries[id] = {"type": kind, **_without(value, _OF_EVENTS)}
        if isinstance(value.get("arguments"), str):
            self._arguments[id] = [value["arguments"]]

    def _end_entry(self, value: dict[str, Any], events: list[SourceEvent]) -> None:
        id = text_in(value, "id")
        entry = self._entries.pop(id) | _without(value, _OF_EVENTS)
        if (pieces := self._arguments.pop(id, None)) is not None:
            entry["arguments"] = "".join(pieces)
        self._pass_item(entry, events)

    def _change_call(self, value: dict[str, Any], events: list[SourceEvent]) -> None:
        id, arguments = text_in(value, "tool_call_id", "id"), value.get("arguments")
        call = self._calls.get(id)
        if call is None:
            if id in self._excess:
                return
            self._count += 1
            call = OpenCall(str(self._count), id, text_in(value, "name"))
            if not self._open_call(self._calls, id, call, events):
                self._excess = {id}
                return
        if isinstance(arguments, str):
            call.add(arguments, events)
        elif isinstance(arguments, dict) and call.given is None:
            call.given = arguments
        elif arguments is not None:
            end_doubtful(self._calls, id, events)
            self._excess = {id}
            self._pass_raw(value, events)

    def _add_executed(self, value: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append a call that Mistral runs itself; what came of it comes as it is."""
        self._count += 1
        id, name = text_in(value, "id"), text_in(value, "name")
        self._pass_call(NativeToolCall(str(self._count), name, value.get("arguments"), id, True), events)

    def _finish(self, value: dict[str, Any], events: list[SourceEvent]) -> None:
        self._flush(events)
        for call in self._calls.values():
            call.close(events)
        self._usage = read_usage(value.get("usage"), _USAGE)
        self._complete_response(None, self._usage, events, ends_run=False)
        events.append(ChainCompleted(self._conversation))
        self._over = True


def _without(value: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name not in names}
