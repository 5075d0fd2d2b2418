"""An answer that goes on where another broke off: nothing of it is shown twice. Sans-IO.

A server that was told with which text the answer begins goes on behind that. A model that was only asked to go on may
repeat the end of what stands there, or all of it. So the beginning of its answer is held while it may still be such a
repetition: a Knuth-Morris-Pratt search for it, over the text that was shown, whose pattern is what has come so far.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from streamtools.events import ProviderCompleted, ReasoningDelta, SourceEvent, SourceUsage, SourceWarning, TextDelta

SHORTEST = 16
"""Characters of a repetition that is taken out, at least; a shorter one may be what the model means."""
WINDOW = 16 * 1024
"""Characters of what was shown, its last ones, in which a repetition is looked for; more are held in no case."""


class Continuation:
    """Takes the deltas of the second answer, and gives what is new in them.

    `how` it was made to go on behind what was `shown`: from that text on (`"prefilled"`), by a server that may send it
    again (`"echoed"`), or by an instruction to the model (`"instructed"`).

    Behind a prefill, which is sent without the white space at its end, the same white space is taken out of the answer.
    An instructed one loses the repetition with which it begins, the longest, if that has `SHORTEST` characters, begins
    with a word, and neither stands elsewhere in what was shown nor holds a shorter one; otherwise all of it stays.
    """

    def __init__(self, shown: str, how: Literal["prefilled", "echoed", "instructed"]) -> None:
        instructed = how == "instructed"
        self._shown = shown[-WINDOW:] if instructed else shown
        self._before = shown[-WINDOW - 1 : -WINDOW] if instructed else ""
        self._instructed = instructed
        self._said: list[str] = []  # what is held
        self._borders: list[int] = []  # of each prefix of it
        self._at = self._found = 0  # characters of `_shown` that were searched, and that match up to there
        self._white = "" if instructed else shown[len(shown.rstrip()) :]
        self._repeated = 0  # characters of it that came again
        self._echo = shown.rstrip() if how == "echoed" else ""
        self._decided = instructed and not shown

    def feed(self, text: str) -> str:
        """Return what is to be shown now that `text` has come."""
        if self._decided or not text:
            return text
        if not self._instructed:
            return self._behind_prefill(text)
        for character in text:
            self._add(character)
        return self._decide() if self._search() else ""

    def close(self) -> str:
        """Return what was held, at the end of the text."""
        if self._decided:
            return ""
        if not self._instructed:
            self._decided = True
            return "".join(self._said)
        while self._said and not self._search():  # nothing matches the end
            self._found = self._borders[self._found - 1]
        return self._decide() if self._said else ""

    def read(self, event: SourceEvent, out: list[SourceEvent]) -> None:
        """Add what an event of the second answer means to `out`."""
        if isinstance(event, TextDelta):
            text = self.feed(event.text)
            out += [TextDelta(text)] if text else []
            return
        if not isinstance(event, ReasoningDelta | SourceUsage | SourceWarning) and (rest := self.close()):
            out.append(TextDelta(rest))
        if isinstance(event, ProviderCompleted):  # the text is only its part; the id, of what nobody can go on with
            event = replace(event, text=None, response_id=None)
        out.append(event)

    def _behind_prefill(self, text: str) -> str:
        if self._echo:
            expected = self._echo[self._at : self._at + len(text)]
            self._said.append(text)
            if text.startswith(expected):
                self._at += len(expected)
                if self._at < len(self._echo):
                    return ""
                text = text[len(expected) :]
            else:
                text = "".join(self._said)
            self._said.clear()
            self._echo = ""
        white, at = self._white, self._repeated
        for character in text:
            if at == len(white) or character != white[at]:
                break
            at += 1
        text, self._repeated = text[at - self._repeated :], at
        self._decided = bool(text) or at == len(white)
        return text

    def _add(self, character: str) -> None:
        border = self._borders[-1] if self._borders else 0
        while border and self._said[border] != character:
            border = self._borders[border - 1]
        if self._said and self._said[border] == character:
            border += 1
        self._said.append(character)
        self._borders.append(border)

    def _search(self) -> bool:
        """Go on with the search; return whether it has come to the end of what was shown."""
        shown, said, at, found = self._shown, self._said, self._at, self._found
        while at < len(shown) and found < len(said):
            character = shown[at]
            while found and said[found] != character:
                found = self._borders[found - 1]
            if said[found] == character:
                found += 1
            at += 1
        self._at, self._found = at, found
        return at == len(shown)

    def _decide(self) -> str:
        self._decided = True
        shown, found, text = self._shown, self._found, "".join(self._said)
        self._said.clear()
        begin = len(shown) - found
        if found < SHORTEST or self._borders[found - 1] >= SHORTEST or shown.find(text[:found]) != begin:
            return text
        before = shown[begin - 1] if begin else self._before
        inside_word = before.isalnum() and text[0].isalnum()
        return text if inside_word else text[found:]
