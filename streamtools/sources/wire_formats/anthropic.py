"""Reads the streams of Anthropic's Messages API. Sans-IO.

A message consists of numbered content blocks. Each block starts, grows by deltas and stops. The start gives the kind of
the block. Each delta has a `type`. The name of the server-sent event repeats the `type` of its data and may be missing.

Results of tools that Anthropic runs, fallbacks to another model, and compaction are blocks that the next request must
contain. They are forwarded unchanged when they are complete. The container of code execution is also forwarded.
Citations are forwarded as data about their text.

Real streams have these peculiarities:

- Lines are padded with spaces, and pings may arrive anywhere.
- Each usage report holds totals, not increments.
- A call without arguments streams one empty string.
- A call that was cut off at a limit has no stop.
- A second `message_start` may arrive.
- The helper of Anthropic's SDK adds events (`text`, `input_json`, ...) that repeat others. They are ignored.

When a gateway retries a request, a second attempt may follow the beginning of the first attempt. The stream then fails,
because visible text cannot be withdrawn, and a complete call would run twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamtools.events import ReasoningDelta, SourceError, SourceEvent, SourceRaw
from streamtools.json_values import well_formed
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import Frame, FrameAdapter, GrowingItem, OpenCall, SSEDecoder, end_doubtful
from streamtools.sources.provider_terms import integer, names, object_in, objects, read_usage, string

_SERVER_TOOLS = ("server_tool_use", "mcp_tool_use")  # the types of calls that Anthropic runs
_FORMAT = "anthropic"
_DIRECT = {"type": "direct"}  # the `caller` of a call that the model makes directly


class _Block(OpenCall):
    """A content block that has started and not stopped. If its `key` is not empty, the block is a call."""

    def __init__(self, kind: str, key: str, data: dict[str, Any]) -> None:
        given = data.get("input")  # the whole arguments, or {} if they arrive in deltas
        given = None if given in ("", {}) else given
        signature = None if key else string(data.get("signature"))
        super().__init__(key, string(data.get("id")), string(data.get("name")), given, signature)
        self.kind = kind
        self.item = GrowingItem(data)  # the JSON object of the block
        self.executed = kind in _SERVER_TOOLS

    def fields_to_repeat(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Return the fields of a call that the next request must repeat, or None if there are none.

        If Anthropic runs the call, these are the fields of its block, except null fields and a direct `caller`. For
        other calls, the fields that the event of the call holds are also excluded.
        """
        fields = {name: value for name, value in self.item.data.items() if value is not None and value != _DIRECT}
        if self.executed:
            fields["input"] = arguments
        else:
            fields = {name: value for name, value in fields.items() if name not in ("type", "id", "name", "input")}
        return {_FORMAT: fields} if fields else None


