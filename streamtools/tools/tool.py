"""Defines `Tool`, a function together with the definition that a model needs to call it.

`@tool` reads the name, the docstring and the type hints of a function. All expensive work is done when the tool is
defined. A call then only validates its arguments and runs the function. Python code can call a tool like its function.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, Unpack, get_args, overload

from pydantic_core import ValidationError, to_json
from typing_extensions import ParamSpec, TypeVar

from streamtools.errors import ToolInputError, ToolOutputError, check_function, check_names, check_number, check_word
from streamtools.json_values import Rejected
from streamtools.limits import TOOL_NAME
from streamtools.logs import Logger, validation_errors
from streamtools.tools.functions import body_of, is_unbound_method, read_docstring, without_partials
from streamtools.tools.results import Written, write
from streamtools.tools.schemas import schema_of_parameters

if TYPE_CHECKING:
    from streamtools.tools.signature import Arguments

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)

log = Logger(__name__)

Trust: TypeAlias = Literal["text", "native", "approved"]
"""Which calls of a tool may run.

`text`: all calls run. `native`: only trusted calls run, and other calls are refused. `approved`: trusted calls run, and
other calls need approval.

Native calls are trusted. So are calls in text whose marker contains the secret nonce of the conversation.
"""

RequiresApproval: TypeAlias = bool | Callable[..., bool | Awaitable[bool]]

_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{TOOL_NAME}}}")
_MAX_ERRORS = 10  # maximum number of errors in one message to the model
_REASONS = {
    "missing_keyword_only_argument": "Field required",
    "unexpected_keyword_argument": "Extra inputs are not permitted",
}
"""The reasons of errors in the arguments of functions, in the words that pydantic uses for the fields of a model."""


class ToolOptions(TypedDict, total=False):
    """The options of a tool.

    - `name`: the name for the model: 1 to 64 characters of A-Z, a-z, 0-9, `_` and `-`. Default: the name of the
      function.
    - `description`: the description for the model. Default: the docstring up to its first section.
    - `parameters`: a JSON schema of the arguments, or a parameter list in the format of Latitude's `toolClients`. The
      function must then take one dict of arguments.
    - `timeout`: the timeout of one call, in seconds. None means the timeout of the run, and `math.inf` means no
      timeout.
    - `sequential`: whether the tool must run alone, while no other tool runs. Default: False.
    - `neutralize`: whether text that looks like a call is changed in a result that the model gets as a user message. If
      the model repeats it, it makes no call. Default: True.
    - `requires_approval`: whether each call needs approval. Or a function, async or not, that returns this for the
      validated arguments, with defaults. A second parameter, `context`, gets a `ToolContext`. Default: False.
    - `trust`: what happens to calls in text whose marker has no nonce, which the model may have quoted. `"native"`
      refuses them, `"approved"` requires approval. `"text"`, the default, runs them.
    - `idempotent`: whether a call may run again, with the same `ToolContext.call_id`, if a crash has left its outcome
      unknown. With False, the default, the model gets the error `outcome_unknown`.
    - `client`: whether calls are executed elsewhere, such as in the front end. The function then only declares the
      arguments and the result. Default: False.
    - `examples`: examples of arguments, which are validated, and sent to the model with the schema.
    """

    name: str | None
    description: str | None
    parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    timeout: float | None
    sequential: bool
    neutralize: bool
    requires_approval: RequiresApproval
    trust: Trust
    idempotent: bool
    client: bool
    examples: Sequence[Mapping[str, Any]]


class Tool(Generic[P, R]):
    """A function that a model can call by name.

    `parameters` is the JSON schema of the arguments. `output_type` is the Python type of the result. `has_given_schema`
    is True if the tool was defined with the option `parameters`, and not by type hints. `context` is the name of the
    parameter that gets the `ToolContext`, or None. `needs_state` is True if the type of its state, such as `Session` in
    `ToolContext[Session]`, does not include None. The options, except `examples`, are attributes of the same names;
    see `ToolOptions`.

    >>> def add(a: int, b: int = 1) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> adder = Tool(add)
    >>> adder.name, adder.description, adder(2, b=3)
    ('add', 'Add two numbers.', 5)
    >>> adder.parameters["required"]
    ['a']
    """

    _options: ToolOptions
    function: Callable[P, R]

    def __init__(self, function: Callable[P, R], **options: Unpack[ToolOptions]) -> None:
        """Define a tool. If `function` is a tool, its function is used, and its options are the defaults.

        Raises ValueError for a name or a schema that providers refuse, for invalid examples, and for a timeout that is
        not positive. Raises TypeError for an unknown option, and for a parameter that cannot be read from a JSON
        object. The message contains the names of the tool and the parameter.
        """
        from streamtools.tools.signature import (  # imported late, because it imports pydantic's models slowly
            handler_input_of,
            input_of,
            return_type_of,
            untyped,
        )

        if isinstance(function, Tool):
            options = function._options | options
            function = function.function
        if isinstance(function, staticmethod):
            function = function.__func__
        if not callable(function) or isinstance(function, type):
            raise TypeError(f"a tool needs a function, got {function!r}; for a name, write @tool(name=...)")
        if is_unbound_method(function):
            raise TypeError(f"{function.__qualname__} has no instance; make a tool of the method of an instance")
        check_names("a tool", options, ToolOptions.__annotations__)  # a misspelled option may be a safeguard
        functools.update_wrapper(self, function, updated=())
        body, inner = body_of(function), without_partials(function)
        self._options = options
        self.function = function
        name = options.get("name")
        self.name: str = getattr(inner, "__name__", type(inner).__name__) if name is None else name
        if not _NAME.fullmatch(self.name):
            advice = ", and write tool(function, name=...)" if name is None else ""
            raise ValueError(f"{self.name!r} is not a valid tool name; use 1 to 64 of A-Z, a-z, 0-9, _ and -{advice}")
        # A callable object has the docstring of its `__call__`, or else of its class.
        documented = read_docstring(body.__doc__ or inner.__doc__)
        description = options.get("description")
        self.description = documented.description if description is None else description
        self.timeout = options.get("timeout")
        check_number(f"tool {self.name!r}: timeout", self.timeout, optional=True)
        self.sequential = options.get("sequential", False)
        self.neutralize = options.get("neutralize", True)
        self.requires_approval = options.get("requires_approval", False)
        self.client = options.get("client", False)
        self.idempotent = options.get("idempotent", False)
        self.trust = options.get("trust", "text")
        check_word(f"tool {self.name!r}: trust", self.trust, get_args(Trust))
        for flag in ("sequential", "neutralize", "client", "idempotent"):
            check_word(f"tool {self.name!r}: {flag}", getattr(self, flag), (True, False))
        if not isinstance(self.requires_approval, bool):
            where, advice = f"tool {self.name!r}: requires_approval", "; or write True or False"
            code = getattr(inspect.unwrap(self.requires_approval), "__code__", None)
            has_context = code is not None and "context" in code.co_varnames[: code.co_argcount]
            self._approval_arguments = ("arguments", "context") if has_context else ("arguments",)
            check_function(where, self.requires_approval, *self._approval_arguments, advice=advice)
        self.is_async = inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body)
        self._yields = inspect.isasyncgenfunction(body)
        if inspect.isgeneratorfunction(body):
            raise TypeError(f"tool {self.name!r} yields: write `async def`, or call `progress` of its `ToolContext`")
        parameters = options.get("parameters")
        self.has_given_schema = parameters is not None
        try:
            if parameters is None:
                accepted = input_of(function, documented.parameters)
            else:
                schema = parameters if isinstance(parameters, Mapping) else schema_of_parameters(parameters)
                accepted = handler_input_of(function, schema)
        except (TypeError, ValueError) as error:
            raise type(error)(f"tool {self.name!r}: {error}") from error
        self.parameters, self._read, self._named, self.context, self.needs_state = accepted
        if parameters is None and (bare := untyped(function) & set(self.parameters["properties"])):
            advice = "annotate them (a context with `ToolContext`); without a type, any value is accepted"
            log.warning("parameters_without_type", tool=self.name, parameters=sorted(bare), advice=advice)
        self.output_type, self._output = return_type_of(function)
        self.write: Callable[[Any], Written] = functools.partial(write, type_=self._output)
        """Serializes a result for the interface and the model. Raises the errors of the serializer."""
        if examples := options.get("examples"):
            self._add_examples(examples)

    def replace(self, **options: Unpack[ToolOptions]) -> Tool[P, R]:
        """Return a new tool with the same function, and with these options changed."""
        return Tool(self, **options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly."""
        return self.function(*args, **kwargs)

    @classmethod
    def declared(cls, name: str, description: str = "", parameters: Mapping[str, Any] | None = None) -> Tool[..., Any]:
        """Return a tool without a function. The front end executes its calls. `parameters` is a JSON schema.

        Its option `client` is True. Set other options with `replace`. Raises the errors of the constructor.

        >>> Tool.declared("pick_colour", "Let the user pick a colour.").client
        True
        """
        schema = {"type": "object", "properties": {}} if parameters is None else parameters
        return Tool(_no_function, name=name, description=description, parameters=schema, client=True)

    def __repr__(self) -> str:
        return f"<Tool {self.name}{inspect.signature(self.function)}>"

    def read(self, arguments: Mapping[str, Any]) -> Arguments:
        """Return the Python arguments for the function, without the `ToolContext`, from the arguments of a call.

        Raises `ToolInputError` if the arguments of the call do not match the schema. Also raises the exceptions of
        validators in the application, except the validation errors of pydantic.
        """
        try:
            data = to_json(arguments)
        except ValueError:
            raise ToolInputError(self.name, f"the arguments of {self.name!r} cannot be written as JSON") from None
        try:
            return self._read(data)
        except ValidationError as error:
            reason, paths = _explain(error), [path for path, _, _ in validation_errors(error)]
        except Rejected as error:
            reason, paths = error.message, []
        refused = ToolInputError(self.name, f"the arguments of {self.name!r} do not fit: {reason}")
        refused.parameters = sorted({path.partition(".")[0] for path in paths} & self.parameters["properties"].keys())
        raise refused

    def read_result(self, value: Any) -> Any:
        """Convert the result of a call that was executed elsewhere to the declared return type.

        Raises `ToolOutputError` if it does not match that type.
        """
        if self._output is None:
            return value
        try:
            return self._output.validate_json(to_json(value))
        except (ValidationError, ValueError):
            raise ToolOutputError(
                self.name, f"the result of {self.name!r} does not match the declared return type"
            ) from None

    def _add_examples(self, examples: Sequence[Mapping[str, Any]]) -> None:
        for example in examples:
            try:
                self.read(example)
            except ToolInputError as error:
                raise ValueError(f"tool {self.name!r} has an invalid example: {error}") from error
        self.parameters["examples"] = [dict(example) for example in examples]


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Define a tool, as `@tool`, `@tool(name=…)` or `tool(function, name=…)`.

    The options are `name`, `description`, `parameters`, `timeout`, `sequential`, `neutralize`, `requires_approval`,
    `trust`, `idempotent`, `client` and `examples`; see `ToolOptions`.
    """
    return functools.partial(Tool, **options) if function is None else Tool(function, **options)


def _no_function(arguments: dict[str, Any]) -> Any:
    raise RuntimeError("this tool has no function: the front end executes it")


def _explain(error: ValidationError) -> str:
    """Return the first validation errors as text. Each has the form `path: reason`, without the invalid value.

    A message of a validator in the application is a reason, too. Each reason is cut to 200 characters.
    """
    errors = list(validation_errors(error))
    shown = []
    for path, kind, message in errors[:_MAX_ERRORS]:
        reason = _REASONS.get(kind, message)[:200]
        shown.append(f"{path}: {reason}" if path else reason)
    if len(errors) > _MAX_ERRORS:
        shown.append(f"and {len(errors) - _MAX_ERRORS} more")
    return "; ".join(shown)
