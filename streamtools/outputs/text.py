"""The text of the answer and nothing else, as it comes. Sans-IO.

Plain text has no words for calls, errors and endings; `render` lends it some, as `UiTexts().render` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamtools.events import Done, StepStart, Text, UIEvent
from streamtools.outputs.encoder import EVENT_STREAM_HEADERS, closed_error
from streamtools.surrogates import whole


class TextEncoder:
    """Writes UTF-8. What stands on its own, a step's text or what `render` returns of another event, stands between
    `between`.
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
        told = self._render(event) if self._render is not None else None
        if not told:
            return b""
        self._separates = True
        written = self._write(told)
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
