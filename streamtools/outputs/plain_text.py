"""The text of the answer and nothing else, as it comes. Sans-IO.

Plain text has nothing for calls, errors and endings; `render` lends it some, as `UiTexts().render` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import Done, Error, Executed, Executing, StepStart, Text, Thinking, UIEvent
from streamtools.json_values import whole
from streamtools.outputs.encoder import EVENT_STREAM_HEADERS, closed_error


class TextEncoder:
    """Writes the answer's text alone, in UTF-8.

    `render` may give a text to other events, as `UiTexts().render` does; `between` sets them and the texts of several
    steps apart.
    """

    content_type = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = EVENT_STREAM_HEADERS
    keep_alive = b""
    resumable = False

    def __init__(self, *, render: Callable[[UIEvent], str | None] | None = None, between: str = "\n\n") -> None:
        self._render = render
        self._between = between
        self._has_text = False
        self._separates = False
        self._ended = False

    def encode(self, event: UIEvent) -> bytes:
        """Return the text of `event`."""
        if self._ended:
            raise closed_error()
        match event:
            case Text(text):
                return self._write(text)
            case StepStart():
                self._separates = True
            case Done():
                self._ended = True
        shown = self._render(event) if self._render is not None else None
        if not shown:
            return b""
        self._separates = True
        written = self._write(shown)
        self._separates = True
        return written

    def close(self) -> bytes:
        """Return nothing: a text just ends."""
        self._ended = True
        return b""

    def _write(self, text: str) -> bytes:
        if not text:
            return b""
        if self._separates and self._has_text:
            text = self._between + text
        self._separates = False
        self._has_text = True
        return whole(text).encode()


# What a simple interface shows beside the answer: one sentence an event, in one replaceable place.
#
# They are for readers. They never enter the history that goes back to the model, which would imitate them.

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
            case Error(_, message, call_id=None):
                return self.stream_error.format(message=escape(message))
            case Error(Code.UNKNOWN_TOOL, call=ToolCall(name=name)):
                return self.not_available.format(name=escape(name))
            case Error(code):
                return self.invalid_format if code in _UNREADABLE else self.failed
            case Done("cancelled"):
                return self.cancelled
        return None


def escape(text: str) -> str:
    """Return `text` on one line, with the characters that Markdown reads escaped, and without control characters.

    `<` becomes `&lt;`, which begins no tag in Markdown, nor in HTML.
    """
    return _markdown.sub(r"\\\1", " ".join(_control.sub(" ", text).split())).replace(r"\<", "&lt;")
