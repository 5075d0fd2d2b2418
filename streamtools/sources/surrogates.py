"""Text whose surrogate pairs a provider cuts in two. Sans-IO.

JSON writes a character beyond U+FFFF as two escapes, and a server that streams token by token may send them in two
deltas.
"""

from __future__ import annotations

from streamtools.json_values import whole


class PairJoiner:
    """Joins the text of one channel. A first `half` waits here for the second half, and becomes U+FFFD without it."""

    __slots__ = ("half",)

    def __init__(self) -> None:
        self.half = ""

    def join(self, text: str) -> str:
        """Return `text` after the waiting half, in what UTF-8 can encode. A half at its end is buffered."""
        if not self.half and text.isascii():
            return text
        text = self.half + text
        self.half = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self.half = text[-1]
            text = text[:-1]
        return whole(text)

    def close(self) -> str:
        """Return U+FFFD if a half is left, or an empty string."""
        left, self.half = self.half and "\ufffd", ""
        return left

    def reset(self) -> None:
        """Forget a half, because the text is given again as a whole."""
        self.half = ""
