"""Invalid items of a typed answer. The items after them always arrive, and the warning names every error."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from streamtools import InvalidItem, OutputOptions, ToolStream, chat, sources
from streamtools.conversation import AnthropicMessages, Fallback, OpenAIChat, RequestOptions, ScriptedModel
from streamtools.errors import Code
from streamtools.events import Partial
from streamtools.json_values import Draft
from streamtools.machine.output_text import OutputText
from streamtools.parsing.dialects import DIALECTS
from streamtools.parsing.value_reader import Added
from streamtools.typed import InvalidValue, OutputType
from tests.support.cases import cases
from tests.support.chat_chunks import DONE, chunk
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.typed.test_asked_for import answer_in_a_call
from tests.typed.test_typed_values import Cat, Dog, deltas

pytestmark = pytest.mark.trio_deep


class Row(BaseModel):
    name: str
    cur: Literal["EUR", "USD"]
    note: str | None = None
    parts: list[int] = []


class Rows(BaseModel):
    rows: list[Row]


GOOD: list[dict[str, Any]] = [{"name": "a", "cur": "EUR"}, {"name": "b", "cur": "USD", "note": None, "parts": [1, 2]}]
CURRENCIES: list[Any] = ["Dollars", 7, None, []]
PARTS: list[Any] = [["y"], [1, None, 2], {}]
BAD: list[Any] = [
    *({"name": "x", "cur": cur} for cur in CURRENCIES),
    *({"name": "x", "cur": "EUR", "parts": parts} for parts in PARTS),
    {"name": [{"name": "a", "cur": "EUR"}], "cur": "EUR", "note": 7},
    *({}, 7, -1.5, None, [], [[]], "", "x", True, [{"name": "a", "cur": "EUR"}], {"rows": GOOD}),
]


async def read(text: str, size: int, kind: Any, output: Any, **options: Any) -> tuple[list[Any], ToolStream, Any]:
    """Return the items, the stream, and the value that the partials make."""
    draft = Draft()
    async with ToolStream(sources.text(deltas(text, size)), output=output) as stream:
        found = [item async for item in stream.items(kind, **options)]
    async with ToolStream(sources.text(deltas(text, size)), output=output) as again:
        async for event in again:
            if isinstance(event, Partial):
                draft.add(event.path, event.value, event.complete)
    return found, stream, draft.value


@pytest.mark.parametrize("bad", BAD, ids=json.dumps)
async def test_items_after_an_invalid_item_arrive(bad: Any) -> None:
    """It may be the first, the last or each second item. The result is the same for each cut."""
    for places in ((0,), (1,), (2,), (0, 2, 4)):
        rows: list[Any] = [*GOOD]
        for place in places:
            rows.insert(place, bad)
        text = json.dumps({"rows": rows})
        expected = [InvalidItem if row is bad else Row for row in rows]
        for size in (1, 3, len(text)):
            found, stream, value = await read(text, size, Row, Rows, invalid="yield")
            assert expected == [*map(type, found)]
            assert rows == [row if isinstance(item, Row) else item.value for item, row in zip(found, rows, strict=True)]
            invalid = [item for item in found if isinstance(item, InvalidItem)]
            assert all(item.errors for item in invalid)
            assert [["rows", place] for place in places] == [item.path for item in invalid]
            assert value == {"rows": rows}
            assert stream.result.output is None
            (warning,) = stream.result.warnings
            assert warning.code is Code.INVALID_OUTPUT
            assert all(f"rows.{place}" in warning.message for place in places)
        async with ToolStream(sources.text(deltas(text, 3)), output=Rows) as events:
            assert [Row(**row) for row in GOOD] == [item async for item in events.items(Row)]


KINDS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "scalars": (int, [1, -2], ["x", None, 1.5, [], {}]),
    "texts": (str, ["a", "", 'é"\\'], [1, None, {}, [""]]),
    "optional": (int | None, [1, None], ["x", {}]),
    "lists": (list[int], [[], [1, 2]], [["x"], 1, {}, [[1]], [1, "x", 2]]),
    "union": (Cat | Dog, [{"kind": "cat"}, {"kind": "dog", "age": 1}], [{"kind": "cow"}, {"kind": "dog"}, 7, {}]),
    "tagged": (
        Annotated[Cat | Dog, Field(discriminator="kind")],
        [{"kind": "dog", "age": 1}],
        [{"kind": "cow"}, {"kind": "dog", "age": "x"}, {"age": 1}, None],
    ),
    "dicts": (dict[str, int], [{}, {"a": 1}], [{"a": "x", "b": 1}, [], "a"]),
    "schema": (
        {"type": "object", "properties": {"n": {"enum": ["a", "b"]}}, "required": ["n"], "additionalProperties": False},
        [{"n": "a"}],
        [{"n": "c"}, {}, {"n": "a", "x": 1}, 7, [], None],
    ),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("form", ["list", "object"])
async def test_items_of_each_type(name: str, form: str) -> None:
    """Lists and objects of items, with a valid item after each invalid one."""
    kind, good, bad = KINDS[name]
    items = [*itertools.chain.from_iterable(zip(bad, itertools.cycle(good)))]
    keys = [f"key {index}" for index in range(len(items))]
    value = {"title": "x", "all": items if form == "list" else dict(zip(keys, items, strict=True))}
    text = json.dumps(value)
    for size in (1, 3, len(text)):
        found, _, _ = await read(text, size, kind, dict[str, Any], path=["all"], invalid="yield")
        assert [isinstance(item, InvalidItem) for item in found] == [True, False] * len(bad)
        assert bad == [item.value for item in found[::2]]
        places = range(len(items)) if form == "list" else keys
        assert [["all", place] for place in places][::2] == [item.path for item in found[::2]]


async def test_nested_lists() -> None:
    """A list in a list has its own path."""
    text = json.dumps({"pages": [[1, "x", 2], "no page", [3]]})
    found, _, _ = await read(text, 2, int, dict[str, Any], path=["pages", 0], invalid="yield")
    assert [1, InvalidItem(["pages", 0, 1], "x", found[1].errors), 2] == found
    found, _, _ = await read(text, 2, list[int], dict[str, Any], invalid="yield")
    assert [InvalidItem, InvalidItem, list] == [*map(type, found)]
    assert [3] == found[-1]


async def test_the_errors_of_an_item() -> None:
    """Each error begins with its path in the item."""
    text = '{"rows": [{"name": 1, "cur": "£"}, 7]}'
    found, stream, _ = await read(text, 4, Row, Rows, invalid="yield")
    cur = "Input should be 'EUR' or 'USD'"
    assert found == [
        InvalidItem(["rows", 0], {"name": 1, "cur": "£"}, ["name: Input should be a valid string", f"cur: {cur}"]),
        InvalidItem(["rows", 1], 7, ["the value: Input should be an object"]),
    ]
    told = "the answer does not match the output type: "
    told += f"rows.0.name: Input should be a valid string; rows.0.cur: {cur}; rows.1: Input should be an object"
    assert [told] == [each.message for each in stream.result.warnings]


async def test_an_unknown_word_for_invalid_items_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid must be one of 'skip', 'yield', got 'raise'"):
        await anext(chat(ScriptedModel(["[]"]), [], output=list[int]).items(int, invalid="raise"))  # type: ignore[call-overload]


@given(st.integers(0, 150))
def test_the_message_names_each_error(count: int) -> None:
    """Up to 100. The number of the others is at the end."""
    for kind in (list[int], {"type": "array", "items": {"type": "integer"}}):
        text = json.dumps(["x"] * count)
        if not count:
            OutputType(kind).validate(text)
            continue
        with pytest.raises(InvalidValue) as invalid:
            OutputType(kind).validate(text)
        assert count == len(invalid.value.errors) == len(set(invalid.value.errors))
        named, _, more = str(invalid.value).partition("; and ")
        assert named.split("; ") == invalid.value.errors[:100]
        assert more == (f"{count - 100} more errors" if count > 100 else "")


rows = st.lists(st.sampled_from([*GOOD, *BAD]), max_size=6)


@given(rows)
def test_pydantic_finds_the_same_errors(written: list[Any]) -> None:
    """The message has one line for each error that pydantic finds."""
    text = json.dumps({"rows": [*written, 7]})
    with pytest.raises(ValidationError) as error:
        TypeAdapter(Rows).validate_json(text)
    with pytest.raises(InvalidValue) as invalid:
        OutputType(Rows).validate(text)
    assert error.value.error_count() == len(invalid.value.errors)


# Planted faults: each must break the law.


def stops_at_an_invalid_item(patch: pytest.MonkeyPatch) -> None:
    """Report nothing after the end of an invalid item, as an early check of the answer does."""
    add, rows = OutputText._add, OutputType(Row)

    def add_valid(text: OutputText, added: Sequence[Added], out: list[Any]) -> None:
        draft = text.__dict__.setdefault("draft", Draft())
        for path, value, complete in added:
            if "stopped" in text.__dict__:
                return
            add(text, [(path, value, complete)], out)
            draft.add(path, value, complete)
            if complete and len(path) == 2:
                try:
                    rows.validate(json.dumps(draft.at(path)))
                except InvalidValue:
                    text.__dict__["stopped"] = True

    patch.setattr(OutputText, "_add", add_valid)


def rejects_the_item_after_an_invalid_one(patch: pytest.MonkeyPatch) -> None:
    """Keep the errors of an item for the next item of the same type."""
    validate = OutputType.validate

    def validate_again(kind: OutputType, text: str) -> Any:
        kept = kind.__dict__.pop("kept", None)
        try:
            value = validate(kind, text)
        except InvalidValue as fault:
            kind.__dict__["kept"] = fault.errors
            raise
        if kept:
            raise InvalidValue(kept)
        return value

    patch.setattr(OutputType, "validate", validate_again)


def hides_the_errors(patch: pytest.MonkeyPatch) -> None:
    """Yield invalid items without their errors."""
    patch.setattr("streamtools.stream.typed_items.InvalidItem", lambda path, value, _: InvalidItem(path, value, []))


def names_one_error(patch: pytest.MonkeyPatch) -> None:
    """Keep only the first error of an invalid answer."""
    make = InvalidValue.__init__

    def make_short(fault: InvalidValue, errors: Iterable[str]) -> None:
        make(fault, [*errors][:1])

    patch.setattr(InvalidValue, "__init__", make_short)


def changes_invalid_items(patch: pytest.MonkeyPatch) -> None:
    """Yield None in place of the value of an invalid item, and a path that lacks its index."""
    patch.setattr(
        "streamtools.stream.typed_items.InvalidItem", lambda path, _, errors: InvalidItem(path[:-1], None, errors)
    )


@pytest.mark.parametrize(
    "plant",
    [
        *(stops_at_an_invalid_item, rejects_the_item_after_an_invalid_one, hides_the_errors, names_one_error),
        changes_invalid_items,
    ],
)
async def test_a_planted_fault_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By each invalid item."""
    plant(monkeypatch)
    for bad in BAD:
        with pytest.raises(AssertionError):
            await test_items_after_an_invalid_item_arrive(bad)


