"""The definition of a tool from a function: name, description, schema, arguments."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator
from typing_extensions import TypedDict

from streamtools.errors import ToolInputError
from streamtools.tools import Tool, ToolResult, tool
from tests.support.cases import together
from tests.support.signatures import Node, nothing, recursive, renamed, untyped

if TYPE_CHECKING:
    from decimal import Decimal

NO_TYPE = object()


class Colour(enum.Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """Where something is."""

    city: str
    zip: int | None = None


class Strict(BaseModel):
    """A model that reads no text as a date, except in JSON, which has no dates."""

    model_config = ConfigDict(strict=True)
    day: datetime.date


@dataclasses.dataclass
class Point:
    """A point."""

    x: int
    y: int = 0


class Incomplete(BaseModel):
    """A model with an undefined type."""

    other: Nowhere  # type: ignore[name-defined]  # noqa: F821  # the subject of a test


class Options(TypedDict):
    """Some options."""

    depth: int


def plain(city: str) -> None: ...
def defaults(city: str = "Bern", days: int | None = None) -> None: ...
def limited(n: Annotated[int, Field(ge=0, description="how many")]) -> None: ...
def field_default(n: int = Field(3, ge=0)) -> None: ...
def field_default_inside(n: Annotated[int, Field(default=3)]) -> None: ...
def chosen(unit: Literal["c", "f"], colour: Colour = Colour.RED) -> None: ...
def several(places: list[Place], when: datetime.datetime) -> None: ...
def awkward(schema: str, model_config: int, _x: int, json: int = 0) -> None: ...
def odd_default(x: Any = NO_TYPE) -> None: ...


@together(
    ("function", "arguments", "given"),
    [
        (plain, {"city": "Bern"}, {"city": "Bern"}),
        (defaults, {}, {"city": "Bern", "days": None}),
        (defaults, {"days": "4"}, {"city": "Bern", "days": 4}),
        (defaults, {"days": None}, {"city": "Bern", "days": None}),
        (nothing, {}, {}),
        (untyped, {"a": [1]}, {"a": [1], "b": 1}),
        (field_default, {}, {"n": 3}),
        (field_default_inside, {}, {"n": 3}),
        (chosen, {"unit": "c", "colour": "blue"}, {"unit": "c", "colour": Colour.BLUE}),
        (
            several,
            {"places": [{"city": "Bern"}], "when": "2026-11-21T10:00:00"},
            {"places": [Place(city="Bern")], "when": datetime.datetime(2026, 11, 21, 10)},
        ),
        (
            awkward,
            {"schema": "s", "model_config": 1, "_x": 2, "json": 3},
            {"schema": "s", "model_config": 1, "_x": 2, "json": 3},
        ),
        (renamed, {"from": "Bern"}, {"from_": "Bern"}),
        (odd_default, {}, {"x": NO_TYPE}),
    ],
)
def test_json_becomes_arguments(function: Callable[..., Any], arguments: dict[str, Any], given: dict[str, Any]) -> None:
    """The function gets the given arguments in its own types, and its defaults."""
    assert ((), given) == Tool(function).read(arguments)


@together(
    ("function", "arguments", "reason"),
    [
        (plain, {}, "city: Field required"),
        (plain, {"city": 1}, "city: Input should be a valid string"),
        (plain, {"city": "x", "town": "y"}, "town: Extra inputs are not permitted"),
        (plain, {"city": "x", "p0": "y"}, "p0: Extra inputs are not permitted"),
        (limited, {"n": -1}, "n: Input should be greater than or equal to 0"),
        (several, {"places": [{}], "when": "1"}, "places.0.city: Field required"),
        (renamed, {"from_": "x"}, "from: Field required; from_: Extra inputs are not permitted"),
    ],
)
def test_invalid_arguments_are_refused(function: Callable[..., Any], arguments: dict[str, Any], reason: str) -> None:
    """The message has the place and the reason, with the names that the model knows."""
    with pytest.raises(ToolInputError) as caught:
        Tool(function).read(arguments)
    assert function.__name__ == caught.value.name
    assert str(caught.value).startswith(f"the arguments of '{function.__name__}' do not fit: {reason}")


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"]


class Dog(BaseModel):
    """A dog."""

    kind: Literal["dog"]


def pet(which: Annotated[Cat | Dog, Field(discriminator="kind")], names: list[int]) -> None: ...


def test_a_refusal_repeats_no_value() -> None:
    """The message has no invalid value and no unknown tag of a union."""
    with pytest.raises(ToolInputError) as caught:
        Tool(pet).read({"which": {"kind": "s3cret"}, "names": ["s3cret"]})
    assert "which: 'kind' is none of 'cat', 'dog'" in str(caught.value)
    assert ["names", "which"] == caught.value.parameters, "the log has these names"
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_refusal_is_short() -> None:
    """It contains the first ten errors, and the start of a long key."""
    with pytest.raises(ToolInputError) as caught:
        Tool(pet).read({"which": {"kind": "cat"}, "names": ["x"] * 14, "k" * 5000: 1})
    assert str(caught.value).endswith("; and 5 more")
    with pytest.raises(ToolInputError) as caught:
        Tool(nothing).read({"k" * 5000: 1})
    assert f": {'k' * 60}: Extra inputs are not permitted" in str(caught.value)
    assert len(str(caught.value)) < 200


def by_place(place: Place) -> Place:
    """Look at a place."""
    return place


def by_annotated(place: Annotated[Place, Field(description="the place")]) -> None: ...
def by_point(point: Point) -> None: ...
def by_options(options: Options) -> None: ...
def by_day(day: Strict) -> None: ...


@pytest.mark.parametrize(
    ("function", "arguments", "given"),
    [
        (by_place, {"city": "Bern"}, {"place": Place(city="Bern")}),
        (by_annotated, {"city": "Bern"}, {"place": Place(city="Bern")}),
        (by_point, {"x": 1}, {"point": Point(1)}),
        (by_options, {"depth": 2}, {"options": {"depth": 2}}),
        (
            recursive,
            {"label": "a", "children": [{"label": "b"}]},
            {"tree": Node(label="a", children=[Node(label="b")])},
        ),
        (by_day, {"day": "2026-11-21"}, {"day": Strict(day=datetime.date(2026, 11, 21))}),
    ],
)
def test_a_single_record_is_the_arguments(
    function: Callable[..., Any], arguments: dict[str, Any], given: dict[str, Any]
) -> None:
    """A model, dataclass or typed dict as the only parameter takes the whole object."""
    made = Tool(function)
    assert ((), given) == made.read(arguments)
    assert made.parameters["type"] == "object"
    assert set(arguments) <= set(made.parameters["properties"])
    assert "title" not in made.parameters


def test_a_root_model_of_a_list_is_an_ordinary_parameter() -> None:

    def by_list(numbers: RootModel[list[int]]) -> None: ...

    made = Tool(by_list)
    assert made.parameters["required"] == ["numbers"]
    assert made.read({"numbers": [1, 2]})[1]["numbers"].root == [1, 2]


def test_a_function_with_a_schema_gets_one_dict() -> None:
    """The schema is published unchanged."""
    mine = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}

    def search(arguments: dict[str, Any]) -> Any:
        return arguments["q"]

    made = tool(search, parameters=mine)
    said = {"q": ["x"]}
    (given,), named = made.read(said)
    given["q"].append("y")
    assert mine == made.parameters
    assert named == {}
    assert said == {"q": ["x"]}
    with pytest.raises(ToolInputError, match="the arguments of 'search' do not fit: q: Field required"):
        made.read({})


def positional_only(a: int, /) -> None: ...
def collected(*values: int) -> None: ...
def record_only(place: Place, /) -> None: ...
def called_back(then: Callable[[], int]) -> None: ...
def called_back_last(city: str, then: Callable[[], int]) -> None: ...
def incomplete(place: Incomplete) -> None: ...
def opened(stream: inspect.Signature) -> None: ...
def unknown(x: Decimal) -> None: ...


@together(
    ("function", "reason"),
    [
        (positional_only, "tool 'positional_only': parameter 'a' is positional-only"),
        (record_only, "tool 'record_only': parameter 'place' is positional-only"),
        (collected, r"tool 'collected': parameter '\*values' takes unnamed values"),
        (called_back, "tool 'called_back': parameter 'then' cannot be read from JSON"),
        (called_back_last, "tool 'called_back_last': parameter 'then' cannot be read from JSON"),
        (incomplete, "tool 'incomplete': parameter 'place' cannot be read from JSON: `.*` is not fully defined"),
        (opened, "tool 'opened': parameter 'stream' cannot be read from JSON"),
        (unknown, "tool 'unknown': the type of parameter 'x' cannot be resolved: name 'Decimal' is not defined"),
    ],
)
def test_an_unusable_parameter_is_refused(function: Callable[..., Any], reason: str) -> None:
    """The error has the names of the tool and the parameter."""
    with pytest.raises(TypeError, match=reason):
        Tool(function)


@pytest.mark.parametrize("name", ["", "get weather", "get.weather", "wetter\n", "größe", "a" * 65, "<lambda>"])
def test_a_name_that_providers_refuse_is_refused(name: str) -> None:
    """A name has 1 to 64 ASCII letters, digits, `_` and `-`. The message contains it."""
    with pytest.raises(ValueError, match="is not a valid tool name") as caught:
        Tool(plain, name=name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("timeout", [0, -1, math.nan])
def test_an_invalid_timeout_is_refused(timeout: float) -> None:
    """A timeout is a positive number of seconds."""
    with pytest.raises(ValueError, match="tool 'plain': timeout must be a positive number"):
        Tool(plain, timeout=timeout)


class Greeter:
    """Greets."""

    def __call__(self, name: str) -> str:
        return f"Hello {name}"


class AsyncGreeter:
    """Greets."""

    async def __call__(self, name: str) -> str:
        """Greet somebody."""
        return f"Hello {name}"


def test_a_callable_object_is_a_tool() -> None:
    """It has the name of its class, and works like its `__call__`."""
    made, other = Tool(Greeter()), Tool(AsyncGreeter())
    assert (made.name, made.description, made.is_async) == ("Greeter", "Greets.", False)
    assert (other.name, other.description, other.is_async) == ("AsyncGreeter", "Greet somebody.", True)
    assert made("Ann") == "Hello Ann"


def test_types_may_be_local() -> None:
    """A request handler can define models and tools, although annotations are strings."""

    class Query(BaseModel):
        text: str

    @tool
    def search(query: Query) -> str:
        return query.text

    assert {"query": Query(text="x")} == search.read({"text": "x"})[1]


def unknown_return(city: str) -> Decimal:
    raise AssertionError


def test_arguments_with_a_lone_surrogate_are_refused() -> None:
    """A native call may contain one. It raises only `ToolInputError`."""
    with pytest.raises(ToolInputError, match="the arguments of 'plain' cannot be written as JSON"):
        Tool(plain).read({"city": "\ud800"})


def test_other_exceptions_of_a_validator_propagate() -> None:
    """Only its ValueError is about the input."""

    class Fragile(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def check(cls, value: int) -> int:
            if value == 1:
                raise ValueError("one is too few")
            raise LookupError("no table")

    def take(it: Fragile) -> None: ...

    with pytest.raises(ToolInputError, match="x: Value error, one is too few"):
        Tool(take).read({"x": 1})
    with pytest.raises(LookupError, match="no table"):
        Tool(take).read({"x": 2})


class Row(msgspec.Struct):
    """A row."""

    n: int


@together(
    ("value", "plain_value", "text"),
    [
        ("Hello \u2028", "Hello \u2028", "Hello \u2028"),
        ("", "", ""),
        (None, None, "null"),
        (3, 3, "3"),
        ({"größe": [1, 2.5, True]}, {"größe": [1, 2.5, True]}, '{"größe":[1,2.5,true]}'),
        ({1: {"a"}}, {"1": ["a"]}, '{"1":["a"]}'),
        (Place(city="Bern"), {"city": "Bern", "zip": None}, '{"city":"Bern","zip":null}'),
        (Point(1), {"x": 1, "y": 0}, '{"x":1,"y":0}'),
        ([Row(1)], [{"n": 1}], '[{"n":1}]'),
        (datetime.date(2026, 11, 21), "2026-11-21", "2026-11-21"),
        (Path("a/b"), "a/b", "a/b"),
        (Colour.RED, "red", "red"),
        ([math.nan, math.inf], [None, None], "[null,null]"),
        ("half \ud83d", "half \ufffd", "half \ufffd"),
        ({"half": "\ud83d", "n": math.nan}, {"half": "\ufffd", "n": None}, '{"half":"\ufffd","n":null}'),
        (10**30, 10**30, "1" + "0" * 30),
    ],
)
def test_results_become_plain_values_and_text(value: Any, plain_value: Any, text: str) -> None:
    """The interface gets JSON values. The model gets strings unchanged, and other values as compact JSON."""
    assert (plain_value, text) == Tool(untyped).write(value)[:2]


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    "value", [object(), b"\xff", CIRCLE, [[]] * 2 + [object()]], ids=["object", "bytes", "circle", "part"]
)
def test_a_result_that_json_cannot_express_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"unsupported|utf-8|Circular"):
        Tool(untyped).write(value)


@pytest.mark.parametrize(
    ("result", "plain_value", "text"),
    [
        (ToolResult(model="3 rows", ui=[1, 2, 3]), [1, 2, 3], "3 rows"),
        (ToolResult(model={"a": 1}), {"a": 1}, '{"a":1}'),
        (ToolResult(ui={"a": 1}), {"a": 1}, '{"a":1}'),
        (ToolResult(model=None, ui="shown"), "shown", "null"),
        (ToolResult(model="said", ui=None), None, "said"),
    ],
)
def test_a_tool_result_separates_model_and_interface(result: ToolResult, plain_value: Any, text: str) -> None:
    """Each gets its own part, which defaults to the other."""
    assert (plain_value, text) == Tool(untyped).write(result)[:2]


@pytest.mark.parametrize("wrong", [{"needs_approval": True}, {"timeuot": 1.0}])
def test_unknown_options_are_refused(wrong: dict[str, Any]) -> None:
    """A misspelled safeguard would have no effect."""
    with pytest.raises(
        TypeError, match=f"no parameter '{next(iter(wrong))}'; did you mean '(timeout|requires_approval)'"
    ):
        Tool(lambda: None, **{"name": "pay", **wrong})
    with pytest.raises(TypeError, match="no parameter"):
        Tool(lambda: None, name="pay").replace(**wrong)


def test_a_result_of_unknown_type_is_serialized_by_its_value() -> None:
    made = Tool(unknown_return)
    assert Any is made.output_type
    assert made.write({"a": 1}).value == {"a": 1}
