"""Reads the streams of OpenAI's Responses API. Sans-IO.

A response consists of output items, and an item consists of parts: text, reasoning or arguments. The same content may
arrive four times: in deltas, in the `done` event of its part, in the `done` event of its item, and in the terminal
event. The adapter reports content when it first arrives. From later events it reports only missing content, because
some servers send no deltas or lose some. `ProviderCompleted` holds the whole text, which `StreamMachine` compares with
the reported text.

A resumed stream may repeat events. The sequence numbers of repeated events have already arrived. The adapter drops
repeated events, but not errors and not events about a whole item or response. If a server sends no sequence numbers, or
the same number for all events, no event is dropped.

Items of hosted tools and of the client's built-in tools (computer, shell, patch) are forwarded unchanged. The next
request must contain them. Annotations, audio, images and progress events of hosted tools are also forwarded. A refusal
is reported as text. If its response is complete, the finish reason is "content_filter".
"""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

from streamtools.events import FinishReason, ReasoningDelta, SourceError, SourceEvent, SourceRaw, SourceUsage, TextDelta
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import Frame, FrameAdapter, SSEDecoder
from streamtools.sources.provider_terms import names, object_in, objects, read_usage, string
from streamtools.sources.wire_formats.output_items import (
    CALLS,
    HOSTED,
    TEXTS,
    OutputItem,
    OutputItems,
    kind_of,
    text_of,
)

_FORMAT = "responses"


