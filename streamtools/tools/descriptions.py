"""How a function is described to a model: its docstring, and the JSON schema of its arguments.

Docstrings are read in the three ways in which Python users describe parameters: Google's `Args:`, NumPy's underlined
`Parameters`, and Sphinx's `:param name:`; they may be mixed. What precedes the first section, field or doctest is the
description. Nothing is guessed: a line that fits no form describes no parameter.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

from streamtools.tools.schemas import JsonSchema, inline


def without_bound(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def body_of(function: Callable[..., Any]) -> Any:
    """Return the function, method or class that a call of `function` runs; of a callable object, its `__call__`."""
    function = without_bound(function)
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def is_unbound_method(function: Callable[..., Any]) -> bool:
    """Return whether this is a method as the body of its class defines it, without an object to call it on."""
    if not inspect.isfunction(function):
        return False
    place = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), None)
    return bool(place) and not place.endswith("<locals>") and first in ("self", "cls")


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that are still to be filled: not `self`, nor what a partial object has bound."""
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = list(inspect.signature(function).parameters.values())[is_unbound_method(function) :]
    return [each for each in parameters if each.name not in bound]


_PARAMETERS = {
    *("args", "arguments", "params", "parameters", "other parameters", "keyword args", "keyword arguments"),
    "attributes",  # of a dataclass, a model or a typed dict
}
_SECTIONS = {
    *_PARAMETERS,
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
    begins = [at for at in range(len(lines)) if _begins_section(lines, at)]
    parameters: dict[str, str] = {}
    for begin, end in pairwise([*begins, len(lines)]):
        for name, described in _read_section(lines[begin], lines[begin + 1 : end]):
            if description := " ".join(" ".join(described).split()):
                parameters.setdefault(name, description)
    return Documentation(_flow(lines[: begins[0] if begins else None]), parameters)


def _begins_section(lines: Sequence[str], at: int) -> bool:
    line = lines[at]
    if line.startswith((" ", "\t")) or not line:
        return False
    if line.startswith(">>>") or _FIELD.match(line):
        return True
    title = line.rstrip().lower()
    if title in _SECTIONS:
        return at + 1 < len(lines) and _UNDERLINE.fullmatch(lines[at + 1]) is not None
    if not title.endswith(":") or title[:-1] not in _SECTIONS:
        return False
    below = next((each for each in lines[at + 1 :] if each.strip()), "")
    return below.startswith((" ", "\t"))


def _read_section(head: str, lines: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the parameters that a section describes, by their names."""
    title = head.rstrip().lower()
    if field := _FIELD.match(head):
        kind, named, rest = field.groups()
        if kind in _DESCRIBES and named:  # in which the type precedes the name
            yield named.split()[-1].lstrip("*"), [rest or "", *takewhile(str.strip, lines)]
    elif title in _PARAMETERS:
        for names, text in _entries(lines[1:], _NUMPY, ""):
            for name in names.split(","):
                yield name.strip().lstrip("*"), text[1:]
    elif title.removesuffix(":") in _PARAMETERS:
        body = [line.expandtabs() for line in lines]
        depth = next(len(line) - len(line.lstrip()) for line in body if line.strip())
        yield from _entries(body, _GOOGLE, " " * depth)


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


# The tools of the seed's chat front end have a list of parameters in place of an object's schema; it says the same. The
# schema of a parameter is on its own there, so that references into the whole are written out.


def schema_of_parameters(parameters: Iterable[Mapping[str, Any]]) -> JsonSchema:
    """Return the JSON schema of the object that has these parameters. Raises ValueError for one without a name.

    >>> schema_of_parameters([{"name": "city", "type": "string", "description": "Where.", "isRequired": True}])
    {'type': 'object', 'properties': {'city': {'type': 'string', 'description': 'Where.'}}, 'required': ['city']}
    """
    properties: dict[str, Any] = {}
    required: list[str] = []
    for each in parameters:
        name = each.get("name") if isinstance(each, Mapping) else None
        if not isinstance(name, str) or not name or name in properties:
            raise ValueError(f"each parameter has a name of its own, and this one has not: {each!r}")
        schema = {key: value for key, value in (each.get("schema") or {}).items() if key != "$schema"}
        if "type" not in schema and each.get("type"):
            schema = {"type": each["type"], **schema}
        if each.get("description"):
            schema["description"] = each["description"]
        properties[name] = schema
        if each.get("isRequired"):
            required.append(name)
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def parameters_of_schema(schema: JsonSchema) -> list[dict[str, Any]]:
    """Return the parameter list of an object's schema, in its order; a type that is not one word is `object`."""
    whole = inline(schema)
    required = set(whole.get("required", ()))
    parameters = []
    for name, given in whole["properties"].items():
        part: JsonSchema = given if isinstance(given, dict) else {}
        about = {"name": name, "type": type_of(part), "description": part.get("description", "")}
        parameters.append(about | {"isRequired": name in required, "schema": {"type": type_of(part), **part}})
    return parameters


def type_of(schema: JsonSchema) -> str:
    """Return the one type that a schema allows beside null, or `object` if it does not say or allows several."""
    types = _types(schema) - {"null"}
    return types.pop() if len(types) == 1 else "object"


def _types(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return {"object"}
    kind = schema.get("type")
    if isinstance(kind, str | list):
        return {kind} if isinstance(kind, str) else set(kind)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values and all(isinstance(each, str) for each in values):
        return {"string"}
    return {each for part in schema.get("anyOf", ()) for each in _types(part)} or {"object"}
