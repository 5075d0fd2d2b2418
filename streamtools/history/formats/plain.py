"""Values that every provider can read: no halves of characters, and no numbers that JSON does not have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from streamtools.surrogates import whole


def plain(value: Any) -> Any:
    """Return a copy of `value` with U+FFFD for half a surrogate pair, and null for `NaN` and infinities.

    >>> plain({"a": ["\\ud83d", float("nan")]})
    {'a': ['\ufffd', None]}
    """
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
