"""What a docstring says to a model: what the function is for, and what each parameter means.

Read are the three ways in which Python users write parameters down: Google's `Args:`, NumPy's underlined `Parameters`,
and Sphinx's `:param name:`; they may be mixed. What stands before the first section, field or doctest is the
description. Nothing is guessed: a line that fits no form describes no parameter.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_PARAMETERS = {
    *("args", "arguments", "params", "parameters", "other parameters", "keyword args", "keyword arguments"),
    "attributes",  # of a dataclass, a model or a typed dict
}
_OTHERS = {
    *("return", "returns", "yield", "yields", "receives", "raises", "raise", "except", "exceptions", "warns"),
    *("example", "examples", "note", "notes", "warning", "warnings", "todo", "references", "see also", "methods"),
}
_UNDERLINE = re.compile(r"-{3,}\s*")
_FIELD = re.compile(
    r":(param|parameter|arg|argument|key|keyword|attr|ivar|var|type|vartype|returns?|rtype|raises?|except|exception"
    r"|yields?|ytype|meta)(?:\s+([^:]+))?:(?:\s+(.*))?$"
)
_DESCRIBES = {"param", "parameter", "arg", "argument", "key", "keyword", "attr", "ivar", "var"}
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*))?$")
_NUMPY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_LIST_ITEM = re.compile(r"\s|[-*+•] |\d+[.)] ")


class Documentation(NamedTuple):
    """What a function is for, and its parameters by name."""

    description: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Documentation:
    """Return what a docstring says; of none, nothing.

    >>> read_docstring("Look it up.\\n\\nArgs:\\n    city: Where,\\n        in English.")
    Documentation(description='Look it up.', parameters={'city': 'Where, in English.'})
    """
    lines = inspect.cleandoc(text or "").splitlines()
    first = next((at for at in range(len(lines)) if _begins_section(lines, at)), len(lines))
    parameters: dict[str, str] = {}
    at = first
    while at < len(lines):
        end = next((later for later in range(at + 1, len(lines)) if _begins_section(lines, later)), len(lines))
        for name, description in _described(lines[at:end]):
            if description:
                parameters.setdefault(name, description)
        at = end
    return Documentation(_flow(lines[:first]), parameters)


def _begins_section(lines: Sequence[str], at: int) -> bool:
    line = lines[at]
    if line.startswith((" ", "\t")) or not line:
        return False
    if line.startswith(">>>") or _FIELD.match(line):
        return True
    title = line.rstrip().lower()
    if title in _PARAMETERS | _OTHERS:
        return at + 1 < len(lines) and _UNDERLINE.fullmatch(lines[at + 1]) is not None
    if not title.endswith(":") or title[:-1] not in _PARAMETERS | _OTHERS:
        return False
    below = next((each for each in lines[at + 1 :] if each.strip()), "")
    return below.startswith((" ", "\t"))


def _described(section: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and descriptions that a section holds; its first line is its head."""
    head = section[0]
    field = _FIELD.match(head)
    if field is not None:
        kind, named, rest = field.groups()
        if kind in _DESCRIBES and named:
            text = [rest or "", *_until_blank(section[1:])]
            yield named.split()[-1].lstrip("*"), _join(text)  # what stands before the name is its type
    elif head.rstrip().lower() in _PARAMETERS:
        for names, text in _entries(section[2:], _NUMPY, ""):
            for name in names.split(","):
                yield name.strip().lstrip("*"), _join(text[1:])
    elif head.rstrip().lower().removesuffix(":") in _PARAMETERS:
        body = [line.expandtabs() for line in section[1:]]
        depth = next(len(line) - len(line.lstrip()) for line in body if line.strip())
        for name, text in _entries(body, _GOOGLE, " " * depth):
            yield name, _join(text)


def _entries(body: Sequence[str], form: re.Pattern[str], indent: str) -> Iterator[tuple[str, list[str]]]:
    """Yield what is written at `indent` in a form, with the lines below it that are indented further."""
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


def _until_blank(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if not line.strip():
            return
        yield line


def _flow(lines: Sequence[str]) -> str:
    """Return paragraphs, each on one line unless it is a list or a block whose lines mean something."""
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            paragraphs[-1].append(line.rstrip())
        elif paragraphs[-1]:
            paragraphs.append([])
    return "\n\n".join(
        "\n".join(each) if any(map(_LIST_ITEM.match, each)) else " ".join(each) for each in paragraphs if each
    )


def _join(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())
