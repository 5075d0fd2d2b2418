"""Looks at a function: the code that a call of it runs, and the parameters that are left to fill."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


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
