"""`Continuation`: removes the repetition with which a continued answer may begin. Sans-IO.

A server that gets a prefill continues after it. A model that is only instructed to continue may repeat the end of the
text, or all of it. Therefore the beginning of its answer is buffered while the shown text contains it, because it may
still be such a repetition.
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
        self._shown = shown
        self._instructed = instructed = how == "instructed"
        self._first = max(0, len(shown) - WINDOW)  # where the search begins
        self._at = self._first if instructed else 0  # where the buffered beginning of the answer was found
        self._pending = ""
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
        self._pending += text
        self._at = self._shown.find(self._pending, self._at)
        may_repeat = 0 <= self._at < len(self._shown) - len(self._pending)
        return "" if may_repeat else self._decide()

    def close(self) -> str:
        """Return the buffered text at the end of the answer."""
        if self._decided:
            return ""
        if self._instructed:
            return self._decide()
        self._decided = True
        return self._echo[: self._at]

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
        """Return the buffered text without a certain repetition."""
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