# The ways in which a model answers.

TEXT = json.dumps({"rows": [GOOD[0], 7, {"name": "x", "cur": "Dollars"}, GOOD[1]]})
VALUES = [Row(**GOOD[0]), 7, {"name": "x", "cur": "Dollars"}, Row(**GOOD[1])]
QUESTION = [{"role": "user", "content": "List the rows."}]


def pay() -> str:
    """Pay."""
    return "paid"


def pieces() -> list[str]:
    return [TEXT[at : at + 5] for at in range(0, len(TEXT), 5)]


def openai() -> Loopback:
    return Loopback([*(chunk({"content": piece}) for piece in pieces()), chunk({}, "stop"), DONE])


def claude() -> Loopback:
    return answer_in_a_call(pieces())


WAYS: dict[str, tuple[Callable[[], Loopback], type[Any]]] = {
    "schema": (openai, OpenAIChat),
    "tool": (claude, AnthropicMessages),
}


def values(found: list[Any]) -> list[Any]:
    return [item.value if isinstance(item, InvalidItem) else item for item in found]


async def check(model: Any, **options: Any) -> None:
    """Check the items of a chat."""
    async with chat(model, QUESTION, output=Rows, **options) as stream:
        assert VALUES == values([item async for item in stream.items(Row, invalid="yield")])
    assert stream.result.output is None


