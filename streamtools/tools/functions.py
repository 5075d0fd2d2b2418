"""Inspects functions: the code that a call runs, the parameters that need arguments, and the docstring."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple


def without_partials(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside `functools.partial` objects."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def body_of(function: Callable[..., Any]) -> Any:
    """Return the function, method or class that a call runs. For any other callable object, return its `__call__`."""
    function = without_partials(function)
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def is_unbound_method(function: Callable[..., Any]) -> bool:
    """Return whether this is a method that is not bound to an instance of its class."""
    if not inspect.isfunction(function):
        return False
    owner = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), None)
    return bool(owner) and not owner.endswith("<locals>") and first in ("self", "cls")


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters, except the keywords that a `functools.partial` object has already set."""
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = inspect.signature(function).parameters.values()
    return [parameter for parameter in parameters if parameter.name not in bound]


# Titles of the sections that describe parameters, and of all sections, in lower case
_PARAMETERS = re.compile("(other )?parameters|params|(keyword )?(args|arguments)|attributes")
_SECTION = re.compile(
    f"({_PARAMETERS.pattern}|returns?|yields?|receives|raises?|except|exceptions|warns|examples?|notes?|warnings?"
    "|todo|references|see also|methods):"
)
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*))?$")  # "city (str): Where."


class Documentation(NamedTuple):
    """The description of a function, and the descriptions of its parameters by name."""

    description: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Documentation:
    """Parse a docstring in Google's style.

    The text before the first section or doctest is the description. Lines in the parameter sections that do not
    describe a parameter are ignored. If `text` is None, the description is "" and no parameter is described.

    >>> read_docstring("Look it up.\\n\\nArgs:\\n    city: Where,\\n        in English.")
    Documentation(description='Look it up.', parameters={'city': 'Where, in English.'})
    """
    lines = inspect.cleandoc(text or "").splitlines()
    starts = [at for at in range(len(lines)) if _starts_section(lines, at)]
    parameters: dict[str, str] = {}
    for start, end in pairwise([*starts, len(lines)]):
        if _PARAMETERS.match(lines[start].lower()):
            for name, described in _entries(lines[start + 1 : end]):
                if description := " ".join(" ".join(described).split()):
                    parameters.setdefault(name, description)
    return Documentation("\n".join(lines[: starts[0] if starts else None]).strip(), parameters)


def _starts_section(lines: Sequence[str], at: int) -> bool:
    first = next(filter(str.strip, lines[at + 1 :]), "")
    return lines[at].startswith(">>>") or (
        first.startswith(" ") and _SECTION.fullmatch(lines[at].rstrip().lower()) is not None
    )


def _entries(lines: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the name of each described parameter with the lines of its description.

    The lines that continue a description are indented further than the line with the name.
    """
    first = next(filter(str.strip, lines))
    indent = first[: len(first) - len(first.lstrip())]
    entries, text = list[tuple[str, list[str]]](), list[str]()
    for line in lines:
        if line.strip() and not line.startswith(indent + " "):
            match = _ENTRY.match(line.removeprefix(indent)) if line.startswith(indent) else None
            text = []
            if match:
                text = [match[2] or ""]
                entries.append((match[1], text))
        else:
            text.append(line)
    return entries
