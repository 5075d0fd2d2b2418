"""Sample arguments for the example of a call, read from the JSON schema of a tool that gives no examples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from streamtools.history.content import given
from streamtools.tools import Tool
from streamtools.tools.schemas import inline

_FORMATS = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "name@example.org",
    "uri": "https://example.org",
}
_SAMPLES: Final = 3
_PLAUSIBLE = {
    "address": ("12 High Street", "4 Mill Lane", "9 Park Road"),
    "author user person name": ("Ada", "Grace", "Alan"),
    "category tag topic subject": ("music", "sports", "history"),
    "city location place destination town": ("Paris", "Oslo", "Lima"),
    "code expression formula": ("1 + 1", "2 * 3", "8 - 5"),
    "color colour": ("blue", "green", "red"),
    "command": ("ls", "pwd", "date"),
    "country": ("France", "Norway", "Peru"),
    "currency": ("EUR", "USD", "JPY"),
    "date day": ("2025-01-31", "2025-03-08", "2025-06-21"),
    "email mail recipient to": ("ada@example.org", "grace@example.org", "alan@example.org"),
    "file path filename document": ("notes.txt", "report.md", "data.csv"),
    "id number key": ("1042", "2077", "3151"),
    "language lang locale": ("en", "fr", "nb"),
    "phone": ("+44 20 7946 0958", "+44 20 7946 0147", "+44 20 7946 0321"),
    "query question search keyword q": ("tall ships", "solar panels", "bread recipes"),
    "symbol ticker": ("AAPL", "MSFT", "SAP"),
    "text message content body note": ("Good morning", "See you at noon", "All is done"),
    "title": ("Minutes", "Plans", "Ideas"),
    "time": ("09:00", "12:30", "18:45"),
    "url uri link website": ("https://example.org", "https://example.com", "https://example.net"),
    "zone timezone": ("Europe/Paris", "Europe/Oslo", "America/Lima"),
}
"""Three texts by words of a parameter's name. The last known word of a name counts."""
_BY_WORD = {word: values for words, values in _PLAUSIBLE.items() for word in words.split()}
_VAGUE_WORDS = ("name", "id", "key", "number", "text", "q", "to")  # count only without another known word
_FOR_UNKNOWN_WORDS = ("alpha", "beta", "gamma")
_words_of = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])").findall


def sample_arguments(tool: Tool) -> list[dict[str, Any]]:
    """Return arguments that a model might pass to `tool`: the tool's examples, or up to three made from its schema.

    Made arguments hold the required parameters, or the first parameter if none is required.
    """
    if examples := tool.parameters.get("examples"):
        return [dict(example) for example in examples]
    schema = inline(tool.parameters)
    samples = [_members(schema, number) for number in range(_SAMPLES)]
    return [sample for number, sample in enumerate(samples) if sample not in samples[:number]]


def _members(schema: Mapping[str, Any], number: int) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    names = [name for name in properties if name in required] or list(properties)[:1]
    return {name: _value(properties[name], name, number) for name in names}


def _value(schema: Any, name: str, number: int) -> Any:
    """Return a value for a simple schema. A text fits the name of its parameter."""
    if not isinstance(schema, Mapping):
        return "..."
    if "const" in schema:
        return schema["const"]
    for key in ("examples", "enum"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][number % len(schema[key])]
    if schema.get("default") is not None:
        return schema["default"]
    for key in ("anyOf", "oneOf", "allOf"):
        if branch := next((branch for branch in schema.get(key, ()) if given(branch, "type") != "null"), None):
            return _value(branch, name, number)
    kinds = schema.get("type")
    kind = kinds if isinstance(kinds, str) else next((kind for kind in kinds or () if kind != "null"), None)
    match kind:
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return [_value(schema.get("items", {}), name, number)]
        case "object":
            return _members(schema, number)
        case "string":
            return _FORMATS.get(schema.get("format", "")) or _plausible(name)[number]
    return "..."


def _plausible(name: str) -> Sequence[str]:
    """Return plausible texts for a parameter of this name."""
    words = [word.lower() for word in reversed(_words_of(name))]
    known = [word for word in sorted(words, key=_VAGUE_WORDS.__contains__) if word in _BY_WORD]
    return _BY_WORD[known[0]] if known else _FOR_UNKNOWN_WORDS
