"""The tools that a model may be offered: by name, and as each provider wants them described.

Names are matched exactly and looked up in a dict, never as attributes and never by likeness: what a model writes must
not reach more than what was put here. The order is that of registration, so that a prompt is the same in every process.
"""

from __future__ import annotations

import copy
import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeAlias, TypeVar, Union, Unpack, get_args, overload

from streamtools.calls import NATIVE, new_call_id, read_arguments
from streamtools.errors import Code, ToolInputError, UnknownTool
from streamtools.json_values import Rejected
from streamtools.logs import Logger
from streamtools.tools.approvals import Approvals
from streamtools.tools.context import ToolContext, discard
from streamtools.tools.decisions import Deny
from streamtools.tools.descriptions import parameters_of_schema, type_of
from streamtools.tools.finished_responses import extend_messages, read_finished, refuse
from streamtools.tools.invocation import TIMEOUT, invoke
from streamtools.tools.ledger import CallLedger
from streamtools.tools.results import ToolOutcome
from streamtools.tools.runner import Runner
from streamtools.tools.schemas import JsonSchema, inline
from streamtools.tools.tool import Tool, ToolOptions, tool

if TYPE_CHECKING:
    from streamtools.tools.mcp import Session

log = Logger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

ToolsLike: TypeAlias = Union[
    "ToolRegistry",
    Tool[..., Any],
    Callable[..., Any],
    Mapping[str, Callable[..., Any]],
    Iterable["ToolsLike"],
    list[object],  # what mypy takes a list of two tools for
    None,
]
"""What a user may pass as `tools=`: a registry, a tool, a function, a mapping of names to functions, or several."""

OfProvider: TypeAlias = Literal[
    "openai", "responses", "anthropic", "gemini", "interactions", "ollama", "bedrock", "cohere"
]
Format: TypeAlias = Literal[OfProvider, "mcp", "tool_clients"]

OnDuplicate: TypeAlias = Literal["replace", "error", "keep"]


