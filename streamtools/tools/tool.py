"""A tool: a function, and what a model has to know to call it.

`@tool` reads both from the function itself: its name, its docstring, its type hints. What it makes stays callable as
the function that it was. Everything that costs is done here, once: a call by a model then only reads its arguments and
calls.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

from pydantic_core import ValidationError, to_json

from streamtools.errors import ToolInputError, ToolOutputError
from streamtools.json_values import Rejected
from streamtools.limits import TOOL_NAME
from streamtools.logs import Logger
from streamtools.tools.descriptions import (
    body_of,
    is_unbound_method,
    read_docstring,
    schema_of_parameters,
    without_bound,
)
from streamtools.tools.results import Written, write

if TYPE_CHECKING:
    from typing_extensions import ParamSpec
    from typing_extensions import TypeVar as TypeVarWithDefault

    from streamtools.tools.signature import Arguments

    P = ParamSpec("P", default=...)
    R = TypeVarWithDefault("R", default=Any)
else:
    from typing import ParamSpec

    P = ParamSpec("P")
    R = TypeVar("R")

Rest = ParamSpec("Rest")
Self_ = TypeVar("Self_")
Returned = TypeVar("Returned")

log = Logger(__name__)

Trust: TypeAlias = Literal["text", "native", "approved"]
"""Which calls run without more ado: all; native ones and those under a nonce; those, while others need approval."""

RequiresApproval: TypeAlias = bool | Callable[[dict[str, Any]], bool | Awaitable[bool]]

_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{TOOL_NAME}}}")
_ERRORS_SHOWN = 10  # a model corrects the first few and then asks again


class ToolOptions(TypedDict, total=False):
    """What can be said of a tool beside its function."""

    name: str | None
    """What the model calls it: 1 to 64 of A-Z, a-z, 0-9, `_` and `-`. Default: the function's name."""
    description: str | None
    """What it is for. Default: the docstring, up to its first section."""
    parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    """A JSON schema, or a parameter list of `toolClients`: the function is then a handler of one dict of arguments."""
    timeout: float | None
    """Seconds for one call; None leaves it to the runner, and `math.inf` waits for ever."""
    sequential: bool
    """Whether no other tool runs at the same time."""
    neutralise: bool
    """Whether results that travel as text are kept from looking like calls."""
    requires_approval: RequiresApproval
    """Whether somebody has to allow each call; a function, async or not, decides it by the arguments."""
    trust: Trust
    """`"native"`: calls in text are refused, as anybody may have planted them, unless their marker has a nonce;
    `"approved"`: they need approval. Default `"text"`: they run."""
    client: bool
    """Whether the call is carried out elsewhere, in the front end say. The function is never run: its signature says
    what goes there, and its return type what comes back."""
    examples: Sequence[Mapping[str, Any]]
    """Arguments as a model might give them; they are checked, and published with the schema."""


