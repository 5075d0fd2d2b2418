"""The pace of text: shown in whole words, links, or characters as a reader sees them, and not as tokens cut it.

A reader's character is what Unicode calls an extended grapheme cluster (UAX 29): a letter with its marks, an emoji with
what is joined to it, a flag. Which of them ends with a character is known with the next, so one is always held.
"""

from __future__ import annotations

import unicodedata

_MOST = 64
"""Characters that are held of a word that does not end."""
_LONGEST_LINK = 1024
_JOINER = "\u200d"
_MARKS = frozenset(("Mn", "Me", "Mc"))


class Paced:
    """Text that is shown when a grapheme is whole, or, of `words`, a word.

    Where words stand without spaces, as in Chinese and Japanese, each character is one.
    """

    __slots__ = ("_words", "held")

    def __init__(self, *, words: bool) -> None:
        self._words = words
        self.held = ""
        """Text of which the last word, or grapheme, may go on."""

    def feed(self, text: str) -> str:
        """Return what is whole now that `text` has come."""
        if not text:
            return ""
        before = len(self.held)
        text = self.held + text
        at = len(text)
        if not (self._words and text[-1:].isspace()):
            at -= 1
            while at > before and not self._ends(text, at):
                at -= 1
            if at <= before:
                at = before if before and self._ends(text, before) else 0
            at += (len(text) - at) // _MOST * _MOST
        self.held = text[at:]
        return text[:at]

    def close(self) -> str:
        """Return the rest: what comes next is something else."""
        held, self.held = self.held, ""
        return held

    def _ends(self, text: str, at: int) -> bool:
        """Whether a word, or a grapheme, ends at a place."""
        one, other = text[at - 1], text[at]
        if self._words and not (one.isspace() or _is_a_word(one) or _is_a_word(other)):
            return False
        return not _joined(text, at, one, other)


class PacedLinks:
    """Text that is shown in whole words, and in which a link of Markdown, or a picture, is whole.

    What begins as a link is held to its end, or up to the character with which it is none: a line feed, another than
    `(` behind its text, or the 1,024th. A link in a link is a picture, or the outer one is none (CommonMark 0.31, 6.3).
    """

    __slots__ = ("_at", "_begin", "_escaped", "_open", "_parentheses", "_text", "_was_picture", "_words")

    def __init__(self) -> None:
        self._words = Paced(words=True)
        self._text = ""  # what is held of whole words
        self._end_link(0)

    def _end_link(self, at: int) -> None:
        self._at = at  # what is read next
        self._begin: int | None = None
        self._open: list[bool] = []  # the brackets that are open: of a picture or not
        self._parentheses = -1  # that are open; 0 if the first of them has to come; -1 if there are none
        self._escaped = self._was_picture = False

    @property
    def held(self) -> str:
        """Text of which the last word, or a link, may go on."""
        return self._text + self._words.held

    def feed(self, text: str) -> str:
        """Return what is whole now that `text` has come."""
        return self._let_pass(self._words.feed(text))

    def close(self) -> str:
        """Return the rest: what comes next is something else."""
        rest, self._text = self._let_pass(self._words.close()) + self._text, ""
        self._end_link(0)
        return rest

    def _let_pass(self, text: str) -> str:
        if self._begin is None and "[" not in text:
            return text
        text = self._text + text
        while self._at < len(text):
            if self._begin is None:
                self._find(text)
            else:
                self._read(text)
        begin = len(text) if self._begin is None else self._begin
        shown, self._text = text[:begin], text[begin:]
        self._at -= begin
        if self._begin is not None:
            self._begin = 0
        return shown

    def _find(self, text: str) -> None:
        """Find where the next link may begin."""
        at = text.find("[", self._at)
        self._at = at + 1 if at >= 0 else len(text)
        before = at
        while before > 0 and text[before - 1] == "\\":
            before -= 1
        if at >= 0 and (at - before) % 2 == 0:
            self._begin = at - (text[at - 1 : at] == "!")
            self._open = [self._begin < at]

    def _read(self, text: str) -> None:
        """Read a character of a link."""
        at, character = self._at, text[self._at]
        escaped, self._escaped = self._escaped, False
        self._at = at + 1
        if character == "\n" or at - (self._begin or 0) >= _LONGEST_LINK:
            self._end_link(at)
        elif self._parentheses == 0 and character != "(":  # no link was that
            self._parentheses, self._at = -1, at
            if not self._open:
                self._end_link(at)
        elif escaped:
            return
        elif character == "\\":
            self._escaped = True
        elif self._parentheses >= 0:
            self._parentheses += (character == "(") - (character == ")")
            if not self._parentheses:
                self._parentheses = -1
                if not (self._open and self._was_picture):
                    self._end_link(at + 1)
        elif character == "[":
            self._open.append(text[at - 1 : at] == "!")
        elif character == "]":
            self._was_picture = self._open.pop()
            self._parentheses = 0


def _is_a_word(character: str) -> bool:
    """Whether a character stands for itself, in a script without spaces."""
    return "\u2e80" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff" or character >= "\U00020000"


def _joined(text: str, at: int, one: str, other: str) -> bool:
    """Whether two neighbours are of one grapheme."""
    if one < "\u0300" and other < "\u0300":
        return one == "\r" and other == "\n"
    if other in (_JOINER, "\u200c") or one == _JOINER or unicodedata.category(other) in _MARKS:
        return True
    if "\U0001f3fb" <= other <= "\U0001f3ff" or "\U000e0020" <= other <= "\U000e007f":  # tones of skin, and tags
        return True
    if _is_flag(one) and _is_flag(other):
        begin = at
        while begin and _is_flag(text[begin - 1]):
            begin -= 1
        return (at - begin) % 2 == 1
    # Hangul, of which the parts of a syllable may come one by one.
    if "\u1100" <= one <= "\u115f":
        return "\u1100" <= other <= "\u11a7" or "\uac00" <= other <= "\ud7a3"
    return ("\u1160" <= one <= "\u11ff" or "\uac00" <= one <= "\ud7a3") and "\u1160" <= other <= "\u11ff"


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
