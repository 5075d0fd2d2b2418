"""How chat templates write values, calls and results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.dialects.neutralising import JOINER


def write_json(name: str, arguments: dict[str, Any]) -> str:
    """Write a call as JSON, with the keys that most templates use."""
    return compact({"name": name, "arguments": arguments})


def name_and_json(before: str, between: str, after: str = "") -> Callable[[str, dict[str, Any]], str]:
    """Return a `write_call` for calls whose arguments follow the name as JSON."""
    return lambda name, arguments: f"{before}{name}{between}{compact(arguments)}{after}"


def as_text(value: Any) -> str:
    """Return a string unchanged, anything else as JSON."""
    return value if isinstance(value, str) else compact(value)


def write_value(value: Any, *tags: str) -> str:
    """Return `as_text(value)` without `tags`: a string gets word joiners, JSON gets escaped angle brackets."""
    if isinstance(value, str):
        return keep_from(value, *tags)
    text = compact(value)
    return text.replace("<", "\\u003c") if any(tag in text for tag in tags) else text


def keep_from(text: str, *tags: str) -> str:
    """Put a word joiner after the first character of each of `tags` in the text, as `neutralise` does."""
    for tag in tags:
        text = text.replace(tag, tag[0] + JOINER + tag[1:])
    return text


def as_object(text: str, key: str) -> dict[str, Any]:
    """Return the JSON object in `text`. Any other text becomes an object with that value under `key`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return value if isinstance(value, dict) else {key: value}


def both_tags(*names: str) -> tuple[str, ...]:
    """Return the beginnings of the opening and closing tags of these names, for `Dialect.reserved`."""
    return tuple(bracket + name for name in names for bracket in ("<", "</"))


def write_response(name: str, text: str) -> str:
    """Write a result as most templates do, without the name of the tool."""
    return f"<tool_response>\n{text}\n</tool_response>"
