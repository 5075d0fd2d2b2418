"""What a function's type hints mean, for every kind of thing that can be called."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Annotated, Any

import pydantic

from streamtools.tools.context import ToolContext

EMPTY = inspect.Parameter.empty
UNUSABLE = (
    pydantic.PydanticUserError,
    NameError,
    TypeError,
)  # what pydantic and typing say of a type they can do nothing with


def without_bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what partial objects are made of."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def body_of(function: Callable[..., Any]) -> Any:
    """Return the function, method or class that a call of `function` runs; of a callable object, its `__call__`."""
    function = without_bound(function)
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def is_unbound_method(function: Callable[..., Any]) -> bool:
    """Return whether this is a method as it stands in the body of its class, without an object to call it on."""
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


def hint_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter, `Any` where it has none. Raises TypeError for one that nobody knows."""
    try:
        hint = resolve(parameter.annotation, body_of(function))
    except UNUSABLE as error:
        raise TypeError(f"the type of parameter {parameter.name!r} is unknown: {error}") from error
    return Any if hint is EMPTY else hint


def resolve(annotation: Any, body: Any) -> Any:
    """Return the type that an annotation means where it was written, or where the tool is being defined."""
    if annotation is EMPTY:
        return EMPTY
    holder: Any = SimpleNamespace(__annotations__={"it": annotation})
    names = getattr(inspect.unwrap(body), "__globals__", {})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["it"]
    except NameError:
        return typing.get_type_hints(holder, names, _caller_names(), include_extras=True)["it"]


def members_of(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type that this is."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def bare(hint: Any) -> Any:
    """Return the type itself, without what `Annotated` says of it."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def is_context(hint: Any) -> bool:
    """Return whether a parameter of this type is given the `ToolContext`; it may be optional."""
    kinds = [typing.get_origin(bare(each)) or bare(each) for each in members_of(bare(hint))]
    return ToolContext in kinds and all(kind in (ToolContext, type(None)) for kind in kinds)


def is_record(hint: Any) -> bool:
    """Return whether a value of this type is written as an object: a model, a dataclass or a typed dict."""
    hint = bare(hint)
    kind = typing.get_origin(hint) or hint
    if not inspect.isclass(kind):
        return False
    is_typed_dict = hasattr(kind, "__required_keys__")  # typing and typing_extensions do not recognise each other's
    return issubclass(kind, pydantic.BaseModel) or dataclasses.is_dataclass(kind) or is_typed_dict


def _caller_names() -> dict[str, Any]:
    """Return the local names of whoever defines the tool: types may be local to a function, as in a request's handler.

    Looked up only for annotations that the function's module cannot explain.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "streamtools":
        frame = frame.f_back
    return {} if frame is None else dict(frame.f_locals)
