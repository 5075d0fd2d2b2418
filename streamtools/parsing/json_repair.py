"""Repair of malformed JSON by the library `json-repair` (option `repair`, extra `streamtools[repair]`).

The library guesses, so repair is off by default. It is used only for a call that is malformed and was not cut off. The
result passes the same checks as every call. A result that has lost the arguments does not count.

The library takes about 2 µs a character, up to 75 µs for hostile text. For some texts its cost grows with the square of
the length: 0.25 s at 4,096 characters. The two bounds limit that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from streamtools.json_values import Decoded, Rejected, decode_json
from streamtools.limits import Limits

MAX_LENGTH: Final = 4096
"""Characters of one call's JSON. Longer JSON is not repaired."""

MAX_IN_TURN: Final = 4 * MAX_LENGTH
"""Characters of all repaired calls of a turn."""


def load_library() -> Callable[..., object]:
    """Return the repair function of the library. Raises ImportError that names the extra if it is not installed."""
    try:
        from json_repair import repair_json
    except ImportError as error:
        raise ImportError("repair=True needs json-repair: install 'streamtools[repair]'") from error
    return repair_json


def repair(text: str, limits: Limits) -> Decoded | None:
    """Guess the JSON object that `text` means. Returns None if the library finds no object."""
    try:
        value = load_library()(text, return_objects=True, skip_json_loads=True)
        if not isinstance(value, dict):
            return None
        return Decoded(decode_json(json.dumps(value), limits=limits).value, repaired=True)
    except Rejected:
        return None
    except Exception:  # the library is not made for hostile text, and may raise anything
        return None


def keeps_arguments(text: str, arguments: dict[str, object], *, alone: bool) -> bool:
    """Return whether `arguments` are not empty, or `text` holds none. `alone`: `text` is the arguments alone."""
    if arguments:
        return True
    bare = "".join(text.split())
    return "{}" in bare or bare.count("{") <= (0 if alone else 1)
