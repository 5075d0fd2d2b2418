"""Converts a finished response, which the provider did not stream, into source events. Sans-IO.

The response is converted into the chunks that the provider would have streamed, and the provider's adapter reads these
chunks. Calls in chat messages and in lists are read individually, so that a malformed call does not hide the others.
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
from streamtools.sources.adapter import Adapter, as_frame
from streamtools.sources.detection import ADAPTERS
from streamtools.sources.provider_terms import object_in, objects

# The codes of entries that are not calls: not an object, no tool name, or two different names or arguments.
_NO_CALL = (Code.UNRECOGNISED_TOOL_CALL, Code.MISSING_TOOL_NAME, Code.CONFLICTING_FIELDS)

_CALL_BLOCKS = ("tool_use", "function_call", "function")
"""The `type` values of calls in a list of blocks. A block without a `type` is also a call."""


def finished(response: object, limits: Limits = DEFAULT_LIMITS) -> list[SourceEvent]:
    """Return the source events of a finished response.

    `response` is a whole response of OpenAI (chat or Responses), Anthropic, Gemini or Ollama. It may also be a message
    from such a response, a call, a list of content blocks or calls, a text, or None. SDK objects are read as dicts. Any
    other dict is read as a chat message. Raises `UnreadableSource` for a value of any other type.
    """
    if response is None:
        return [ProviderCompleted(finish_reason="stop")]
    if isinstance(response, str):
        return [TextDelta(well_formed(response)), ProviderCompleted(finish_reason="stop")]
    if isinstance(response, Sequence) and not isinstance(response, bytes | bytearray | memoryview):
        return _read_blocks({}, [_plain(item) for item in response], limits)
    value = _plain(response)
    if not isinstance(value, dict):
        raise UnreadableSource(f"expected a finished response, got {type(response)!r}")
    choices, message, output, content = (value.get(key) for key in ("choices", "message", "output", "content"))
    if "candidates" in value or "promptFeedback" in value:
        return _read_by(ADAPTERS["gemini"](limits), [value], [])
    if isinstance(choices, list):
        choice = next(iter(objects(choices)), {})
        return _read_chat(value, object_in(choice, "message"), choice.get("finish_reason"), limits)
    if isinstance(message, dict):
        message, calls = _split_message(message)
        return _read_by(ADAPTERS["ollama"](limits), [{"done": True, **value, "message": message}], calls)
    if isinstance(output, list):
        kind = "response." + str(value.get("status") or "completed")
        return _read_by(ADAPTERS["responses"](limits), [{"type": kind, "response": value}], [])
    if isinstance(content, list) and not (value.get("tool_calls") or value.get("function_call")):
        return _read_blocks({key: member for key, member in value.items() if key != "content"}, content, limits)
    is_bare_call = "name" in value and "role" not in value and "content" not in value
    if value.get("type") in _CALL_BLOCKS or "function" in value or is_bare_call:
        return _read_blocks({}, [value], limits)
    return _read_chat(value if "choices" in value else {}, value, None, limits)


def _read_chat(head: dict[str, Any], message: dict[str, Any], ending: object, limits: Limits) -> list[SourceEvent]:
    message, calls = _split_message(message)
    choice = {"index": 0, "delta": message, "finish_reason": ending or "stop"}
    return _read_by(ADAPTERS["openai"](limits), [{**head, "choices": [choice]}], calls)


def _split_message(message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return a chat message without its calls, and the calls.

    A `function_call` whose fields are all empty is ignored, because some servers send one in every message.
    """
    listed, legacy = message.get("tool_calls"), message.get("function_call")
    calls = listed if isinstance(listed, list) else [listed] if listed else []
    if any(legacy.values()) if isinstance(legacy, Mapping) else legacy:
        calls = [*calls, legacy]
    return {key: member for key, member in message.items() if key not in ("tool_calls", "function_call")}, calls


def _read_blocks(head: dict[str, Any], blocks: list[Any], limits: Limits) -> list[SourceEvent]:
    """Read a list of content blocks. An entry that is not a dict is handled as a call."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(block for block in blocks if not _is_call(block)):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    end = {"type": "message_delta", "delta": {"stop_reason": head.get("stop_reason") or "end_turn"}}
    events += [end | {"usage": head.get("usage")}, {"type": "message_stop"}]
    return _read_by(ADAPTERS["anthropic"](limits), events, filter(_is_call, blocks))


def _is_call(block: object) -> bool:
    return not isinstance(block, dict) or block.get("type", "function") in _CALL_BLOCKS


def _read_by(adapter: Adapter, items: Iterable[dict[str, Any]], calls: Iterable[Any]) -> list[SourceEvent]:
    """Return the events that `adapter` reads from `items`. Insert the events of `calls` before the end of the turn."""
    events = [event for item in items for event in adapter.take(item)] + adapter.close()
    end = next((at for at, event in enumerate(events) if isinstance(event, ProviderCompleted)), len(events))
    return [*events[:end], *(_read_call(f"call {n}", call) for n, call in enumerate(calls)), *events[end:]]


def _read_call(key: str, entry: Any) -> NativeToolCall:
    """Return the event of the call in `entry`, with unchanged arguments. The event of any other entry has a `fault`."""
    entry = custom_as_function(entry)
    places = [entry, entry.get("function")] if isinstance(entry, Mapping) else []
    id = _find(places, ID_FIELDS)
    id = str(id) if isinstance(id, str | int) else None
    try:
        name: str | None = read_envelope(entry).name
    except Rejected as fault:
        name = _find(places, NAME_FIELDS)
        if fault.code in _NO_CALL or not isinstance(name, str):
            arguments = "null" if entry is None else entry  # None would mean that the arguments arrive in deltas
            return NativeToolCall(None, arguments, key, id, fault=fault.code)
    return NativeToolCall(name, _find(places, ARGUMENT_FIELDS), key, id)


def _find(places: Iterable[Any], names: Sequence[str]) -> Any:
    mappings = (place for place in places if isinstance(place, Mapping))
    return next((place[name] for place in mappings for name in names if place.get(name) is not None), None)


def _plain(value: object) -> Any:
    """Convert a `ToolCall`, a mapping or an SDK object to a dict. Returns any other value unchanged."""
    if isinstance(value, ToolCall):
        return msgspec.to_builtins(value)
    frame = as_frame(value)
    return value if frame is None else decode(frame.data)
