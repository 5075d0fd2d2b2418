"""Reads conversation histories from the messages of any provider, and writes them for any provider, without I/O.

`read_messages` returns a history in one canonical form, which the module `parts` defines. `write_messages` converts a
history to the messages of a request. So a conversation can continue with another provider. There is one module for each
message format, or for several similar formats. These modules are imported on first use, because a stream only needs
`parts`.
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
from streamtools.history.provider_view import ReasoningField, SendReasoning
from streamtools.history.writing import system_prompt
from streamtools.loading import load_later

if TYPE_CHECKING:
    from streamtools.history.calls_in_text import calls_as_text
    from streamtools.history.formats import Format, read_messages, write_messages

__all__ = [
    "Assistant", "CallResult", "Format", "Message", "Origin", "ProviderItem", "ReasoningField", "Results",
    "SendReasoning", "Step", "System", "TextPart", "Thought", "User", "calls_as_text", "read_messages",
    "system_prompt", "write_messages",
]  # fmt: skip

_LAZY = {"calls_as_text": "calls_in_text"} | dict.fromkeys(("Format", "read_messages", "write_messages"), "formats")
"""Maps each name that is imported on first use to its module."""

load_later(globals(), _LAZY)
