"""What was said so far: read from wherever a caller has it, and written as each provider wants it; sans-IO.

`read_messages` makes one canonical history of it, and `write_messages` the messages of one provider's request. In
between there is one form (`messages`), so that a conversation may go on with another provider.
"""

from streamtools.history.messages import (
    NOT_RUN,
    Assistant,
    CallResult,
    Message,
    Results,
    Step,
    System,
    Thought,
    Unanswered,
    User,
    calls_as_text,
    settle,
    steps_to_history,
    system_prompt,
    without_reasoning,
)
from streamtools.history.reading import read_messages
from streamtools.history.results_in_text import answered_by_user
from streamtools.history.writing import Format, write_behind, write_messages

__all__ = [
    "NOT_RUN",
    "Assistant",
    "CallResult",
    "Format",
    "Message",
    "Results",
    "Step",
    "System",
    "Thought",
    "Unanswered",
    "User",
    "answered_by_user",
    "calls_as_text",
    "read_messages",
    "settle",
    "steps_to_history",
    "system_prompt",
    "without_reasoning",
    "write_behind",
    "write_messages",
]
