"""The tools of a request: selections, tools of servers, options."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any, Union

import pytest
from pydantic import BaseModel

from streamtools.errors import ToolInputError, UnknownTool
from streamtools.tools import Tool, ToolRegistry, ToolResult, tool
from streamtools.tools.context import ToolContext
from tests.support.cases import together


def a() -> str:
    return "a"


def b() -> str:
    return "b"


def c() -> str:
    return "c"


ALL = ToolRegistry(a, b, c)


def test_a_selection_of_tools() -> None:
    """In the order of the registry, which stays unchanged."""
    few = ALL.only("c", "a")
    assert ["a", "c"] == few.names
    assert few.get("a") is ALL.get("a")
    few.register(Tool(b))
    assert ["a", "b", "c"] == ALL.names
    assert [] == ALL.only().names


@pytest.mark.parametrize("select", [ALL.only, ALL.without])
def test_a_typo_in_a_selection_is_an_error(select: Callable[..., ToolRegistry]) -> None:
    """A misspelled name in `without` would leave the tool allowed."""
    with pytest.raises(UnknownTool, match="no tool named 'A'"):
        select("b", "A")


def test_a_tool_can_be_given_other_options() -> None:
    """The function and all other options stay."""
    made = Tool(a, description="Say a.", timeout=3, sequential=True, neutralize=False)
    other = made.replace(name="z", timeout=math.inf)
    assert ("z", "Say a.", math.inf, True, False) == (
        other.name,
        other.description,
        other.timeout,
        other.sequential,
        other.neutralize,
    )
    assert (made.name, made.timeout, other()) == ("a", 3, "a")
    assert (None, False, True) == (Tool(a).timeout, Tool(a).sequential, Tool(a).neutralize)


def test_examples_are_checked_and_published() -> None:
    """An invalid example would teach the model a mistake."""

    def add(x: int, y: int = 0) -> int:
        return x + y

    assert [{"x": 1}, {"x": 1, "y": 2}] == Tool(add, examples=[{"x": 1}, {"x": 1, "y": 2}]).parameters["examples"]
    with pytest.raises(ValueError, match=r"tool 'add' has an invalid example: .* x: Field required"):
        Tool(add, examples=[{"y": 2}])


class Bank:
    """Has methods that are tools."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def balance(self, currency: str) -> str:
        """Tell the balance."""
        return f"{self.owner}: 3 {currency}"

    @tool(name="name_of_bank")
    @staticmethod
    def named() -> str:
        return "Bank"


async def test_a_method_of_an_instance_is_a_tool() -> None:
    ann = Tool(Bank("Ann").balance)
    assert (["currency"], "Ann: 3 EUR") == (list(ann.parameters["properties"]), ann("EUR"))
    assert "<Tool balance(currency: 'str') -> 'str'>" == repr(ann)
    registry = ToolRegistry(Bank("Bob").balance, Bank.named)
    assert "Bob: 3 CHF" == await registry.execute("balance", {"currency": "CHF"})
    assert "Bank" == await registry.execute("name_of_bank")
    with pytest.raises(TypeError, match=r"Bank\.balance has no instance; make a tool of the method of an instance"):
        ToolRegistry(Bank.balance)


def bound(owner: str, other: str = "") -> None: ...


def test_hidden_parameters_cannot_be_filled() -> None:
    """Bound arguments, the context, `self`."""
    import functools

    def watched(context: ToolContext, other: str) -> None: ...

    class Open:
        def method(self, other: str) -> None: ...

    cases: list[tuple[Any, str]] = [
        (functools.partial(bound, owner="Ann"), "owner"),
        (functools.partial(bound, "Ann"), "owner"),
        (watched, "context"),
        (Open().method, "self"),
    ]
    for function, name in cases:
        with pytest.raises(ToolInputError, match=f"{name}: Extra inputs are not permitted"):
            Tool(function).read({"other": "x", name: "x"})
        assert {"other": "x"} == Tool(function).read({"other": "x"})[1]


def not_a_dict(x: int, y: int) -> None: ...
def unpacked(**more: int) -> None: ...
def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "options", "reason"),
    [
        (3, {}, "a tool needs a function, got 3"),
        (not_a_dict, {"parameters": {}}, "the function must take one dict of arguments and require nothing else"),
        (unpacked, {}, "tool 'unpacked': parameter '[*]{2}more' takes any names; use a parameter of type dict"),
        (classmethod(lambda cls: cls), {}, "a tool needs a function"),
        (generator, {}, "tool 'generator' yields: write `async def`"),
    ],
)
def test_invalid_functions_are_refused(function: Any, options: Any, reason: str) -> None:
    """At definition, with the reason."""
    with pytest.raises(TypeError, match=reason):
        Tool(function, **options)


class Public(BaseModel):
    name: str


class Secret(Public):
    password: str = "s3cret"


async def rows() -> AsyncIterator[Public]:
    yield Secret(name="Ann")


def test_yielded_values_are_published_by_their_type() -> None:
    """Fields of a subclass stay inside, as for results."""
    assert {"name": "Ann"} == Tool(rows).write(Secret(name="Ann")).value


def maybe() -> Public | ToolResult: ...  # type: ignore[empty-body]
def old_maybe() -> Union[ToolResult, None]: ...  # noqa: UP007  # as much code writes it
def only_result() -> ToolResult: ...  # type: ignore[empty-body]
def later() -> Awaitable[Public]: ...  # type: ignore[empty-body]
def text() -> str: ...  # type: ignore[empty-body]
def noted() -> Annotated[int, "mine"]: ...  # type: ignore[empty-body]
def itself() -> Tool: ...  # type: ignore[empty-body]
def untold() -> Iterator: ...  # type: ignore[type-arg,empty-body]


class Opaque:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)


def opaque() -> Opaque: ...  # type: ignore[empty-body]


@together(
    ("function", "kind"),
    [
        *((maybe, Public), (old_maybe, type(None)), (only_result, Any), (later, Public), (text, str)),
        *((noted, Annotated[int, "mine"]), (itself, Any), (opaque, Opaque), (rows, Public), (untold, Any)),
    ],
)
def test_the_declared_type_of_a_result(function: Any, kind: Any) -> None:
    """`ToolResult` in the type is ignored, and a type without a schema is accepted."""
    made: Tool[..., Any] = Tool(function)
    assert kind == made.output_type
