"""The registry: its inputs, duplicates, definitions, and calls by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, assert_type

import anyio
import pytest
import structlog.testing

from streamtools.errors import ToolCallFailed, ToolFailed, ToolInputError, ToolOutputError, ToolTimeout, UnknownTool
from streamtools.tools import ToolError, ToolRegistry, ToolResult, tool


def weather(city: str) -> dict[str, Any]:
    """Tell the weather."""
    return {"city": city, "sky": "clear"}


async def clock() -> str:
    return "noon"


@tool(name="weather")
def other_weather(city: str) -> str:
    """Guess the weather."""
    return "rain"


def test_a_registry_is_chainable_and_keeps_the_order() -> None:
    """Tools are listed in the order of registration."""
    registry = ToolRegistry(clock).register(weather).register([tool(clock, name="b")], None)
    assert registry.names == ["clock", "weather", "b"]
    assert registry.names == [each.name for each in registry]
    assert len(registry) == 3
    assert repr(registry) == "<ToolRegistry clock, weather, b>"
    assert repr(ToolRegistry()) == "<ToolRegistry (empty)>"


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (None, []),
        (weather, ["weather"]),
        (other_weather, ["weather"]),
        ([weather, clock], ["weather", "clock"]),
        ((each for each in [clock, weather]), ["clock", "weather"]),
        ([ToolRegistry(weather), [clock]], ["weather", "clock"]),
    ],
)
def test_users_may_pass_tools_in_many_forms(tools: Any, names: list[str]) -> None:
    """Functions, tools, registries, and collections of them."""
    assert names == ToolRegistry.of(tools).names


@pytest.mark.parametrize("tools", [3, "weather", [b"x"]])
def test_other_values_are_refused(tools: Any) -> None:
    """A name is not enough."""
    with pytest.raises(
        TypeError, match=r"must be a list of functions and tools, or a ToolRegistry, got .* such as tools="
    ):
        ToolRegistry.of(tools)


def test_a_function_keeps_its_tool() -> None:
    """Each registry has the same tool, until the docstring changes. A wrapper of the function has its own tool."""

    def rain(city: str) -> str:
        """Tell the rain."""
        return city

    made = ToolRegistry(rain).find("rain")
    assert ToolRegistry([rain]).find("rain") is made

    @functools.wraps(rain)
    def guarded(city: str) -> str:
        return rain(f"guarded {city}")

    assert "guarded Paris" == ToolRegistry(guarded).find("rain")("Paris")
    rain.__doc__ = "Tell today's rain."
    assert ["Tell today's rain."] == [tool.description for tool in ToolRegistry(rain)]


def test_a_duplicate_replaces_in_place_and_is_logged() -> None:
    """With `on_duplicate="replace"`. The warning contains the name."""
    with structlog.testing.capture_logs() as logs:
        registry = ToolRegistry(weather, clock, other_weather, on_duplicate="replace")
    assert registry.names == ["weather", "clock"]
    assert other_weather is registry.get("weather")
    said = {"tool": "weather", "on_duplicate": "replace"}
    where = {"logger": "streamtools.tools.registry", "log_level": "warning"}
    assert logs == [{"event": "duplicate_tool", **where, **said}]


def test_a_registry_decorates() -> None:
    """`@registry.tool` defines and registers a tool, with or without options."""
    registry = ToolRegistry()

    @registry.tool
    def add(a: int, b: int) -> int:
        return a + b

    @registry.tool(name="sub", timeout=3)
    def subtract(a: int, b: int) -> int:
        return a - b

    assert_type(add(1, 2), int)
    assert (add(1, 2), subtract(3, 2)) == (3, 1)
    assert [add, subtract] == [registry.get("add"), registry.get("sub")]
    assert subtract.timeout == 3


def test_an_unknown_format_is_refused() -> None:
    """The message lists the formats."""
    with pytest.raises(ValueError, match="format must be one of 'openai', "):
        ToolRegistry().definitions("soap")


@pytest.mark.trio_deep
@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("weather", '{"city": "Bern"}', {"city": "Bern", "sky": "clear"}),
        ("weather", {"city": "Bern"}, {"city": "Bern", "sky": "clear"}),
        ("weather", '"{\\"city\\": \\"Bern\\"}"', None),
        ("clock", "", "noon"),
        ("clock", None, "noon"),
        ("clock", "{}", "noon"),
        ("clock", "null", "noon"),
    ],
)
async def test_execute_calls_a_tool_by_name(name: str, arguments: Any, result: Any) -> None:
    """JSON in, plain values out. None means no arguments, and other values are refused."""
    registry = ToolRegistry(weather, clock)
    if result is None:
        with pytest.raises(ToolInputError, match=f"the arguments of '{name}' do not fit: the arguments are a string"):
            await registry.execute(name, arguments)
    else:
        assert result == await registry.execute(name, arguments)


@pytest.mark.trio_deep
async def test_execute_returns_the_result_for_the_interface() -> None:
    """Progress is dropped."""

    async def report() -> Any:
        yield 1
        yield ToolResult(model="short", ui=["long"])

    assert await ToolRegistry(report).execute("report") == ["long"]


async def fails() -> None:
    raise LookupError("s3cret")


async def refuses() -> None:
    raise ToolError("not on Sundays")


async def refuses_silently() -> None:
    raise ToolError


async def refuses_in_a_group() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(refuses)


async def hangs() -> None:
    await anyio.sleep_forever()


def returns_an_object() -> Any:
    return object()


async def forgets_to_await() -> Any:
    return asks_another()


async def asks_another() -> Any:
    return await ToolRegistry().execute("nobody")


@pytest.mark.trio_deep
@pytest.mark.parametrize(
    ("function", "kind", "message", "cause"),
    [
        (weather, ToolInputError, "the arguments of 'weather' do not fit: city: Field required", type(None)),
        (fails, ToolFailed, "tool 'fails' failed", LookupError),
        (refuses, ToolFailed, "not on Sundays", ToolError),
        (refuses_silently, ToolFailed, "tool 'refuses_silently' failed", ToolError),
        (refuses_in_a_group, ToolFailed, "not on Sundays", ToolError),
        (asks_another, ToolFailed, "tool 'asks_another' failed", UnknownTool),
        (hangs, ToolTimeout, "tool 'hangs' did not finish within 0.01 seconds", type(None)),
        (
            returns_an_object,
            ToolOutputError,
            "the result of tool 'returns_an_object' cannot be written as JSON",
            TypeError,
        ),
        (
            forgets_to_await,
            ToolOutputError,
            "the result of tool 'forgets_to_await' cannot be written as JSON: await the coroutine in it",
            TypeError,
        ),
    ],
)
async def test_execute_raises_the_failure(
    function: Callable[..., Any], kind: type[ToolCallFailed], message: str, cause: type[Exception]
) -> None:
    """Each kind has its class, names the tool, and chains the cause."""
    with pytest.raises(ToolCallFailed) as caught:
        await ToolRegistry(function).execute(function.__name__, "{}", timeout=0.01 if function is hangs else 60)
    assert kind is type(caught.value)
    assert function.__name__ == caught.value.name
    assert message == str(caught.value)
    assert isinstance(caught.value.__cause__, cause)


def test_two_tools_need_different_names() -> None:
    """The same function with the same options is one tool."""
    with pytest.raises(ValueError, match=r"there are two tools named 'weather'; write tool\(function, name=...\)"):
        ToolRegistry(other_weather, weather)
    assert ["weather"] == ToolRegistry(weather, tool(weather)).names
