"""The arguments of a Gemini call that Vertex streams as single values with a path each, into JSON text. Sans-IO.

A piece is `{"jsonPath": "$.a.b[0]", "stringValue": "Bos", "willContinue": true}`, or has a number, a boolean or a null.
Text is written while each value comes after the values before it, as in all streams that were seen: its containers are
open or new. A value inside a closed container cannot be written. From there on no text is written, and the object of
all pieces is given at the end. Successive pieces of one string are one string. If a piece makes no object (an
unreadable path, a value in the place of a container, an array with a hole), that piece is given instead, and no call
results.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from streamtools.json_values import whole
from streamtools.limits import Limits
from streamtools.sources.open_call import OpenCall
from streamtools.sources.provider_terms import escaped

Path: TypeAlias = tuple[str | int, ...]

_DEEPEST = 200  # steps of a path, whatever the limits say: containers are walked recursively at the end
_LONGEST = 4096  # characters of a path
_step = re.compile(
    r"\.(?P<name>[^.\[\]\s\"'*]+)"
    r"|\[(?P<index>\d{1,9})\]"
    r"|\[\"(?P<double>(?:[^\"\\]|\\.)*)\"\]"
    r"|\['(?P<single>(?:[^'\\]|\\.)*)'\]"
)
_quote = re.compile(r"\\'|\"")
_VALUES: dict[str, Any] = {"stringValue": str, "numberValue": int | float, "boolValue": bool}


class _Pieces(list[str]):
    """A string that may go on."""


class PartialArgs:
    """The arguments of one call. `value` is the object, if the text could not be written, or what nobody can read."""

    def __init__(self, limits: Limits) -> None:
        self._depth = min(limits.depth, _DEEPEST)
        self._room = limits.call  # characters that may still be collected
        self._object: dict[str, Any] = {}
        self._latest: Any = None  # the path of the last piece as it came, and what it means
        self._path: Path = ()
        self._text = False  # the last value is a string
        self._string = _Pieces()
        self._quote = ""  # what is still to be written behind it
        self._ordered = True
        self._unreadable: list[Any] | None = None

    @property
    def value(self) -> Any:
        """None while the text holds everything."""
        if self._unreadable is not None:
            return self._unreadable
        return None if self._ordered else _joined(self._object)

    def write(self, piece: Any) -> str:
        """Return the text that `piece` adds."""
        if self._unreadable is not None:
            return ""
        if not isinstance(piece, Mapping):
            return self._refuse(piece)
        kind, value = _value(piece)
        if kind is None:  # it announces a value
            return ""
        path = piece.get("jsonPath")
        if self._text and kind == "stringValue" and path == self._latest:
            return self._continue(value)
        steps = self._read(path)
        if not steps or not kind or not self._collect(steps, value, kind):
            return self._refuse(piece)
        self._latest, self._text = path, kind == "stringValue"
        return self._append(steps, value) if self._ordered else ""

    def close(self) -> str:
        """Return the text that ends the object, if any of it was written."""
        if not self._ordered or not self._path:
            return ""
        text = self._close_to(0)
        self._path = ()
        return text

    def _refuse(self, piece: Any) -> str:
        self._ordered = False
        self._unreadable = [piece]
        self._object.clear()
        return ""

    def _continue(self, text: str) -> str:
        if not self._make_room(len(text)):
            return self._refuse("there are more characters than a call may have")
        if text:
            self._string.append(text)
        return escaped(text) if self._ordered else ""

    def _make_room(self, characters: int) -> bool:
        self._room -= characters
        return self._room >= 0

    def _read(self, path: Any) -> Path:
        """Return the steps of a path, or none where nobody can read it."""
        if not isinstance(path, str) or not path.startswith("$") or len(path) > _LONGEST:
            return ()
        steps: list[str | int] = []
        at = 1
        while at < len(path):
            found = _step.match(path, at)
            if found is None or len(steps) == self._depth:
                return ()
            at = found.end()
            try:
                steps.append(_name(found))
            except ValueError:
                return ()
        return tuple(steps) if steps and isinstance(steps[0], str) else ()

    def _collect(self, path: Path, value: Any, kind: str) -> bool:
        """Put a value into the object, and return whether there was a place for it; note whether it was the next."""
        place: Any = self._object
        common = _common(path, self._path)
        for depth, step in enumerate(path):
            if not _takes(place, step):
                return False
            known = step in place if isinstance(step, str) else step < len(place)
            if known:
                self._ordered = self._ordered and depth < common  # else it was closed, as was what stands in it
            elif not self._make_room(len(str(step)) + 1):
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
        if type(place) is not _Pieces or not self._make_room(len(value)):
            return False
        self._string = place
        place.append(value)
        return True

    def _append(self, path: Path, value: Any) -> str:
        """Return the text of a value that comes next: closers, a comma, keys and openers, and the value."""
        common = _common(path, self._path)
        parts = [self._close_to(common + 1), ","] if self._path else ["{"]
        for depth in range(common, len(path)):
            step = path[depth]
            if depth > common:
                parts.append("{" if isinstance(step, str) else "[")
            if isinstance(step, str):
                parts.append(f'"{escaped(step)}":')
        parts.append(f'"{escaped(value)}' if self._text else json.dumps(value))
        self._path, self._quote = path, '"' if self._text else ""
        return "".join(parts)

    def _close_to(self, depth: int) -> str:
        """Return what closes the last value, and the containers that stand `depth` or more deep."""
        return self._quote + "".join("}" if isinstance(step, str) else "]" for step in reversed(self._path[depth:]))


def _takes(place: Any, step: str | int) -> bool:
    """Return whether `place` is a container of which `step` can be a member."""
    return type(place) is (dict if isinstance(step, str) else list)


def _value(piece: Mapping[str, Any]) -> tuple[str | None, Any]:
    """Return which value a piece has, and the value: None where there is none, and "" where it is none that we know."""
    for kind, types in _VALUES.items():
        value = piece.get(kind)
        if value is None:
            continue
        known = isinstance(value, types) and (isinstance(value, bool) == (types is bool))
        return (kind if known and (not isinstance(value, float) or math.isfinite(value)) else ""), value
    return ("nullValue" if "nullValue" in piece else None), None


def _name(found: re.Match[str]) -> str | int:
    """Return the step that was found; raise ValueError for a name that is no string."""
    if found["index"] is not None:
        return int(found["index"])
    if found["name"] is not None:
        return found["name"]
    body = found["double"]
    if body is None:
        body = _quote.sub(lambda each: "'" if each[0] == "\\'" else '\\"', found["single"])
    name: str = json.loads(f'"{body}"')
    return name


def _common(one: Path, other: Path) -> int:
    """Return how many containers two paths share; the last step of either is no container."""
    count = 0
    for a, b in zip(one[:-1], other[:-1], strict=False):
        if a != b or type(a) is not type(b):
            break
        count += 1
    return count


def _joined(value: Any) -> Any:
    if isinstance(value, _Pieces):
        return whole("".join(value))
    if isinstance(value, dict):
        return {name: _joined(each) for name, each in value.items()}
    return [_joined(each) for each in value] if isinstance(value, list) else value


class CallOfValues(OpenCall):
    """A call that comes as values with their paths."""

    __slots__ = ("arguments",)

    def __init__(self, key: str, name: str | None, limits: Limits) -> None:
        super().__init__(key, name=name)
        self.arguments = PartialArgs(limits)
