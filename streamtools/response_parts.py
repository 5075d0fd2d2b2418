"""Finds the calls in a finished response: a whole response of a provider, a message, content blocks, items or calls.

Objects of SDKs count as the dicts that they were made of. `sources.finished` and `tools.finished_responses` use this
module, so that both find the same calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from streamtools.calls import ToolCall
from streamtools.json_values import as_dict

BLOCKS = ("tool_use", "function_call", "function")
"""The `type` of a call in a list of blocks. A block without a type counts as a call, too."""
ITEMS = ("function_call", "custom_tool_call")
"""The `type` of a call among the items of Responses."""


class ResponseParts(NamedTuple):
    """A finished response: its shape, what the model wrote (a message, blocks or items), and its calls, not parsed."""

    kind: Literal["chat", "ollama", "responses", "anthropic", "gemini", "calls", "call", ""]
    written: Any
    calls: list[Any]
    ending: object = None
    """The provider's finish reason."""


def split_response(response: Mapping[str, Any]) -> ResponseParts:
    """Return the parts of a whole response, a message or a call. `kind` is "" for an object that is none of these."""
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
    is_named = "name" in response and "role" not in response and "content" not in response
    if response.get("type") in BLOCKS or "function" in response or is_named:
        return ResponseParts("call", response, [response])
    found = _chat("chat", dict(response), None)
    return found if "role" in response or found.calls else found._replace(kind="")


def split_list(entries: Iterable[object]) -> ResponseParts:
    """Return the parts of a list of items of Responses, blocks of Anthropic, or calls."""
    listed = [to_plain(entry) for entry in entries]
    types = [entry_type(entry) for entry in listed]
    if any(kind in (*ITEMS, "reasoning", "message") for kind in types):
        return _items(listed)
    if any(kind in ("tool_use", "text", "thinking") for kind in types):
        return split_blocks(listed)
    return ResponseParts("calls", listed, [entry for entry in listed if is_call_block(entry)])


def _items(written: Sequence[Any], status: object = None) -> ResponseParts:
    items = [item for item in written if isinstance(item, dict)]
    return ResponseParts("responses", items, [item for item in items if entry_type(item) in ITEMS], status)


def split_blocks(written: list[Any], stop_reason: object = None) -> ResponseParts:
    """Return the parts of a list of content blocks."""
    return ResponseParts("anthropic", written, [block for block in written if is_call_block(block)], stop_reason)


def _chat(kind: Literal["chat", "ollama"], message: dict[str, Any], finish_reason: object) -> ResponseParts:
    listed, legacy = message.get("tool_calls"), legacy_call(message)
    listed = listed if isinstance(listed, list) else [listed] if listed else []
    return ResponseParts(
        kind, message, [to_plain(call) for call in (*listed, *([legacy] if legacy else []))], finish_reason
    )


def legacy_call(message: Mapping[str, Any]) -> Any:
    """Return the `function_call` of a message, or None. Some servers send an empty one with every text."""
    call = message.get("function_call")
    return call if not isinstance(call, Mapping) or any(call.values()) else None


def entry_type(entry: object, default: object = None) -> object:
    """Return the `type` of an entry; `default` for an object without one, None for anything else."""
    return entry.get("type", default) if isinstance(entry, dict) else None


def is_call_block(block: object) -> bool:
    """Return whether an entry in a list of blocks is a call."""
    return not isinstance(block, dict) or entry_type(block, "function") in BLOCKS


def to_plain(value: object) -> Any:
    """Return the dict of a `ToolCall` or an object of an SDK; other values stay."""
    if isinstance(value, ToolCall):
        return msgspec.to_builtins(value)
    as_plain = as_dict(value, nulls=False)
    return value if as_plain is None else as_plain


def _object(value: object) -> dict[str, Any]:
    value = to_plain(value)
    return value if isinstance(value, dict) else {}
