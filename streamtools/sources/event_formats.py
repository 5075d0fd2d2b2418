"""The wire format of an event, by its name, by its `type`, or by a key that no other format has. Sans-IO.

Each format shows itself in the first event with content. Two formats that no source reads are known, too, so that an
error message can say which format to request instead.
"""

from __future__ import annotations

from typing import Any

from streamtools.sources.provider_terms import bounded

_BY_TYPE = {
    "event": "latitude",  # a proxy's, around an event of Latitude
    **dict.fromkeys(("latitude-event", "provider-event"), "latitude"),
    **dict.fromkeys(("message_start", "message_delta", "message_stop"), "anthropic"),
    **dict.fromkeys(("content_block_start", "content_block_delta", "content_block_stop"), "anthropic"),
    **dict.fromkeys(("start", "start-step", "text-start", "reasoning-start", "tool-input-start", "abort"), "ai_sdk"),
    **dict.fromkeys(("text-delta", "reasoning-delta", "tool-input-available", "finish"), "ai_sdk"),
    **dict.fromkeys(("message-start", "content-start", "content-delta", "message-end", "tool-plan-delta"), "cohere"),
    **dict.fromkeys(("tool-call-start", "tool-call-delta", "citation-start"), "cohere"),
}
_BY_KEY = {
    "choices": "openai",
    "candidates": "gemini",
    "promptFeedback": "gemini",
    "usageMetadata": "gemini",
    "event_type": "gemini",  # of its interactions
    "done": "ollama",
    **dict.fromkeys(("messageStart", "contentBlockStart", "contentBlockDelta", "messageStop", "chunk"), "bedrock"),
}
_UNREAD = {
    "thread": "they are OpenAI's Assistants, which no source reads: ask its Responses",
    "response": "they are Ollama's /api/generate, which no source reads: ask /api/chat",
}
"""Formats that no source reads, and the advice for each."""


def format_of(event: str, value: Any) -> str | None:
    """Return the name of the adapter for an event, from the event's name and its decoded data, or None."""
    if event in ("latitude-event", "provider-event"):
        return "latitude"
    if not isinstance(value, dict) or unread_format(event, value) is not None:
        return None
    kind = value.get("type")
    if isinstance(kind, str) and kind.startswith("response."):
        return "responses"
    if isinstance(kind, str) and kind in _BY_TYPE:
        return _BY_TYPE[kind]
    if isinstance(value.get("message"), dict):
        return "ollama"
    return next((name for key, name in _BY_KEY.items() if key in value), None)


def unread_format(event: str, value: Any) -> str | None:
    """Return the advice for an event of a format that no source reads, or None."""
    if event.startswith("thread."):
        return _UNREAD["thread"]
    if isinstance(value, dict) and isinstance(value.get("response"), str) and "done" in value:
        return _UNREAD["response"]
    return None


def seen_in(event: str, value: Any) -> str:
    """Describe an event in a few words that hold nothing of its content."""
    kinds = [value.get(key) for key in ("type", "event_type", "object")] if isinstance(value, dict) else []
    kind = event if event != "message" else next((name for name in kinds if isinstance(name, str) and name), None)
    if kind is not None:
        return f"`{bounded(kind, 60)}`"
    if isinstance(value, dict):
        return f"an object of {bounded(', '.join(map(str, [*value][:6])), 100) or 'nothing'}"
    return "no JSON" if value is None else f"a JSON {type(value).__name__}"
