"""From a function to what may be asked of it: a JSON schema, and a reader that turns JSON into its arguments.

Both are built once, when the tool is defined, by pydantic and from the type hints; a call then costs one pass over its
JSON. A function whose only parameter is a model, a dataclass or a typed dict takes that record itself; any other takes
its parameters by name; a plain schema leaves the object to its handler.

Arguments are read as JSON rather than as Python values, because strict models and encoded bytes differ between the two,
and because the tool then owns what it gets: it can change nothing in the call that the interface is shown.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, SimpleNamespace
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import from_json

from streamtools.calls import Rejected
from streamtools.errors import Code

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""The positional and the named arguments of one call of a function."""

_UNUSABLE = (PydanticUserError, NameError, TypeError)  # what pydantic and typing say of a type they can do nothing with
_ERRORS_TOLD = 10  # a model corrects the first few and then asks again
_EMPTY = inspect.Parameter.empty


class Input(NamedTuple):
    """What a tool takes: the JSON schema of one object, the type behind it, and the reader of its JSON."""

    schema: dict[str, Any]
    type: Any
    read: Callable[[bytes], Arguments]


class Schema(GenerateJsonSchema):
    """A schema as models need it: no titles that repeat a parameter's name, no complaint about odd defaults."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: the name says it."""
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Do nothing: a default that no JSON can show is merely not shown."""


def without_bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what partial objects are made of."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def body_of(function: Callable[..., Any]) -> Any:
    """Return the function, method or class that a call of `function` runs; of a callable object, its `__call__`."""
    function = without_bound(function)
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def input_of(function: Callable[..., Any]) -> Input:
    """Return what `function` takes. Raises TypeError, naming the parameter, where no JSON object can say it."""
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name not in bound]
    hints = {each.name: _hint(function, each) for each in parameters}
    if len(parameters) == 1 and _is_record(hints[parameters[0].name]):
        return _record(parameters[0], hints[parameters[0].name])
    return _keywords(parameters, hints)


def input_of_schema(schema: Mapping[str, Any]) -> Input:
    """Return an input that is one dict by a schema of the user's own; of the schema, only `required` is checked.

    Raises ValueError for a schema that describes no object.
    """
    if schema.get("type", "object") != "object":
        raise ValueError(f"the schema of a tool's parameters is an object's, not of type {schema['type']!r}")
    required = [str(name) for name in schema.get("required", ())]

    def read(data: bytes) -> Arguments:
        arguments: dict[str, Any] = from_json(data)
        if missing := [name for name in required if name not in arguments]:
            raise Rejected(Code.TOOL_INPUT, "; ".join(f"{name}: Field required" for name in missing))
        return (arguments,), {}

    return Input({"type": "object", "properties": {}, **schema}, dict[str, Any], read)


def output_of(function: Callable[..., Any]) -> tuple[Any, TypeAdapter[Any] | None]:
    """Return the type that `function` is declared to return, and what writes it if that is more than plain values.

    A declared type decides what is published: fields that a subclass adds stay inside, as in a web framework.
    """
    body = body_of(function)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        return Any, None
    try:
        hint = _resolve(inspect.signature(function).return_annotation, body)
        return (Any, None) if hint in (_EMPTY, Any) else (hint, TypeAdapter(hint))
    except _UNUSABLE:
        return Any, None


def explain(error: ValidationError) -> str:
    """Return what is wrong as `place: reason` pairs, without the values that were given.

    Messages of a user's own validators are repeated as they are: they are written for whoever wrote the input.
    """
    errors = error.errors(include_url=False, include_input=False)
    told = [_told(each) for each in errors[:_ERRORS_TOLD]]
    return "; ".join(told if len(errors) <= _ERRORS_TOLD else [*told, f"and {len(errors) - _ERRORS_TOLD} more"])


def _told(error: Any) -> str:
    reason = error["msg"]
    if error["type"] == "union_tag_invalid":  # the one message of pydantic's own that repeats a value
        reason = f"{error['ctx']['discriminator']} is none of {error['ctx']['expected_tags']}"
    place = ".".join(str(part)[:60] for part in error["loc"])
    return f"{place}: {reason[:200]}" if place else reason[:200]


def _record(parameter: inspect.Parameter, hint: Any) -> Input:
    _refuse_positional(parameter)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        schema = adapter.json_schema(schema_generator=Schema)
    except _UNUSABLE as error:
        raise _unreadable([parameter], error) from error
    if "$ref" in schema:  # a type that refers to itself
        schema = {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    if schema.get("type") != "object":
        return _keywords([parameter], {parameter.name: hint})
    schema.pop("title", None)
    return Input(schema, hint, lambda data: ((), {parameter.name: adapter.validate_json(data)}))


def _keywords(parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> Input:
    """Return an input that reads each parameter by its name, and gives the function only what was said.

    The fields have names of our own, so that a parameter may be called `schema` or `_x`; their aliases are the names.
    """
    names: dict[str, str] = {}
    fields: dict[str, Any] = {}
    unsaid: set[str] = set()  # fields that may stay away, because the function has their default itself
    extra: Any = None
    for parameter in parameters:
        _refuse_positional(parameter)
        hint = hints[parameter.name]
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = hint
            continue
        field = f"p{len(fields)}"
        names[field] = parameter.name
        named = _under(parameter.name, hint)
        fields[field] = named if parameter.default is _EMPTY else (named, parameter.default)
        if parameter.default is not _EMPTY and not isinstance(parameter.default, FieldInfo):
            unsaid.add(field)
    try:
        model = _model(fields, extra)
        schema = model.model_json_schema(schema_generator=Schema)
    except _UNUSABLE as error:
        raise _unreadable(_culprits(parameters, hints), error) from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    validate = model.__pydantic_validator__.validate_json

    def read(data: bytes) -> Arguments:
        said = validate(data)
        given = said.model_fields_set
        arguments = {
            name: getattr(said, field) for field, name in names.items() if field in given or field not in unsaid
        }
        return (), {**said.__pydantic_extra__, **arguments} if said.__pydantic_extra__ else arguments

    return Input(schema, model, read)


def _under(name: str, hint: Any) -> Any:
    """Return the type of a field that JSON calls `name`, unless the user's own `Field(alias=…)` says otherwise."""
    kind, *metadata = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    return Annotated[(kind, Field(alias=name), *metadata)]


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


