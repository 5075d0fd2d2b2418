"""Typical signatures of tools, each with the expected JSON schema."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, NotRequired

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from streamtools.tools import Tool
from streamtools.tools.context import ToolContext

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NULL: Schema = {"type": "null"}


class Unit(enum.Enum):
    """Of a temperature."""

    CELSIUS = "c"
    FAHRENHEIT = "f"


class Address(BaseModel):
    """Where somebody lives."""

    street: str
    number: int | None = None


class Person(BaseModel):
    name: str = Field(description="In full.")
    homes: list[Address] = []


class Node(BaseModel):
    """A tree."""

    label: str
    children: list[Node] = []


class Row(TypedDict):
    """A row.

    Attributes:
        key: What it is called.
    """

    key: str
    value: NotRequired[int]


@dataclasses.dataclass
class Span:
    """A span of time.

    Attributes:
        start: In ISO 8601.
        end: In ISO 8601, and later.
    """

    start: str
    end: str = ""


class Session:
    """What an application hands to its tools."""

    def rename(self, name: str) -> None: ...
    @staticmethod
    def forget(name: str) -> None: ...
    @classmethod
    def open(cls, name: str) -> None: ...
    def __call__(self, name: str) -> None: ...


def nothing() -> None: ...
def with_default(city: str = "Bern") -> None: ...
def nullable(days: int | None) -> None: ...
def scalars(a: int, b: float, c: bool, d: str) -> None: ...
def untyped(a, b=1): ...  # type: ignore[no-untyped-def]  # the subject of the tests
def enumeration(unit: Unit = Unit.CELSIUS) -> None: ...
def bare_list(names: list) -> None: ...  # type: ignore[type-arg]  # as much code writes it
def nested_list(grid: list[list]) -> None: ...  # type: ignore[type-arg]  # the subject of the tests
def model(person: Person, count: int) -> None: ...
def single_model(person: Person) -> None: ...
def single_dataclass(span: Span) -> None: ...
def single_typed_dict(row: Row) -> None: ...
def recursive(tree: Node) -> None: ...
def ranged(n: Annotated[int, Field(ge=1, le=9, description="How many.")] = 3) -> None: ...
def renamed(from_: Annotated[str, Field(alias="from")]) -> None: ...
def keyword_only(*, city: str, days: int = 1) -> None: ...
def with_context(context: ToolContext, city: str) -> None: ...
def with_state(city: str, it: ToolContext[Session] | None = None) -> None: ...
def model_and_context(person: Address, context: Annotated[ToolContext, "mine"]) -> None: ...
async def coroutine(city: str) -> None: ...


async def async_generator(to: int) -> AsyncIterator[int]:
    yield to


def bound(owner: str, amount: int, currency: str = "EUR") -> None: ...


def google(city: str, days: Annotated[int, Field(description="From the type.")] = 1, *, unit: Unit) -> None:
    """Tell the weather.

    Args:
        city (str): Where, with the
            country.
        days: From the docstring.
        unit: Of the answer.
    """


def of(*required: str, **properties: Schema) -> Schema:
    """The schema of an object that takes nothing else."""
    whole: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**whole, "required": list(required)} if required else whole


def either(*several: Schema) -> Schema:
    """The schema of a union."""
    return {"anyOf": list(several)}


def record(name: str | None, /, *required: str, **properties: Schema) -> Schema:
    """The schema of a model, dataclass or typed dict inside another, by its title."""
    whole: Schema = {"type": "object", "properties": properties, "required": list(required)}
    return whole if name is None else {**whole, "title": name}


def array(items: Schema, **more: Any) -> Schema:
    """The schema of a list."""
    return {"type": "array", "items": items, **more}


def ref(name: str) -> Schema:
    """A reference."""
    return {"$ref": f"#/$defs/{name}"}


NUMBER_OR_NULL = either(INTEGER, NULL)
ADDRESS = record("Address", "street", street=STRING, number={**NUMBER_OR_NULL, "default": None}) | {
    "description": "Where somebody lives."
}
PERSON = record(None, "name", name={**STRING, "description": "In full."}, homes=array(ref("Address"), default=[]))
UNIT = {"type": "string", "enum": ["c", "f"], "title": "Unit", "description": "Of a temperature."}
NODE = record("Node", "label", label=STRING, children=array(ref("Node"), default=[])) | {"description": "A tree."}

SIGNATURES: list[tuple[Callable[..., Any], Schema]] = [
    (nothing, of()),
    (with_default, of(city={**STRING, "default": "Bern"})),
    (nullable, of("days", days=NUMBER_OR_NULL)),
    (scalars, of("a", "b", "c", "d", a=INTEGER, b={"type": "number"}, c={"type": "boolean"}, d=STRING)),
    (untyped, of("a", a={}, b={"default": 1})),
    (enumeration, of(unit={**ref("Unit"), "default": "c"}) | {"$defs": {"Unit": UNIT}}),
    (bare_list, of("names", names=array({}))),
    (nested_list, of("grid", grid=array(array({})))),
    (
        model,
        of("person", "count", person=ref("Person"), count=INTEGER)
        | {"$defs": {"Person": {**PERSON, "title": "Person"}, "Address": ADDRESS}},
    ),
    (single_model, {**PERSON, "$defs": {"Address": ADDRESS}}),
    (
        single_dataclass,
        record(
            None,
            "start",
            start={**STRING, "description": "In ISO 8601."},
            end={**STRING, "default": "", "description": "In ISO 8601, and later."},
        )
        | {"description": "A span of time."},
    ),
    (
        single_typed_dict,
        record(None, "key", key={**STRING, "description": "What it is called."}, value=INTEGER)
        | {"description": "A row."},
    ),
    (recursive, {key: value for key, value in NODE.items() if key != "title"} | {"$defs": {"Node": NODE}}),
    (ranged, of(n={**INTEGER, "minimum": 1, "maximum": 9, "default": 3, "description": "How many."})),
    (renamed, of("from", **{"from": STRING})),
    (keyword_only, of("city", city=STRING, days={**INTEGER, "default": 1})),
    (with_context, of("city", city=STRING)),
    (with_state, of("city", city=STRING)),
    (model_and_context, {key: value for key, value in ADDRESS.items() if key not in ("title",)}),
    (coroutine, of("city", city=STRING)),
    (async_generator, of("to", to=INTEGER)),
    (functools.partial(bound, "Ann", currency="CHF"), of("amount", amount=INTEGER)),
    (Session().rename, of("name", name=STRING)),
    (Session.forget, of("name", name=STRING)),
    (Session.open, of("name", name=STRING)),
    (Session(), of("name", name=STRING)),
    (
        google,
        of(
            "city",
            "unit",
            city={**STRING, "description": "Where, with the country."},
            days={**INTEGER, "default": 1, "description": "From the type."},
            unit={**ref("Unit"), "description": "Of the answer."},
        )
        | {"$defs": {"Unit": UNIT}},
    ),
]
"""The functions with their schemas."""

TOOLS: list[Tool] = [Tool(function, name=f"t{at}") for at, (function, _) in enumerate(SIGNATURES)]
"""The functions as tools."""
