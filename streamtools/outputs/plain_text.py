"""Writes only the text of the answer, as plain text. Sans-IO.

Reasoning, calls, errors and the end of the run are not written by default. The function `render` may return text for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamtools.events import Done, StepStart, Text, UIEvent
from streamtools.json_values import well_formed
from streamtools.outputs.sse import EVENT_STREAM_HEADERS, closed_error


class TextEncoder:
    """Writes the text of the answer in UTF-8.

    `render` receives all events except `Text`, and may return a text to write (for example, `UiTexts().render`). Blank
    lines separate the texts of steps, and separate each text of `render` from the text around it.
    """

    content_type = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = EVENT_STREAM_HEADERS
    keep_alive = b""
    resumable = False

    def __init__(self, *, render: Callable[[UIEvent], str | None] | None = None) -> None:
        self._render = render
        self._has_text = False
        self._needs_separator = False
        self._ended = False

    def encode(self, event: UIEvent) -> bytes:
        """Return the text of `event`, or the text that `render` returns for it. It may be `b""`."""
        if self._ended:
            raise closed_error()
        match event:
            case Text(text):
                return self._write(text)
            case StepStart():
                self._needs_separator = True
            case Done():
                self._ended = True
        rendered = self._render(event) if self._render is not None else None
        if not rendered:
            return b""
        self._needs_separator = True
        written = self._write(rendered)
        self._needs_separator = True
        return written

    def close(self) -> bytes:
        """End the body. Returns `b""`, because plain text has no end mark."""
        self._ended = True
        return b""

    def _write(self, text: str) -> bytes:
        if not text:
            return b""
        if self._needs_separator and self._has_text:
            text = "\n\n" + text
        self._needs_separator = False
        self._has_text = True
        return well_formed(text).encode()
