"""Finished responses: what a provider sends without streaming, as the source events of a stream that came at once.

There is no second reader. A finished response is shaped into the events that its provider would have streamed, and its
adapter reads those; only its calls are read here, one by one, so that one that is no call hides none of the others.
`ToolRegistry.process_tool_calls` reads answers that go back with the results, and stands beside this: it takes the same
entries for calls, none of an answer that was cut off or of Gemini's, and leaves the text alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from streamtools.calls import ARGUMENT_FIELDS, ID_FIELDS, NAME_FIELDS, ToolCall, read_envelope
from streamtools.errors import Code, UnreadableSource
from streamtools.events import NativeToolCall, ProviderCompleted, SourceEvent, TextDelta
from streamtools.json_values import Rejected
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import Adapter, decode
from streamtools.sources.anthropic import Anthropic
from streamtools.sources.gemini import Gemini
from streamtools.sources.objects import as_frame
from streamtools.sources.ollama import Ollama
from streamtools.sources.openai import ChatCompletions
from streamtools.sources.responses import Responses
from streamtools.surrogates import whole

_CALLS = ("tool_use", "function_call", "function")
"""The `type` of a call in a list of blocks or items."""
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
        return _read_anthropic({"content": [_plain(each) for each in response]}, limits)
    value = _plain(response)
    if not isinstance(value, dict):
        raise UnreadableSource(f"a finished response was expected, and not {type(response)!r}")
    if value.get("type") in _CALLS or "function" in value or ("name" in value and not _SHAPES.keys() & value.keys()):
        return _read_anthropic({"content": [value]}, limits)
    for key, read in _SHAPES.items():
        if key in value:
            return read(value, limits)
    return _read_openai({"choices": [{"message": value}]}, limits)


def _read_openai(response: dict[str, Any], limits: Limits) -> list[SourceEvent]:
    choices = response["choices"]
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message, calls = _without_calls(choice.get("message"))
    reason = choice.get("finish_reason") or "stop"
    chunk = {**response, "choices": [{"index": 0, "delta": message, "finish_reason": reason}]}
    return _read_by(ChatCompletions(limits), [chunk], calls)


def _read_ollama(response: dict[str, Any], limits: Limits) -> list[SourceEvent]:
    message, calls = _without_calls(response.get("message"))
    return _read_by(Ollama(limits), [{"done": True, **response, "message": message}], calls)


def _read_anthropic(response: dict[str, Any], limits: Limits) -> list[SourceEvent]:
    content = response["content"]
    if not isinstance(content, list):  # a message of OpenAI's, whose text this is
        return _read_openai({"choices": [{"message": response}]}, limits)
    calls: list[Any] = []
    blocks: list[Any] = []
    for block in content:
        is_block = isinstance(block, dict) and block.get("type", "function") not in _CALLS
        (blocks if is_block else calls).append(block)
    _, more = _without_calls(response)
    head = {key: value for key, value in response.items() if key != "content"}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    reason = response.get("stop_reason") or "end_turn"
    end = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": response.get("usage")}
    return _read_by(Anthropic(limits), [*events, end, {"type": "message_stop"}], calls + more)


def _read_responses(response: dict[str, Any], limits: Limits) -> list[SourceEvent]:
    kind = "response." + str(response.get("status") or "completed")
    return _read_by(Responses(limits), [{"type": kind, "response": response}], [])


def _read_gemini(response: dict[str, Any], limits: Limits) -> list[SourceEvent]:
    return _read_by(Gemini(limits), [response], [])


_SHAPES: dict[str, Callable[[dict[str, Any], Limits], list[SourceEvent]]] = {
    "choices": _read_openai,
    "candidates": _read_gemini,
    "promptFeedback": _read_gemini,
    "output": _read_responses,
    "message": _read_ollama,
    "content": _read_anthropic,
}
"""By the key that shows whose a response is."""


def _read_by(adapter: Adapter, items: Iterable[dict[str, Any]], calls: Iterable[Any]) -> list[SourceEvent]:
    """Return what `adapter` makes of `items`, with `calls` before the end of the turn."""
    events = [event for item in items for event in adapter.take(item)] + adapter.close()
    at = next((at for at, event in enumerate(events) if isinstance(event, ProviderCompleted)), len(events))
    return [*events[:at], *(_read_call(f"call {n}", call) for n, call in enumerate(calls)), *events[at:]]


def _read_call(key: str, entry: Any) -> NativeToolCall:
    """Return the call that `entry` is, its arguments as they were sent, or what tells that it cannot be one."""
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


def _find(places: Iterable[Any], names: Iterable[str]) -> Any:
    for place in places:
        if isinstance(place, Mapping):
            for name in names:
                if place.get(name) is not None:
                    return place[name]
    return None


def _without_calls(message: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return a message without its calls, and those."""
    if not isinstance(message, dict):
        return {}, []
    rest = {key: value for key, value in message.items() if key not in ("tool_calls", "function_call")}
    calls, old = message.get("tool_calls"), message.get("function_call")
    listed = calls if isinstance(calls, list) else [calls] if calls else []
    return rest, [*listed, *([old] if old else [])]


def _plain(value: object) -> Any:
    """Return the plain values of what may be an object of an SDK, or a call of ours."""
    if isinstance(value, ToolCall):
        return msgspec.to_builtins(value)
    frame = as_frame(value)
    return value if frame is None else decode(frame.data)