class Responses(FrameAdapter):
    """Converts the SSE events of a response into source events. The terminal event ends the run and holds the usage."""

    name = "responses"
    format = _FORMAT
    endpoint = "/v1/responses"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._id: str | None = None  # the id of the response
        self._items = OutputItems(limits)
        self._room = limits.text  # the number of characters that may still be stored for comparison
        self._unsigned = False  # whether reasoning has arrived since the last signature
        self._separator = ""  # the separator to insert before the next reasoning text
        self._refused = False
        self._message_is_open = False  # a message has begun, and its end is not yet marked
        self._highest_number = -1  # the highest sequence number that has arrived
        self._rise_count = 0  # how many times a sequence number was higher than all earlier ones

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if (event := self._decode_object(frame, events)) is None:
            return
        name = event["type"] if isinstance(event.get("type"), str) else frame.event
        repeats, delta = self._repeats(event.get("sequence_number")), event.get("delta")
        kind, refusal, done = _CHANGES.get(name, ("", False, False))
        if (handle := _HANDLERS.get(name)) is not None:
            handle(self, event, events)
        elif name in _ENDS:
            self._finish_response(_ENDS[name], event, events)
        elif (repeats and name not in _ERRORS) or name in _IGNORED:
            return
        elif kind == "custom_tool_call" and self._items.find("x_search_call", *_id_and_index(event)):
            return  # the event that ends the item holds the whole input
        elif done:
            self._finish_part(kind, refusal, event, events)
        elif kind and isinstance(delta, str):
            self._add(kind, refusal, delta, event, events)
        else:
            if delta is not None and kind in CALLS:
                self._items.mark_faulty(self._item(event, kind), events)
            if name == "response.output_text.annotation.added":
                self._item(event, "message").cited = True
            if name in _ERRORS and not self._over:
                self._report(event, events)
            elif not self._over:
                self._report_or_pass(frame, event, events)

    def _repeats(self, number: Any) -> bool:
        """Return True if the numbers of the stream rise, but an earlier number was as high as `number`, or higher."""
        if type(number) is not int:
            return False
        if number > self._highest_number:
            self._highest_number = number
            self._rise_count += 1
            return False
        return self._rise_count > 1

    # Methods for whole items.

    def _item(self, event: dict[str, Any], kind: str) -> OutputItem:
        return self._items.get(kind, *_id_and_index(event))

    def _begin_item(self, event: dict[str, Any], events: list[SourceEvent]) -> None:
        data = object_in(event, "item")
        kind, id, index = kind_of(data), data.get("id"), event.get("output_index")
        if self._items.find(kind, id, index, data.get("call_id"), named=True) is None:
            item = self._items.add(kind, id, index)
            if kind in CALLS:
                self._items.begin(item, data, events)
            elif kind == "message":
                if self._message_is_open:  # the empty `SourceRaw` marks the end of the previous message
                    events.append(SourceRaw({}, _FORMAT, "text"))
                self._message_is_open = True

    def _finish_item(self, event: dict[str, Any], events: list[SourceEvent]) -> None:
        if isinstance(item := event.get("item"), dict):
            self._finish(item, event.get("output_index"), "", events)

    def _finish(
        self, data: dict[str, Any], index: Any, status: str, events: list[SourceEvent], known: OutputItem | None = None
    ) -> None:
        """Append the end of an item.

        `status` is the status of the response if `data` is from the terminal event, else empty. `known` is the stored
        item of `data`, if the caller has found it.
        """
        kind = kind_of(data)
        if kind in CALLS:
            item = known or self._items.find_call(data, index) or self._items.add(kind, data.get("id"), index)
        else:
            item = self._items.get(kind, data.get("id"), index, data.get("call_id"))
        if item.done:
            return
        if kind in CALLS:
            self._items.finish(item, data, status, events)
        elif kind == "message":
            self._finish_message(item, data, status, events)
        elif kind == "reasoning":
            self._finish_reasoning(item, data, events)
        else:
            if kind in HOSTED:
                self._items.add_hosted(item, data, events)
            (self._pass_item if kind else self._pass_raw)(data, events)
        item.forget()

    # Methods for parts of items: text, reasoning and arguments.

    def _add(self, kind: str, refusal: bool, delta: str, event: dict[str, Any], events: list[SourceEvent]) -> None:
        if not delta:
            return
        item = self._item(event, kind)
        self._refused = self._refused or refusal
        if kind in CALLS:
            self._items.write(item, item.pair_joiner.join(delta), events)
        else:
            joiner = self._text if kind == "message" else self._thought
            self._begin_part(item, event)
            self._append(item, joiner.join(delta), events)

    def _finish_part(self, kind: str, refusal: bool, event: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append the text that the deltas of a finished part did not contain. For a call, record its arguments instead.

        Appends no text if the deltas contradict the text. `StreamMachine` then reports the mismatch.
        """
        item = self._item(event, kind)
        if kind in CALLS:
            data = {name: event.get(name) for name in ("name", CALLS[kind])}
            self._items.complete_arguments(item, data, events)
            return
        self._begin_part(item, event)
        text = string(event.get("refusal" if refusal else "text"))
        self._refused = self._refused or (refusal and text is not None)
        if text is None or item.done or self._room < 0:
            return
        received = item.received.getvalue()
        if text.startswith(received):
            (self._text if kind == "message" else self._thought).half = ""
            self._append(item, text[len(received) :], events)
        item.earlier_parts.append(item.received.getvalue())
        item.received = StringIO()

    def _begin_part(self, item: OutputItem, event: dict[str, Any]) -> None:
        """Record which part of reasoning is open. A blank line will separate a new part from the earlier one."""
        part = event.get("summary_index"), event.get("content_index")
        if item.kind == "reasoning" and item.part != part:
            item.part = part
            self._separator = "\n\n" if self._unsigned else ""

    def _append(self, item: OutputItem, text: str, events: list[SourceEvent]) -> None:
        """Append text or reasoning of an item. Also stores the text, for comparison with the text at the item's end."""
        if not text:
            return
        self._room -= len(text)
        if self._room >= 0:
            item.received.write(text)
        if item.kind == "message":
            events.append(TextDelta(text))
        else:
            events.append(ReasoningDelta(self._separator + text))
            self._separator = ""
            self._unsigned = True

    def _finish_message(self, item: OutputItem, data: dict[str, Any], status: str, events: list[SourceEvent]) -> None:
        parts = objects(data.get("content"))
        text, received = text_of(parts), item.text
        # In the terminal event (with a `status`), no text is added: `StreamMachine` compares the whole text.
        if not status and self._room >= 0 and text.startswith(received):
            self._text.half = ""
            self._append(item, text[len(received) :], events)
        if phase := string(data.get("phase")):
            events.append(SourceRaw({"phase": phase}, _FORMAT, "text"))
            self._message_is_open = False
        for part in parts:
            self._refused = self._refused or part.get("type") == "refusal"
            if part.get("type") not in list(TEXTS) or (part.get("annotations") and not item.cited):
                self._pass_raw(part, events)

    def _finish_reasoning(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        if rest := self._thought.close():
            self._append(item, rest, events)
        if item.part is None:
            self._separator = "\n\n" if self._unsigned else ""
            self._append(item, text_of(objects(data.get("summary")) + objects(data.get("content")), "\n\n"), events)
        id, signature = string(data.get("id")), string(data.get("encrypted_content"))
        if id or signature:
            events.append(ReasoningDelta("", signature, id))
        self._unsigned = self._unsigned and signature is None

    # Methods for the whole response.

    def _begin(self, event: dict[str, Any], events: list[SourceEvent]) -> None:
        response = object_in(event, "response")
        id = string(response.get("id"))
        self._name_response(id, response.get("model"))
        if self._id is not None and id is not None and id != self._id:  # visible text cannot be withdrawn
            self._fail(
                SourceError("the provider began its answer again in mid-stream", cause="response.created"), events
            )
        self._id = self._id or id

    def _finish_response(self, status: str, event: dict[str, Any], events: list[SourceEvent]) -> None:
        response = object_in(event, "response")
        if status == "completed" and (actual := response.get("status")) in list(_ENDS.values()):
            status = actual
        usage = read_usage(response.get("usage"))
        if status == "failed":
            if usage is not None:
                events.append(SourceUsage(usage))
            self._report(response.get("error"), events)
            return
        self._flush(events)
        output = response.get("output")
        output = output if isinstance(output, list) else []
        known = self._items.match(output)
        for index, item in enumerate(output):
            if isinstance(item, dict):
                self._finish(item, index, status, events, known.get(index))
        self._items.finish_rest(events)
        messages = [item for item in objects(output) if item.get("type") == "message"]
        text = "".join(text_of(objects(item.get("content"))) for item in messages)
        if status == "completed" and _has_answer(output[-1:]):
            self._items.report_custom_as_executed(events)
        details = response.get("incomplete_details")
        reason = string(details.get("reason")) if status == "incomplete" and isinstance(details, dict) else None
        raw = reason or status
        finish: FinishReason | None = "content_filter" if self._refused and raw == "completed" else None
        self._name_response(response.get("id"), response.get("model"))
        self._complete_response(raw, usage, events, text=text, finish=finish)


def _id_and_index(event: dict[str, Any]) -> tuple[Any, Any]:
    return event.get("item_id"), event.get("output_index")


def _has_answer(items: list[Any]) -> bool:
    """Return whether `items` contain text of the answer. Text with the phase "commentary" does not count."""
    messages = [item for item in objects(items) if item.get("type") == "message" and item.get("phase") != "commentary"]
    return any(text_of(objects(item.get("content"))) for item in messages)


_HANDLERS: dict[str, Callable[[Responses, dict[str, Any], list[SourceEvent]], None]] = {
    # Events about a whole item or response, which may be repeated.
    "response.created": Responses._begin,
    "response.output_item.added": Responses._begin_item,
    "response.output_item.done": Responses._finish_item,
}
_CHANGES = {
    f"response.{part}.{change}": (kind, part == "refusal", change == "done")
    for part, kind in {
        "output_text": "message",
        "refusal": "message",
        "reasoning_text": "reasoning",
        "reasoning_summary_text": "reasoning",
        "function_call_arguments": "function_call",
        "custom_tool_call_input": "custom_tool_call",
    }.items()
    for change in ("delta", "done")
}
"""Maps an event of a part to three values: the kind of its item, whether the part is a refusal, and whether it ends."""
_ENDS = {
    "response.completed": "completed",
    "response.done": "completed",  # some gateways send it; the `status` of the response replaces "completed"
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_ERRORS = ("error", "response.error")
_IGNORED = names(
    "ping keepalive response.queued response.in_progress response.content_part.added"
    " response.reasoning_summary_part.added response.reasoning_summary_part.done response.content_part.done"
)
"""Events that are ignored, because other events hold the same data."""
