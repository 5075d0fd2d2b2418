"""Builds the schema and the parser of a tool's arguments, and the serializer of its result, from type hints.

pydantic builds them once, when the tool is defined. A call then only validates its arguments.

- If the only parameter is a model, a dataclass or a typed dict, the arguments of the call are the fields of that
  object.
- If the tool has the option `parameters`, the function gets all arguments in one dict.
- Any other function gets the arguments of the call as keyword arguments.
- A parameter of type `ToolContext` is filled by the library. The model does not see it.

Arguments are validated as JSON, not as Python values. Strict models and encoded bytes need this. The tool also gets new
objects, which it does not share with the call in the events.

The declared return type selects the fields of a result, as the response model of a web framework does. Without a usable
return type, a result is serialized by the type of its value.

`import streamtools` does not import this module: pydantic's models are slow to import, and only tools need them.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, SimpleNamespace
from typing import Annotated, Any, NamedTuple, TypeAlias, Union

import pydantic
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import from_json

from streamtools.errors import Code
from streamtools.json_values import Rejected
from streamtools.tools.context import ToolContext
from streamtools.tools.functions import body_of, parameters_of, read_docstring
from streamtools.tools.results import ToolResult
from streamtools.tools.schemas import JsonSchema, complete, snapshot

EMPTY = inspect.Parameter.empty
UNUSABLE = (pydantic.PydanticUserError, NameError, TypeError)
"""The exceptions that pydantic and typing raise for a type that they cannot use."""


def _hint_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter, or `Any` if it has no annotation.

    Raises TypeError if the annotation cannot be resolved.
    """
    try:
        hint = _resolve(parameter.annotation, body_of(function))
    except UNUSABLE as error:
        raise TypeError(f"the type of parameter {parameter.name!r} cannot be resolved: {error}") from error
    return Any if hint is EMPTY else hint


def untyped(function: Callable[..., Any]) -> set[str]:
    """Return the names of the parameters without an annotation."""
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.annotation is EMPTY}


def _resolve(annotation: Any, body: Any) -> Any:
    """Evaluate an annotation with the names of the function's module.

    If a name is missing there, evaluate it with the local names of the caller that defines the tool. This finds types
    that are defined inside a function, for example in a request handler.
    """
    if annotation is EMPTY:
        return EMPTY
    holder: Any = SimpleNamespace(__annotations__={"it": annotation})
    names = getattr(inspect.unwrap(body), "__globals__", {})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["it"]
    except NameError:
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "streamtools":
            frame = frame.f_back
        locals_ = {} if frame is None else dict(frame.f_locals)
        return typing.get_type_hints(holder, names, locals_, include_extras=True)["it"]


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the type itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _bare(hint: Any) -> Any:
    """Return the type without its `Annotated` metadata."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def _is_context(hint: Any) -> bool:
    """Return whether this is the type `ToolContext`, or `ToolContext | None`."""
    kinds = [typing.get_origin(_bare(member)) or _bare(member) for member in _members(_bare(hint))]
    return ToolContext in kinds and all(kind in (ToolContext, type(None)) for kind in kinds)


def _is_record(hint: Any) -> bool:
    """Return whether this type is a model, a dataclass or a typed dict."""
    hint = _bare(hint)
    kind = typing.get_origin(hint) or hint
    if not inspect.isclass(kind):
        return False
    is_typed_dict = hasattr(kind, "__required_keys__")  # also true for typing_extensions, unlike `is_typeddict`
    return issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind) or is_typed_dict


class _Schema(GenerateJsonSchema):
    """Generates JSON schemas without titles that only repeat the names of fields, and without Python warnings."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Ignore the warning. The schema then omits a default that JSON cannot express."""


