"""Detects the wire format of an event from its name, its `type`, or a key that only one format has. Sans-IO.

The first event with content is enough to detect each format. Ollama's `/api/generate`, which no source reads, is also
detected, so that an error message can recommend `/api/chat`.
"""

from __future__ import annotations

from typing import Any

from streamtools.sources.provider_terms import bounded

_TYPES = {
    "latitude": "latitude-event provider-event event",  # `event` is the envelope that a proxy adds
    "anthropic": "message_start message_delta message_stop content_block_start content_block_delta content_block_stop",
    "ai_sdk": "start start-step text-start reasoning-start tool-input-start abort text-delta reasoning-delta"
    " tool-input-available finish",
    "cohere": "message-start content-start content-delta message-end tool-plan-delta tool-call-start tool-call-delta"
    " citation-start",
}
_KEYS = {
    "openai": "choices",
    "gemini": "candidates promptFeedback usageMetadata event_type",  # `event_type` is in the Interactions API
    "ollama": "done",
    "bedrock": "messageStart contentBlockStart contentBlockDelta messageStop chunk",
}
_BY_TYPE = {kind: name for name, kinds in _TYPES.items() for kind in kinds.split()}
_BY_KEY = {key: name for name, keys in _KEYS.items() for key in keys.split()}


def format_of(event: str, value: Any) -> str | None:
    """Return the name of the adapter for an event, or None. `event` is the event's name, and `value` its data."""
    if event in ("latitude-event", "provider-event"):
        return "latitude"
    if not isinstance(value, dict) or advice_for_unsupported(value) is not None:
        return None
    kind = value.get("type")
    if isinstance(kind, str) and kind.startswith("response."):
        return "responses"
    if isinstance(kind, str) and kind in _BY_TYPE:
        return _BY_TYPE[kind]
    if isinstance(value.get("message"), dict):
        return "ollama"
    return next((name for key, name in _BY_KEY.items() if key in value), None)


def advice_for_unsupported(value: Any) -> str | None:
    """Return advice for the error message if an event has a format that no source reads, else None."""
    if isinstance(value, dict) and isinstance(value.get("response"), str) and "done" in value:
        return "no source reads Ollama's /api/generate; use /api/chat"
    return None


def describe_event(event: str, value: Any) -> str:
    """Return a short description of an event for an error message: its name, its type or its fields, but no content."""
    kinds = [value.get(key) for key in ("type", "event_type", "object")] if isinstance(value, dict) else []
    kind = event if event != "message" else next((name for name in kinds if isinstance(name, str) and name), None)
    if kind is not None:
        return f"`{bounded(kind, 60)}`"
    if isinstance(value, dict):
        names = bounded(", ".join(map(str, [*value][:6])), 100)
        return f"an object with the fields {names}" if names else "an empty object"
    return "data that is not JSON" if value is None else f"a JSON {type(value).__name__}"
