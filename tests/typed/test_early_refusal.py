"""What is refused before the end of a value: at once, and nothing that the whole validation would accept."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from itertools import pairwise
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from streamtools.errors import Code
from streamtools.parsing.value_reader import ValueReader
from streamtools.typed import OutputType
from tests.typed.test_typed_values import read, sizes


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Size(Enum):
    S = 1
    L = 2.5


class Forgiving(Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> Forgiving:
        return cls.A


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Literal["one", "other"]
    n: int = 0
    more: list[Inner] = []


class Named(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    a: int = Field(0, alias="alpha")
    b: list[int] = Field([], validation_alias=AliasChoices("beta", "gamma"))
    c: str = Field("", alias="see")


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    a: str = Field("", alias="alpha")


class Loose(TypedDict, total=False):
    a: int
    name: Colour


@dataclasses.dataclass
class Point:
    a: float
    name: str | None = None


Halved = Annotated[int, BeforeValidator(lambda value: len(value) if isinstance(value, str | list | dict) else value)]
leaves = st.sampled_from(
    [
        *(int, float, bool, str, None, Any, Literal["one", "other"], Literal[1, "one"], Colour, Size, Forgiving),
        *(Halved, bytes, Inner, Named, Aliased, Loose, Point, set[int], tuple[int, str], dict[str, int]),
    ]
)
types = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(lambda each: list[each]),  # type: ignore[valid-type]
        inner.map(lambda each: dict[str, each]),  # type: ignore[valid-type]
        st.tuples(inner, inner).map(lambda two: two[0] | two[1] if None not in two and Any not in two else Any),
    ),
    max_leaves=3,
)
words = st.sampled_from(["one", "other", "red", "a", "1", "true", "on", "2.5", ""])
keys = st.sampled_from(["a", "name", "n", "more", "alpha", "beta", "gamma", "b", "c", "see", "x"])
likely = st.recursive(
    words | st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from([1.0, 2.5]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@given(types, likely, sizes)
@example(Named, {"a": 1, "alpha": "x"}, 1)
@example(Inner, {"name": "one", "more": [{"name": "other"}]}, 1)
def test_nothing_is_refused_that_the_validation_accepts(kind: Any, value: Any, size: int) -> None:
    """Against pydantic, over types and values that nearly fit."""
    text = json.dumps(value)
    _, _, reader = read(text, size, ValueReader(OutputType(kind).shape))

    if reader.fault is not None:
        assert reader.fault.code == Code.INVALID_OUTPUT
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_json(text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Inner, '{"name": "on!'),
        (Inner, '{"nam"'),
        (Inner, '{"name": "one", "n": ['),
        (Inner, '{"name": "one", "more": [{"name": "x'),
        (Inner, "["),
        (list[str], '["a", 1,'),
        (Colour, '"b'),
        (Colour, '"re"'),
        (str | None, "tru,"),
        (dict[str, Colour], '{"a": "red", "b": {'),
        ({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}, '{"b"'),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"enum": ["x", "y"]}}}, '"z'),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "[1,"),
    ],
)
def test_what_is_refused_at_once(kind: Any, text: str) -> None:
    """A wrong type, a word that none can become, a member that is forbidden: at the character that decides."""
    reader = ValueReader(OutputType(kind).shape)
    reader.feed(text[:-1])
    early = reader.fault is not None and reader.fault.code == Code.INVALID_OUTPUT
    reader.feed(text[-1])

    assert not early
    assert reader.fault is not None


def test_each_reference_of_a_json_schema_is_followed_once() -> None:
    """Where each leads to the next twice, the last is not read as often as there are ways to it; one may lead back."""
    names = [f"d{at}" for at in range(60)]
    both = {one: {"anyOf": [{"$ref": f"#/$defs/{other}"}] * 2} for one, other in pairwise(names)}
    kind = OutputType({"$defs": both | {names[-1]: {"enum": ["a", "b"]}}, "$ref": "#/$defs/d0"})
    assert kind.shape.words == ("a", "b")
    assert OutputType({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}).shape.kinds is None


def test_a_json_schema_is_held_against_the_whole() -> None:
    """As far as types, words and members go; what fits is plain data."""
    needs = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "title": "T"}
    kind = OutputType(needs)

    assert kind.name == "T"
    assert kind.validate('{"a": 1}') == {"a": 1}
    for wrong, why in [({}, "lacks 'a'"), ({"a": "x"}, "a cannot be this string"), ([], "cannot be this array")]:
        with pytest.raises(ValueError, match=why):
            kind.validate(json.dumps(wrong))
