"""Keys that a model writes piece by piece: a few characters in each event of a stream, with its framing in between.

The pieces stand in the strings of a few fields, by whose names they are told apart; what the strings of one name hold
is read as one text, in which keys are looked for as in any other. What then is overwritten are the pieces, in their
places. Pieces of several answers, or calls, that come by turns under one name are taken for one text.

An event that holds a piece of what may become a key has to wait until it is certain, and all that comes behind it too:
at most for `BEHIND` bytes; then what has waited is no key.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from streamtools.recording.sieves import Keys, Texts, Together

LINE = 64 * 1024
"""Bytes of one line. A longer one is not what a model writes piece by piece, and is not looked at here."""

BEHIND = 16 * 1024
"""Bytes, of whole events, over which the pieces of what may become a key are followed."""

_FIELDS = (
    *("content", "text", "delta", "arguments", "partial_json", "thinking", "reasoning", "reasoning_content"),
    *("reasoning_text", "refusal", "response", "input", "output", "textDelta", "inputTextDelta", "argsTextDelta"),
)
_PIECE = re.compile(
    rb'"(%s)"[ ]*:[ ]*"(?!")([^"\\]*+(?:\\.[^"\\]*+)*+)"' % "|".join(_FIELDS).encode(),
)


class Deltas:
    """Finds known formats, and `texts`, in what the fields of events hold when they are joined.

    All places are counted from the first byte that was ever fed.
    """

    def __init__(self, texts: Iterable[bytes] = ()) -> None:
        self._texts = list(texts)
        self._text = bytearray()  # from `_start` on
        self._start = 0
        self._line = 0  # where the unfinished line begins
        self._tracks: dict[bytes, _Track] = {}

    def feed(self, data: bytes) -> bytes:
        """Return what is certain by now: of an unfinished line that is what comes before the first quotation mark."""
        fed = self._start + len(self._text)
        self._text += data
        while (found := self._text.find(b"\n", max(fed, self._line) - self._start)) >= 0:
            self._read_line(self._start + found)
            self._line = self._start + found + 1
            self._let_go(self._line)
        end = self._start + len(self._text)
        certain = end
        if end - self._line <= LINE:
            quote = self._text.find(b'"', max(0, self._line - self._start))
            certain = end if quote < 0 else self._start + quote
        return self._give(min((track.place(certain) for track in self._tracks.values()), default=certain))

    def close(self, complete: bool) -> bytes:
        """Return the rest."""
        end = self._start + len(self._text)
        self._read_line(end)
        for track in self._tracks.values():
            track.close(self._text, self._start, complete=complete)
        return self._give(end)

    def _read_line(self, end: int) -> None:
        """Read the pieces that stand in the line which ends there."""
        if end - self._line <= LINE:
            for piece in _PIECE.finditer(self._text, max(0, self._line - self._start), end - self._start):
                name = piece[1]
                if name not in self._tracks:
                    self._tracks[name] = _Track(self._texts)
                self._tracks[name].feed(self._text, self._start, *piece.span(2))

    def _let_go(self, end: int) -> None:
        """Decide what has waited for too long."""
        for track in self._tracks.values():
            if end - track.place(end) > BEHIND:
                track.close(self._text, self._start, complete=True)

    def _give(self, stop: int) -> bytes:
        count = stop - self._start
        data = bytes(self._text[:count])
        del self._text[:count]
        self._start = stop
        return data


class _Track:
    """The pieces of one name, as one text."""

    def __init__(self, texts: list[bytes]) -> None:
        self._texts = texts
        self._pieces: deque[tuple[int, int]] = deque()  # places of what is not certain
        self._sieves = self._make()

    def place(self, otherwise: int) -> int:
        """Return where the first byte stands that is not certain."""
        return min(self._pieces[0][0], otherwise) if self._pieces else otherwise

    def feed(self, text: bytearray, origin: int, start: int, stop: int) -> None:
        """Go on with `text[start:stop]`; `origin` is the place of the first byte of `text`."""
        self._pieces.append((origin + start, origin + stop))
        self._put(text, origin, self._sieves.feed(bytes(text[start:stop])))

    def close(self, text: bytearray, origin: int, *, complete: bool) -> None:
        """Decide what is not certain, and begin anew."""
        self._put(text, origin, self._sieves.close(complete))
        self._sieves = self._make()

    def _make(self) -> Together:
        return Together([Keys(), Texts(self._texts)] if self._texts else [Keys()])

    def _put(self, text: bytearray, origin: int, data: bytes) -> None:
        """Write what is certain over the pieces that it comes from."""
        at = 0
        while at < len(data):
            start, stop = self._pieces.popleft()
            size = min(stop - start, len(data) - at)
            text[start - origin : start - origin + size] = data[at : at + size]
            at += size
            if start + size < stop:
                self._pieces.appendleft((start + size, stop))
