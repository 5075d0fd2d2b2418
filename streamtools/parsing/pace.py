"""The pace of text: shown in whole words, links, or characters as a reader sees them, and not as tokens cut it.

A reader's character is what Unicode calls an extended grapheme cluster (UAX 29): a letter with its marks, an emoji with
what is joined to it, a flag. Which of them ends with a character is known with the next, so one is always held.
"""

from __future__ import annotations

import unicodedata

_MOST = 64
"""Characters that are held of a word that does not end."""
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
