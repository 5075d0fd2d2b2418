"""OpenAI's Responses: a response of output items, each of which is added, grows by deltas and is done.

Everything is told up to four times: in deltas, in the `done` of a part, in the `done` of its item, and in the terminal
event. The first to come counts. What a later one holds beyond that is handed on then, because some servers stream no
deltas, or lose some; the whole text goes with the end of the turn, where the machine compares.

Events of a part that repeat a sequence number are dropped: they come when a stream is resumed before the place where it
broke off. Servers that do not count, or send the same number always, lose nothing by that; and items are known again.

Items of tools that are the client's and no functions (computer, shell, patch) pass as they came, and so does what is no
text: annotations, audio, images, the progress of hosted tools. A refusal is text, and its turn was filtered.
"""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import msgspec

from streamtools.events import (
    ProviderCompleted,
    ReasoningDelta,
    SourceEvent,
    SourceUsage,
    TextDelta,
)
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import REFUSED, UNREADABLE, FrameAdapter, convert
from streamtools.sources.frames import Frame, SSEDecoder
from streamtools.sources.output_items import TEXTS, Item, Items, objects, text_of
from streamtools.sources.pairs import Pairs
from streamtools.sources.response_calls import CALLS, HOSTED, ResponseCalls
from streamtools.sources.words import Fault, bounded, finish_reason, read_fault, read_usage, string

_USAGE = {
    "input": ("input_tokens",),
    "output": ("output_tokens",),
    "total": ("total_tokens",),
    "cache_read": ("input_tokens_details.cached_tokens",),
    "cache_write": ("input_tokens_details.cache_write_tokens",),
    "reasoning": ("output_tokens_details.reasoning_tokens",),
}


