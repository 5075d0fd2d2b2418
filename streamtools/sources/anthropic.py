"""Anthropic's Messages: a message of numbered content blocks, each of which starts, grows by deltas and stops.

A block is known by what it started as, and its deltas by their own `type`; the name of the server-sent event says
nothing that the data does not, and may be missing. What is not text, reasoning or a call (results of tools that
Anthropic runs, citations, containers, fallbacks to another model, compaction) passes as it came.

What the bytes are known for: lines padded with spaces, pings anywhere, usage whose figures are totals and replace one
another, calls without arguments that stream one empty string, calls that a limit cut off in mid-block without a stop,
`message_start` twice. The helper of Anthropic's SDK puts events of its own between those of the wire (`text`,
`input_json`, ...) which repeat them, and they count for nothing.

A gateway that tries again upstream may splice the beginning of a second generation into the first. What was shown
cannot be taken back: if that is text, or a complete call, which would then run twice, the stream has failed. As long as
there was nothing but reasoning and a call in the making, the first attempt is forgotten and the second one counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from streamtools.errors import Code
from streamtools.events import (
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceEvent,
    SourceUsage,
    SourceWarning,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from streamtools.json_values import fits
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import REFUSED, UNREADABLE, FrameAdapter, convert
from streamtools.sources.frames import Frame, SSEDecoder
from streamtools.sources.pairs import Pairs
from streamtools.sources.words import Fault, bounded, finish_reason, read_fault, read_usage, string
from streamtools.surrogates import whole

_USAGE = {
    "input": ("input_tokens",),
    "output": ("output_tokens",),
    "cache_read": ("cache_read_input_tokens",),
    "cache_write": ("cache_creation_input_tokens",),
    "reasoning": ("output_tokens_details.thinking_tokens",),
}
_SERVER_TOOLS = ("server_tool_use", "mcp_tool_use")


class _Delta(msgspec.Struct, gc=False):
    type: Any = None
    text: Any = None
    thinking: Any = None
    partial_json: Any = None
    signature: Any = None
    stop_reason: Any = None
    stop_details: Any = None
    container: Any = None


class _Event(msgspec.Struct, gc=False):
    type: Any = None
    index: Any = None
    delta: _Delta | None = None
    content_block: Any = None
    message: Any = None
    usage: Any = None


_decode = msgspec.json.Decoder(_Event).decode
_number = re.compile(r"[0-9]{1,9}")


class _Block:
    """A block that has started and not stopped: a call, or, without a `key`, of thinking."""

    __slots__ = ("id", "input", "key", "kind", "name", "pairs", "pieces", "signature", "size")

    def __init__(self, kind: str, key: str, start: dict[str, Any]) -> None:
        self.kind = kind
        self.key = key
        self.id = string(start.get("id"))
        self.name = string(start.get("name"))
        self.input = start.get("input")  # the whole of it, where nothing is streamed; {} says that it is to come
        if self.input in ("", {}):
            self.input = None
        self.signature = string(start.get("signature"))
        self.pairs = Pairs()
        self.pieces: list[str] = []  # of a server's call, which is told when it is complete
        self.size = 0  # characters of the arguments so far


class Anthropic(FrameAdapter):
    """Messages over SSE into source events. The last usage counts, field by field, and the first stop reason."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._id: str | None = None  # of the message
        self._started = 0  # calls
        self._shown = False  # text, or a complete call, has been handed on
        self._begin()

    def _begin(self) -> None:
        self._blocks: dict[int | None, _Block] = {}
        self._reason: str | None = None
        self._tokens: dict[str, Any] = {}
        self._usage: Usage | None = None

    @property
    def ended(self) -> bool:
        return self._over

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        try:
            event = _decode(frame.data)
        except REFUSED:
            self._read_slowly(frame, events)
            return
        delta = event.delta
        if delta is not None and delta.type == "text_delta" and type(delta.text) is str and not self._text.half:
            if delta.text:
                self._shown = True
                events.append(TextDelta(delta.text))
            return
        self._act(event, frame, events)

    def _read_slowly(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Read a frame that is no JSON of an event, or that msgspec refuses for a string which is no UTF-8 text."""
        if frame.data.startswith(b"[DONE]"):  # gateways that speak several formats; it earns nothing here
            return
        value = self._decode(frame, events)
        if value is UNREADABLE:
            return
        if not isinstance(value, dict):
            self._pass_unknown(frame, value, events)
            return
        delta = value.get("delta")
        self._act(convert(value if isinstance(delta, dict) else value | {"delta": None}, _Event), frame, events)

    def _act(self, event: _Event, frame: Frame, events: list[SourceEvent]) -> None:
        name = event.type if isinstance(event.type, str) else frame.event
        act = _MEANING.get(name)
        if act is not None:
            act(self, event, frame, events)
        elif name not in _NOTHING:
            self._pass(frame, events)

    def _pass(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Append an event as it came."""
        if (value := self._decode(frame, events)) is not UNREADABLE:
            self._pass_unknown(frame, value, events)

    def _pass_unknown(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append an error that is not named as one, or else the value as it came."""
        nameless = isinstance(value, dict) and not isinstance(value.get("type"), str) and value.get("error")
        if frame.event == "error" or nameless:
            self._report(value, events)
        else:
            self._pass_raw(value, events)

    # The message.

    def _start_message(self, event: _Event, frame: Frame, events: list[SourceEvent]) -> None:
        message = event.message if isinstance(event.message, dict) else {}
        id = string(message.get("id")) or ""
        if self._id is not None:
            if "" in (id, self._id) or id == self._id:
                return
            self._begin_anew(events)
        self._id = id
        if not self._over:
            self._count(message.get("usage"), events)
            if message.get("content"):  # always empty, so far
                self._pass(frame, events)

    def _begin_anew(self, events: list[SourceEvent]) -> None:
        """Forget the first attempt of a provider that begins the answer again, or fail if it has left its traces."""
        message = "the provider began its answer anew in mid-stream"
        if self._shown:
            self._flush(events)
            self._fail(Fault(message, "message_start", None), events)
            return
        self._text.half = self._thought.half = ""
        self._begin()
        events.append(SourceWarning(Code.SKIPPED, f"{message}; the calls of its first attempt are dropped"))

    def _change_message(self, event: _Event, frame: Frame, events: list[SourceEvent]) -> None:
        if (delta := event.delta) is not None:
            self._reason = self._reason or string(delta.stop_reason)
            if delta.stop_details or delta.container:
                self._pass(frame, events)
        self._count(event.usage, events)

    def _stop_message(self, event: _Event, frame: Frame, events: list[SourceEvent]) -> None:
        for block in self._blocks.values():
            self._sign(block, events)  # a call that has not stopped is not complete
        self._flush(events)
        raw = None if self._reason is None else bounded(self._reason, 100)
        events.append(ProviderCompleted(finish_reason=finish_reason(raw), raw_finish_reason=raw, usage=self._usage))
        self._over = True

    def _count(self, tokens: Any, events: list[SourceEvent]) -> None:
        """Take what is told of the usage: totals, of which those that are left out stay as they were."""
        if not isinstance(tokens, dict):
            return
        self._tokens |= {name: count for name, count in tokens.items() if count is not None}
        usage = read_usage(self._tokens, _USAGE)
        if usage is not None and usage.input is not None:  # Anthropic counts what it has cached apart
            usage = replace(usage, input=usage.input + (usage.cache_read or 0) + (usage.cache_write or 0))
        if usage is not None and usage != self._usage:
            self._usage = usage
            events.append(SourceUsage(usage))

    def _fail_as_told(self, event: _Event, frame: Frame, events: list[SourceEvent]) -> None:
        value = self._decode(frame, events)
        if not self._over:  # an error is one even if it cannot be read
            self._report(value, events)

    def _report(self, value: Any, events: list[SourceEvent]) -> None:
        fault = read_fault(value)
        request = string(value.get("request_id")) if isinstance(value, dict) else None
        if request is not None:  # what Anthropic's support asks for
            fault = fault._replace(kind=f"{fault.kind} {bounded(request, 100)}".strip())
        self._flush(events)
        self._fail(fault, events)

    # Its blocks.

    def _start_block(self, event: _Event, frame: Frame, events: list[SourceEvent]) -> None:
        start = event.content_block if isinstance(event.content_block, dict) else {}
        kind, at = start.get("type"), _place(event.index)
        if (left := self._blocks.pop(at, None)) is not None:
            self._sign(left, events)
        if kind == "text":
            self._add_text(start.get("text"), events)
            if start.get("citations"):
                self._pass(frame, events)
        elif kind == "thinking":
            self._add_thought(start.get("thinking"), events)
            self._blocks[at] = _Block(kind, "", start)
        elif kind == "redacted_thinking" and isinstance(start.get("data"), str):
            events.append(ReasoningDelta("", signature=whole(start["data"]), redacted=True))
        elif kind == "tool_use" or kind in _SERVER_TOOLS:
            self._started += 1
            block = self._blocks[at] = _Block(kind, str(self._started), start)
            if kind == "tool_use":
                events.append(ToolCallStart(block.key, block.id, block.name))
            elif kind == "mcp_tool_use":  # names its server, too
                self._pass(frame, events)
        else:
            self._pass(frame, events)

    def _change_block(self, event: _Event, frame: Frame, events: list[SourceEvent]) -> None:
        delta = event.delta or _Delta()
        block = self._blocks.get(_place(event.index))
        if delta.type == "text_delta" and isinstance(delta.text, str):
            self._add_text(delta.text, events)
        elif delta.type == "thinking_delta" and isinstance(delta.thinking, str):
            self._add_thought(delta.thinking, events)
        elif delta.type == "input_json_delta" and isinstance(delta.partial_json, str) and block and block.key:
            self._add_arguments(delta.partial_json, block, events)
        elif delta.type == "signature_delta" and isinstance(delta.signature, str) and block and not block.key:
            block.signature = string(delta.signature)
        else:
            if delta.partial_json is not None or not isinstance(delta.type, str):
                self._doubt(event.index, events)
            self._pass(frame, events)

    def _doubt(self, index: Any, events: list[SourceEvent]) -> None:
        """End the calls that a piece may belong to which cannot be read: without it they say something else."""
        at = _place(index)
        for place in list(self._blocks):
            block = self._blocks[place]
            if block.key and (place == at or None in (place, at)):
                del self._blocks[place]
                executed = block.kind in _SERVER_TOOLS
                fault = Code.INVALID_ARGUMENTS
                events.append(NativeToolCall(block.key, block.name, None, block.id, executed, fault=fault))

    def _stop_block(self, event: _Event, frame: Frame, events: list[SourceEvent]) -> None:
        block = self._blocks.pop(_place(event.index), None)
        if block is None:
            return
        self._sign(block, events)
        if not block.key:
            return
        if rest := block.pairs.close():
            self._add_arguments(rest, block, events)
        arguments = ("".join(block.pieces) or None) if block.size else block.input
        executed = block.kind in _SERVER_TOOLS
        fault = None if fits(arguments, self._limits.depth) else Code.TOO_DEEP
        if block.size > self._limits.call and executed:
            fault = Code.TOO_LARGE
        if fault is not None:
            arguments = None
        self._shown = self._shown or not executed
        events.append(NativeToolCall(block.key, block.name, arguments, block.id, executed, fault=fault))

    def _add_text(self, text: Any, events: list[SourceEvent]) -> None:
        """Append text that may be cut in mid-character."""
        if isinstance(text, str) and text and (text := self._text.join(text)):
            self._shown = True
            events.append(TextDelta(text))

    def _add_thought(self, thought: Any, events: list[SourceEvent]) -> None:
        if isinstance(thought, str) and thought and (thought := self._thought.join(thought)):
            events.append(ReasoningDelta(thought))

    def _add_arguments(self, piece: str, block: _Block, events: list[SourceEvent]) -> None:
        if not piece or not (piece := block.pairs.join(piece)):
            return
        block.size += len(piece)
        if block.kind == "tool_use":
            events.append(ToolCallDelta(block.key, piece))
        elif block.size <= self._limits.call:
            block.pieces.append(piece)
        else:
            block.pieces.clear()

    def _sign(self, block: _Block, events: list[SourceEvent]) -> None:
        """End a block of thinking with its signature; calls have none."""
        if not block.key:
            if thought := self._thought.close():
                events.append(ReasoningDelta(thought))
            if block.signature is not None:
                events.append(ReasoningDelta("", signature=block.signature))


def _place(index: Any) -> int | None:
    """Return the number of a block, which may be written as text, and None where none is told."""
    if isinstance(index, str) and _number.fullmatch(index):
        return int(index)
    return int(index) if isinstance(index, int) or (isinstance(index, float) and index.is_integer()) else None


_NOTHING = frozenset(("ping", "text", "thinking", "input_json", "citation", "signature"))
"""Pings, and the events that the SDK's helper adds to those of the wire: what they say, others say too."""

_MEANING: dict[str, Callable[[Anthropic, _Event, Frame, list[SourceEvent]], None]] = {
    "message_start": Anthropic._start_message,
    "message_delta": Anthropic._change_message,
    "message_stop": Anthropic._stop_message,
    "content_block_start": Anthropic._start_block,
    "content_block_delta": Anthropic._change_block,
    "content_block_stop": Anthropic._stop_block,
    "error": Anthropic._fail_as_told,
}
