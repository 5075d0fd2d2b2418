"""The messages of a conversation, for those who import them from here: all of it is in `streamtools.history`."""

from streamtools.history import (
    Assistant,
    CallResult,
    Format,
    Message,
    Results,
    Step,
    System,
    Thought,
    User,
    calls_as_text,
    read_messages,
    steps_to_history,
    system_prompt,
    without_reasoning,
    write_messages,
)

__all__ = [
    "Assistant",
    "CallResult",
    "Format",
    "Message",
    "Results",
    "Step",
    "System",
    "Thought",
    "User",
    "calls_as_text",
    "read_messages",
    "steps_to_history",
    "system_prompt",
    "without_reasoning",
    "write_messages",
]
