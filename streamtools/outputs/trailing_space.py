"""White space at the end of a growing text, which waits until the next item is known. Sans-IO.

Models surround a call with line breaks, which would remain in a format that removes calls from the text. Waiting white
space is invisible, so no reader misses it. Its treatment depends only on its length and its neighbors, not on the cuts
of the text.
"""

from __future__ import annotations

MAX_WHITE_SPACE = 1024
"""Characters of white space that wait. A longer run is intended, and sent."""

WHITE_SPACE = " \t\r\n"


class TrailingSpace:
    """Passes a text except for the white space at its end."""

    def __init__(self) -> None:
        self._pending = ""
        self._too_long = False  # the white space at the end is longer than the limit, and sent
        self._after_call = False  # only white space has followed a call

    def feed(self, text: str) -> str:
        """Return the text that can be sent."""
        body = text.rstrip(WHITE_SPACE)
        sent = ""
        if body:
            sent = self._pending + body
            self._pending = ""
            self._too_long = self._after_call = False
        space = text[len(body) :]
        if self._too_long:
            return sent + space
        self._pending += space
        if len(self._pending) > MAX_WHITE_SPACE:
            sent += self._pending
            self._pending = ""
            self._too_long = True
        return sent

    def meet_call(self) -> None:
        """Drop the white space before a call, and after it if nothing else follows."""
        self.drop()
        self._after_call = True

    def drop(self) -> None:
        self._pending = ""
        self._too_long = False

    def close(self) -> str:
        """Return the white space at the end of the text."""
        return "" if self._after_call else self._pending