def _schema_of(adapter: TypeAdapter[Any]) -> JsonSchema:
    """Return the JSON schema of a type.

    For a recursive type, pydantic returns only a `$ref`. It is replaced by the definition that it points to.
    """
    schema = adapter.json_schema(schema_generator=_Schema)
    if "$ref" in schema:
        schema = {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    schema.pop("title", None)
    completed: JsonSchema = complete(schema)
    return completed


# Return types.

_AWAITABLE = (abc.Awaitable, abc.Coroutine)
_ITERABLES = (abc.AsyncGenerator, abc.AsyncIterator, abc.AsyncIterable)


ReturnType: TypeAlias = tuple[Any, TypeAdapter[Any] | None]
"""A return type and its serializer. The serializer is None if the type cannot be used."""

_UNKNOWN: ReturnType = (Any, None)


def return_type_of(function: Callable[..., Any]) -> ReturnType:
    """Return the declared type of a function's result, or of the values that an async generator yields."""
    body = body_of(function)
    try:
        hint = _resolve(inspect.signature(function).return_annotation, body)
    except (*UNUSABLE, ValueError):
        return _UNKNOWN
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if inspect.isasyncgenfunction(body):
        return _return_type(args[0]) if origin in _ITERABLES else _UNKNOWN
    return _return_type(args[-1] if origin in _AWAITABLE else hint)


def _return_type(hint: Any) -> ReturnType:
    rest = tuple(member for member in _members(hint) if member is not ToolResult) or (Any,)
    hint = Union[rest]  # noqa: UP007  # `|` cannot join a tuple of types
    if hint in (EMPTY, Any):
        return _UNKNOWN
    try:
        return hint, TypeAdapter(hint)
    except UNUSABLE:
        return _UNKNOWN


# Parameters.

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""The positional and keyword arguments for one call of a function."""


class Input(NamedTuple):
    """How a tool gets its arguments.

    `schema` is the JSON schema of the arguments object. `read` parses the JSON of a call's arguments. `context` is the
    name of the parameter that gets the `ToolContext`, or None. `name` returns the result of `read` by name: the
    parameters with their defaults, or the fields of the record that the function takes. `needs_state` is True if the
    context is a `ToolContext[State]` whose `State` does not include None.
    """

    schema: JsonSchema
    read: Callable[[bytes], Arguments]
    name: Callable[[Arguments], dict[str, Any]]
    context: str | None = None
    needs_state: bool = False


def input_of(function: Callable[..., Any], described: Mapping[str, str]) -> Input:
    """Return the `Input` of a function.

    `described` holds descriptions by parameter name, from the docstring. A description in an annotation has precedence.
    Raises TypeError for a parameter that cannot be read from a JSON object.
    """
    parameters = parameters_of(function)
    hints = {parameter.name: _hint_of(function, parameter) for parameter in parameters}
    context, needs_state = _context_of(parameters, hints)
    parameters = [parameter for parameter in parameters if parameter.name != context]
    if len(parameters) == 1 and _is_record(hints[parameters[0].name]):
        record = _record_input(parameters[0], hints[parameters[0].name])
        if record is not None:
            return record._replace(context=context, needs_state=needs_state)
    return _keyword_input(parameters, hints, described)._replace(context=context, needs_state=needs_state)


def handler_input_of(function: Callable[..., Any], schema: Mapping[str, Any]) -> Input:
    """Return the `Input` of a function that takes one dict. Calls are checked only against `required` of the `schema`.

    Raises ValueError for a schema that providers refuse, and TypeError for a function that does not take one dict.
    """
    checked = snapshot(schema)
    hints: dict[str, Any] = {}
    parameters = parameters_of(function)
    for parameter in parameters:
        try:
            hints[parameter.name] = _hint_of(function, parameter)
        except TypeError:
            hints[parameter.name] = Any
    context, needs_state = _context_of(parameters, hints)
    try:
        inspect.signature(function).bind(None, **({} if context is None else {context: None}))
    except TypeError as error:
        raise TypeError(
            f"with parameters=, the function must take one dict of arguments and require nothing else: {error}"
        ) from error
    required = checked.get("required", [])

    def read(data: bytes) -> Arguments:
        arguments: dict[str, Any] = from_json(data)
        if missing := [name for name in required if name not in arguments]:
            raise Rejected(Code.TOOL_INPUT, "; ".join(f"{name}: Field required" for name in missing))
        return (arguments,), {}

    return Input(checked, read, lambda arguments: dict(arguments[0][0]), context, needs_state)


def _context_of(parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Return the name of the parameter that gets the `ToolContext`, and whether its state must not be None."""
    found = [parameter for parameter in parameters if _is_context(hints[parameter.name])]
    for parameter in found:
        _refuse_unnamed(parameter)
    if len(found) > 1:
        raise TypeError(f"parameters {found[0].name!r} and {found[1].name!r} both take the ToolContext; remove one")
    kinds = [kind for each in found for hint in typing.get_args(_bare(hints[each.name])) for kind in _members(hint)]
    may_be_none = any(kind in (Any, object, type(None)) or isinstance(kind, typing.TypeVar) for kind in kinds)
    return found[0].name if found else None, bool(kinds) and not may_be_none


def _record_input(parameter: inspect.Parameter, hint: Any) -> Input | None:
    """Return the `Input` for a parameter that is a model, a dataclass or a typed dict.

    Returns None if the schema of its type does not describe an object.
    """
    _refuse_unnamed(parameter)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        schema = _schema_of(adapter)
    except UNUSABLE as error:
        raise _unreadable([parameter], error) from error
    if schema.get("type") != "object":
        return None
    documented = read_docstring(_bare(hint).__doc__)
    if "description" in schema and documented.parameters:
        schema["description"] = documented.description
    _describe(schema, documented.parameters)

    def name(arguments: Arguments) -> dict[str, Any]:
        record = arguments[1][parameter.name]
        if isinstance(record, Mapping | BaseModel):
            return dict(record)
        return {each.name: getattr(record, each.name) for each in dataclasses.fields(record)}

    return Input(schema, lambda data: ((), {parameter.name: adapter.validate_json(data)}), name)


def _keyword_input(
    parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any], described: Mapping[str, str]
) -> Input:
    """Return an `Input` that reads each parameter by name.

    pydantic validates a helper function that has the same parameters, and that returns its arguments.
    """

    def collect(**arguments: Any) -> dict[str, Any]:
        return arguments

    for parameter in parameters:
        _refuse_unnamed(parameter)
    function: Any = collect  # type checkers accept only types in `TypeAdapter`
    function.__signature__ = inspect.Signature([each.replace(kind=each.KEYWORD_ONLY) for each in parameters])
    function.__annotations__ = {parameter.name: hints[parameter.name] for parameter in parameters}
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(function)
        schema = _schema_of(adapter)
    except UNUSABLE as error:
        unusable = [parameter for parameter in parameters if not _is_usable(hints[parameter.name])]
        raise _unreadable(unusable or parameters, error) from error
    _describe(schema, described)
    return Input(schema, lambda data: ((), adapter.validate_json(data)), lambda arguments: dict(arguments[1]))


def _describe(schema: JsonSchema, described: Mapping[str, str]) -> None:
    for name, text in described.items():
        part = schema.get("properties", {}).get(name)
        if text and isinstance(part, dict):
            part.setdefault("description", text)


def _refuse_unnamed(parameter: inspect.Parameter) -> None:
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"parameter {parameter.name!r} is positional-only; remove the `/`, since arguments have names")
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise TypeError(f"parameter '*{parameter.name}' takes unnamed values; use a parameter of type list instead")
    if parameter.kind is parameter.VAR_KEYWORD:
        raise TypeError(f"parameter '**{parameter.name}' takes any names; use a parameter of type dict instead")


def _is_usable(hint: Any) -> bool:
    """Return whether pydantic can read a value of this type from JSON."""
    try:
        _schema_of(TypeAdapter(hint))
    except UNUSABLE:
        return False
    return True


def _unreadable(parameters: Sequence[inspect.Parameter], error: Exception) -> TypeError:
    names = ", ".join(repr(parameter.name) for parameter in parameters)
    return TypeError(f"parameter {names} cannot be read from JSON: {str(error).partition(chr(10))[0]}")
