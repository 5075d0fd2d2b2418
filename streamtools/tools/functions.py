"""Looks at a function: the code that a call of it runs, the parameters that are left to fill, and its docstring."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Any, NamedTuple


def without_partials(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside `functools.partial` objects."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def body_of(function: Callable[..., Any]) -> Any:
    """Return the function, method or class that a call runs; for a callable object, its `__call__`."""
    function = without_partials(function)
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def is_unbound_method(function: Callable[..., Any]) -> bool:
    """Return whether this is a method as defined in the body of its class, without an instance."""
    if not inspect.isfunction(function):
        return False
    place = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), None)
    return bool(place) and not place.endswith("<locals>") and first in ("self", "cls")


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters without `self` and without those that a partial object has bound."""
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = list(inspect.signature(function).parameters.values())[is_unbound_method(function) :]
    return [parameter for parameter in parameters if parameter.name not in bound]


_PARAMETER_SECTION = re.compile("(other )?parameters|params|(keyword )?(args|arguments)|attributes")
_SECTION = re.compile(
    f"{_PARAMETER_SECTION.pattern}|returns?|yields?|receives|raises?|except|exceptions|warns|examples?|notes?|warnings?"
    "|todo|references|see also|methods"
)
_UNDERLINE = re.compile(r"-{3,}\s*")
_FIELD = re.compile(
    r":(param|parameter|arg|argument|key|keyword|attr|ivar|var|type|vartype|returns?|rtype|raises?|except|exception"
    r"|yields?|ytype|meta)(?:\s+([^:]+))?:(?:\s+(.*))?$"
)
_PARAMETER_FIELDS = {"param", "parameter", "arg", "argument", "key", "keyword", "attr", "ivar", "var"}
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*))?$")
_NUMPY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_LIST_ITEM = re.compile(r"\s|[-*+•] |\d+[.)] ")


class Documentation(NamedTuple):
    """The description of a function, and those of its parameters by name."""

    description: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Documentation:
    """Parse a docstring. Without one, all is empty.

    >>> read_docstring("Look it up.\\n\\nArgs:\\n    city: Where,\\n        in English.")
    Documentation(description='Look it up.', parameters={'city': 'Where, in English.'})
    """
    lines = inspect.cleandoc(text or "").splitlines()
    starts = [at for at in range(len(lines)) if _starts_section(lines, at)]
    parameters: dict[str, str] = {}
    for start, end in pairwise([*starts, len(lines)]):
        for name, described in _read_section(lines[start], lines[start + 1 : end]):
            if description := " ".join(" ".join(described).split()):
                parameters.setdefault(name, description)
    return Documentation(_join_lines(lines[: starts[0] if starts else None]), parameters)


def _starts_section(lines: Sequence[str], at: int) -> bool:
    line = lines[at]
    if line.startswith((" ", "\t")) or not line:
        return False
    if line.startswith(">>>") or _FIELD.match(line):
        return True
    title = line.rstrip().lower()
    if _SECTION.fullmatch(title):
        return at + 1 < len(lines) and _UNDERLINE.fullmatch(lines[at + 1]) is not None
    if not title.endswith(":") or not _SECTION.fullmatch(title[:-1]):
        return False
    below = next((line for line in lines[at + 1 :] if line.strip()), "")
    return below.startswith((" ", "\t"))


def _read_section(head: str, lines: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the name of each parameter that a section describes, with the lines of its description."""
    title = head.rstrip().lower()
    if field := _FIELD.match(head):
        kind, named, rest = field.groups()
        if kind in _PARAMETER_FIELDS and named:  # a type may precede the name
            yield named.split()[-1].lstrip("*"), [rest or "", *takewhile(str.strip, lines)]
    elif _PARAMETER_SECTION.fullmatch(title):
        for names, text in _entries(lines[1:], _NUMPY, ""):
            for name in names.split(","):
                yield name.strip().lstrip("*"), text[1:]
    elif _PARAMETER_SECTION.fullmatch(title.removesuffix(":")):
        body = [line.expandtabs() for line in lines]
        depth = next(len(line) - len(line.lstrip()) for line in body if line.strip())
        yield from _entries(body, _GOOGLE, " " * depth)


def _entries(body: Sequence[str], form: re.Pattern[str], indent: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each entry at `indent`, with its text and the lines below it that are indented further."""
    name, text = "", list[str]()
    for line in body:
        if line.strip() and not line.startswith(indent + " "):
            if name:
                yield name, text
            match = form.match(line.removeprefix(indent)) if line.startswith(indent) else None
            name, text = (match[1], [match[2] or "" if form is _GOOGLE else ""]) if match else ("", [])
        elif name:
            text.append(line)
    if name:
        yield name, text


def _join_lines(lines: Sequence[str]) -> str:
    """Return the paragraphs, each on one line. Lists and indented blocks keep their lines."""
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            paragraphs[-1].append(line.rstrip())
        elif paragraphs[-1]:
            paragraphs.append([])
    return "\n\n".join(
        "\n".join(lines) if any(map(_LIST_ITEM.match, lines)) else " ".join(lines) for lines in paragraphs if lines
    )
