"""A tool: a function, and what a model has to know to call it.

`@tool` reads both from the function itself: its name, the first paragraph of its docstring, its type hints. What it
makes stays callable as the function that it was. Everything that costs is done here, once: a call by a model then only
reads its arguments and calls.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from pydantic import ValidationError
from pydantic_core import to_json

from streamtools.calls import Rejected
from streamtools.errors import ToolInputError
from streamtools.tools.outcome import Written, write
from streamtools.tools.signature import (
    Arguments,
    body_of,
    explain,
    input_of,
    input_of_schema,
    output_of,
    without_bound,
)

if TYPE_CHECKING:
    from typing_extensions import ParamSpec
    from typing_extensions import TypeVar as TypeVarWithDefault

    P = ParamSpec("P", default=...)
    R = TypeVarWithDefault("R", default=Any)
else:
    from typing import ParamSpec

    P = ParamSpec("P")
    R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what OpenAI and Anthropic both accept


class Tool(Generic[P, R]):
    """A function that a model may call by name.

    `parameters` is the JSON schema of the arguments; `input_type` and `output_type` are the Python types behind the
    two ends. `timeout` is in seconds; None leaves it to the runner, and `math.inf` waits for ever.

    >>> def add(a: int, b: int = 1) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> adder = Tool.from_function(add)
    >>> adder.name, adder.description, adder(2, b=3)
    ('add', 'Add two numbers.', 5)
    >>> adder.parameters["required"]
    ['a']
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Define a tool. With `parameters`, a JSON schema, the function is a handler that takes one dict of arguments.

        Raises ValueError for a name that providers refuse, a timeout that is not positive or a schema of no object,
        and TypeError for a signature that no JSON object fits, naming the tool and the parameter.
        """
        body = body_of(function)
        functools.update_wrapper(self, function, updated=())
        self.name = _checked(name if name is not None else _name_of(function))
        self.description = description if description is not None else _first_paragraph(function)
        if timeout is not None and not timeout > 0:
            raise ValueError(f"tool {self.name!r}: a timeout is a positive number of seconds, not {timeout!r}")
        self.timeout = timeout
        self.function = function
        self.is_async = inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body)
        self.yields = inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)
        try:
            taken = input_of(function) if parameters is None else input_of_schema(parameters)
        except (TypeError, ValueError) as error:
            raise type(error)(f"tool {self.name!r}: {error}") from error
        self.parameters, self.input_type, self._read = taken
        self.output_type, self._output = output_of(function)

    @classmethod
    def from_function(
        cls,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Tool[P, R]:
        """Return the tool that calls `function`; raises as the constructor does."""
        return cls(function, name=name, description=description, parameters=parameters, timeout=timeout)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as if it had never been made a tool."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}{inspect.signature(self.function)}>"

    def read(self, arguments: Mapping[str, Any]) -> Arguments:
        """Return the function's own arguments for those of a call.

        Raises `ToolInputError` where they do not fit, and whatever else the validators of the user raise.
        """
        try:
            data = to_json(arguments)
        except ValueError:
            raise ToolInputError(self.name, f"the arguments of {self.name!r} cannot be written as JSON") from None
        try:
            return self._read(data)
        except ValidationError as error:
            reason = explain(error)
        except Rejected as error:
            reason = error.message
        raise ToolInputError(self.name, f"the arguments of {self.name!r} do not fit: {reason}")

    def write(self, value: Any) -> Written:
        """Return a result in the forms for the interface and for the model; raises what its serialiser raises."""
        return write(value, self._output)


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: as `@tool`, as `@tool(name=…)`, or as `tool(function, name=…)`; see `Tool`."""
    return functools.partial(Tool, **options) if function is None else Tool(function, **options)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a tool: 1 to 64 of the characters A-Z, a-z, 0-9, _ and -")
    return name


def _name_of(function: Callable[..., Any]) -> str:
    function = without_bound(function)
    return getattr(function, "__name__", type(function).__name__)


def _first_paragraph(function: Callable[..., Any]) -> str:
    text = body_of(function).__doc__ or without_bound(function).__doc__ or ""
    return " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
