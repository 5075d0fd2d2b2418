"""Makes status sentences from UI events, for interfaces without tool widgets.

An interface shows a sentence beside the answer until the next sentence replaces it. Sentences are for users only. Do
not add them to the history, because the model would imitate them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamtools.calls import ToolCall
from streamtools.errors import Checked, Code
from streamtools.events import Done, Error, Executed, Executing, Thinking, UIEvent, Warning

_MALFORMED_CODES = frozenset(
    (Code.INVALID_JSON, Code.MISSING_TOOL_NAME, Code.UNRECOGNISED_TOOL_CALL, Code.TRUNCATED, Code.CONFLICTING_FIELDS)
)
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # includes bidirectional controls
_MARKDOWN_CHARACTERS = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")


@dataclass(frozen=True, kw_only=True)
class UiTexts(Checked):
    """The sentence for each kind of event. Pass other sentences to translate them.

    `{name}` becomes the name of the tool, and `{message}` the message of the event. A sentence may contain only the
    fields that its default contains.
    """

    waiting: str = "🔧 Waiting for tool call completion..."
    executing: str = "🔧 Executing tool: {name}..."
    executed: str = "*🔧 Executed {name}*"
    executed_with_message: str = "*🔧 Executed {name}: {message}*"
    not_available: str = "*❌ Tool {name} not available*"
    invalid_format: str = "*❌ Invalid tool call format*"
    failed: str = "*❌ Error processing tool call*"
    stream_error: str = "*❌ Stream error: {message}*"
    cancelled: str = "*⏹ Cancelled*"
    reconnecting: str = "🔄 Reconnecting..."

    def render(self, event: UIEvent) -> str | None:
        """Return the sentence for `event`, or None if there is none. Escapes the name and the message for Markdown."""
        match event:
            case Thinking(active=True):
                return self.waiting
            case Executing(call):
                return self.executing.format(name=escape(call.name))
            case Executed(call, _, message):
                template = self.executed_with_message if message else self.executed
                return template.format(name=escape(call.name), message=escape(message or ""))
            case Error(_, message, call_id=None):
                return self.stream_error.format(message=escape(message))
            case Error(Code.UNKNOWN_TOOL, call=ToolCall(name=name)):
                return self.not_available.format(name=escape(name))
            case Error(code):
                return self.invalid_format if code in _MALFORMED_CODES else self.failed
            case Done("cancelled"):
                return self.cancelled
            case Warning(Code.OWNER_LOST):
                return self.reconnecting
        return None


def escape(text: str) -> str:
    """Return `text` on one line, without control characters, and with the special characters of Markdown escaped.

    `<` becomes `&lt;`, because neither Markdown nor HTML reads this as the start of a tag.
    """
    return _MARKDOWN_CHARACTERS.sub(r"\\\1", " ".join(_CONTROL_CHARACTERS.sub(" ", text).split())).replace(
        r"\<", "&lt;"
    )
