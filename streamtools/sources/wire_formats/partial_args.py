"""Converts the arguments of a streamed Gemini call to JSON text. Vertex sends single values with paths. Sans-IO.

A piece is, for example, `{"jsonPath": "$.a.b[0]", "stringValue": "Bos", "willContinue": true}`. Instead of a string, a
piece may hold a number, a boolean or null. Successive strings with the same path form one string.

The values must arrive in the order of the JSON text. This holds for all streams that were observed. If a value belongs
to a container that the text has closed, the text opens the container again. The text then has a duplicate key, so the
call is malformed and does not run. The same applies to a value that would replace another value. A piece is invalid if
its path or value is unreadable. It is also invalid if it is an item of an array, but not the next one, or if it uses an
array as an object or an object as an array. After an invalid piece, no text is written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any, TypeAlias

from streamtools.limits import Limits
from streamtools.sources.provider_terms import escaped

Path: TypeAlias = tuple[str | int, ...]

_MAX_PATH_LENGTH = 4096
_path_step = re.compile(  # `.name`, `[0]`, `["name"]` or `['name']`
    r"\.(?P<name>[^.\[\]\s\"'*]+)"
    r"|\[(?P<index>\d{1,9})\]"
    r"|\[\"(?P<double>(?:[^\"\\]|\\.)*)\"\]"
    r"|\['(?P<single>(?:[^'\\]|\\.)*)'\]"
)
_quote_in_key = re.compile(r"\\'|\"")  # in a key in single quotes: `\'` or `"`
_VALUES: dict[str, Any] = {"stringValue": str, "numberValue": int | float, "boolValue": bool}


class PartialArgs:
    """Writes the arguments of one call as JSON text, piece by piece."""

    def __init__(self, limits: Limits) -> None:
        self._depth = limits.depth
        self._path: Path = ()  # the path of the last value; empty before the first
        self._quote = ""  # the closing quote if the last value is a string
        self.is_invalid = False
        """True after an invalid piece. No more text is written."""

    def write(self, piece: Any) -> str:
        """Return the JSON text for a piece, or an empty string if it adds none."""
        kind, value = _read_value(piece)
        if self.is_invalid or kind is None:  # without a kind, the piece announces a value that a later piece contains
            return ""
        path = self._read_path(piece.get("jsonPath")) if kind else ()
        if self._quote and kind == "stringValue" and path == self._path:
            return escaped(value)
        self.is_invalid = not path or not self._is_next(path)
        if self.is_invalid:
            return ""
        common = _shared(path, self._path)
        parts = [self._close_to(common + 1), ","] if self._path else ["{"]
        for depth in range(common, len(path)):
            step = path[depth]
            if depth > common:
                parts.append("{" if isinstance(step, str) else "[")
            if isinstance(step, str):
                parts.append(f'"{escaped(step)}":')
        self._path, self._quote = path, '"' if kind == "stringValue" else ""
        parts.append(f'"{escaped(value)}' if self._quote else json.dumps(value))
        return "".join(parts)

    def close(self) -> str:
        """Return the JSON text that ends the object. Returns an empty string if the text is empty or invalid."""
        return self._close_to(0) if self._path and not self.is_invalid else ""

    def _read_path(self, path: Any) -> Path:
        """Return the steps of a path, or an empty tuple if it is unreadable."""
        if not isinstance(path, str) or not path.startswith("$") or len(path) > _MAX_PATH_LENGTH:
            return ()
        steps: list[str | int] = []
        at = 1
        while at < len(path):
            found = _path_step.match(path, at)
            if found is None or len(steps) == self._depth:
                return ()
            at = found.end()
            try:
                steps.append(_key_or_index(found))
            except ValueError:
                return ()
        return tuple(steps) if steps and isinstance(steps[0], str) else ()

    def _is_next(self, path: Path) -> bool:
        """Return whether a value can follow the last one: each index is the next one of its array."""
        common = _shared(path, self._path)
        step, last = path[common], self._path[common] if self._path else ""
        if any(isinstance(inner, int) and inner for inner in path[common + 1 :]):  # a new array begins with index 0
            return False
        return step == last + 1 if isinstance(step, int) and isinstance(last, int) else type(step) is type(last)

    def _close_to(self, depth: int) -> str:
        """Return the text that closes the last value and all containers from `depth` on."""
        return self._quote + "".join("}" if isinstance(step, str) else "]" for step in reversed(self._path[depth:]))


def _read_value(piece: Any) -> tuple[str | None, Any]:
    """Return the kind and the value of a piece. The kind is None if there is no value, and "" if it is invalid."""
    if not isinstance(piece, Mapping):
        return "", None
    for kind, types in _VALUES.items():
        value = piece.get(kind)
        if value is None:
            continue
        known = isinstance(value, types) and (isinstance(value, bool) == (types is bool))
        return (kind if known and (not isinstance(value, float) or math.isfinite(value)) else ""), value
    return ("nullValue" if "nullValue" in piece else None), None


def _key_or_index(found: re.Match[str]) -> str | int:
    """Return the key or index of a path step. Raises ValueError if a quoted key is not a valid JSON string."""
    if found["index"] is not None:
        return int(found["index"])
    if found["name"] is not None:
        return found["name"]
    body = found["double"]
    if body is None:
        body = _quote_in_key.sub(lambda found: "'" if found[0] == "\\'" else '\\"', found["single"])
    return str(json.loads(f'"{body}"'))


def _shared(one: Path, other: Path) -> int:
    """Return the number of containers that two paths share. The last step of a path is the value, not a container."""
    return len([*takewhile(lambda steps: steps[0] == steps[1], zip(one[:-1], other[:-1], strict=False))])