def _is_record(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    kind = typing.get_origin(hint) or hint
    if not inspect.isclass(kind):
        return False
    is_typed_dict = hasattr(kind, "__required_keys__")  # typing and typing_extensions do not recognise each other's
    return issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind) or is_typed_dict


def _culprits(parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> Sequence[inspect.Parameter]:
    """Return those of the parameters that cannot be read on their own."""

    def refused(parameter: inspect.Parameter) -> bool:
        try:
            _keywords([parameter], hints)
        except TypeError:
            return True
        return False

    return parameters if len(parameters) == 1 else [each for each in parameters if refused(each)]


def _unreadable(parameters: Sequence[inspect.Parameter], error: Exception) -> TypeError:
    names = ", ".join(repr(each.name) for each in parameters)
    return TypeError(f"parameter {names} cannot be read from JSON: {str(error).partition(chr(10))[0]}")


def _hint(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    try:
        hint = _resolve(parameter.annotation, body_of(function))
    except _UNUSABLE as error:
        raise TypeError(f"the type of parameter {parameter.name!r} is unknown: {error}") from error
    return Any if hint is _EMPTY else hint


def _resolve(annotation: Any, body: Any) -> Any:
    """Return the type that an annotation means where it was written, or where the tool is being defined."""
    if annotation is _EMPTY:
        return _EMPTY
    holder: Any = SimpleNamespace(__annotations__={"it": annotation})
    names = getattr(inspect.unwrap(body), "__globals__", {})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["it"]
    except NameError:
        return typing.get_type_hints(holder, names, _caller_names(), include_extras=True)["it"]


def _caller_names() -> dict[str, Any]:
    """Return the local names of whoever defines the tool: types may be local to a function, as in a request's handler.

    Looked up only for annotations that the function's module cannot explain.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "streamtools":
        frame = frame.f_back
    return {} if frame is None else dict(frame.f_locals)
