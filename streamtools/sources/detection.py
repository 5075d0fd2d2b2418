"""Which provider's stream this is, by its first event, and whose a finished response, by its keys. Sans-IO.

Each format shows itself in the first event that says anything (`format_of`). Comments, pings and events without data
say nothing and are waited over; what arrives meanwhile is kept, and read by the adapter that is chosen as if it had
been there from the start.

A finished response, which a provider sends without streaming, is shaped into the events that its provider would have
streamed, and its adapter reads those; only its calls, which `take_apart` finds for `ToolRegistry.process_tool_calls`
too, are read one by one, so that one that is no call hides none of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import msgspec

from streamtools.calls import (
    ARGUMENT_FIELDS,
    ID_FIELDS,
    NAME_FIELDS,
    Finished,
    ToolCall,
    custom_as_any,
    is_call,
    read_envelope,
    take_apart,
    take_blocks_apart,
)
from streamtools.errors import Code, UnreadableSource
from streamtools.events import NativeToolCall, ProviderCompleted, SourceError, SourceEvent, TextDelta
from streamtools.json_values import Rejected, whole
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import Adapter, FrameAdapter, decode
from streamtools.sources.frames import Frame, Framed, LineDecoder, SSEDecoder, as_frame
from streamtools.sources.provider_terms import format_of

_ENOUGH = 64 * 1024
"""Bytes, or objects, that are looked at; what then has shown nothing is read as the format that most servers speak."""

_BY_FIRST = {b"[": "gemini", b"\0": "bedrock"}
"""Formats that the first byte shows: one array of chunks, and the length of a binary message."""


def _reads(module: str, name: str) -> Callable[[Limits], FrameAdapter]:
    """Return what makes an adapter. Its module is imported for the first one: a process reads few of the formats."""

    def make(limits: Limits) -> FrameAdapter:
        adapter: FrameAdapter = getattr(import_module(f"streamtools.sources.wire_formats.{module}"), name)(limits)
        return adapter

    return make


ADAPTERS: dict[str, Callable[[Limits], FrameAdapter]] = {
    "openai": _reads("openai", "ChatCompletions"),
    "responses": _reads("responses", "Responses"),
    "anthropic": _reads("anthropic", "Anthropic"),
    "gemini": _reads("gemini", "Gemini"),
    "ollama": _reads("ollama", "Ollama"),
    "ai_sdk": _reads("ai_sdk", "AISDKMessages"),
    "latitude": _reads("latitude", "Latitude"),
    "bedrock": _reads("bedrock", "Bedrock"),
    "cohere": _reads("cohere", "Cohere"),
}
"""The adapters of byte streams, by the name under which a recording asks for them."""


class Undecided(Adapter):
    """Chooses one of the adapters, and is that one from then on. `content_type` is what the response declares."""

    reads_documents = True

    def __init__(self, content_type: str = "", limits: Limits = DEFAULT_LIMITS) -> None:
        self.content_type = content_type
        self._limits = limits
        self._chosen: Adapter | None = None
        self._waiting: list[object] = []
        self._seen = 0
        self._frames: SSEDecoder | LineDecoder | None = None
        self._lines = False  # there were lines of JSON, though none that shows whose
        media = content_type.partition(";")[0].strip().lower()
        if "ndjson" in media or "jsonl" in media:
            self._choose("ollama")
        elif media == "application/vnd.amazon.eventstream":
            self._choose("bedrock")

    @property
    def ended(self) -> bool:
        return self._chosen is not None and self._chosen.ended

    @property
    def format(self) -> str | None:  # type: ignore[override]  # of others it is known from the start
        """That of the adapter that was chosen."""
        return None if self._chosen is None else self._chosen.format

    def take(self, item: object) -> list[SourceEvent]:
        if self._chosen is not None:
            return self._chosen.take(item)
        self._waiting.append(item)
        begun = item.lstrip()[:1] if self._frames is None and isinstance(item, bytes | bytearray) else b""
        name = _BY_FIRST.get(bytes(begun)) or self._recognise(self._look_at(item))
        return [] if name is None and self._seen < _ENOUGH else self._choose(name)[1]

    def close(self, cause: str | None = None) -> list[SourceEvent]:
        chosen, events = self._choose(self._recognise([] if self._frames is None else self._frames.close()))
        return events + chosen.close(cause)

    def fail(self, error: SourceError) -> list[SourceEvent]:
        chosen, events = self._choose(None)
        return events + chosen.fail(error)

    def _choose(self, name: str | None) -> tuple[Adapter, list[SourceEvent]]:
        """Return the adapter that is or was chosen, and what it makes of what has waited.

        A stream that has shown no `name` is an error, most likely, in the framing that it came in.
        """
        if self._chosen is not None:
            return self._chosen, []
        if name is None:
            name = "openai"
            if isinstance(self._frames, LineDecoder):
                name = "ollama" if self._lines else "gemini"  # whose errors stand on many lines
        self._chosen = chosen = ADAPTERS[name](self._limits)
        chosen.content_type = self.content_type
        waiting, self._waiting = self._waiting, []
        return chosen, [event for item in waiting for event in chosen.take(item)]

    def _look_at(self, item: object) -> list[Framed]:
        """Return the frames that `item` completes."""
        if not isinstance(item, bytes | bytearray | memoryview):
            self._seen += 1
            frame = as_frame(item)
            return [] if frame is None else [frame]
        chunk = bytes(item)
        self._seen += len(chunk)
        if self._frames is None:
            if not chunk.strip():
                return []
            lines = chunk.lstrip().startswith(b"{")  # no line of server-sent events begins so
            self._frames = LineDecoder(self._limits.frame) if lines else SSEDecoder(self._limits.frame)
        return self._frames.feed(chunk)

    def _recognise(self, frames: Iterable[Framed]) -> str | None:
        """Return the name of the first of `frames` that shows one."""
        return next((name for frame in frames if isinstance(frame, Frame) and (name := self._name(frame))), None)

    def _name(self, frame: Frame) -> str | None:
        try:
            value: Any = decode(frame.data)
        except ValueError:
            value = None
        self._lines = self._lines or isinstance(value, dict)
        return format_of(frame.event, value)


_NO_CALL = (Code.UNRECOGNISED_TOOL_CALL, Code.MISSING_TOOL_NAME, Code.CONFLICTING_FIELDS)


def finished(response: object, limits: Limits = DEFAULT_LIMITS) -> list[SourceEvent]:
    """Return the source events of a finished response.

    That is a whole response of OpenAI (chat or Responses), Anthropic, Gemini or Ollama; a message of one; a list of
    content blocks or of calls; a text; or None. SDK objects count as the dicts that they were made of. Raises
    `UnreadableSource` for anything else.
    """
    if response is None:
        return [ProviderCompleted(finish_reason="stop")]
    if isinstance(response, str):
        return [TextDelta(whole(response)), ProviderCompleted(finish_reason="stop")]
    if isinstance(response, Sequence) and not isinstance(response, bytes | bytearray | memoryview):
        return _read_blocks({}, take_blocks_apart([_plain(each) for each in response]), limits)
    value = _plain(response)
    if not isinstance(value, dict):
        raise UnreadableSource(f"a finished response was expected, and not {type(response)!r}")
    found = take_apart(value)
    match found.kind:
        case "gemini":
            return _read_by(ADAPTERS["gemini"](limits), [value], [])
        case "responses":
            kind = "response." + str(value.get("status") or "completed")
            return _read_by(ADAPTERS["responses"](limits), [{"type": kind, "response": value}], [])
        case "anthropic":
            return _read_blocks({key: each for key, each in value.items() if key != "content"}, found, limits)
        case "call":
            return _read_blocks({}, take_blocks_apart([value]), limits)
    message = {key: each for key, each in found.written.items() if key not in ("tool_calls", "function_call")}
    if found.kind == "ollama":
        return _read_by(ADAPTERS["ollama"](limits), [{"done": True, **value, "message": message}], found.calls)
    choice = {"index": 0, "delta": message, "finish_reason": found.ending or "stop"}
    head = value if "choices" in value else {}
    return _read_by(ADAPTERS["openai"](limits), [{**head, "choices": [choice]}], found.calls)


def _read_blocks(head: dict[str, Any], found: Finished, limits: Limits) -> list[SourceEvent]:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(each for each in found.written if not is_call(each)):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    end = {"type": "message_delta", "delta": {"stop_reason": found.ending or "end_turn"}, "usage": head.get("usage")}
    return _read_by(ADAPTERS["anthropic"](limits), [*events, end, {"type": "message_stop"}], found.calls)


def _read_by(adapter: Adapter, items: Iterable[dict[str, Any]], calls: Iterable[Any]) -> list[SourceEvent]:
    """Return what `adapter` makes of `items`, with `calls` before the end of the turn."""
    events = [event for item in items for event in adapter.take(item)] + adapter.close()
    at = next((at for at, event in enumerate(events) if isinstance(event, ProviderCompleted)), len(events))
    return [*events[:at], *(_read_call(f"call {n}", call) for n, call in enumerate(calls)), *events[at:]]


def _read_call(key: str, entry: Any) -> NativeToolCall:
    """Return the call that `entry` is, its arguments as they were sent, or what tells that it cannot be one."""
    entry = custom_as_any(entry)
    places = [entry, entry.get("function")] if isinstance(entry, Mapping) else []
    id = _find(places, ID_FIELDS)
    id = str(id) if isinstance(id, str | int) else None
    try:
        name: str | None = read_envelope(entry).name
    except Rejected as fault:
        name = _find(places, NAME_FIELDS)
        if fault.code in _NO_CALL or not isinstance(name, str):
            written = "null" if entry is None else entry
            return NativeToolCall(key, None, written, id, fault=fault.code)
    return NativeToolCall(key, name, _find(places, ARGUMENT_FIELDS), id)


def _find(places: Iterable[Any], names: Sequence[str]) -> Any:
    mappings = (place for place in places if isinstance(place, Mapping))
    return next((place[name] for place in mappings for name in names if place.get(name) is not None), None)


def _plain(value: object) -> Any:
    """Return the plain values of what may be an object of an SDK, or a call of ours."""
    if isinstance(value, ToolCall):
        return msgspec.to_builtins(value)
    frame = as_frame(value)
    return value if frame is None else decode(frame.data)
