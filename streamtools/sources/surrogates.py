"""Text whose surrogate pairs a provider cuts in two. Sans-IO.

JSON writes a character beyond U+FFFF as two escapes, and a server that streams token by token may send them in two
deltas.
"""

from __future__ import annotations

from streamtools.json_values import whole


class PairJoiner:
    """The text of one channel, whose surrogate pairs a provider may cut in two.

    JSON writes a character beyond U+FFFF as two escapes, and a server that streams token by token may send them in two
    deltas. A `half` is no text: it waits here for its other half, and becomes U+FFFD if that does not come.
    """

    __slots__ = ("half",)

    def __init__(self) -> None:
        self.half = ""

    def join(self, text: str) -> str:
        """Return `text` as what UTF-8 can hold, with the half that waited before it and without one at its end."""
        if not self.half and text.isascii():
            return text
        text = self.half + text
        self.half = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self.half = text[-1]
            text = text[:-1]
        return whole(text)

    def close(self) -> str:
        """Return what is left: U+FFFD for a half that waited in vain, else nothing."""
        left, self.half = self.half and "\ufffd", ""
        return left
