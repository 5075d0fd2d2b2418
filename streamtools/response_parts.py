"""Finds the calls in a finished response.

A finished response is a whole response of a provider, a message, or a list of content blocks, items or calls. SDK
objects are read as dicts. `sources.finished` and `tools.finished_responses` use this module, so that both find the same
calls in a response or a message. They read a list differently, with `split_blocks` and `split_list`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from streamtools.calls import ToolCall
from streamtools.json_values import as_dict

CALL_BLOCKS = ("tool_use", "function_call", "function")
"""The `type` values of calls in a list of blocks. A block without a `type` is also a call."""
CALL_ITEMS = ("function_call", "custom_tool_call")
"""The `type` values of calls in a list of Responses items."""


class ResponseParts(NamedTuple):
    """The parts of a finished response.

    `kind` is the format of the response, "calls" for a list of calls, "call" for one call, or "" for any other object.
    `written` is the content that the model wrote: a message, blocks, items or calls. For "gemini", it is the response.
    `calls` holds the calls in this content before they are parsed. It is empty for "gemini".
    """

    kind: Literal["chat", "ollama", "responses", "anthropic", "gemini", "calls", "call", ""]
    written: Any
    calls: list[Any]
    ending: object = None
    """The finish reason that the provider sent, or None."""


def split_response(response: Mapping[str, Any]) -> ResponseParts:
    """Return the parts of a whole response, a message or a call. For any other object, `kind` is empty."""
    choices, message, output, content = (response.get(key) for key in ("choices", "message", "output", "content"))
    if "candidates" in response or "promptFeedback" in response:
        return ResponseParts("gemini", response, [])
    if isinstance(choices, list):
        choice = _object(next(iter(choices), None))
        return _chat("chat", _object(choice.get("message")), choice.get("finish_reason"))
    if isinstance(message := to_plain(message), dict):
        return _chat("ollama", message, response.get("done_reason") or response.get("finish_reason"))
    if isinstance(output, list):
        return _items([to_plain(item) for item in output], response.get("status"))
    if isinstance(content, list) and not (response.get("tool_calls") or response.get("function_call")):
        return split_blocks([to_plain(block) for block in content], response.get("stop_reason"))
    is_bare_call = "name" in response and "role" not in response and "content" not in response
    if response.get("type") in CALL_BLOCKS or "function" in response or is_bare_call:
        return ResponseParts("call", response, [response])
    found = _chat("chat", dict(response), None)
    return found if "role" in response or found.calls else found._replace(kind="")


def split_list(entries: Iterable[object]) -> ResponseParts:
    """Return the parts of a list of Responses items, Anthropic blocks, or calls."""
    listed = [to_plain(entry) for entry in entries]
    types = [entry_type(entry) for entry in listed]
    if any(kind in (*CALL_ITEMS, "reasoning", "message") for kind in types):
        return _items(listed)
    if any(kind in ("tool_use", "text", "thinking") for kind in types):
        return split_blocks(listed)
    return ResponseParts("calls", listed, [entry for entry in listed if is_call_block(entry)])


def _items(written: Sequence[Any], status: object = None) -> ResponseParts:
    items = [item for item in written if isinstance(item, dict)]
    return ResponseParts("responses", items, [item for item in items if entry_type(item) in CALL_ITEMS], status)


def split_blocks(written: list[Any], stop_reason: object = None) -> ResponseParts:
    """Return the parts of a list of content blocks."""
    return ResponseParts("anthropic", written, [block for block in written if is_call_block(block)], stop_reason)


def _chat(kind: Literal["chat", "ollama"], message: dict[str, Any], finish_reason: object) -> ResponseParts:
    listed, legacy = message.get("tool_calls"), _legacy_call(message)
    listed = listed if isinstance(listed, list) else [listed] if listed else []
    return ResponseParts(
        kind, message, [to_plain(call) for call in (*listed, *([legacy] if legacy else []))], finish_reason
    )


def _legacy_call(message: Mapping[str, Any]) -> Any:
    """Return the `function_call` of a message, or None.

    Some servers send a `function_call` without content in every message. It is ignored.
    """
    call = message.get("function_call")
    return call if not isinstance(call, Mapping) or any(call.values()) else None


def entry_type(entry: object, default: object = None) -> object:
    """Return the `type` of a dict, or `default` if it has no `type`. Returns None for any other value."""
    return entry.get("type", default) if isinstance(entry, dict) else None


def is_call_block(block: object) -> bool:
    """Return whether an entry in a list of blocks is a call. An entry that is not a dict is handled as a call."""
    return not isinstance(block, dict) or entry_type(block, "function") in CALL_BLOCKS


def to_plain(value: object) -> Any:
    """Return a `ToolCall`, a mapping or an SDK object as a dict. Returns any other value unchanged."""
    if isinstance(value, ToolCall):
        return msgspec.to_builtins(value)
    as_plain = as_dict(value, nulls=False)
    return value if as_plain is None else as_plain


def _object(value: object) -> dict[str, Any]:
    value = to_plain(value)
    return value if isinstance(value, dict) else {}
