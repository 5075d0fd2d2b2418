"""JSON that is nearly JSON, put right by `json-repair`: an option, since it guesses what was meant.

It is asked only about a call that was malformed and not cut off, and its answer goes through the same reading as all
calls, so that limits and the rules about names and arguments hold. An answer that has lost what stood in the arguments
is none. The library takes about 2 µs a character, on some hostile texts 75, and on others its cost grows with their
square (0.25 s at 4,096 characters): hence the two bounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from streamtools.json_values import Decoded, Rejected, decode_json
from streamtools.limits import Limits

MOST: Final = 4096
"""Characters of one call's JSON that are looked at; longer JSON is not put right."""

MOST_IN_TURN: Final = 4 * MOST
"""Characters of all calls of a turn."""


def load_library() -> Callable[..., object]:
    """Return the function of the library that does it. Raises ImportError that names the extra."""
    try:
        from json_repair import repair_json
    except ImportError as error:
        raise ImportError("repair=True needs json-repair: install 'streamtools[repair]'") from error
    return repair_json


def repair(text: str, limits: Limits) -> Decoded | None:
    """Return the object that `text` was meant to be the JSON of, or None."""
    try:
        value = load_library()(text, return_objects=True, skip_json_loads=True)
        if not isinstance(value, dict):
            return None
        return Decoded(decode_json(json.dumps(value), limits=limits).value, repaired=True)
    except Rejected:
        return None
    except Exception:  # whatever it stumbles over: it was not made for text that means harm
        return None


def keeps_arguments(text: str, arguments: dict[str, object], *, alone: bool) -> bool:
    """Whether there are `arguments`, or `text` has none: they may be all that it holds (`alone`), or a part of it."""
    if arguments:
        return True
    bare = "".join(text.split())
    return "{}" in bare or bare.count("{") <= (0 if alone else 1)
