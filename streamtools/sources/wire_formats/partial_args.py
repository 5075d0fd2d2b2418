"""Converts the arguments of a streamed Gemini call to JSON text. Vertex sends single values with paths. Sans-IO.

A piece is, for example, `{"jsonPath": "$.a.b[0]", "stringValue": "Bos", "willContinue": true}`. Instead of a string, it
may hold a number, a boolean or null. Successive pieces with the same path form one string.

JSON text can be appended only if the containers of a value are still open or new. This holds for all streams that were
observed. If a value belongs to a container that is already closed in the text, no more text is produced. For example,
`$.b` closes the container `$.a` of `$.a.x`, and then `$.a.y` arrives. The complete object is then returned at the end.

A piece may be invalid: its path is unreadable, its value would replace another value or exceed a limit, or it leaves a
gap in an array. That piece, or a message about it, is then returned instead of the object. The call is then malformed,
and never runs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from streamtools.json_values import well_formed
from streamtools.limits import Limits
from streamtools.sources.adapter import OpenCall
from streamtools.sources.provider_terms import escaped

Path: TypeAlias = tuple[str | int, ...]

_MAX_DEPTH = 200  # the maximum number of steps in a path, because `_joined` is recursive
_MAX_PATH_LENGTH = 4096
_path_step = re.compile(  # `.name`, `[0]`, `["name"]` or `['name']`
    r"\.(?P<name>[^.\[\]\s\"'*]+)"
    r"|\[(?P<index>\d{1,9})\]"
    r"|\[\"(?P<double>(?:[^\"\\]|\\.)*)\"\]"
    r"|\['(?P<single>(?:[^'\\]|\\.)*)'\]"
)
_quote_in_key = re.compile(r"\\'|\"")  # in a key in single quotes: `\'` or `"`
_VALUES: dict[str, Any] = {"stringValue": str, "numberValue": int | float, "boolValue": bool}


class _Pieces(list[str]):
    """The pieces of a string that may continue."""


class PartialArgs:
    """Collects the arguments of one call, and produces their JSON text piece by piece."""

    def __init__(self, limits: Limits) -> None:
        self._depth = min(limits.depth, _MAX_DEPTH)
        self._room = limits.call  # the number of characters that may still be stored
        self._object: dict[str, Any] = {}  # the collected arguments
        self._last_path: Any = None  # the `jsonPath` of the last piece
        self._path: Path = ()  # the path of the last value in the JSON text
        self._ends_in_string = False  # the last value is a string
        self._string = _Pieces()  # the pieces of the last string
        self._quote = ""  # the closing quote of an open string
        self._is_in_order = True  # the JSON text contains all values that have arrived
        self._invalid: list[Any] | None = None  # a list with the invalid piece

    @property
    def value(self) -> Any:
        """None if the JSON text holds all arguments. Otherwise their object, or a list with the invalid piece."""
        if self._invalid is not None:
            return self._invalid
        return None if self._is_in_order else _joined(self._object)

    def write(self, piece: Any) -> str:
        """Add a piece. Returns the JSON text for it, or an empty string."""
        if self._invalid is not None:
            return ""
        if not isinstance(piece, Mapping):
            return self._refuse(piece)
        kind, value = _read_value(piece)
        if kind is None:  # the piece announces a value that a later piece contains
            return ""
        path = piece.get("jsonPath")
        if self._ends_in_string and kind == "stringValue" and path == self._last_path:
            return self._continue(value)
        steps = self._read_path(path)
        if not steps or not kind or not self._collect(steps, value, kind):
            return self._refuse(piece)
        self._last_path, self._ends_in_string = path, kind == "stringValue"
        return self._append(steps, value) if self._is_in_order else ""

    def close(self) -> str:
        """Return the JSON text that ends the object. Returns an empty string if the text is empty or incomplete."""
        if not self._is_in_order or not self._path:
            return ""
        text = self._close_to(0)
        self._path = ()
        return text

    def _refuse(self, piece: Any) -> str:
        self._is_in_order = False
        self._invalid = [piece]
        self._object.clear()
        return ""

    def _continue(self, text: str) -> str:
        if not self._reserve(len(text)):
            return self._refuse("there are more characters than a call may have")
        if text:
            self._string.append(text)
        return escaped(text) if self._is_in_order else ""

    def _reserve(self, characters: int) -> bool:
        """Subtract `characters` from `_room`. Returns False if they exceed it."""
        self._room -= characters
        return self._room >= 0

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

    def _collect(self, path: Path, value: Any, kind: str) -> bool:
        """Add a value to the object. Returns False if it cannot be stored at `path`, or exceeds the limit.

        Records in `_is_in_order` whether the value can be appended to the JSON text.
        """
        place: Any = self._object
        common = _shared(path, self._path)
        for depth, step in enumerate(path):
            if not _fits(place, step):
                return False
            known = step in place if isinstance(step, str) else step < len(place)
            if known:
                if depth >= common:  # the text has closed the container
                    self._is_in_order = False
            elif not self._reserve(len(str(step)) + 1):
                return False
            else:
                made: Any = _Pieces() if kind == "stringValue" else value
                if depth + 1 < len(path):
                    made = {} if isinstance(path[depth + 1], str) else []
                if isinstance(step, str):
                    place[step] = made
                elif step == len(place):
                    place.append(made)
                else:
                    return False
            place = place[step]
        if kind != "stringValue":
            return not known
        if type(place) is not _Pieces or not self._reserve(len(value)):
            return False
        self._string = place
        place.append(value)
        return True

    def _append(self, path: Path, value: Any) -> str:
        """Return the JSON text for a value: closing brackets, a comma, keys with opening brackets, and the value."""
        common = _shared(path, self._path)
        parts = [self._close_to(common + 1), ","] if self._path else ["{"]
        for depth in range(common, len(path)):
            step = path[depth]
            if depth > common:
                parts.append("{" if isinstance(step, str) else "[")
            if isinstance(step, str):
                parts.append(f'"{escaped(step)}":')
        parts.append(f'"{escaped(value)}' if self._ends_in_string else json.dumps(value))
        self._path, self._quote = path, '"' if self._ends_in_string else ""
        return "".join(parts)

    def _close_to(self, depth: int) -> str:
        """Return the text that closes the last value and all containers from `depth` on."""
        return self._quote + "".join("}" if isinstance(step, str) else "]" for step in reversed(self._path[depth:]))


def _fits(place: Any, step: str | int) -> bool:
    """Return whether `step` can be a key or index of the container `place`."""
    return type(place) is (dict if isinstance(step, str) else list)


def _read_value(piece: Mapping[str, Any]) -> tuple[str | None, Any]:
    """Return the kind and the value of a piece. The kind is None if there is no value, and "" if it is invalid."""
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
    name: str = json.loads(f'"{body}"')
    return name


def _shared(one: Path, other: Path) -> int:
    """Return the number of containers that two paths share. The last step of a path is the value, not a container."""
    count = 0
    for a, b in zip(one[:-1], other[:-1], strict=False):
        if a != b or type(a) is not type(b):
            break
        count += 1
    return count


def _joined(value: Any) -> Any:
    if isinstance(value, _Pieces):
        return well_formed("".join(value))
    if isinstance(value, dict):
        return {name: _joined(member) for name, member in value.items()}
    return [_joined(item) for item in value] if isinstance(value, list) else value


class CallOfValues(OpenCall):
    """A call whose arguments arrive as values with paths."""

    __slots__ = ("arguments",)

    def __init__(self, key: str, name: str | None, limits: Limits) -> None:
        super().__init__(key, name=name)
        self.arguments = PartialArgs(limits)