class Tool(Generic[P, R]):
    """A function that a model may call by name.

    `parameters` is the JSON schema of the arguments and `output_schema` that of the result, if its type is declared;
    `input_type` and `output_type` are the Python types behind them. `context` names the parameter that takes the
    `ToolContext`. The rest are the `ToolOptions`.

    >>> def add(a: int, b: int = 1) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> adder = Tool.from_function(add)
    >>> adder.name, adder.description, adder(2, b=3)
    ('add', 'Add two numbers.', 5)
    >>> adder.parameters["required"]
    ['a']
    """

    _options: ToolOptions
    function: Callable[P, R]

    def __init__(self, function: Callable[P, R], **options: Unpack[ToolOptions]) -> None:
        """Define a tool; another tool as `function` lends its function, and its options where there are no others.

        Raises ValueError for a name or a schema that providers refuse, for examples that do not fit and for a timeout
        that is not positive, and TypeError for a signature that no JSON object fits, naming the tool and the parameter.
        """
        from streamtools.tools.signature import handler_input_of, input_of, outputs_of, untyped  # here: it is slow

        if isinstance(function, Tool):
            options = function._options | options
            function = function.function
        if isinstance(function, staticmethod):
            function = function.__func__
        if not callable(function):
            raise TypeError(f"a tool is made of something that can be called, and not of {function!r}")
        for option in options.keys() - ToolOptions.__annotations__.keys():  # it may be a guard, written wrongly
            known = ", ".join(ToolOptions.__annotations__)
            raise TypeError(f"a tool has no option {option!r}; it may have {known}")
        functools.update_wrapper(self, function, updated=())
        body, inner = body_of(function), without_bound(function)
        self._options = options
        self.function = function
        name = options.get("name")
        self.name: str = getattr(inner, "__name__", type(inner).__name__) if name is None else name
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} cannot name a tool: 1 to 64 of the characters A-Z, a-z, 0-9, _ and -")
        documented = read_docstring(body.__doc__ or inner.__doc__)  # of an object: that of `__call__`, or its class
        description = options.get("description")
        self.description = documented.description if description is None else description
        self.timeout = options.get("timeout")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"tool {self.name!r}: a timeout is a positive number of seconds, not {self.timeout!r}")
        self.sequential = options.get("sequential", False)
        self.neutralise = options.get("neutralise", True)
        self.requires_approval = options.get("requires_approval", False)
        self.client = options.get("client", False)
        self.trust = options.get("trust", "text")
        if self.trust not in get_args(Trust):
            raise ValueError(f"tool {self.name!r}: trust is 'text', 'native' or 'approved', not {self.trust!r}")
        if not (isinstance(self.requires_approval, bool) or callable(self.requires_approval)):
            raise ValueError(f"tool {self.name!r}: requires_approval is True, False or a function")
        self.is_async = inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body)
        self.yields = inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)
        self.is_unbound = is_unbound_method(function)
        parameters = options.get("parameters")
        try:
            if parameters is None:
                taken = input_of(function, documented.parameters)
            else:
                schema = parameters if isinstance(parameters, Mapping) else schema_of_parameters(parameters)
                taken = handler_input_of(function, schema)
        except (TypeError, ValueError) as error:
            raise type(error)(f"tool {self.name!r}: {error}") from error
        self.parameters, self.input_type, self._read, self.context = taken
        if parameters is None and (bare := untyped(function) & set(self.parameters["properties"])):
            advice = "annotate them: the model is told of no type, and any value is taken"
            log.warning("parameters_without_type", tool=self.name, parameters=sorted(bare), advice=advice)
        (self.output_type, self._output, self.output_schema), progress = outputs_of(function)
        self.write: Callable[[Any], Written] = functools.partial(write, type_=self._output)
        """Returns a result in the forms for the interface and for the model; raises what its serialiser raises."""
        self.write_progress: Callable[[Any], Written] = functools.partial(write, type_=progress.adapter)
        """Returns what a generator has yielded, as `write` does for results."""
        if examples := options.get("examples"):
            self._add_examples(examples)

    @classmethod
    def from_function(cls, function: Callable[P, R], **options: Unpack[ToolOptions]) -> Tool[P, R]:
        """Return the tool that calls `function`; raises as the constructor does."""
        return cls(function, **options)

    def replace(self, **options: Unpack[ToolOptions]) -> Tool[P, R]:
        """Return a tool of the same function, with these options in place of its own."""
        return Tool(self, **options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as if it had never been made a tool."""
        return self.function(*args, **kwargs)

    @classmethod
    def declared(cls, name: str, description: str = "", parameters: Mapping[str, Any] | None = None) -> Tool[..., Any]:
        """Return a tool without a function, which the front end carries out; `parameters` is a JSON schema.

        It is `client`; other options are those of `replace`. Raises as the constructor does.

        >>> Tool.declared("pick_colour", "Let the user pick a colour.").client
        True
        """
        schema = {"type": "object", "properties": {}} if parameters is None else parameters
        return Tool(_elsewhere, name=name, description=description, parameters=schema, client=True)

    @overload
    def __get__(self, instance: None, owner: type) -> Tool[P, R]: ...
    @overload
    def __get__(
        self: Tool[Concatenate[Self_, Rest], Returned], instance: Self_, owner: type
    ) -> Tool[Rest, Returned]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """Return the tool of an object, for a tool that was defined in the body of the object's class."""
        if instance is None or not self.is_unbound:
            return self
        bound = copy.copy(self)
        # Only functions and their like are bound here, though mypy knows no more of one than that it can be called.
        bound.function = bound.__wrapped__ = self.function.__get__(instance, owner)  # type: ignore[attr-defined]
        bound.is_unbound = False
        return bound

    def __repr__(self) -> str:
        return f"<Tool {self.name}{inspect.signature(self.function)}>"

    def read(self, arguments: Mapping[str, Any]) -> Arguments:
        """Return the function's own arguments for those of a call, all but the `ToolContext`.

        Raises `ToolInputError` where they do not fit, and whatever else the validators of the user raise.
        """
        try:
            data = to_json(arguments)
        except ValueError:
            raise ToolInputError(self.name, f"the arguments of {self.name!r} cannot be written as JSON") from None
        try:
            return self._read(data)
        except ValidationError as error:
            reason = _explain(error)
        except Rejected as error:
            reason = error.message
        raise ToolInputError(self.name, f"the arguments of {self.name!r} do not fit: {reason}")

    def read_answer(self, value: Any) -> Any:
        """Return a result that came from elsewhere as the declared type; raises `ToolOutputError` where it is none."""
        if self._output is None:
            return value
        try:
            return self._output.validate_json(to_json(value))
        except (ValidationError, ValueError):
            raise ToolOutputError(self.name, f"the result of {self.name!r} is not what the tool returns") from None

    def _add_examples(self, examples: Sequence[Mapping[str, Any]]) -> None:
        for each in examples:
            try:
                self.read(each)
            except ToolInputError as error:
                raise ValueError(f"tool {self.name!r}: an example is refused: {error}") from error
        self.parameters["examples"] = [dict(each) for each in examples]


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a function a tool: as `@tool`, as `@tool(name=…)`, or as `tool(function, name=…)`; see `ToolOptions`."""
    return functools.partial(Tool, **options) if function is None else Tool(function, **options)


def _elsewhere(arguments: dict[str, Any]) -> Any:
    raise RuntimeError("this tool is carried out elsewhere")


def _explain(error: ValidationError) -> str:
    """Return what is wrong as `place: reason` pairs, without the values that were given.

    Messages of a user's own validators are repeated as they are: they are written for whoever wrote the input.
    """
    errors = error.errors(include_url=False, include_input=False)
    shown = []
    for each in errors[:_ERRORS_SHOWN]:
        reason = each["msg"]
        if each["type"] == "union_tag_invalid":  # the one message of pydantic's own that repeats a value
            reason = f"{each['ctx']['discriminator']} is none of {each['ctx']['expected_tags']}"
        place = ".".join(str(part)[:60] for part in each["loc"])
        shown.append(f"{place}: {reason[:200]}" if place else reason[:200])
    if len(errors) > _ERRORS_SHOWN:
        shown.append(f"and {len(errors) - _ERRORS_SHOWN} more")
    return "; ".join(shown)
