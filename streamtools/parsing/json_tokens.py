"""The patterns of JSON text: how strings go on, what stands between them, which words there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamtools.parsing.reader import matcher

WORD_BEGINS = frozenset("-+.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORDS = frozenset(("true", "false", "null", "NaN", "Infinity", "-Infinity"))
LONGEST_WORD = 16  # characters that are kept of a number or a literal, of which the longest has nine
NUMERIC = "-+.0123456789eE"
rest_of_word = matcher(r"[-+.0-9A-Za-z]*")
numeric = re.compile(r"[-+.0-9eE]*").fullmatch


@dataclass(frozen=True, slots=True)
class StringPatterns:
    """How a string goes on. The searches find nothing in text that only continues it."""

    inside: Callable[[str, int], re.Match[str]]
    """What does not end it, and holds no half of an escape."""
    leaves: Callable[[str], Any]
    """Searches text where each escape is whole, and none is of a back-slash."""
    leaves_escapes: Callable[[str], Any]
    """Searches any text."""
    leaves_escaped: Callable[[str], Any]
    """Searches any text of which the first character is escaped."""
    leaves_plain: Callable[[str], Any]
    """Searches text without escapes."""


IN_STRING = StringPatterns(
    matcher(r'[^"\\]*(?:\\.[^"\\]*)*'),
    re.compile(r'"(?<!\\")|\\(?:\\|\Z)').search,
    re.compile(r'(?![^"\\]*+(?:\\.[^"\\]*+)*+\\?\Z)', re.DOTALL).match,
    re.compile(r'(?!.[^"\\]*+(?:\\.[^"\\]*+)*+\\?\Z)', re.DOTALL).match,
    re.compile(r'["\\]').search,
)
IN_LINE_OF_STRING = StringPatterns(
    matcher(r'[^"\\\n]*(?:\\[^\n][^"\\\n]*)*'),
    re.compile(r'"(?<!\\")|\\(?:\\|\n|\Z)|\n').search,
    re.compile(r'(?![^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+\\?\Z)').match,
    re.compile(r'(?![^\n][^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+\\?\Z)').match,
    re.compile(r'["\\\n]').search,
)
"""The same, where a line feed in a string counts too."""

# Text deep in a value with strings, numbers and what separates them, and no bracket. Which group took part last tells
# where it ends: in a number, elsewhere outside of strings, or inside one, which begins at that group; the first group
# is where the last string begins before that.
LAST_STRING, ENDS_IN_NUMBER, ENDS_IN_STRING = 1, 2, 4
_APART = r"[-+.0-9eE \t\r\n,:]*+"
_HOPS = rf'{_APART}(?:()"[^"\\\n]*"{_APART})*+(?:(?<=[-+.0-9eE])(\Z)|(\Z)|()"[^"\\\n]*\Z)'
hop_out_of_string = re.compile(rf'[^"\\\n]*"{_HOPS}').match
hop_into_string = re.compile(_HOPS).match

run = matcher(r'(?:[ \t\r\n,:]++|"[^"\\\n]*"|(?:[-+.0-9eE]++|true|false|null)(?=[ \t\r\n,:}\]]))*+')
"""The same tokens, and literals, up to what has to be looked at: a bracket, a string or a word that may go on."""
