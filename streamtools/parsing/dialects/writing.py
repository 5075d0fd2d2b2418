"""Writes values, calls and results in the forms that chat templates use."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamtools.json_values import compact
from streamtools.parsing.dialects.neutralizing import JOINER

if TYPE_CHECKING:
    from streamtools.parsing.bodies.nesting import NestedText


def write_json(name: str, arguments: dict[str, Any]) -> str:
    """Return a call as JSON, with the keys `name` and `arguments`."""
    return compact({"name": name, "arguments": arguments})


def name_and_json(before: str, between: str, after: str = "") -> Callable[[str, dict[str, Any]], str]:
    """Return a `write_call` function for a name and the JSON of the arguments, with texts around them."""
    return lambda name, arguments: f"{before}{name}{between}{compact(arguments)}{after}"


def as_text(value: Any) -> str:
    """Return a string unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else compact(value)


def write_value(value: Any, grammar: NestedText, after: str, *tags: str, line_feed: bool = False) -> str:
    """Return `as_text(value)`. If necessary, the text is changed, so that `grammar` reads it as a value.

    `after` is the text after the value. A text with `tags` is not changed if `grammar` reads it correctly. Otherwise,
    `break_tags` breaks the tags in a string, and each `<` in the JSON of any other value is escaped.
    """
    text = as_text(value)
    if not any(tag in text for tag in tags) or grammar.reads(text, after, line_feed=line_feed):
        return text
    return break_tags(text, *tags) if isinstance(value, str) else text.replace("<", "\\u003c")


def break_tags(text: str, *tags: str) -> str:
    """Insert a word joiner after the first character of each of `tags` that occurs in the text, like `neutralize`."""
    for tag in tags:
        text = text.replace(tag, tag[0] + JOINER + tag[1:])
    return text


def as_object(text: str, key: str) -> dict[str, Any]:
    """Return the JSON object that `text` contains. Any other text or JSON value becomes `{key: value}`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return value if isinstance(value, dict) else {key: value}


def both_tags(*names: str) -> tuple[str, ...]:
    """Return the beginnings of the opening and closing tags with these names, for `Dialect.reserved`."""
    return tuple(bracket + name for name in names for bracket in ("<", "</"))


def write_response(name: str, text: str) -> str:
    """Return a result between `<tool_response>` tags, which most templates use. `name` is not written."""
    return f"<tool_response>\n{text}\n</tool_response>"
