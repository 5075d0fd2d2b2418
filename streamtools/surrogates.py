"""Halves of surrogate pairs, which a Python text can hold and UTF-8 cannot.

Providers cut pairs, models write halves, and names of files hold them: each place that writes bytes has to make such a
text whole first, or to refuse it.
"""

from __future__ import annotations

from typing import Any


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can hold a text: whether no half of a pair stands in it."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def whole(text: str) -> str:
    """Return `text` with the halves of each surrogate pair joined, and U+FFFD for a half that stands alone."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def whole_strings(value: Any) -> Any:
    """Return builtin values with `whole` texts in all places."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, dict):
        return {whole_strings(key): whole_strings(each) for key, each in value.items()}
    return [whole_strings(each) for each in value] if isinstance(value, list | tuple) else value
