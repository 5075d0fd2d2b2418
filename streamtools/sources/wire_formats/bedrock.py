"""Reads Bedrock's ConverseStream, as binary messages or as boto3 events. Sans-IO.

Converse uses one format for all models. Content blocks have an index, grow by deltas, and stop. Only some blocks, such
as calls, have a start event. The stop reason follows the blocks, and the last message, `metadata`, holds the usage. The
turn ends there, or at the end of the transport. The turn is complete if a stop reason has arrived. An exception may
arrive in place of an event, and is reported as an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any
from zlib import crc32

import msgspec

from streamtools.events import ReasoningDelta, SourceError, SourceEvent, SourceRaw
from streamtools.json_values import fits
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import (
    UNREADABLE,
    Frame,
    FrameAdapter,
    Framed,
    FrameDecoder,
    GrowingItem,
    OpenCall,
    bad_frame,
    end_doubtful,
    skipped,
)
from streamtools.sources.provider_terms import bounded, object_in, read_fault, read_usage, string, text_in

# This section splits binary messages into frames.
#
# A message consists of a prelude, headers, a payload, and a checksum of the whole message. The prelude holds the
# lengths of the message and of its headers, and a checksum of these lengths. If the checksum of a message is wrong, the
# message is dropped, and the next message is read. If a prelude is invalid, the start of the next message is unknown,
# so the stream fails. A message over the limit is skipped and not stored.
#
# An event becomes a frame. Its name is the event type from the headers. A message of the type `exception` or `error`
# becomes a frame named `error`, whose data is an object with `type` and `message`.

_prelude = struct.Struct(">III")
_MIN_SIZE = _prelude.size + 4  # the size of a message without headers and payload
_VALUE_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Maps the type of a header to the size of its value in bytes.

In types 6 (bytes) and 7 (text), a length of two bytes precedes the value.
"""
_TEXT = 7  # the type of a header whose value is text


class EventStreamDecoder(FrameDecoder):
    """Splits binary messages into frames. Chunks may end at any byte. A message has at most `limit` bytes."""

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        super().__init__(limit)
        self._over = False  # a prelude was damaged, so the rest of the stream cannot be read
        self._left = 0  # the number of bytes of a skipped message that have not arrived

    def feed(self, chunk: bytes) -> list[Framed]:
        """Return the frames of the messages that `chunk` completes."""
        frames: list[Framed] = []
        self._buffer += chunk[self._left :]
        self._left = max(0, self._left - len(chunk))
        at = 0
        while not self._over and len(self._buffer) - at >= _prelude.size:
            total, headers, checksum = _prelude.unpack_from(self._buffer, at)
            if crc32(self._buffer[at : at + 8]) != checksum or total < _MIN_SIZE or headers > total - _MIN_SIZE:
                self.ignored = self.ignored or bytes(self._buffer[at : at + _prelude.size])
                frames.append(SourceError("the prelude of a message is invalid", cause="framing"))
                self._over = True
            elif total > self._limit:
                frames.append(skipped(total, self._limit))
                at += total
            elif len(self._buffer) - at < total:
                break
            else:
                frames.append(_read_message(bytes(self._buffer[at : at + total]), headers))
                at += total
        self._left += max(0, at - len(self._buffer))
        del self._buffer[: len(self._buffer) if self._over else at]
        return frames

    def close(self) -> list[Framed]:
        """Return a warning if the last message is incomplete."""
        return [bad_frame("the last message is cut off")] if self._buffer else []

    def _read(self, block: bytes) -> Frame | None:
        raise NotImplementedError  # never called, because binary messages have no separator


def _read_message(message: bytes, length: int) -> Framed:
    """Return the frame of a whole message. `length` is the length of its headers in bytes."""
    if crc32(message[:-4]) != int.from_bytes(message[-4:], "big"):
        return bad_frame("a message fails its checksum")
    headers = _read_headers(message[_prelude.size : _prelude.size + length])
    if headers is None:
        return bad_frame("the headers of a message cannot be read")
    payload = message[_prelude.size + length : -4]
    match headers.get(":message-type", "event"):
        case "exception":
            return Frame(_error_data(headers.get(":exception-type", "exception"), payload), "error")
        case "error":
            error = {"message": headers.get(":error-message", "")}
            return Frame(_error_data(headers.get(":error-code", "error"), msgspec.json.encode(error)), "error")
    return Frame(payload, headers.get(":event-type") or "message")


