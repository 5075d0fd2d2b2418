"""From a function to what may be asked of it: a JSON schema, and a reader that turns JSON into its arguments.

Both are built once, when the tool is defined, by pydantic and from the type hints; a call then costs one pass over its
JSON. A function whose only parameter is a model, a dataclass or a typed dict takes that record itself; any other takes
its parameters by name; a plain schema leaves the object to its handler. A parameter for the `ToolContext` is not the
model's.

Arguments are read as JSON rather than as Python values, because strict models and encoded bytes differ between the two,
and because the tool then owns what it gets: it can change nothing in the call that the interface is shown.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from streamtools.errors import Code
from streamtools.json_values import Rejected
from streamtools.tools.docstrings import read_docstring
from streamtools.tools.hints import (
    EMPTY,
    UNUSABLE,
    bare,
    body_of,
    hint_of,
    is_context,
    is_record,
    is_unbound_method,
    parameters_of,
)
from streamtools.tools.schemas import JsonSchema, snapshot
from streamtools.tools.type_schemas import schema_of

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
    hints = {each.name: hint_of(function, each) for each in parameters}
    context = _context(parameters, hints)
    parameters = [each for each in parameters if each.name != context]
    body = body_of(function)
    hidden = set(inspect.signature(getattr(body, "__func__", body)).parameters) - {each.name for each in parameters}
    if len(parameters) == 1 and is_record(hints[parameters[0].name]):
        taken = _record(parameters[0], hints[parameters[0].name])
        if taken is not None:
            return taken._replace(context=context)
    return _keywords(parameters, hints, described, hidden)._replace(context=context)


def handler_input_of(function: Callable[..., Any], schema: Mapping[str, Any]) -> Input:
    """Return an input that is one dict by a schema of the user's own; of the schema, only `required` is checked.

    Raises ValueError for a schema that providers refuse, and TypeError for a function that takes no single dict.
    """
    kept = snapshot(schema)
    parameters = parameters_of(function)
    context = _context(parameters, {each.name: _known(function, each) for each in parameters})
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


def _known(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    try:
        return hint_of(function, parameter)
    except TypeError:
        return Any


def _context(parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> str | None:
    found = [each for each in parameters if is_context(hints[each.name])]
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
        schema = schema_of(adapter)
    except UNUSABLE as error:
        raise _unreadable([parameter], error) from error
    if schema.get("type") != "object":
        return None
    documented = read_docstring(bare(hint).__doc__)
    if "description" in schema and documented.parameters:
        schema["description"] = documented.description
    _describe(schema, documented.parameters)
    return Input(schema, hint, lambda data: ((), {parameter.name: adapter.validate_json(data)}))


def _keywords(
    parameters: Sequence[inspect.Parameter],
    hints: Mapping[str, Any],
    described: Mapping[str, str],
    hidden: set[str],
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
        named = _under(parameter.name, hint)
        fields[field] = named if parameter.default is EMPTY else (named, parameter.default)
        if parameter.default is not EMPTY and not isinstance(parameter.default, FieldInfo):
            unsaid.add(field)
    try:
        model = _model(fields, extra)
        schema = schema_of(TypeAdapter(model))
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
        if taken := [name for name in more if name in hidden]:
            raise Rejected(Code.TOOL_INPUT, "; ".join(f"{name}: Extra inputs are not permitted" for name in taken))
        return (), {**more, **arguments}

    return Input(schema, model, read)


def _describe(schema: JsonSchema, described: Mapping[str, str]) -> None:
    for name, text in described.items():
        part = schema.get("properties", {}).get(name)
        if text and isinstance(part, dict):
            part.setdefault("description", text)


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
