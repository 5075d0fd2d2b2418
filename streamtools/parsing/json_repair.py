"""Repairs malformed JSON with the library `json-repair` (option `repair`, extra `streamtools[repair]`).

The library guesses, so repair is off by default. It is used only for a call that is malformed and was not cut off. The
repaired call must pass the same checks as every call. A repair that loses the arguments is rejected.

The library takes about 2 µs per character, and up to 75 µs for hostile text. For some texts, its cost grows with the
square of the length: 0.25 s for 4,096 characters. `MAX_LENGTH` and `MAX_IN_TURN` limit this cost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from streamtools.json_values import Decoded, decode_json
from streamtools.limits import Limits
from streamtools.loading import require_packages

MAX_LENGTH: Final = 4096
"""The limit of the characters of one call's JSON. Longer JSON is not repaired."""

MAX_IN_TURN: Final = 4 * MAX_LENGTH
"""The limit of the characters that are repaired in one turn, for all calls together."""


def load_library() -> Callable[..., object]:
    """Return the repair function of the library. Raises ImportError if the library is not installed."""
    with require_packages("repair=True"):
        from json_repair import repair_json
    return repair_json


def repair(text: str, limits: Limits) -> Decoded | None:
    """Repair `text` to a JSON object. Returns None if the library finds no object, or raises an exception."""
    try:
        value = load_library()(text, return_objects=True, skip_json_loads=True)
        decoded = decode_json(json.dumps(value), limits=limits).value
        return Decoded(decoded, repaired=True) if isinstance(value, dict) else None
    except Exception:  # the library is not designed for hostile text, and may raise any exception
        return None


def keeps_arguments(text: str, arguments: dict[str, object], *, alone: bool) -> bool:
    """Return False if a repair of `text` has lost the arguments: `arguments` are empty, but `text` seems to hold some.

    `alone` is True if `text` is the JSON of the arguments, and False if it is the JSON of the whole call.
    """
    bare = "".join(text.split())
    return bool(arguments) or "{}" in bare or bare.count("{") <= (0 if alone else 1)