class Anthropic(FrameAdapter):
    """Converts the SSE events of a message into source events.

    The first stop reason and the last value of each usage field are used.
    """

    name = "anthropic"
    format = _FORMAT
    endpoint = "/v1/messages"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._id: str | None = None  # the id of the message
        self._text_is_open = False  # the last block was text, and no event has marked its end yet
        self._blocks: dict[int | None, _Block] = {}
        self._tokens: dict[str, Any] = {}  # the last value of each usage field

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if (event := self._decode_object(frame, events)) is None:
            return
        name = event["type"] if isinstance(event.get("type"), str) else frame.event
        if (handle := _HANDLERS.get(name)) is not None:
            handle(self, event, frame, events)
        elif name not in _IGNORED:
            self._report_or_pass(frame, event, events)

    # Methods for the whole message.

    def _start_message(self, event: dict[str, Any], frame: Frame, events: list[SourceEvent]) -> None:
        message = object_in(event, "message")
        id = string(message.get("id")) or ""
        if self._id is not None:
            if id and self._id and id != self._id:
                again = "the provider began its answer again in mid-stream"
                self._fail(SourceError(again, cause="message_start"), events)
            return
        self._id = id
        self._name_response(id, message.get("model"))
        self._record_usage(message.get("usage"), events)
        if message.get("content"):  # empty in all known streams
            self._report_or_pass(frame, event, events)

    def _change_message(self, event: dict[str, Any], frame: Frame, events: list[SourceEvent]) -> None:
        delta = object_in(event, "delta")
        self._reason = self._reason or string(delta.get("stop_reason"))
        if delta.get("stop_details"):
            self._report_or_pass(frame, event, events)
        if isinstance(container := delta.get("container"), dict):
            self._pass_item({**container, "type": "container"}, events)
        self._record_usage(event.get("usage"), events)

    def _stop_message(self, event: dict[str, Any], frame: Frame, events: list[SourceEvent]) -> None:
        for block in self._blocks.values():
            self._end_block(block, events)  # reports no call, because a call without a stop is incomplete
        self._flush(events)
        self._complete_response(self._reason, self._usage, events)

    def _record_usage(self, tokens: Any, events: list[SourceEvent]) -> None:
        """Record the usage. Each value is a total. A missing field keeps its earlier value."""
        if not isinstance(tokens, dict):
            return
        self._tokens |= {name: count for name, count in tokens.items() if count is not None}
        self._report_usage(read_usage(self._tokens, excludes_cache=True), events)

    # Methods for blocks.

    def _start_block(self, event: dict[str, Any], frame: Frame, events: list[SourceEvent]) -> None:
        start = object_in(event, "content_block")
        kind, index = start.get("type"), integer(event.get("index"))
        if kind == "fallback" and isinstance(to := start.get("to"), dict):  # another model continues the message
            self._model = string(to.get("model")) or self._model
        if (unstopped := self._blocks.pop(index, None)) is not None:
            self._end_block(unstopped, events)
        is_call = kind == "tool_use" or kind in _SERVER_TOOLS
        if kind == "text":
            if self._text_is_open:
                events.append(SourceRaw({}, _FORMAT, "text"))  # marks the end of the previous text
            self._add_text(start.get("text"), events)
            if start.get("citations"):
                self._report_or_pass(frame, event, events)
            start = {**start, "citations": objects(start.get("citations"))}
        elif kind == "thinking":
            self._add_reasoning(start.get("thinking"), events)
        elif kind == "redacted_thinking" and isinstance(start.get("data"), str):
            events.append(ReasoningDelta("", signature=well_formed(start["data"]), redacted=True))
        elif not is_call and (kind == "redacted_thinking" or not isinstance(kind, str) or not self._has_room):
            self._report_or_pass(frame, event, events)
        self._text_is_open = kind == "text"
        if not isinstance(kind, str) or kind == "redacted_thinking":
            return
        block = _Block(kind, self._new_key() if is_call else "", start)
        if self._has_room:
            self._blocks[index] = block
            if kind == "tool_use":
                block.start(events)
        elif is_call:
            block.refuse(events)

    @property
    def _has_room(self) -> bool:
        """Whether another block may be opened. At most `Limits.calls` blocks may be open, plus one for thinking."""
        return len(self._blocks) <= self._limits.calls

    def _change_block(self, event: dict[str, Any], frame: Frame, events: list[SourceEvent]) -> None:
        delta, index = object_in(event, "delta"), integer(event.get("index"))
        block = self._blocks.get(index)
        match delta:
            case {"type": "text_delta", "text": str() as text}:
                self._add_text(text, events)
            case {"type": "thinking_delta", "thinking": str() as thought}:
                self._add_reasoning(thought, events)
            case {"type": "input_json_delta", "partial_json": str() as piece} if block and block.key:
                block.add(piece, events, self._limits.call)
            case {"type": "signature_delta", "signature": str() as signature} if block and not block.key:
                block.signature = string(signature)
            case _:
                if delta.get("partial_json") is not None or not isinstance(delta.get("type"), str):
                    end_doubtful(self._blocks, index, events)
                elif block is not None and not block.key:
                    self._add_to_block(block, delta, len(frame.data))
                if block is None or block.key or block.kind in ("text", "thinking"):
                    self._report_or_pass(frame, event, events)

    def _add_to_block(self, block: _Block, delta: dict[str, Any], size: int) -> None:
        """Add the citation of a delta to a text block, or its fields to a block that is forwarded unchanged.

        `size` is the size of the event's data in bytes. Data beyond `Limits.text` is dropped.
        """
        block.length += size
        if block.length > self._limits.text:
            return
        if block.kind == "text" and delta.get("type") == "citations_delta":
            block.item.add({"citations": [delta.get("citation")]})
        elif block.kind not in ("text", "thinking"):
            block.item.add({name: value for name, value in delta.items() if name != "type"})

    def _stop_block(self, event: dict[str, Any], frame: Frame, events: list[SourceEvent]) -> None:
        block = self._blocks.pop(integer(event.get("index")), None)
        if block is None:
            return
        self._end_block(block, events)
        if block.key:
            block.close(events, self._limits, block.fields_to_repeat)

    def _end_block(self, block: _Block, events: list[SourceEvent]) -> None:
        """Append the end of a block, unless it is a call.

        The end of thinking holds its signature, and the end of text its citations. Other blocks are forwarded
        unchanged.
        """
        if block.key:
            return
        if block.kind == "thinking":
            self._add_reasoning(self._thought.close(), events)
            if block.signature is not None:
                events.append(ReasoningDelta("", signature=block.signature))
        elif block.kind != "text":
            self._pass_item(block.item.whole(), events)
        elif citations := block.item.data["citations"]:
            self._text_is_open = False
            self._pass_item({"citations": citations}, events, "text")


_IGNORED = names("ping text thinking input_json citation signature")
"""Events that are ignored: pings, and events that the helper of Anthropic's SDK derives from others."""

_HANDLERS: dict[str, Callable[[Anthropic, dict[str, Any], Frame, list[SourceEvent]], None]] = {
    "message_start": Anthropic._start_message,
    "message_delta": Anthropic._change_message,
    "message_stop": Anthropic._stop_message,
    "content_block_start": Anthropic._start_block,
    "content_block_delta": Anthropic._change_block,
    "content_block_stop": Anthropic._stop_block,
    "error": lambda adapter, event, frame, events: adapter._report(event, events),
}