class ToolRegistry:
    """Tools by name, in the order of their registration.

    >>> def weather(city: str) -> str:
    ...     "Tell the weather."
    ...     return "rain"
    >>> registry = ToolRegistry().register(weather)
    >>> "weather" in registry, "Weather" in registry
    (True, False)
    >>> [each["function"]["name"] for each in registry.definitions()]
    ['weather']
    """

    def __init__(self, *tools: ToolsLike, on_duplicate: OnDuplicate = "replace") -> None:
        """Register `tools`. A name that is registered again is replaced, in its old place, and a warning is logged;
        with `on_duplicate="keep"` the first one stays, and with `"error"` it is a ValueError.
        """
        self._tools: dict[str, Tool] = {}
        self._on_duplicate = on_duplicate
        self.register(*tools)

    @classmethod
    def of(cls, tools: ToolsLike) -> ToolRegistry:
        """Return what a user passed as `tools=` as a registry; a registry is returned itself."""
        return tools if isinstance(tools, ToolRegistry) else cls(tools)

    def register(self, *tools: ToolsLike) -> Self:
        """Add tools, functions, or collections of them, and return the registry.

        Raises as `Tool` does for a function that cannot be one, and TypeError for what is no tool at all.
        """
        for each in _each(tools):
            self._add(each)
        return self

    def merge(self, *tools: ToolsLike, prefix: str = "") -> Self:
        """Add tools from outside, of a plugin or another server, and return the registry.

        They never take the place of a tool that is there: one whose name is taken stays out, and a warning is logged.
        `prefix` goes before their names.
        """
        for each in _each(tools):
            self._add(each.replace(name=prefix + each.name) if prefix else each, "keep")
        return self

    async def add_mcp(self, session: Session, *, prefix: str = "", **options: Unpack[ToolOptions]) -> Self:
        """Add the tools of an MCP server, and return the registry; see `merge` for names that are taken.

        `session` has the `list_tools` and `call_tool` of a session of MCP's SDK. The server's names are made valid,
        with `prefix` before them; `options`, `trust` or `requires_approval` say, are for all of its tools. A tool that
        no provider would take is left out, and logged. Raises what the session raises.
        """
        from streamtools.tools.mcp import tools_of  # here, because few have such a server

        return self.merge(await tools_of(session, prefix=prefix, **options))

    @overload
    def tool(self, function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
    @overload
    def tool(self, /, **options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
    def tool(self, function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
        """Define and register a function: as `@registry.tool`, or `@registry.tool(name=…)` with `tool`'s options."""

        def define(function: Callable[..., Any]) -> Tool:
            made: Tool = tool(function, **options)
            self._add(made)
            return made

        return define if function is None else define(function)

    def get(self, name: str) -> Tool | None:
        """Return the tool of exactly this name, or None."""
        return self._tools.get(name)

    @property
    def names(self) -> list[str]:
        """The names, in order."""
        return list(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"<ToolRegistry {', '.join(self._tools) or '(empty)'}>"

    def only(self, *names: str) -> ToolRegistry:
        """Return a registry of these tools alone, for one request, in the order that they have here.

        Raises `UnknownTool` for a name that is not here.
        """
        return self._select({self.find(name).name for name in names})

    def without(self, *names: str) -> ToolRegistry:
        """Return a registry of all but these tools, for one request.

        Raises `UnknownTool` for a name that is not here: a slip would leave the tool allowed that was meant.
        """
        return self._select(self._tools.keys() - {self.find(name).name for name in names})

    @overload
    def definitions(self, format: Format = "openai") -> list[dict[str, Any]]: ...
    @overload
    def definitions(self, format: Literal["compact"]) -> list[str]: ...
    def definitions(self, format: str = "openai") -> list[dict[str, Any]] | list[str]:
        """Return the tools as a provider's request holds them; they are the caller's to change.

        `"gemini"` is one object with all of them; `"compact"` is a line of text for each, for a prompt.
        """
        if format == "compact":
            return [write_line(each) for each in self]
        if format not in get_args(Format):
            raise ValueError(f"no tool definitions for {format!r}; there are {', '.join(get_args(Format))}, compact")
        written = [copy.deepcopy(_write_definition(each, format)) for each in self]
        return [{"functionDeclarations": written}] if format == "gemini" and written else written

    async def execute(
        self,
        name: str,
        arguments: str | Mapping[str, Any] | None = None,
        *,
        timeout: float = TIMEOUT,
        state: Any = None,
    ) -> Any:
        """Return the result of the tool `name` as plain values, the ones that an interface would get.

        `arguments` is the JSON of an object, or an object; nothing stands for none. `timeout` is in seconds, for tools
        without their own; `state` is what the tool finds in its `ToolContext`. Raises `UnknownTool`, `ToolInputError`,
        `ToolFailed`, `ToolOutputError` and `ToolTimeout`.
        """
        found = self.find(name)
        try:
            read = read_arguments(dict(arguments) if isinstance(arguments, Mapping) else arguments).value
        except Rejected as error:
            raise ToolInputError(name, f"the arguments of {name!r} do not fit: {error.message}") from None
        context = ToolContext(new_call_id(), name, state=state)
        return (await invoke(found, read, context, timeout=timeout)).value

    async def process_tool_calls(
        self,
        response: object,
        *,
        fail_fast: bool = False,
        concurrency: int = 8,
        timeout: float = TIMEOUT,
        state: Any = None,
        ledger: CallLedger | None = None,
        run_id: str | None = None,
    ) -> list[ToolOutcome]:
        """Run the calls of a finished answer, and return one outcome for each, in their order.

        `response` is what an SDK returned (OpenAI's chat completion or Response, Anthropic's message, Ollama's chat),
        such an answer as a dict, its message, a list of its calls or of `ToolCall`, or a text, in which no calls are
        looked for. A call that failed, or was none, has an outcome with an `error`; what the others have done is not
        lost. With `fail_fast`, calls run one after another, and none after one that failed. `timeout` and `state` are
        those of `execute`.

        With a `ledger`, a call that is there already is not run again, and `run_id` is what tells this answer from all
        others: an id that you have kept with it. Raises `UnreadableSource` for any other object, and ValueError for a
        ledger without `run_id`, since servers give the same ids to the calls of different answers.
        """
        if ledger is not None and run_id is None:
            raise ValueError("a ledger takes a run_id, which tells this answer from all others")
        calls = read_finished(response).calls
        runner = Runner(
            self,
            number=itertools.count().__next__,
            concurrency=concurrency,
            timeout=timeout,
            state=state,
            ledger=ledger,
            scope=lambda call: run_id or "",
            trusted=lambda call: call.dialect == NATIVE,
            approvals=Approvals(default=Deny("no approver is available")),
        )
        good = [call for call, rejected in calls if rejected is None]
        if fail_fast:
            for call, rejected in calls:
                if rejected is not None or (await runner.run([call], discard))[0].error is not None or runner.stopped:
                    break
        else:
            await runner.run(good, discard)
        outcomes, _ = runner.close_calls(good)
        ended = {outcome.call.id: outcome for outcome in outcomes}
        return [ended[call.id] if rejected is None else refuse(call, rejected) for call, rejected in calls]

    extend_messages = staticmethod(extend_messages)

    def find(self, name: str) -> Tool:
        """Return the tool of exactly this name. Raises `UnknownTool` with a text that helps a model to choose again."""
        found = self._tools.get(name)
        if found is not None:
            return found
        there_are = f"there are {', '.join(self._tools)}" if self._tools else "there are no tools"
        close = difflib.get_close_matches(name[:64], self._tools, n=1)
        hint = f". Did you mean {close[0]!r}?" if close else ""
        raise UnknownTool(name, f"no tool named {name[:64]!r}; {there_are}{hint}")

    def _select(self, names: Set[str]) -> ToolRegistry:
        selected = ToolRegistry(on_duplicate=self._on_duplicate)
        selected._tools = {name: tool for name, tool in self._tools.items() if name in names}
        return selected

    def _add(self, tool: Tool, on_duplicate: OnDuplicate | None = None) -> None:
        on_duplicate = on_duplicate or self._on_duplicate
        if tool.is_unbound:
            raise TypeError(f"tool {tool.name!r} is a method: register that of an object of its class")
        if tool.name in self._tools and self._tools[tool.name] is not tool:
            if on_duplicate == "error":
                raise ValueError(f"a tool named {tool.name!r} is already registered")
            log.warning(Code.DUPLICATE_TOOL.value, tool=tool.name, on_duplicate=on_duplicate)
            if on_duplicate == "keep":
                return
        self._tools[tool.name] = tool


_DEFINITION = (
    "a dict of `tools` names functions, and this is a definition for a provider: it says nothing of what to run. "
    "Write `tool(function, name=…, parameters=SCHEMA)`, with client=True for a tool that the front end runs; "
    "definitions alone go to `Parser` and `parse`"
)


def _each(tools: object) -> Iterator[Tool]:
    if tools is None:
        return
    if isinstance(tools, Tool):
        yield tools
    elif isinstance(tools, ToolRegistry):
        yield from tools
    elif isinstance(tools, Mapping):
        if tools and not any(isinstance(each, Tool) or callable(each) for each in tools.values()):
            raise TypeError(_DEFINITION)
        for name, function in tools.items():
            yield Tool(function, name=name)
    elif isinstance(tools, Iterable) and not isinstance(tools, str | bytes):
        for each in tools:
            yield from _each(each)
    elif callable(tools):
        yield Tool(tools)
    else:
        raise TypeError(f"{tools!r} is no tool, function, registry or collection of them")


# How tools are described: in each provider's form of a definition, and in a line of a prompt.

_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # of the names that Anthropic takes for the members of an input
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s|$)", re.DOTALL)
_SENTENCE_LENGTH = 80
_SCALARS = {"string", "integer", "number", "boolean"}


def taken_by(format: str, registry: ToolRegistry) -> ToolRegistry:
    """Return the tools that a provider takes, of those whose schema somebody else has written; others are logged."""
    given = [tool for tool in registry if tool.input_type == dict[str, Any]] if format == "anthropic" else []
    if refused := [tool.name for tool in given if _refused_name(tool) is not None]:
        log.warning("tools_left_out", tools=refused, advice=f"{format} takes no parameters of such names")
    return registry.without(*refused)


def _refused_name(tool: Tool) -> str | None:
    return next((name for name in tool.parameters["properties"] if not _PROPERTY.fullmatch(name)), None)


def _write_definition(tool: Tool, format: str) -> dict[str, Any]:
    """Return the definition of a tool in the form of a provider. Raises ValueError for one that it refuses."""
    schema = tool.parameters
    named = {"name": tool.name} | ({"description": tool.description} if tool.description else {})
    examples = schema.get("examples")
    without_examples = {key: value for key, value in schema.items() if key != "examples"}
    match format:
        case "openai" | "cohere":
            return {"type": "function", "function": named | {"parameters": schema}}
        case "responses":  # left out, `strict` is true there, and optional parameters become required
            return {"type": "function", **named, "parameters": schema, "strict": False}
        case "interactions":
            return {"type": "function", **named, "parameters": without_examples}
        case "anthropic":
            if (name := _refused_name(tool)) is not None:
                takes = f"Anthropic takes no parameter called {name!r}, but 1 to 64 of A-Z, a-z, 0-9, _ . -"
                raise ValueError(f"tool {tool.name!r}: {takes}")
            return named | {"input_schema": without_examples} | ({"input_examples": examples} if examples else {})
        case "bedrock":
            return {"toolSpec": named | {"inputSchema": {"json": without_examples}}}
        case "gemini":
            return named | {"parametersJsonSchema": without_examples}
        case "ollama":  # whose server knows no other members, and learns nothing of a property that is a reference
            whole = inline(schema)
            kept = {key: whole[key] for key in ("type", "properties", "required") if key in whole}
            return {"type": "function", "function": named | {"parameters": kept}}
        case "mcp":
            output = tool.output_schema
            is_object = output is not None and output.get("type") == "object"  # it allows no other
            return named | {"inputSchema": schema} | ({"outputSchema": output} if is_object else {})
        case _:
            return {"name": tool.name, "description": tool.description, "parameters": parameters_of_schema(schema)}


def write_line(tool: Tool) -> str:
    """Return a tool in one line: its parameters, those that are required first, and a sentence of its description.

    >>> def read_file(path: str, lines: list[int] | None = None) -> str:
    ...     "Read a file. Slowly."
    ...     return ""
    >>> write_line(Tool(read_file))
    '- read_file(path: string, lines?: integer[]) — Read a file.'
    """
    schema = inline(tool.parameters)
    required = set(schema.get("required", ()))
    names = sorted(schema["properties"], key=lambda name: (name not in required, name))
    shown = [f"{name}{'' if name in required else '?'}: {_type(schema['properties'][name])}" for name in names]
    line = f"- {tool.name}({', '.join(shown)})"
    text = " ".join(tool.description.split())
    if sentence := _SENTENCE.match(text):
        text = sentence[1]
    if len(text) > _SENTENCE_LENGTH:
        text = text[: _SENTENCE_LENGTH - 1].rstrip() + "…"
    return f"{line} — {text}" if text else line


def _type(schema: JsonSchema | bool) -> str:
    if isinstance(schema, bool):
        return "any"
    kind = type_of(schema)
    if kind != "array":
        return kind
    arrays = [schema, *(each for each in schema.get("anyOf", ()) if isinstance(each, dict))]
    items: JsonSchema = next((each["items"] for each in arrays if isinstance(each.get("items"), dict)), {})
    return f"{type_of(items)}[]" if type_of(items) in _SCALARS else "array"
