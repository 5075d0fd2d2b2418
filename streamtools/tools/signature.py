"""From the type hints of a function to what may be asked of it and what comes back: JSON schemas, readers and writers.

All are built once, when the tool is defined, by pydantic; a call then costs one pass over its JSON. A function whose
only parameter is a model, a dataclass or a typed dict takes that record itself; any other takes its parameters by name;
a plain schema leaves the object to its handler. A parameter for the `ToolContext` is not the model's.

Arguments are read as JSON rather than as Python values, because strict models and encoded bytes differ between the two,
and because the tool then owns what it gets: it can change nothing in the call that the interface is shown.

A declared return type decides what is published: fields that a subclass adds stay inside, as in a web framework. Typing
is gradual: a type that nobody knows or can write as JSON says nothing, and results are written by what they are.

`import streamtools` does not load this module: pydantic's models are slow to import, and only tools need them.
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
from typing import Annotated, Any, NamedTuple, Union

import pydantic
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import from_json

from streamtools.errors import Code
from streamtools.json_values import Rejected
from streamtools.tools.context import ToolContext
from streamtools.tools.descriptions import body_of, is_unbound_method, parameters_of, read_docstring
from streamtools.tools.results import ToolResult
from streamtools.tools.schemas import JsonSchema, complete, snapshot

EMPTY = inspect.Parameter.empty
UNUSABLE = (pydantic.PydanticUserError, NameError, TypeError)
"""What pydantic and typing raise for a type they can do nothing with."""


def _hint_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter, `Any` where it has none. Raises TypeError for one that nobody knows."""
    try:
        hint = _resolve(parameter.annotation, body_of(function))
    except UNUSABLE as error:
        raise TypeError(f"the type of parameter {parameter.name!r} is unknown: {error}") from error
    return Any if hint is EMPTY else hint


def untyped(function: Callable[..., Any]) -> set[str]:
    return {each.name for each in inspect.signature(function).parameters.values() if each.annotation is EMPTY}


def _resolve(annotation: Any, body: Any) -> Any:
    """Return the type that an annotation means where it was written, or else where the tool is being defined.

    Types may be local to a function, as in a request's handler: the local names of whoever defines the tool count for
    annotations that the function's module cannot explain.
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
    """Return the types of a union, or the one type that this is."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _bare(hint: Any) -> Any:
    """Return the type itself, without what `Annotated` says of it."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def _is_context(hint: Any) -> bool:
    """Return whether a parameter of this type is given the `ToolContext`; it may be optional."""
    kinds = [typing.get_origin(_bare(each)) or _bare(each) for each in _members(_bare(hint))]
    return ToolContext in kinds and all(kind in (ToolContext, type(None)) for kind in kinds)


def _is_record(hint: Any) -> bool:
    """Return whether a value of this type is written as an object: a model, a dataclass or a typed dict."""
    hint = _bare(hint)
    kind = typing.get_origin(hint) or hint
    if not inspect.isclass(kind):
        return False
    is_typed_dict = hasattr(kind, "__required_keys__")  # typing and typing_extensions do not recognise each other's
    return issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind) or is_typed_dict


class _Schema(GenerateJsonSchema):
    """A schema as models need it: no titles that repeat a parameter's name, no complaint about odd defaults."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Do nothing: a default that no JSON can show is merely not shown."""


