"""A secret of the conversation in the markers: `###k7:{…}`, `~~~tool_call k7`.

Who plants a call in a web page or a document, for a model that quotes it, cannot know the secret. It stands in the
system prompt, and a marker without it, or with another one, is text.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from streamtools.parsing.markers import Some

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without those that look like others
_LENGTH = 6  # 2**29 of them
_NONCE = re.compile("[A-Za-z0-9]{1,16}")

ANY: Final = Some("A-Za-z0-9", 1, 16)
"""What may be a nonce, in a marker."""


def new_nonce() -> str:
    """Return six letters and digits that cannot be guessed: one for each conversation, kept with its history.

    >>> len(new_nonce())
    6
    """
    return "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def checked(nonce: str | None) -> str:
    """Return a nonce, or "" for none. Raises ValueError for anything but 1 to 16 letters and digits of ASCII."""
    if nonce is None:
        return ""
    if not _NONCE.fullmatch(nonce):
        raise ValueError(f"a nonce has 1 to 16 of the characters A-Z, a-z and 0-9, and this one is {nonce!r}")
    return nonce
