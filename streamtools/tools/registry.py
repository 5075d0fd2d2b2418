"""The tools that a model may be offered, by name.

Names are matched exactly and looked up in a dict, never as attributes and never by likeness: what a model writes must
not reach more than what was put here. The order is that of registration, so that a prompt is the same in every process.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, ParamSpec, Self, TypeAlias, TypeVar, Union, overload

import structlog

from streamtools.calls import Rejected, read_arguments
from streamtools.errors import Code, ToolInputError, UnknownTool
from streamtools.tools.definition import Tool, tool
from streamtools.tools.invocation import TIMEOUT, invoke

log = structlog.get_logger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

ToolsLike: TypeAlias = Union[
    "ToolRegistry",
    Tool[..., Any],
    Callable[..., Any],
    Mapping[str, Callable[..., Any]],
    Iterable["ToolsLike"],
    None,
]
"""What a user may pass as `tools=`: a registry, a tool, a function, a mapping of names to functions, or several."""

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
        for each in tools:
            for one in _each(each):
                self._add(one)
        return self

    @overload
    def tool(
        self,
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
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
    def tool(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
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

    def definitions(self, format: str = "openai") -> list[dict[str, Any]]:
        """Return the tools as a provider's request holds them; they are the caller's to change."""
        if format not in FORMATS:
            raise ValueError(f"no tool definitions for {format!r}; there are {', '.join(FORMATS)}")
        return [copy.deepcopy(FORMATS[format](each)) for each in self]

    async def execute(
        self, name: str, arguments: str | Mapping[str, Any] | None = None, *, timeout: float = TIMEOUT
    ) -> Any:
        """Return the result of the tool `name` as plain values, the ones that an interface would get.

        `arguments` is the JSON of an object, or an object; nothing stands for none. `timeout` is in seconds, for tools
        without their own. Raises `UnknownTool`, `ToolInputError`, `ToolFailed`, `ToolOutputError` and `ToolTimeout`.
        """
        found = self.find(name)
        try:
            read = read_arguments(dict(arguments) if isinstance(arguments, Mapping) else arguments).value
        except Rejected as error:
            raise ToolInputError(name, f"the arguments of {name!r} do not fit: {error.message}") from None
        return (await invoke(found, read, timeout=timeout)).value

    def find(self, name: str) -> Tool:
        """Return the tool of exactly this name. Raises `UnknownTool` with a text that helps a model to choose again."""
        found = self._tools.get(name)
        if found is not None:
            return found
        there_are = f"there are {', '.join(self._tools)}" if self._tools else "there are no tools"
        close = difflib.get_close_matches(name[:64], self._tools, n=1)
        hint = f". Did you mean {close[0]!r}?" if close else ""
        raise UnknownTool(name, f"no tool named {name[:64]!r}; {there_are}{hint}")

    def _add(self, tool: Tool) -> None:
        if tool.name in self._tools and self._tools[tool.name] is not tool:
            if self._on_duplicate == "error":
                raise ValueError(f"a tool named {tool.name!r} is already registered")
            log.warning(Code.DUPLICATE_TOOL.value, tool=tool.name, on_duplicate=self._on_duplicate)
            if self._on_duplicate == "keep":
                return
        self._tools[tool.name] = tool


def _each(tools: ToolsLike) -> Iterator[Tool]:
    if tools is None:
        return
    if isinstance(tools, Tool):
        yield tools
    elif isinstance(tools, ToolRegistry):
        yield from tools
    elif isinstance(tools, Mapping):
        for name, function in tools.items():
            yield Tool(function, name=name)
    elif isinstance(tools, Iterable) and not isinstance(tools, str | bytes):
        for each in tools:
            yield from _each(each)
    elif callable(tools):
        yield Tool(tools)
    else:
        raise TypeError(f"{tools!r} is no tool, function, registry or collection of them")


def _openai(tool: Tool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"type": "function", "function": {"name": tool.name, **described, "parameters": tool.parameters}}


FORMATS: dict[str, Callable[[Tool], dict[str, Any]]] = {"openai": _openai}
"""How each provider wants to be told of a tool."""
