"""Makes text from a model or a server safe for a terminal.

An attacker can make a model write escape sequences, which rename the window, hide text or type into the shell. Other
characters reverse the reading order. So control characters become visible symbols. Line feeds and tabs are kept, and
carriage returns are removed.
"""

from __future__ import annotations

import re

# C0 controls (without tab and line feed), DEL, C1 controls, controls of the reading order, lone surrogates
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Replace the control characters in `text` by symbols or escapes such as `\\x9b`. Carriage returns are removed.

    >>> printable("red: \\x1b[31m\\r\\nnext")
    'red: ␛[31m\\nnext'
    """
    return _CONTROL.sub(_symbol, text.replace("\r", ""))


def one_line(text: str) -> str:
    """Make `text` printable on one line. Each run of white space becomes one space; none is left at the ends."""
    return printable(" ".join(text.split()))


def crop(text: str, length: int) -> str:
    """Shorten `text` to `length` characters. A shortened text ends with an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else ascii(match[0])[1:-1]
