"""`Continuation`: removes repeated text from the beginning of an answer that continues another answer. Sans-IO.

After a model has failed, a second model continues its answer. The *shown text* is the text of the first answer that the
reader has already seen. Some servers accept the shown text as a prefill and continue after it. Other models only get an
instruction to continue, and may first repeat the end of the shown text. Therefore the beginning of the second answer is
buffered as long as the shown text contains it.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from streamtools.events import ProviderCompleted, ReasoningDelta, SourceEvent, SourceUsage, SourceWarning, TextDelta

SHORTEST = 16
"""The length of the shortest repetition that is removed, in characters. A shorter one may be new text."""
WINDOW = 16 * 1024
"""The number of characters at the end of the shown text that are searched for a repetition."""


class Continuation:
    """Reads the deltas of the second answer, and returns their new text.

    `shown` is the whole shown text. `how` says what makes the second model continue it:

    - `"prefilled"`: The request ends with the shown text.
    - `"echoed"`: The request ends with the shown text, and the server may repeat that text in its answer.
    - `"instructed"`: The request contains an instruction to continue.

    A prefill is sent without the white space at the end of the shown text. If the answer begins with the same white
    space, the white space is removed. With `"echoed"`, a repetition of the whole prefill is removed as well.

    With `"instructed"`, text at the beginning of the answer is removed if it repeats the end of the shown text. The
    repetition must have at least `SHORTEST` characters, and must not begin inside a word of the shown text. It must not
    occur earlier in the last `WINDOW` characters of the shown text. If the answer could begin with repetitions of
    several lengths, no text is removed.
    """

    def __init__(self, shown: str, how: Literal["prefilled", "echoed", "instructed"]) -> None:
        self._shown = shown
        self._instructed = instructed = how == "instructed"
        self._first = max(0, len(shown) - WINDOW)  # index in `shown` at which the search begins
        # With "instructed", the index in `shown` at which the buffered text occurs.
        # With "echoed", the number of characters of the prefill that the answer has repeated.
        self._at = self._first if instructed else 0
        self._pending = ""
        self._white = "" if instructed else shown[len(shown.rstrip()) :]
        self._white_repeated = 0  # the number of characters in `_white` that the answer has repeated
        self._echo = shown.rstrip() if how == "echoed" else ""
        self._decided = instructed and not shown

    def feed(self, text: str) -> str:
        """Read the next text of the answer. Returns the new text that the reader can see now."""
        if self._decided or not text:
            return text
        if not self._instructed:
            return self._after_prefill(text)
        self._pending += text
        self._at = self._shown.find(self._pending, self._at)
        may_repeat = 0 <= self._at < len(self._shown) - len(self._pending)
        return "" if may_repeat else self._decide()

    def close(self) -> str:
        """End the answer. Returns the buffered text that is not a repetition."""
        if self._decided:
            return ""
        if self._instructed:
            return self._decide()
        self._decided = True
        return self._echo[: self._at]

    def read(self, event: SourceEvent, out: list[SourceEvent]) -> None:
        """Read an event of the second answer, and append the events for the reader to `out`."""
        if isinstance(event, TextDelta):
            text = self.feed(event.text)
            out += [TextDelta(text)] if text else []
            return
        if not isinstance(event, ReasoningDelta | SourceUsage | SourceWarning) and (pending := self.close()):
            out.append(TextDelta(pending))
        if isinstance(event, ProviderCompleted):
            # The event describes only the second part of the turn, so a later request must not refer to its response.
            event = replace(event, text=None, response_id=None)
        out.append(event)

    def _after_prefill(self, text: str) -> str:
        if self._echo:
            expected = self._echo[self._at : self._at + len(text)]
            if not text.startswith(expected):
                text = self._echo[: self._at] + text
            else:
                self._at += len(expected)
                if self._at < len(self._echo):
                    return ""
                text = text[len(expected) :]
            self._echo = ""
        white, at = self._white, self._white_repeated
        for character in text:
            if at == len(white) or character != white[at]:
                break
            at += 1
        text, self._white_repeated = text[at - self._white_repeated :], at
        self._decided = bool(text) or at == len(white)
        return text

    def _decide(self) -> str:
        """Return the buffered text. A repetition at its beginning is removed if it is unambiguous."""
        self._decided = True
        shown, text = self._shown, self._pending
        longest = min(len(text), len(shown) - self._first)
        lengths = [length for length in range(SHORTEST, longest + 1) if shown.endswith(text[:length])]
        if len(lengths) != 1:
            return text
        begin = len(shown) - lengths[0]
        inside_word = shown[begin - 1 : begin].isalnum() and text[0].isalnum()
        is_first = shown.find(text[: lengths[0]], self._first) == begin
        return text[lengths[0] :] if is_first and not inside_word else text