def _read_headers(data: bytes) -> dict[str, str] | None:
    """Return the headers whose values are text. Returns None if any header is invalid."""
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name = data[at + 1 : at + 1 + data[at]]
            at += 1 + data[at]
            kind, at = data[at], at + 1
            size = _VALUE_SIZES.get(kind)
            if size is None:
                if kind > _TEXT:
                    return None
                size, at = int.from_bytes(data[at : at + 2], "big"), at + 2
            if at + size > len(data):
                return None
            if kind == _TEXT:
                headers[name.decode(errors="replace")] = data[at : at + size].decode(errors="replace")
            at += size
    except IndexError:
        return None
    return headers


def _error_data(name: str, payload: bytes) -> bytes:
    """Return the data of an error frame: a JSON object with the type `name` and the message in `payload`."""
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = {"message": payload[:4096].decode(errors="replace")}
    text = value.get("message") or value.get("Message") if isinstance(value, dict) else value
    return msgspec.json.encode({"type": name, "message": text if isinstance(text, str) else ""})


_FORMAT = "bedrock"
_HOSTED = "server_tool_use"  # the type of a call that Bedrock runs
_WHOLE = ("toolResult", "image")  # blocks that are forwarded when complete, because the next request repeats them


class Bedrock(FrameAdapter):
    """Converts the messages of an event stream into source events."""

    name = "bedrock"
    format = _FORMAT

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(EventStreamDecoder(limits.frame), limits)
        self._calls: dict[Any, OpenCall] = {}  # open calls, by the index of their block
        self._whole_blocks: dict[Any, tuple[str, GrowingItem]] = {}  # open blocks of the kinds in `_WHOLE`, by index
        self._open_text: int | None = None  # the index of the current text block
        self._citations: list[dict[str, Any]] = []  # the citations of that block
        self._room = limits.text  # the number of characters that blocks and citations may still store

    @property
    def ended(self) -> bool:
        return self._over or bool(self._reason)

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        value = self._decode(frame, events)
        if value is UNREADABLE:
            return
        name = frame.event
        if name == "message" and isinstance(value, dict) and len(value) == 1:  # an event of boto3
            ((name, value),) = value.items()
        if name == "error" or name.endswith("Exception"):
            fault = read_fault(value, "the request failed")
            kind = fault.cause or bounded(name, 100)
            self._fail(msgspec.structs.replace(fault, message=f"{fault.message} ({kind})", cause=kind), events)
        elif name in _HANDLERS and isinstance(value, dict):
            _HANDLERS[name](self, value, events)
        else:
            self._pass_not_understood(frame, value, events)

    def _start_block(self, value: dict[str, Any], events: list[SourceEvent]) -> None:
        start, index = object_in(value, "start"), _block_index(value)
        tool = start.get("toolUse")
        if not isinstance(tool, dict):
            kind, data = next(((kind, data) for kind, data in start.items() if kind in _WHOLE), ("", None))
            if isinstance(data, dict) and len(self._whole_blocks) < self._limits.calls:
                self._whole_blocks[index] = kind, GrowingItem(data | ({"content": []} if kind == "toolResult" else {}))
            else:
                self._pass_raw({"contentBlockStart": value}, events)
            return
        call = OpenCall(self._new_key(), text_in(tool, "toolUseId"), text_in(tool, "name"))
        call.executed = tool.get("type") == _HOSTED
        self._open_call(self._calls, index, call, events)

    def _change_block(self, value: dict[str, Any], events: list[SourceEvent]) -> None:
        delta, index = object_in(value, "delta"), _block_index(value)
        text, tool, thought = delta.get("text"), delta.get("toolUse"), delta.get("reasoningContent")
        call = self._calls.get(index)
        if index in self._whole_blocks and self._add_to_whole_block(index, delta):
            return
        if isinstance(text, str):
            self._begin_text(index, events)
            self._add_text(text, events)
        elif isinstance(tool, dict) and isinstance(piece := tool.get("input"), str) and call is not None:
            call.add(piece, events, self._limits.call)
        elif isinstance(thought, dict) and any(isinstance(thought.get(key), str) for key in _THOUGHTS):
            self._add_reasoning(thought.get("text"), events, string(thought.get("signature")))
            if redacted := string(thought.get("redactedContent")):
                events.append(ReasoningDelta("", redacted, redacted=True))
        else:
            if tool is not None or not delta:
                end_doubtful(self._calls, index, events)
            if isinstance(cited := delta.get("citation"), dict):
                self._begin_text(index, events)
                self._citations += [cited] if self._reserve(cited) else []
            self._pass_raw({"contentBlockDelta": value}, events)

    def _begin_text(self, index: int | None, events: list[SourceEvent]) -> None:
        """Make the block at `index` the current text block, to which new text and citations are added."""
        if index != self._open_text:
            if self._open_text is not None:  # this event marks the end of the previous text
                events.append(SourceRaw({}, _FORMAT, "text"))
            self._open_text, self._citations = index, []

    def _reserve(self, data: Any) -> bool:
        """Subtract the length of `data` from `_room`. Returns False if `data` exceeds the room, or nests too deep."""
        self._room -= len(str(data))
        return self._room >= 0 and fits(data, self._limits.depth)

    def _add_to_whole_block(self, index: Any, delta: dict[str, Any]) -> bool:
        """Add a delta to a `_WHOLE` block. Returns False if the delta has another kind or exceeds the limit."""
        kind, item = self._whole_blocks[index]
        more = delta.get(kind)
        if not isinstance(more, list | dict) or not self._reserve(more):
            return False
        item.add({"content": [part for part in more if isinstance(part, dict)]} if isinstance(more, list) else more)
        return True

    def _stop_block(self, value: dict[str, Any], events: list[SourceEvent]) -> None:
        index = _block_index(value)
        if self._citations and self._open_text == index:
            events.append(SourceRaw({"citationsContent": {"citations": self._citations}}, _FORMAT, "text"))
            self._open_text, self._citations = None, []
        if (whole_block := self._whole_blocks.pop(index, None)) is not None:
            kind, item = whole_block
            events.append(SourceRaw({kind: _with_joined_texts(item.whole())}, _FORMAT))
        elif (call := self._calls.pop(index, None)) is not None:
            call.close(events, self._limits, partial(_block_to_repeat, call) if call.executed else None)

    def _stop_message(self, value: dict[str, Any], events: list[SourceEvent]) -> None:
        self._reason = self._reason or text_in(value, "stopReason") or "end_turn"
        if more := value.get("additionalModelResponseFields"):
            self._pass_raw({"additionalModelResponseFields": more}, events)

    def _read_metadata(self, value: dict[str, Any], events: list[SourceEvent]) -> None:
        self._report_usage(read_usage(value.get("usage"), excludes_cache=True), events)
        if trace := value.get("trace"):
            self._pass_raw({"trace": trace}, events)
        if self._reason is not None:  # the metadata are the last message
            self._end(events)

    def _end(self, events: list[SourceEvent]) -> None:
        self._flush(events)
        for kind, item in self._whole_blocks.values():  # these blocks are incomplete
            events.append(SourceRaw({kind: _with_joined_texts(item.whole())}))
        if self._reason is not None:
            self._complete_response(self._reason, self._usage, events)


