"""The words that a simple interface shows beside the answer: one sentence an event, in one replaceable place.

They are for readers. They never enter the history that goes back to the model, which would imitate them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamtools.errors import Code
from streamtools.events import Done, Error, Executed, Executing, Thinking, UIEvent

_UNREADABLE = frozenset(
    (Code.INVALID_JSON, Code.MISSING_TOOL_NAME, Code.UNRECOGNISED_TOOL_CALL, Code.TRUNCATED, Code.CONFLICTING_FIELDS)
)
_control = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # and what turns the direction of a line
_markdown = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")


@dataclass(frozen=True, kw_only=True)
class UiTexts:
    """Sentences with places for `{name}` and `{message}`; subclass or replace any of them, for other languages too."""

    waiting: str = "🔧 Waiting for tool call completion..."
    executing: str = "🔧 Executing tool: {name}..."
    executed: str = "*🔧 Executed {name}*"
    executed_with_message: str = "*🔧 Executed {name}: {message}*"
    not_available: str = "*❌ Tool {name} not available*"
    invalid_format: str = "*❌ Invalid tool call format*"
    failed: str = "*❌ Error processing tool call*"
    stream_error: str = "*❌ Stream error: {message}*"
    cancelled: str = "*⏹ Cancelled*"

    def render(self, event: UIEvent) -> str | None:
        """Return what to show for `event`, or None where there is nothing to say. Names and messages are escaped."""
        match event:
            case Thinking(active=True):
                return self.waiting
            case Executing(call):
                return self.executing.format(name=escape(call.name))
            case Executed(call, _, message):
                template = self.executed_with_message if message else self.executed
                return template.format(name=escape(call.name), message=escape(message or ""))
            case Error(code, message, call_id):
                return self._render_error(event, code, message, call_id)
            case Done("cancelled"):
                return self.cancelled
        return None

    def _render_error(self, event: Error, code: Code, message: str, call_id: str | None) -> str:
        if call_id is None:
            return self.stream_error.format(message=escape(message))
        if code is Code.UNKNOWN_TOOL and event.call is not None:
            return self.not_available.format(name=escape(event.call.name))
        return self.invalid_format if code in _UNREADABLE else self.failed


def escape(text: str) -> str:
    """Return `text` on one line, with the characters that Markdown reads escaped, and without control characters.

    `<` becomes `&lt;`, which begins no tag in Markdown, nor where somebody takes the sentence for HTML.
    """
    return _markdown.sub(r"\\\1", " ".join(_control.sub(" ", text).split())).replace(r"\<", "&lt;")