class _Event(msgspec.Struct, gc=False):
    type: Any = None
    sequence_number: Any = None
    item_id: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    name: Any = None
    item: Any = None
    response: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class Responses(FrameAdapter):
    """A response over SSE into source events; its terminal event ends the run and has the usage."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._id: str | None = None  # of the response
        self._items = Items()
        self._calls = ResponseCalls(self._items, limits)
        self._speaker: tuple[Any, Any, Item] | None = None  # the id, the index and the item of the last delta of text
        self._room = limits.text  # characters that may still be kept to be compared
        self._unsigned = False  # reasoning has come, and no signature behind it
        self._break = ""  # what stands before the next reasoning
        self._refused = False
        self._number = -1  # the highest of the sequence
        self._rises = 0

    @property
    def ended(self) -> bool:
        return self._over

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        try:
            event = _decode(frame.data)
        except REFUSED:
            if frame.data.startswith(b"[DONE]"):  # gateways that speak several formats; it earns nothing here
                return
            value = self._decode(frame, events)
            if isinstance(value, dict):
                self._act(convert(value, _Event), frame, events)
            elif value is not UNREADABLE:
                self._pass_unknown("", frame, value, events)
            return
        text = event.delta
        if event.type == "response.output_text.delta" and type(text) is str and not self._text.half:
            if text and not self._repeats(event.sequence_number):
                speaker = self._speaker
                if speaker is None or speaker[0] != event.item_id or speaker[1] != event.output_index:
                    self._speaker = speaker = event.item_id, event.output_index, self._item(event, "message")
                self._room -= len(text)
                if self._room >= 0:
                    speaker[2].heard.write(text)
                events.append(TextDelta(text))
            return
        self._act(event, frame, events)

    def _act(self, event: _Event, frame: Frame, events: list[SourceEvent]) -> None:
        name = event.type if isinstance(event.type, str) else frame.event
        repeats = self._repeats(event.sequence_number)
        if (act := _WHOLE.get(name)) is not None:
            self._speaker = None
            act(self, event, events)
        elif name in _ENDS:
            self._complete(_ENDS[name], event, events)
        elif (repeats and name not in _ERRORS) or name in _NOTHING:
            return
        elif (act := _PARTS.get(name)) is not None:
            act(self, event, events)
        elif (act := _DELTAS.get(name)) is not None and isinstance(event.delta, str):
            if event.delta:
                act(self, event, events)
        elif (value := self._decode(frame, events)) is not UNREADABLE or name in _ERRORS:
            if event.delta is not None and (kind := _PIECES.get(name)):
                self._calls.spoil(self._item(event, kind), events)
            if name == "response.output_text.annotation.added":
                self._item(event, "message").cited = True
            if not self._over:
                self._pass_unknown(name, frame, value, events)

    def _pass_unknown(self, name: str, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append an error, which has several shapes, or else the value as it came."""
        nameless = isinstance(value, dict) and not isinstance(value.get("type"), str) and value.get("error")
        if name in _ERRORS or frame.event == "error" or nameless:
            self._flush(events)
            self._fail(read_fault(value), events)
        else:
            self._pass_raw(value, events)

    def _repeats(self, number: Any) -> bool:
        """Return whether an event with this sequence number was here before, in a stream that does count."""
        if type(number) is not int:
            return False
        if number > self._number:
            self._number = number
            self._rises += 1
            return False
        return self._rises > 1

    # Items.

    def _item(self, event: _Event, kind: str) -> Item:
        return self._items.get(kind, event.item_id, event.output_index)

    def _begin_item(self, event: _Event, events: list[SourceEvent]) -> None:
        told = event.item if isinstance(event.item, dict) else {}
        kind = string(told.get("type")) or ""
        if self._items.knows(kind, told.get("id"), event.output_index, told.get("call_id")):
            return
        item = self._items.add(kind, told.get("id"), event.output_index)
        if kind in CALLS:
            self._calls.begin(item, told, events)

    def _finish_item(self, event: _Event, events: list[SourceEvent]) -> None:
        if isinstance(event.item, dict):
            self._finish(event.item, event.output_index, "", events)

    def _finish(
        self, told: dict[str, Any], index: Any, status: str, events: list[SourceEvent], known: Item | None = None
    ) -> None:
        """Take an item as it is done; `status` is that of the response, if it is told there, and `known` its item."""
        kind = string(told.get("type")) or ""
        if kind in CALLS:
            item = known or self._calls.find(told, index) or self._items.add(kind, told.get("id"), index)
        else:
            item = self._items.get(kind, told.get("id"), index, told.get("call_id"))
        if item.done:
            return
        if kind in CALLS:
            self._calls.finish(item, told, status, events)
        elif kind == "message":
            self._finish_message(item, told, status, events)
        elif kind == "reasoning":
            self._finish_reasoning(item, told, events)
        else:
            if kind in HOSTED:
                self._calls.tell_hosted(item, told, events)
            self._pass_raw(told, events)
        item.forget()

    # Text and reasoning.

    def _add_text(self, event: _Event, events: list[SourceEvent]) -> None:
        self._say(self._item(event, "message"), self._text.join(event.delta), events)

    def _add_refusal(self, event: _Event, events: list[SourceEvent]) -> None:
        self._refused = True
        self._add_text(event, events)

    def _add_thought(self, event: _Event, events: list[SourceEvent]) -> None:
        self._say(self._part_of_reasoning(event), self._thought.join(event.delta), events)

    def _settle_text(self, event: _Event, events: list[SourceEvent]) -> None:
        self._settle(self._item(event, "message"), event.text, self._text, events)

    def _settle_refusal(self, event: _Event, events: list[SourceEvent]) -> None:
        self._refused = self._refused or string(event.refusal) is not None
        self._settle(self._item(event, "message"), event.refusal, self._text, events)

    def _settle_thought(self, event: _Event, events: list[SourceEvent]) -> None:
        self._settle(self._part_of_reasoning(event), event.text, self._thought, events)

    def _part_of_reasoning(self, event: _Event) -> Item:
        """Return the item of an event, with a blank line to come if another part of it begins."""
        item = self._item(event, "reasoning")
        part = (event.summary_index, event.content_index)
        if item.part != part:
            item.part = part
            self._break = "\n\n" if self._unsigned else ""
        return item

    def _say(self, item: Item, text: str, events: list[SourceEvent]) -> None:
        """Append text or reasoning of an item, and keep it to be compared with what is told at its end."""
        if not text:
            return
        self._room -= len(text)
        if self._room >= 0:
            item.heard.write(text)
        if item.kind == "message":
            events.append(TextDelta(text))
        else:
            events.append(ReasoningDelta(self._break + text))
            self._break = ""
            self._unsigned = True

    def _settle(self, item: Item, told: Any, pairs: Pairs, events: list[SourceEvent]) -> None:
        """Hand on what a part holds at its end and its deltas did not; what contradicts them is left to the machine."""
        text, heard = string(told), item.heard.getvalue()
        if text is None or item.done or self._room < 0:
            return
        if text.startswith(heard):
            pairs.half = ""
            self._say(item, text[len(heard) :], events)
        item.settled.append(item.heard.getvalue())
        item.heard = StringIO()

    def _finish_message(self, item: Item, told: dict[str, Any], status: str, events: list[SourceEvent]) -> None:
        parts = objects(told.get("content"))
        text, heard = text_of(parts), item.text
        if not status and self._room >= 0 and text.startswith(heard):  # the response's whole text is for the machine
            self._text.half = ""
            self._say(item, text[len(heard) :], events)
        for part in parts:
            self._refused = self._refused or part.get("type") == "refusal"
            if part.get("type") not in list(TEXTS) or (part.get("annotations") and not item.cited):
                self._pass_raw(part, events)

    def _finish_reasoning(self, item: Item, told: dict[str, Any], events: list[SourceEvent]) -> None:
        if rest := self._thought.close():
            self._say(item, rest, events)
        if item.part is None:
            self._break = "\n\n" if self._unsigned else ""
            self._say(item, text_of(objects(told.get("summary")) + objects(told.get("content")), "\n\n"), events)
        id, signature = string(told.get("id")), string(told.get("encrypted_content"))
        if id or signature:
            events.append(ReasoningDelta("", signature, id))
        self._unsigned = self._unsigned and signature is None

    # Calls.

    def _add_arguments(self, event: _Event, events: list[SourceEvent]) -> None:
        self._calls.add(self._item(event, "function_call"), event.delta, events)

    def _add_input(self, event: _Event, events: list[SourceEvent]) -> None:
        self._calls.add(self._item(event, "custom_tool_call"), event.delta, events)

    def _settle_arguments(self, event: _Event, events: list[SourceEvent]) -> None:
        told = {"name": event.name, "arguments": event.arguments}
        self._calls.settle(self._item(event, "function_call"), told, events)

    def _settle_input(self, event: _Event, events: list[SourceEvent]) -> None:
        told = {"name": event.name, "input": event.input}
        self._calls.settle(self._item(event, "custom_tool_call"), told, events)

    # The response.

    def _begin(self, event: _Event, events: list[SourceEvent]) -> None:
        id = string(event.response.get("id")) if isinstance(event.response, dict) else None
        if self._id is not None and id is not None and id != self._id:  # what was shown cannot be taken back
            self._flush(events)
            self._fail(Fault("the provider began its answer anew in mid-stream", "response.created", None), events)
        self._id = self._id or id

    def _complete(self, status: str, event: _Event, events: list[SourceEvent]) -> None:
        response = event.response if isinstance(event.response, dict) else {}
        if status == "completed" and (told := response.get("status")) in list(_ENDS.values()):
            status = told
        usage = read_usage(response.get("usage"), _USAGE)
        if status == "failed":
            if usage is not None:
                events.append(SourceUsage(usage))
            self._flush(events)
            self._fail(read_fault(response.get("error")), events)
            return
        self._flush(events)
        output = response.get("output")
        output = output if isinstance(output, list) else []
        known = self._calls.match(output)
        for index, each in enumerate(output):
            if isinstance(each, dict):
                self._finish(each, index, status, events, known.get(index))
        self._calls.finish_told(events)
        messages = [each for each in objects(output) if each.get("type") == "message"]
        text = "".join(text_of(objects(each.get("content"))) for each in messages)
        details = response.get("incomplete_details")
        reason = string(details.get("reason")) if status == "incomplete" and isinstance(details, dict) else None
        raw = bounded(reason or status, 100)
        finish = "content_filter" if self._refused and raw == "completed" else finish_reason(raw)
        events.append(ProviderCompleted(text or None, None, finish, raw, usage))
        self._over = True