def _with_joined_texts(block: dict[str, Any]) -> dict[str, Any]:
    """Return `block` with adjacent texts of its content joined. Each delta contains a piece of a text."""
    content: list[dict[str, Any]] = []
    for is_text, group in groupby(block.get("content", ()), lambda part: [*part] == ["text"]):
        parts = [*group]
        content += [{"text": "".join(str(part["text"]) for part in parts)}] if is_text else parts
    return block | ({"content": content} if content else {})


def _block_to_repeat(call: OpenCall, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the whole block of a call that Bedrock runs, for the next request."""
    block = {"toolUseId": call.id, "name": call.name, "input": arguments, "type": _HOSTED}
    return {_FORMAT: {"toolUse": block}}


_THOUGHTS = ("text", "signature", "redactedContent")  # fields of a piece of reasoning
_HANDLERS: dict[str, Callable[[Bedrock, dict[str, Any], list[SourceEvent]], None]] = {
    "messageStart": lambda adapter, value, events: None,
    "contentBlockStart": Bedrock._start_block,
    "contentBlockDelta": Bedrock._change_block,
    "contentBlockStop": Bedrock._stop_block,
    "messageStop": Bedrock._stop_message,
    "metadata": Bedrock._read_metadata,
}


def _block_index(value: dict[str, Any]) -> int | None:
    index = value.get("contentBlockIndex")
    return index if isinstance(index, int) else None
