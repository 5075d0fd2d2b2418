"""Whole words or graphemes: the option `pace` shows text in these, and not as the provider's tokens cut it.

A grapheme is an extended grapheme cluster of Unicode (UAX 29): a letter with its marks, a joined emoji, a flag. Only
the next character decides where a grapheme ends, so the last one is always pending.
"""

from __future__ import annotations

import unicodedata

_MAX_PENDING = 64  # characters of a word that does not end
_JOINER = "\u200d"
_MARKS = frozenset(("Mn", "Me", "Mc"))


class SegmentBuffer:
    """Buffers text until a grapheme is complete or, with `words`, a word.

    In scripts without spaces, such as Chinese and Japanese, each character is a word.
    """

    def __init__(self, *, words: bool) -> None:
        self._words = words
        self.pending = ""
        """The last word or grapheme, which may continue."""

    def feed(self, text: str) -> str:
        """Return the text that is complete after `text`."""
        if not text:
            return ""
        before = len(self.pending)
        text = self.pending + text
        at = len(text)
        if not (self._words and text[-1:].isspace()):
            at -= 1
            while at > before and not self._ends(text, at):
                at -= 1
            if at <= before:
                at = before if before and self._ends(text, before) else 0
            at += (len(text) - at) // _MAX_PENDING * _MAX_PENDING
        self.pending = text[at:]
        return text[:at]

    def flush(self) -> str:
        """Return the pending text, because something else follows."""
        pending, self.pending = self.pending, ""
        return pending

    def _ends(self, text: str, at: int) -> bool:
        """Return whether a word or a grapheme ends at a place."""
        before, after = text[at - 1], text[at]
        if self._words and not (before.isspace() or _is_word(before) or _is_word(after)):
            return False
        return not _joined(text, at, before, after)


def _is_word(character: str) -> bool:
    """Return whether a character is a word by itself, in a script without spaces."""
    return "\u2e80" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff" or character >= "\U00020000"


def _joined(text: str, at: int, before: str, after: str) -> bool:
    """Return whether the characters `before` and `after` a place belong to one grapheme."""
    if before < "\u0300" and after < "\u0300":
        return before == "\r" and after == "\n"
    if after in (_JOINER, "\u200c") or before == _JOINER or unicodedata.category(after) in _MARKS:
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":  # skin tones, and tags
        return True
    if _is_flag(before) and _is_flag(after):
        begin = at
        while begin and _is_flag(text[begin - 1]):
            begin -= 1
        return (at - begin) % 2 == 1
    # Hangul: the parts of a syllable may arrive as separate characters.
    if "\u1100" <= before <= "\u115f":
        return "\u1100" <= after <= "\u11a7" or "\uac00" <= after <= "\ud7a3"
    return ("\u1160" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3") and "\u1160" <= after <= "\u11ff"


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
