"""Functions that the writers of all message formats share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from streamtools.calls import NATIVE, ToolCall
from streamtools.history.parts import Assistant, CallResult, Message, Part, System, TextPart, Thought, User
from streamtools.json_values import json_text
from streamtools.limits import TOOL_NAME

INVALID_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that providers refuse in names and ids."""


def valid_name(name: str) -> str:
    """Return `name` as a valid tool name: invalid characters become `_`, and the name is cut after 64 characters."""
    return INVALID_IN_NAMES.sub("_", name)[:TOOL_NAME]


def system_prompt(history: Iterable[Message]) -> str:
    """Return the text of all system messages, for providers whose requests have a separate field for it."""
    return "\n\n".join(message.text for message in history if isinstance(message, System) and message.text)


def in_order(message: Assistant) -> Iterator[Part]:
    """Iterate over the parts of a turn. At the end of the turn, reasoning and empty text are omitted.

    Providers expect that reasoning is followed by the text or the call that it led to.
    """
    parts = message.parts
    end = len(parts)
    while end and (isinstance(last := parts[end - 1], Thought) or (isinstance(last, TextPart) and not last.text)):
        if isinstance(last, TextPart) and last.extra:
            break
        end -= 1
    return iter(parts[:end])


def arguments_text(call: ToolCall) -> str:
    """Return the arguments as JSON text. For a malformed native call, return the text that the model wrote."""
    return call.raw if call.raw and call.dialect == NATIVE else json_text(call.arguments)


def provider_fields(part: TextPart | Thought | CallResult | System | User) -> dict[str, Any]:
    """Return the additional JSON fields that the provider sent with a part, a result or a message."""
    return dict(part.extra.data) if part.extra else {}


def call_provider_fields(call: ToolCall, format: str) -> dict[str, Any]:
    """Return the additional JSON fields that a provider with this message format sent with a call."""
    extra = (call.own or {}).get(format)
    return extra if isinstance(extra, dict) else {}
