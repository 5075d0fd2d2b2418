"""Converts a finished response, which the provider did not stream, into source events. Sans-IO.

The response is converted into the events that the provider would have streamed. The provider's adapter then reads these
events. The calls are read individually, so that a malformed call does not hide the others. `split_response` finds them.
`ToolRegistry.process_tool_calls` uses the same function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from streamtools.calls import ARGUMENT_FIELDS, ID_FIELDS, NAME_FIELDS, ToolCall, custom_as_function, read_envelope
from streamtools.errors import Code, UnreadableSource
from streamtools.events import NativeToolCall, ProviderCompleted, SourceEvent, TextDelta
from streamtools.json_values import Rejected, decode, well_formed
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.response_parts import ResponseParts, is_call_block, split_blocks, split_response
from streamtools.sources.adapter import Adapter, as_frame
from streamtools.sources.detection import ADAPTERS

# Codes of entries that are no call: not an object, without a tool name, or with two different names or arguments.
_NO_CALL = (Code.UNRECOGNISED_TOOL_CALL, Code.MISSING_TOOL_NAME, Code.CONFLICTING_FIELDS)


def finished(response: object, limits: Limits = DEFAULT_LIMITS) -> list[SourceEvent]:
    """Return the source events of a finished response.

    `response` is a whole response of OpenAI (chat or Responses), Anthropic, Gemini or Ollama. It may also be a message
    from such a response, a call, a list of content blocks or calls, a text, or None. SDK objects are read as dicts.
    Raises `UnreadableSource` for anything else.
    """
    if response is None:
        return [ProviderCompleted(finish_reason="stop")]
    if isinstance(response, str):
        return [TextDelta(well_formed(response)), ProviderCompleted(finish_reason="stop")]
    if isinstance(response, Sequence) and not isinstance(response, bytes | bytearray | memoryview):
        return _read_blocks({}, split_blocks([_plain(item) for item in response]), limits)
    value = _plain(response)
    if not isinstance(value, dict):
        raise UnreadableSource(f"expected a finished response, got {type(response)!r}")
    found = split_response(value)
    match found.kind:
        case "gemini":
            return _read_by(ADAPTERS["gemini"](limits), [value], [])
        case "responses":
            kind = "response." + str(value.get("status") or "completed")
            return _read_by(ADAPTERS["responses"](limits), [{"type": kind, "response": value}], [])
        case "anthropic":
            return _read_blocks({key: member for key, member in value.items() if key != "content"}, found, limits)
        case "call":
            return _read_blocks({}, split_blocks([value]), limits)
    message = {key: member for key, member in found.written.items() if key not in ("tool_calls", "function_call")}
    if found.kind == "ollama":
        return _read_by(ADAPTERS["ollama"](limits), [{"done": True, **value, "message": message}], found.calls)
    choice = {"index": 0, "delta": message, "finish_reason": found.ending or "stop"}
    head = value if "choices" in value else {}
    return _read_by(ADAPTERS["openai"](limits), [{**head, "choices": [choice]}], found.calls)


def _read_blocks(head: dict[str, Any], found: ResponseParts, limits: Limits) -> list[SourceEvent]:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(block for block in found.written if not is_call_block(block)):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    end = {"type": "message_delta", "delta": {"stop_reason": found.ending or "end_turn"}, "usage": head.get("usage")}
    return _read_by(ADAPTERS["anthropic"](limits), [*events, end, {"type": "message_stop"}], found.calls)


def _read_by(adapter: Adapter, items: Iterable[dict[str, Any]], calls: Iterable[Any]) -> list[SourceEvent]:
    """Return the events that `adapter` reads from `items`. The events of `calls` precede the end of the turn."""
    events = [event for item in items for event in adapter.take(item)] + adapter.close()
    end = next((at for at, event in enumerate(events) if isinstance(event, ProviderCompleted)), len(events))
    return [*events[:end], *(_read_call(f"call {n}", call) for n, call in enumerate(calls)), *events[end:]]


def _read_call(key: str, entry: Any) -> NativeToolCall:
    """Return the call in `entry`, with its arguments unchanged. If `entry` is no call, the event has a `fault`."""
    entry = custom_as_function(entry)
    places = [entry, entry.get("function")] if isinstance(entry, Mapping) else []
    id = _find(places, ID_FIELDS)
    id = str(id) if isinstance(id, str | int) else None
    try:
        name: str | None = read_envelope(entry).name
    except Rejected as fault:
        name = _find(places, NAME_FIELDS)
        if fault.code in _NO_CALL or not isinstance(name, str):
            arguments = "null" if entry is None else entry  # None would mean that deltas hold the arguments
            return NativeToolCall(key, None, arguments, id, fault=fault.code)
    return NativeToolCall(key, name, _find(places, ARGUMENT_FIELDS), id)


def _find(places: Iterable[Any], names: Sequence[str]) -> Any:
    mappings = (place for place in places if isinstance(place, Mapping))
    return next((place[name] for place in mappings for name in names if place.get(name) is not None), None)


def _plain(value: object) -> Any:
    """Return the dict of a `ToolCall`, a mapping or an SDK object. Returns any other value unchanged."""
    if isinstance(value, ToolCall):
        return msgspec.to_builtins(value)
    frame = as_frame(value)
    return value if frame is None else decode(frame.data)
