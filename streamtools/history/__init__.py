"""Conversation histories: read from any provider's messages, and written as any provider's messages; sans-IO.

`read_messages` returns a history in one canonical form (`parts`), and `write_messages` writes it for a request. So a
conversation can continue with another provider. Each format is one module, which reads and writes it. The formats are
imported on first use, because a stream only needs `parts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtools.history.parts import (
    Assistant,
    CallResult,
    Message,
    Origin,
    ProviderItem,
    Results,
    Step,
    System,
    TextPart,
    Thought,
    User,
)
from streamtools.history.provider_view import ReasoningField, SendReasoning, without_reasoning
from streamtools.history.writing import system_prompt
from streamtools.loading import load_later

if TYPE_CHECKING:
    from streamtools.history.calls_in_text import calls_as_text
    from streamtools.history.formats import Format, read_messages, write_messages

__all__ = [
    "Assistant", "CallResult", "Format", "Message", "Origin", "ProviderItem", "ReasoningField", "Results",
    "SendReasoning", "Step", "System", "TextPart", "Thought", "User", "calls_as_text", "read_messages",
    "system_prompt", "without_reasoning", "write_messages",
]  # fmt: skip

_LATER = {"calls_as_text": "calls_in_text"} | dict.fromkeys(("Format", "read_messages", "write_messages"), "formats")
"""Names that are imported on first use, with their modules."""

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__, __dir__ = load_later(__name__, _LATER)
