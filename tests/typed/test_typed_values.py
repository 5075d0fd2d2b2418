"""Values as they grow: what each delta adds, what is no value, and what a stream makes of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from streamtools import OutputOptions, ToolStream, chat, coalesce, sources
from streamtools.conversation import Ask, Fallback, GeminiChat, OllamaChat, OpenAIChat, OpenAIResponses, ScriptedModel
from streamtools.conversation.models import AnthropicMessages, HTTPModel
from streamtools.errors import Code
from streamtools.events import Partial, ProviderCompleted, Text, TextDelta, UIEvent, Warning
from streamtools.history import System, User
from streamtools.json_values import Draft
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.value_reader import Added, ValueReader
from streamtools.typed import OutputType
from tests.support.cases import together

floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | floats | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
sizes = st.integers(1, 9)


def read(text: str, size: int) -> tuple[Draft, list[Added], ValueReader]:
    reader = ValueReader()
    draft, told = Draft(), list[Added]()
    for at in range(0, len(text), size):
        told += reader.feed(text[at : at + size])
    told += reader.close()
    for each in told:
        draft.add(*each)
    return draft, told, reader


# The reader.


@given(values, sizes, st.booleans(), st.sampled_from([None, 1]))
@example("\U0001f600", 1, True, None)
@example({"a": ['\\"\n', -1.5e300, {}], "": []}, 2, True, 1)
def test_a_value_is_read_however_it_is_cut(value: Any, size: int, ascii: bool, indent: int | None) -> None:
    """The sum of what was added is the value, and each place is completed once."""
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    draft, told, reader = read(text, size)

    assert reader.fault is None
    assert draft.value == value
    ends = [tuple(path) for path, _, complete in told if complete]
    assert len(ends) == len(set(ends))
    assert sum(len(value) for _, value, _ in told if isinstance(value, str)) <= len(text)


@given(values, st.data())
def test_a_value_only_grows(value: Any, data: st.DataObject) -> None:
    """What is there of a cut text is a beginning of the whole: no half escape, no half number, no invented word."""
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text)))
    reader, draft = ValueReader(), Draft()
    for each in reader.feed(text[:cut]):
        draft.add(*each)

    assert reader.fault is None
    assert is_beginning(draft.value, value)


def is_beginning(part: Any, whole: Any) -> bool:
    if part is None:
        return True
    if isinstance(part, dict):
        return all(key in whole and is_beginning(each, whole[key]) for key, each in part.items())
    if isinstance(part, list):
        return len(part) <= len(whole) and all(map(is_beginning, part, whole))
    return bool(whole.startswith(part)) if isinstance(part, str) else part == whole


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"a": 1,}', Code.INVALID_JSON),
        ("[1 2]", Code.INVALID_JSON),
        ('{"a" 1}', Code.INVALID_JSON),
        ("{1: 2}", Code.INVALID_JSON),
        ("[}", Code.INVALID_JSON),
        ("[nul]", Code.INVALID_JSON),
        ("[NaN]", Code.INVALID_JSON),
        ("[1e999]", Code.NOT_A_NUMBER),
        ('["ab\\x"]', Code.INVALID_JSON),
        ('["ab\\\n"]', Code.INVALID_JSON),
        ('{"a": 1, "a": 2}', Code.DUPLICATE_KEY),
        ("[" * 65, Code.TOO_DEEP),
        ("9" * 5000, Code.NUMBER_TOO_LONG),
        ('["a', Code.TRUNCATED),
        ("", Code.TRUNCATED),
    ],
)
def test_what_is_no_json(text: str, code: Code) -> None:
    """It is a fault with a code, and what came before it is the same however the text is cut."""
    told = None
    for size in (1, 3, len(text) or 1):
        draft, _, reader = read(text, size)
        assert reader.fault is not None
        assert reader.fault.code == code
        assert told in (None, [draft.value])
        told = [draft.value]


def test_control_characters_stand_for_themselves() -> None:
    """As in the arguments of calls: weak models write them into texts."""
    draft, _, reader = read('{"a": "x\ny"}', 2)

    assert draft.value == {"a": "x\ny"}
    assert reader.repaired


# In a stream.


class Row(BaseModel):
    name: str
    n: int


class Table(BaseModel):
    title: str
    rows: list[Row]


TABLE = Table(title='Hé\n"###"', rows=[Row(name="a", n=1), Row(name="b", n=2)])
WRITTEN = TABLE.model_dump_json()


async def deltas(text: str, size: int = 4) -> AsyncIterator[str]:
    for at in range(0, len(text), size):
        yield text[at : at + size]


@pytest.mark.anyio
@pytest.mark.parametrize("form", ["{}", " \n{}\n", "```json\n{}\n```", "```\n{}\n```\n", "{}\nThere you are."])
async def test_the_answer_of_a_stream(form: str) -> None:
    """The value so far is plain data; the result is an instance; a fence and what stands around it are passed over."""
    async with ToolStream(sources.text(deltas(form.replace("{}", WRITTEN))), output=Table) as stream:
        seen = []
        async for event in stream:
            if isinstance(event, Partial):
                seen.append(len(json.dumps(stream.output)))
    assert seen == sorted(seen)
    assert stream.output == TABLE.model_dump()
    assert stream.result.output == TABLE
    assert not stream.result.warnings


@pytest.mark.anyio
async def test_items_as_they_close() -> None:
    """Each is an instance, and comes before the list is complete; what is no item is left out and warned of."""
    answer = WRITTEN[:-2] + ',{"name":"c","n":"x"},{"name":"d","n":4}]}'
    async with ToolStream(sources.text(deltas(answer)), output=Table) as stream:
        found = [(item, stream.result.reason) async for item in stream.items(Row)]
    assert [item.name for item, _ in found] == ["a", "b", "d"]
    assert all(isinstance(item, Row) for item, _ in found)
    assert stream.result.output is None
    assert ["rows.2.n" in each.message for each in stream.result.warnings] == [True]

    async with ToolStream(sources.text(deltas('{"a": ["x"], "b": [1, 2]}')), output=dict[str, Any]) as stream:
        assert [item async for item in stream.items(int, path=["b"])] == [1, 2]


@together("odd", [{"anyOf": 5}, {"anyOf": [5]}, {"items": {"oneOf": 5}}, {"properties": 5}, {"required": "a"}])
def test_a_schema_that_nobody_could_read_is_refused(odd: Any) -> None:
    """When it is asked for, as that of a tool is."""
    with pytest.raises(ValueError, match="the JSON schema has an invalid value: Expected"):
        ToolStream(sources.text(deltas("5")), output=odd)
    with pytest.raises(ValueError, match="the JSON schema has an invalid value: Expected"):
        chat(ScriptedModel(["5"]), [], output=odd)


def run(deltas: Sequence[str]) -> list[UIEvent]:
    machine = StreamMachine(output=OutputType(Table), dialects="auto")
    events = [event for delta in deltas for event in machine.feed(TextDelta(delta))]
    return [*events, *machine.feed(ProviderCompleted(finish_reason="stop")), *machine.close()]


@given(st.sampled_from([WRITTEN, WRITTEN[:-9], '{"title": 1, "x": 2}', "No.", "[]", '"', WRITTEN + "!"]), sizes)
def test_the_events_are_the_same_however_they_are_cut(text: str, size: int) -> None:
    """Partials and warnings too, once neighbours are joined."""
    whole = coalesce(run([text]))

    assert coalesce(run([text[at : at + size] for at in range(0, len(text), size)])) == whole
    assert "".join(event.text for event in whole if isinstance(event, Text)) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WRITTEN, []),
        ("I cannot say.", [Code.INVALID_OUTPUT]),
        (WRITTEN[:20], [Code.INVALID_OUTPUT]),
        ('{"title": "x"}', [Code.INVALID_OUTPUT]),
        ('I look.\n~~~tool_call\n{"name": "a"}\n~~~\n', []),
    ],
)
def test_what_a_warning_tells(text: str, told: list[Code]) -> None:
    """One for each answer that is not what was asked for; a turn with a call may say anything before it."""
    assert [event.code for event in run([text]) if isinstance(event, Warning)] == told


def test_a_json_schema_is_checked() -> None:
    """Types, words, items, and required and forbidden members are checked; a valid answer becomes plain data."""
    word = {"enum": ["red", "green"]}
    members = {
        "a": {"type": "integer"},
        "b": {"type": "array", "items": {"$ref": "#/$defs/word"}},
        "c": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "d": {"allOf": [{"type": "string"}]},
        "e": True,
    }
    schema = {
        "$defs": {"word": word, "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/word"}]}},
        "type": ["object", "null"],
        "properties": members | {"f": {"$ref": "#/$defs/loop"}, "g": {"const": "x"}},
        "required": ["a"],
        "additionalProperties": False,
        "title": "T",
    }
    kind = OutputType(schema)
    assert kind.name == "T"
    for right in ['{"a": 1}', "null", '{"a": 1, "b": ["red"], "c": null, "d": 1, "e": [], "f": 2, "g": "x"}']:
        assert kind.validate(right) == json.loads(right)
    for wrong, why in [
        ({}, "the value lacks 'a'"),
        ({"a": "x"}, "a cannot be this string"),
        ([], "the value cannot be this array"),
        ({"a": 1, "x": 2}, "the value must not have the member 'x'"),
        ({"a": 1, "b": ["red", "blue"]}, r"b\[1\] cannot be this string"),
        ({"a": 1, "c": True}, "c cannot be this boolean"),
        ({"a": 1, "g": "y"}, "g cannot be this string"),
    ]:
        with pytest.raises(ValueError, match=why):
            kind.validate(json.dumps(wrong))


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


def test_the_message_of_an_invalid_answer_does_not_repeat_the_tag_of_a_union() -> None:
    kind = OutputType(Annotated[Cat | Dog, Field(discriminator="kind")])
    with pytest.raises(ValueError, match=r"^the value: 'kind' is none of 'cat', 'dog'$"):
        kind.validate('{"kind": "s3cret"}')


def test_each_reference_of_a_json_schema_is_followed_once() -> None:
    """A chain in which each definition refers to the next one twice costs as many steps as it has definitions."""
    names = [f"d{at}" for at in range(60)]
    both = {one: {"anyOf": [{"$ref": f"#/$defs/{other}"}] * 2} for one, other in pairwise(names)}
    kind = OutputType({"$defs": both | {names[-1]: {"enum": ["a", "b"]}}, "$ref": "#/$defs/d0"})
    with pytest.raises(ValueError, match="the value cannot be this string"):
        kind.validate('"c"')


# Asked of a model.


@pytest.mark.anyio
async def test_a_chat_asks_for_the_type() -> None:
    """In words, where the provider takes no schema or tools are sent; and again, as often as allowed."""
    model = ScriptedModel(["No.", '{"title": 1}', WRITTEN])
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "A table, please"}]
    async with chat(model, messages, output=OutputOptions(Table, retries=2)) as stream:
        items = [row async for row in stream.items(Row)]

    assert stream.result.output == TABLE
    assert items == TABLE.rows
    assert stream.result.reason == "finished"
    assert [each.code for each in stream.result.warnings] == [Code.INVALID_OUTPUT] * 2
    assert "title: Input should be a valid string" in stream.result.warnings[1].message
    for ask in model.asks:
        assert isinstance(ask.history[0], System)
        assert ask.history[0].text.startswith("Be kind.\n\nYour final answer is one JSON value")
    again = model.asks[1].history[-1]
    assert isinstance(again, User)
    assert "does not match the output type" in str(again.content)

    async with chat(ScriptedModel(["No.", "Never."]), messages, output=Table) as stream:
        assert [row async for row in stream.items(Row)] == []
    assert stream.result.output is None
    assert len(stream.result.steps) == 1


def ask_of(model: HTTPModel, **options: Any) -> dict[str, Any]:
    ask = Ask((User("Hi"),), output=OutputType(Table), options=options)
    return dict(json.loads(model._request(ask).content))


def test_a_provider_is_given_the_schema() -> None:
    """By its own means; what the request says of the same thing counts."""
    schema = OutputType(Table).schema
    openai = ask_of(OpenAIChat("m", api_key=""))
    assert openai["response_format"]["json_schema"] == {"name": "Table", "schema": schema, "strict": False}
    assert ask_of(OpenAIChat("m", api_key=""), response_format={"type": "text"})["response_format"]["type"] == "text"
    assert ask_of(OpenAIResponses("m", api_key=""))["text"]["format"]["schema"] == schema
    assert ask_of(GeminiChat("m", api_key=""))["generationConfig"]["responseJsonSchema"] == schema
    assert ask_of(OllamaChat("m"))["format"] == schema
    assert ask_of(AnthropicMessages("m", api_key=""))["tools"][0]["input_schema"] == schema


@pytest.mark.anyio
async def test_tools_and_a_type() -> None:
    """The turn that calls may say anything; the last answer is the value."""

    def rows() -> list[int]:
        """Count the rows."""
        return [1, 2]

    call = 'I count.\n~~~tool_call\n{"name": "rows"}\n~~~\n'
    model = ScriptedModel([call, WRITTEN], native_tool_calls=False)
    async with chat(model, [{"role": "user", "content": "Hi"}], tools=[rows], output=Table) as stream:
        assert [row async for row in stream.items(Row)] == TABLE.rows
    assert stream.result.output == TABLE
    assert not stream.result.warnings


@pytest.mark.anyio
async def test_a_model_that_breaks_off() -> None:
    """The value goes on where another model goes on."""
    second = ScriptedModel([WRITTEN[30:]])
    fallback = Fallback(ScriptedModel([[WRITTEN[:30], OSError()]]), second)
    async with chat(fallback, [{"role": "user", "content": "Hi"}], output=Table) as stream:
        assert [row async for row in stream.items(Row)] == TABLE.rows
    assert stream.result.output == TABLE