def _schema_of(adapter: TypeAdapter[Any], mode: JsonSchemaMode = "validation") -> JsonSchema:
    """Return the schema of a type, with what it is at the top, also if it refers to itself."""
    schema = adapter.json_schema(schema_generator=_Schema, mode=mode)
    if "$ref" in schema:
        schema = {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    schema.pop("title", None)
    completed: JsonSchema = complete(schema)
    return completed


# What a function returns.

_AWAITABLE = (abc.Awaitable, abc.Coroutine)
_MANY = (abc.Generator, abc.AsyncGenerator, abc.Iterator, abc.AsyncIterator, abc.Iterable, abc.AsyncIterable)


class Output(NamedTuple):
    """A type, what writes its values if that is more than plain values, and its JSON schema if it has one."""

    type: Any = Any
    adapter: TypeAdapter[Any] | None = None
    schema: JsonSchema | None = None


class Outputs(NamedTuple):
    """What a function comes to in the end, and what it yields before."""

    result: Output = Output()
    progress: Output = Output()


def outputs_of(function: Callable[..., Any]) -> Outputs:
    """Return what `function` is declared to return and to yield.

    Of a generator, the result is what it returns, if it is declared to return anything, and else what it yields last.
    """
    body = body_of(function)
    try:
        hint = _resolve(inspect.signature(function).return_annotation, body)
    except (*UNUSABLE, ValueError):
        return Outputs()
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        if origin not in _MANY:
            return Outputs()
        yielded = _output(args[0])
        returns = origin is abc.Generator and len(args) == 3 and args[2] is not type(None)
        return Outputs(_output(args[2]) if returns else yielded, yielded)
    return Outputs(_output(args[-1] if origin in _AWAITABLE else hint))


def _output(hint: Any) -> Output:
    rest = tuple(each for each in _members(hint) if each is not ToolResult) or (Any,)
    hint = Union[rest]  # noqa: UP007  # of as many as there are, which `|` cannot say
    if hint in (EMPTY, Any):
        return Output()
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
    except UNUSABLE:
        return Output()
    try:
        return Output(hint, adapter, _schema_of(adapter, "serialization"))
    except UNUSABLE:
        return Output(hint, adapter)


# What a function takes.

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""The positional and the named arguments of one call of a function."""

_UNPACK = (typing.Unpack, typing_extensions.Unpack)  # two, before Python 3.12


class Input(NamedTuple):
    """What a tool takes: the JSON schema of one object, the type behind it, and the reader of its JSON.

    `context` is the name of the parameter that takes the `ToolContext`.
    """

    schema: JsonSchema
    type: Any
    read: Callable[[bytes], Arguments]
    context: str | None = None


def input_of(function: Callable[..., Any], described: Mapping[str, str]) -> Input:
    """Return what `function` takes; `described` says what its parameters mean where their types do not.

    Raises TypeError, naming the parameter, where no JSON object can say it.
    """
    parameters = parameters_of(function)
    hints = {each.name: _hint_of(function, each) for each in parameters}
    context = _context(parameters, hints)
    parameters = [each for each in parameters if each.name != context]
    body = body_of(function)
    hidden = set(inspect.signature(getattr(body, "__func__", body)).parameters) - {each.name for each in parameters}
    if len(parameters) == 1 and _is_record(hints[parameters[0].name]):
        taken = _record(parameters[0], hints[parameters[0].name])
        if taken is not None:
            return taken._replace(context=context)
    return _keywords(parameters, hints, described, hidden)._replace(context=context)


def handler_input_of(function: Callable[..., Any], schema: Mapping[str, Any]) -> Input:
    """Return an input that is one dict by a schema of the user's own; of the schema, only `required` is checked.

    Raises ValueError for a schema that providers refuse, and TypeError for a function that takes no single dict.
    """
    kept = snapshot(schema)
    hints: dict[str, Any] = {}
    parameters = parameters_of(function)
    for each in parameters:
        try:
            hints[each.name] = _hint_of(function, each)
        except TypeError:
            hints[each.name] = Any
    context = _context(parameters, hints)
    given: list[Any] = [None] * (1 + is_unbound_method(function))
    try:
        inspect.signature(function).bind(*given, **({} if context is None else {context: None}))
    except TypeError as error:
        raise TypeError(f"a handler takes one dict of arguments, and nothing else that it needs: {error}") from error
    required = kept.get("required", [])

    def read(data: bytes) -> Arguments:
        arguments: dict[str, Any] = from_json(data)
        if missing := [name for name in required if name not in arguments]:
            raise Rejected(Code.TOOL_INPUT, "; ".join(f"{name}: Field required" for name in missing))
        return (arguments,), {}

    return Input(kept, dict[str, Any], read, context)


def _context(parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> str | None:
    found = [each for each in parameters if _is_context(hints[each.name])]
    for each in found:
        _refuse_positional(each)
    if len(found) > 1:
        raise TypeError(f"parameters {found[0].name!r} and {found[1].name!r} both take the ToolContext")
    return found[0].name if found else None


def _record(parameter: inspect.Parameter, hint: Any) -> Input | None:
    """Return the input that is this record, or None if its type is written as something else than an object."""
    _refuse_positional(parameter)
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
    return Input(schema, hint, lambda data: ((), {parameter.name: adapter.validate_json(data)}))


def _keywords(
    parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any], described: Mapping[str, str], hidden: set[str]
) -> Input:
    """Return an input that reads each parameter by its name, and gives the function only what was said.

    The fields have names of our own, so that a parameter may be called `schema` or `_x`; their aliases are the names.
    `hidden` are parameters that are not the model's to fill, also where any further name is welcome.
    """
    names: dict[str, str] = {}
    fields: dict[str, Any] = {}
    unsaid: set[str] = set()  # fields that may stay away, because the function has their default itself
    extra: Any = None
    for parameter in parameters:
        _refuse_positional(parameter)
        hint = hints[parameter.name]
        if parameter.kind is parameter.VAR_KEYWORD:
            if typing.get_origin(hint) in _UNPACK:
                raise TypeError(f"parameter {parameter.name!r} unpacks a typed dict: take the dict as one parameter")
            extra = hint
            continue
        field = f"p{len(fields)}"
        names[field] = parameter.name
        kind, *metadata = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        named: Any = Annotated[(kind, Field(alias=parameter.name), *metadata)]  # a user's alias wins
        fields[field] = named if parameter.default is EMPTY else (named, parameter.default)
        if parameter.default is not EMPTY and not isinstance(parameter.default, FieldInfo):
            unsaid.add(field)
    try:
        model = _model(fields, extra)
        schema = _schema_of(TypeAdapter(model))
    except UNUSABLE as error:
        raise _unreadable(_culprits(parameters, hints), error) from error
    schema.setdefault("properties", {})
    _describe(
        schema, {model.model_fields[field].alias or name: described.get(name, "") for field, name in names.items()}
    )
    validate = model.__pydantic_validator__.validate_json

    def read(data: bytes) -> Arguments:
        said = validate(data)
        given = said.model_fields_set
        arguments = {
            name: getattr(said, field) for field, name in names.items() if field in given or field not in unsaid
        }
        more = said.__pydantic_extra__
        if not more:
            return (), arguments
        if forbidden := [name for name in more if name in hidden]:
            raise Rejected(Code.TOOL_INPUT, "; ".join(f"{name}: Extra inputs are not permitted" for name in forbidden))
        return (), {**more, **arguments}

    return Input(schema, model, read)


def _describe(schema: JsonSchema, described: Mapping[str, str]) -> None:
    for name, text in described.items():
        part = schema.get("properties", {}).get(name)
        if text and isinstance(part, dict):
            part.setdefault("description", text)


def _model(fields: dict[str, Any], extra: Any) -> type[BaseModel]:
    config = ConfigDict(extra="forbid" if extra is None else "allow")
    if extra is None:
        return create_model("Arguments", __config__=config, **fields)
    body = {"model_config": config, "__module__": __name__, "__annotations__": {"__pydantic_extra__": dict[str, extra]}}
    base: type[BaseModel] = type("Keywords", (BaseModel,), body)
    return create_model("Arguments", __base__=base, **fields)


def _refuse_positional(parameter: inspect.Parameter) -> None:
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"parameter {parameter.name!r} is positional-only, and the members of a JSON object have names")
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise TypeError(f"parameter '*{parameter.name}' has no name for its values, and members of a JSON object do")


def _culprits(parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> Sequence[inspect.Parameter]:
    """Return those of the parameters that cannot be read on their own."""

    def refused(parameter: inspect.Parameter) -> bool:
        try:
            _keywords([parameter], hints, {}, set())
        except TypeError:
            return True
        return False

    return parameters if len(parameters) == 1 else [each for each in parameters if refused(each)]


def _unreadable(parameters: Sequence[inspect.Parameter], error: Exception) -> TypeError:
    names = ", ".join(repr(each.name) for each in parameters)
    return TypeError(f"parameter {names} cannot be read from JSON: {str(error).partition(chr(10))[0]}")
