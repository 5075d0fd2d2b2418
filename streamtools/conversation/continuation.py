"""`Continuation`: removes the repetition with which a continued answer may begin. Sans-IO.

A server that gets a prefill continues after it. A model that is only instructed to continue may repeat the end of the
text, or all of it. Therefore the beginning of its answer is buffered while it may still be such a repetition. This is a
Knuth-Morris-Pratt search through the text that was shown, and its pattern is the answer so far.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from streamtools.events import ProviderCompleted, ReasoningDelta, SourceEvent, SourceUsage, SourceWarning, TextDelta

SHORTEST = 16
"""The shortest repetition that is removed, in characters. The model may mean a shorter one."""
WINDOW = 16 * 1024
"""Characters at the end of the shown text in which a repetition is searched. No more are buffered."""


class Continuation:
    """Reads the deltas of the second answer, and returns their new text.

    `how` says what makes the model continue the text that was `shown`. It is a prefill (`"prefilled"`), a prefill that
    the server may repeat (`"echoed"`), or an instruction (`"instructed"`).

    A prefill is sent without the white space at its end. The same white space is removed from the beginning of the
    answer. An instructed answer loses the longest repetition with which it begins. The repetition must have `SHORTEST`
    characters and begin with a word. It must not occur earlier in the shown text, and must not end in a shorter
    repetition of itself. Otherwise all of it stays.
    """

    def __init__(self, shown: str, how: Literal["prefilled", "echoed", "instructed"]) -> None:
        instructed = how == "instructed"
        self._shown = shown[-WINDOW:] if instructed else shown
        self._before = shown[-WINDOW - 1 : -WINDOW] if instructed else ""
        self._instructed = instructed
        self._pending: list[str] = []  # the buffered beginning of the answer
        self._borders: list[int] = []  # the KMP failure function of the buffered text
        self._at = 0  # characters of the shown text that were searched
        self._matched = 0  # buffered characters that match there
        self._white = "" if instructed else shown[len(shown.rstrip()) :]
        self._white_repeated = 0  # characters of that white space which the answer repeated
        self._echo = shown.rstrip() if how == "echoed" else ""
        self._decided = instructed and not shown

    def feed(self, text: str) -> str:
        """Return the text that can be shown after `text` arrived."""
        if self._decided or not text:
            return text
        if not self._instructed:
            return self._after_prefill(text)
        for character in text:
            self._add(character)
        return self._decide() if self._search() else ""

    def close(self) -> str:
        """Return the buffered text at the end of the answer."""
        if self._decided:
            return ""
        if not self._instructed:
            self._decided = True
            return "".join(self._pending)
        while self._pending and not self._search():  # no match reaches the end of the shown text yet
            self._matched = self._borders[self._matched - 1]
        return self._decide() if self._pending else ""

    def read(self, event: SourceEvent, out: list[SourceEvent]) -> None:
        """Append the meaning of an event of the second answer to `out`."""
        if isinstance(event, TextDelta):
            text = self.feed(event.text)
            out += [TextDelta(text)] if text else []
            return
        if not isinstance(event, ReasoningDelta | SourceUsage | SourceWarning) and (pending := self.close()):
            out.append(TextDelta(pending))
        if isinstance(event, ProviderCompleted):  # its text is only a part, and no request can name its response
            event = replace(event, text=None, response_id=None)
        out.append(event)

    def _after_prefill(self, text: str) -> str:
        if self._echo:
            expected = self._echo[self._at : self._at + len(text)]
            self._pending.append(text)
            if text.startswith(expected):
                self._at += len(expected)
                if self._at < len(self._echo):
                    return ""
                text = text[len(expected) :]
            else:
                text = "".join(self._pending)
            self._pending.clear()
            self._echo = ""
        white, at = self._white, self._white_repeated
        for character in text:
            if at == len(white) or character != white[at]:
                break
            at += 1
        text, self._white_repeated = text[at - self._white_repeated :], at
        self._decided = bool(text) or at == len(white)
        return text

    def _add(self, character: str) -> None:
        border = self._borders[-1] if self._borders else 0
        while border and self._pending[border] != character:
            border = self._borders[border - 1]
        if self._pending and self._pending[border] == character:
            border += 1
        self._pending.append(character)
        self._borders.append(border)

    def _search(self) -> bool:
        """Continue the search. Returns whether it reached the end of the shown text."""
        shown, pending, at, matched = self._shown, self._pending, self._at, self._matched
        while at < len(shown) and matched < len(pending):
            character = shown[at]
            while matched and pending[matched] != character:
                matched = self._borders[matched - 1]
            if pending[matched] == character:
                matched += 1
            at += 1
        self._at, self._matched = at, matched
        return at == len(shown)

    def _decide(self) -> str:
        self._decided = True
        shown, matched, text = self._shown, self._matched, "".join(self._pending)
        self._pending.clear()
        begin = len(shown) - matched
        if matched < SHORTEST or self._borders[matched - 1] >= SHORTEST or shown.find(text[:matched]) != begin:
            return text
        before = shown[begin - 1] if begin else self._before
        inside_word = before.isalnum() and text[0].isalnum()
        return text if inside_word else text[matched:]
