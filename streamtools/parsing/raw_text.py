"""The text of a span as it came: kept until it is handed out, up to a limit.

Nothing of a span may be lost, so what a grammar reads is kept, and it may go back over that. Over the limit nothing is
kept but the end, which may be looked back at: reading goes on only to find where the span ends.
"""

from __future__ import annotations

from streamtools.parsing.reader import Reader

_LOOK_BACK = 320  # characters before the last piece that are kept while skipping: more than any indentation read
_REWIND = 256  # characters that a grammar goes back while skipping: less, by the beginning of any tag


class RawText(Reader):
    """What is read of a span, and what is kept of it. Places count from the beginning of the span."""

    __slots__ = ("_before", "_length", "_most", "_skipped_from", "marker", "origin", "parts", "room", "stores")

    def __init__(self, marker: str, most: int) -> None:
        """Begin behind `marker`; keep `most` characters, but the marker in any case."""
        self.text = self.marker = marker
        self.at = len(marker)
        self.base = self.before_closing = 0
        self.ended = False
        self.leaves = self.take = self.waits = None
        self.parts: list[str] = [marker]
        self._most = most
        self._length = max(most, len(marker))  # how much may be kept, counted from the beginning of the span
        self.room = self._length - len(marker)  # how much more; negative while nothing is
        self.origin = 0  # the place where what is kept begins: what comes before has been handed out
        self.stores = True  # text is kept, since no limit has been met
        self._skipped_from = 0  # the place from which on it is not
        self._before = ""  # the character before what is kept

    @property
    def received(self) -> int:
        """How much of the span has come."""
        return self._length - self.room

    @property
    def skipped(self) -> int:
        """How much has been read since a limit was met; negative if it was met behind this place."""
        return self.place - self._skipped_from

    @property
    def last(self) -> str:
        """The character before the place that has been read to."""
        return self.text[self.at - 1] if self.at else self._before_text()

    @property
    def at_line_start(self) -> bool:
        """Whether only blanks stand between the last line feed and here."""
        behind = self.text[: self.at]
        parts = iter(reversed(self.parts))
        unread = len(self.text) - self.at
        while not (stripped := behind.rstrip(" \t")):
            part = next(parts, None)
            if part is None:
                return False
            behind, unread = part[: max(0, len(part) - unread)], max(0, unread - len(part))
        return stripped[-1] == "\n"

    def push(self, text: str) -> None:
        """Add text behind what there is; what has been read, or skimmed, is no longer at hand."""
        if self.room >= 0:
            self.parts.append(text)
        else:
            self.keep_end(text)
        self.room -= len(text)
        self.text = self.text[self.at :] + text if self.at < len(self.text) else text
        self.at = 0
        self.base = self._length - self.room - len(self.text)

    def keep_end(self, text: str) -> None:
        """Take note of text that is not kept, but for what may be looked back at."""
        self.parts = ["".join(self.parts)[-_LOOK_BACK:], text]

    def kept_to(self, place: int) -> str:
        """Return what is kept, up to a place."""
        return "".join(self.parts)[: place - self.origin]

    def hand_out(self) -> str:
        """Return what has been read, and keep it no longer; the limit counts from here."""
        raw = "".join(self.parts)
        length = self.place - self.origin
        received = self.received
        self._before = raw[length - 1 : length] or self._before
        self.parts = [raw[length:]]
        self.origin += length
        self.room = max(0, self._most - len(raw) + length)
        self._length = received + self.room
        return raw[:length]

    def skip_from(self, place: int) -> None:
        """Keep nothing from a place on."""
        self.stores = False
        self._skipped_from = place
        self._before = self._before_text()
        self._length -= self.room + 1
        self.room = -1
        self.parts = [self.text]

    def _before_text(self) -> str:
        """Return the character before the text that is at hand."""
        return "".join(self.parts)[: -len(self.text) or None][-1:] or self._before

    def rewind(self, place: int) -> None:
        """Go back to a place that has been read; where nothing is kept, not further than a bound."""
        if not self.stores:
            place = max(place, self.place - _REWIND)
        unread = self.received - place
        self.text = "".join(self.parts)[-unread:] if unread else ""
        self.at, self.base = 0, place
