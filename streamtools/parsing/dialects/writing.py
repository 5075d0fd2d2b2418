"""How dialects write what they have in common: values as text that nothing is quoted in, and results as JSON."""

from __future__ import annotations

import json
from typing import Any

from streamtools.json_values import compact


def write_value(value: Any, *tags: str) -> str:
    """Return a string as it is, but kept from `tags`; anything else as JSON without them."""
    if isinstance(value, str):
        return keep_from(value, *tags)
    text = compact(value)
    return text.replace("<", "\\u003c") if any(tag in text for tag in tags) else text


def keep_from(text: str, *tags: str) -> str:
    """Return `text` with a word joiner behind the first character of each of `tags`, as `neutralise` puts it."""
    for tag in tags:
        text = text.replace(tag, tag[0] + "\u2060" + tag[1:])
    return text


def as_object(text: str, key: str) -> dict[str, Any]:
    """Return the JSON object that `text` is, or one that holds under `key` what else it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return value if isinstance(value, dict) else {key: value}