_Act = Callable[[Responses, _Event, list[SourceEvent]], None]

_WHOLE: dict[str, _Act] = {
    # what is told of an item or a response as a whole; to be told it twice makes no difference
    "response.created": Responses._begin,
    "response.output_item.added": Responses._begin_item,
    "response.output_item.done": Responses._finish_item,
}
_PARTS: dict[str, _Act] = {
    "response.output_text.done": Responses._settle_text,
    "response.refusal.done": Responses._settle_refusal,
    "response.reasoning_text.done": Responses._settle_thought,
    "response.reasoning_summary_text.done": Responses._settle_thought,
    "response.function_call_arguments.done": Responses._settle_arguments,
    "response.custom_tool_call_input.done": Responses._settle_input,
}
_DELTAS: dict[str, _Act] = {
    "response.output_text.delta": Responses._add_text,
    "response.refusal.delta": Responses._add_refusal,
    "response.reasoning_text.delta": Responses._add_thought,
    "response.reasoning_summary_text.delta": Responses._add_thought,
    "response.function_call_arguments.delta": Responses._add_arguments,
    "response.custom_tool_call_input.delta": Responses._add_input,
}
_PIECES = {
    "response.function_call_arguments.delta": "function_call",
    "response.custom_tool_call_input.delta": "custom_tool_call",
}
"""The deltas of calls, which are pieces of text."""
_ENDS = {
    "response.completed": "completed",
    "response.done": "completed",  # some gateways; its status tells
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_ERRORS = ("error", "response.error")
_NOTHING = frozenset(
    (
        "response.queued",
        "response.in_progress",
        "response.content_part.added",
        "response.content_part.done",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "ping",
        "keepalive",
    )
)
"""What tells nothing that other events do not."""
