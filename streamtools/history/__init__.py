"""What was said so far: read from wherever a caller has it, and written as each provider wants it; sans-IO.

`read_messages` makes one canonical history of it, and `write_messages` the messages of one provider's request. In
between there is one form (`parts`), so that a conversation may go on with another provider. Each format is a module,
which both reads and writes it. They are loaded when a history is read or written: a stream needs only what it tells of
itself in `parts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtools.history.messages import (
    ReasoningField,
    SendReasoning,
    Unanswered,
    settle,
    system_prompt,
    without_reasoning,
)
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
    steps_to_history,
)
from streamtools.loading import load_later

if TYPE_CHECKING:
    from streamtools.history.anthropic_messages import container_of
    from streamtools.history.formats import Format, read_messages, write_behind, write_messages
    from streamtools.history.in_text import answered_by_user, calls_as_text, plain_between, plain_quotations, plain_said

__all__ = [
    "Assistant", "CallResult", "Format", "Message", "Origin", "ProviderItem", "ReasoningField", "Results",
    "SendReasoning", "Step", "System", "TextPart", "Thought", "Unanswered", "User", "answered_by_user", "calls_as_text",
    "container_of", "plain_between", "plain_quotations", "plain_said", "read_messages", "settle", "steps_to_history",
    "system_prompt", "without_reasoning", "write_behind", "write_messages",
]  # fmt: skip

_LATER = {
    **dict.fromkeys(("Format", "read_messages", "write_behind", "write_messages"), "formats"),
    **dict.fromkeys(
        ("answered_by_user", "calls_as_text", "plain_between", "plain_quotations", "plain_said"), "in_text"
    ),
    "container_of": "anthropic_messages",
}
"""The modules in which the names stand that are loaded when they are used."""

if not TYPE_CHECKING:  # to a type checker it would say that every name is there
    __getattr__, __dir__ = load_later(__name__, _LATER)
