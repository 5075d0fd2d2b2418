"""The tokens of JSON: patterns for strings, words and escapes, in text that arrives piece by piece."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamtools.parsing.reader import matcher

WORD_BEGINS = frozenset("-+.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORDS = frozenset(("true", "false", "null", "NaN", "Infinity", "-Infinity"))
LONGEST_WORD = 16  # characters that are kept of a number or a literal; the longest literal has nine
NUMERIC = "-+.0123456789eE"
rest_of_word = matcher(r"[-+.0-9A-Za-z]*")
numeric = re.compile(r"[-+.0-9eE]*").fullmatch


@dataclass(frozen=True, slots=True)
class StringPatterns:
    """How a string continues. The searches find nothing in text that only continues it."""

    inside: Callable[[str, int], re.Match[str]]
    """Matches text that does not end the string, and ends with no half of an escape."""
    leaves: Callable[[str], Any]
    """Searches text in which each escape is complete, and none is an escaped back-slash."""
    leaves_escapes: Callable[[str], Any]
    """Searches any text."""
    leaves_escaped: Callable[[str], Any]
    """Searches any text whose first character is escaped."""
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
"""The same, but a line feed in a string is found too."""

# Text deep in a value: strings, numbers and separators, but no bracket. The last group that matched says where the text
# ends: in a number, elsewhere outside of strings, or inside the string that begins at that group. The first group is
# the beginning of the last complete string.
LAST_STRING, ENDS_IN_NUMBER, ENDS_IN_STRING = 1, 2, 4
_APART = r"[-+.0-9eE \t\r\n,:]*+"
_HOPS = rf'{_APART}(?:()"[^"\\\n]*"{_APART})*+(?:(?<=[-+.0-9eE])(\Z)|(\Z)|()"[^"\\\n]*\Z)'
hop_out_of_string = re.compile(rf'[^"\\\n]*"{_HOPS}').match
hop_into_string = re.compile(_HOPS).match

run = matcher(r'(?:[ \t\r\n,:]++|"[^"\\\n]*"|(?:[-+.0-9eE]++|true|false|null)(?=[ \t\r\n,:}\]]))*+')
"""Matches the same tokens, and literals, up to a bracket, or a string or word that may continue."""

# Matches the part of a string's content in which each escape and each pair of surrogates is complete. The text after it
# is the beginning of an escape or of a pair. An escape that JSON does not have counts as complete.
whole_escapes = matcher(
    r"(?:[^\\]|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}(?![0-9a-fA-F]|\Z)"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}[^0-9a-fA-F]))*"
)
_replace_escapes = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL
).sub


def unescape(text: str) -> str:
    """Return the text that the content of a JSON string means. An escape that JSON does not have means itself."""
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return _replace_escapes(_unescape_one, text)


def _unescape_one(escape: re.Match[str]) -> str:
    try:
        return str(json.loads(f'"{escape[0]}"', strict=False))
    except ValueError:
        return escape[0]
