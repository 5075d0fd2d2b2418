"""What comes back from a function by its annotation: the type that writes it, and the schema that is published.

A declared type decides what is published: fields that a subclass adds stay inside, as in a web framework. Typing is
gradual: a type that nobody knows or can write as JSON says nothing, and results are written by what they are.
"""

from __future__ import annotations

import inspect
import typing
from collections import abc
from collections.abc import Callable
from typing import Any, NamedTuple, Union

from pydantic import TypeAdapter

from streamtools.tools.hints import EMPTY, UNUSABLE, body_of, members_of, resolve
from streamtools.tools.outcome import ToolResult
from streamtools.tools.schemas import JsonSchema
from streamtools.tools.type_schemas import schema_of

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
        hint = resolve(inspect.signature(function).return_annotation, body)
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
    rest = tuple(each for each in members_of(hint) if each is not ToolResult) or (Any,)
    hint = Union[rest]  # noqa: UP007  # of as many as there are, which `|` cannot say
    if hint in (EMPTY, Any):
        return Output()
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
    except UNUSABLE:
        return Output()
    try:
        return Output(hint, adapter, schema_of(adapter, "serialization"))
    except UNUSABLE:
        return Output(hint, adapter)