@pytest.mark.parametrize("way", WAYS)
async def test_a_provider_that_takes_the_schema(way: str) -> None:
    answer, kind = WAYS[way]
    async with Provider(answer()) as server:
        await check(kind("m", base_url=server.url, api_key="", retries=0))


@pytest.mark.parametrize("emulation", ["off", "force"])
async def test_a_model_that_reads_the_schema_in_its_prompt(emulation: str) -> None:
    """With emulation, a separate request decides about tools."""
    answers: list[Any] = [pieces()] if emulation == "off" else ['{"tools":[]}', pieces()]
    request = RequestOptions(emulation=emulation)  # type: ignore[arg-type]  # one of its words
    await check(ScriptedModel(answers), tools=[pay], request=request)


async def test_each_dialect() -> None:
    """A row that looks like a call of the dialect is a row."""
    with cases() as case:
        for dialect in DIALECTS:
            with case(dialect):
                await check(ScriptedModel([pieces()], native_tool_calls=False), tools=[pay], dialects=[dialect])


async def test_another_answer_after_an_invalid_one() -> None:
    """Its items follow, and the model gets every error. An earlier answer may have broken within a text."""
    model = ScriptedModel([pieces(), json.dumps({"rows": GOOD})])
    models = Fallback(ScriptedModel([['{"rows": [{"name": "a', ConnectionError()]]), model, on_break="restart_step")
    async with chat(models, QUESTION, output=OutputOptions(Rows, retries=1)) as stream:
        broken, *found = [item async for item in stream.items(Row, invalid="yield")]
    assert VALUES == values(found[:4])
    assert [[], []] == [each.path for each in (broken, found[4]) if isinstance(each, InvalidItem)]
    assert found[5:] == stream.result.output.rows
    told = str(model.asks[1].history[-1])
    assert "rows.1: Input should be an object" in told
    assert "rows.2.cur: Input should be 'EUR' or 'USD'" in told


async def test_a_path_that_is_a_text_is_refused() -> None:
    async with ToolStream(sources.text(["[1]"]), output=list[int]) as stream:
        with pytest.raises(TypeError, match=r"`path` must be a list of keys, such as \['rows'\]"):
            [item async for item in stream.items(int, path="rows")]
