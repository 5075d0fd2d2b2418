"""Typed values: the additions of each delta, invalid values, and the result of a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from streamtools import OutputOptions, ToolStream, chat, coalesce, outputs, sources
from streamtools.conversation import (
    AnthropicMessages,
    Ask,
    Fallback,
    GeminiChat,
    HTTPModel,
    OllamaChat,
    OpenAIChat,
    OpenAIResponses,
    ScriptedModel,
)
from streamtools.errors import Code
from streamtools.events import Error, Partial, ProviderCompleted, Text, TextDelta, UIEvent, Warning
from streamtools.history import System, User
from streamtools.json_values import Draft
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.value_reader import Added, ValueReader
from streamtools.runs import MemoryEventLog, Runs
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
def test_a_value_is_the_same_at_each_cut(value: Any, size: int, ascii: bool, indent: int | None) -> None:
    """The additions make the value, and each place is completed once."""
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    draft, told, reader = read(text, size)
    assert reader.fault is None
    assert draft.value == value
    ends = [tuple(path) for path, _, complete in told if complete]
    assert len(ends) == len(set(ends))
    assert sum(len(value) for _, value, _ in told if isinstance(value, str)) <= len(text)


@given(values, st.data())
def test_a_value_only_grows(value: Any, data: st.DataObject) -> None:
    """A partial value is a prefix of the whole: no partial escape or number, and no invented word."""
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
def test_invalid_json_is_a_fault_with_a_code(text: str, code: Code) -> None:
    """The value before it is the same at each cut."""
    told = None
    for size in (1, 3, len(text) or 1):
        draft, _, reader = read(text, size)
        assert reader.fault is not None
        assert reader.fault.code == code
        assert told in (None, [draft.value])
        told = [draft.value]


def test_control_characters_in_strings_are_accepted() -> None:
    """As in arguments of calls: weak models write them."""
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


@pytest.mark.parametrize("form", ["{}", " \n{}\n", "```json\n{}\n```", "```\n{}\n```\n", "{}\nThere you are."])
async def test_a_stream_returns_the_answer_as_an_instance(form: str) -> None:
    """The partial value is plain data. A code fence and the text around it are ignored."""
    async with ToolStream(sources.text(deltas(form.replace("{}", WRITTEN))), output=Table) as stream:
        seen = []
        async for event in stream:
            if isinstance(event, Partial):
                seen.append(len(json.dumps(stream.output)))
    assert seen == sorted(seen)
    assert stream.output == TABLE.model_dump()
    assert stream.result.output == TABLE
    assert not stream.result.warnings


async def test_items_arrive_before_the_list_is_complete() -> None:
    """Each is an instance. An invalid item is omitted with a warning."""
    answer = WRITTEN[:-2] + ',{"name":"c","n":"x"},{"name":"d","n":4}]}'
    async with ToolStream(sources.text(deltas(answer)), output=Table) as stream:
        found = [(item, stream.result.reason) async for item in stream.items(Row)]
    assert [(type(item), item.name) for item, _ in found] == [(Row, "a"), (Row, "b"), (Row, "d")]
    assert (None, [True]) == (stream.result.output, ["rows.2.n" in each.message for each in stream.result.warnings])
    for kept, seen in ((9, 0), (1, 0), (20, 1)):  # the log drops the start, all, or what follows the first item
        async with Runs(MemoryEventLog(max_events=kept)) as runs:
            run = await runs.start(chat(ScriptedModel([[*answer]]), [], output=Table), owner="ann")
            items = run.attach().items(Row)
            _ = [await anext(items) for _ in range(seen)]
            await run.wait()
            with pytest.raises(ValueError, match="a part of the answer is missing"):
                await anext(items)
    async with Runs() as runs:
        run = await runs.start(ToolStream(sources.text(deltas(answer)), output=Table), owner="ann")
        assert [item.name async for item in run.attach().items(Row)] == ["a", "b", "d"]
        with pytest.raises(ValueError, match=r"write run.attach\(\), without 3"):
            await anext(aiter(run.attach(3).items(Row)))
    async with ToolStream(sources.text(deltas('{"a": ["x"], "b": [1, 2]}')), output=dict[str, Any]) as stream:
        assert [item async for item in stream.items(int, path=["b"])] == [1, 2]


@together("odd", [{"anyOf": 5}, {"anyOf": [5]}, {"items": {"oneOf": 5}}, {"properties": 5}, {"required": "a"}])
def test_an_invalid_schema_is_refused(odd: Any) -> None:
    """It is checked when it is passed, like the schema of a tool."""
    with pytest.raises(ValueError, match="the JSON schema has an invalid value: Expected"):
        ToolStream(sources.text(deltas("5")), output=odd)
    with pytest.raises(ValueError, match="the JSON schema has an invalid value: Expected"):
        chat(ScriptedModel(["5"]), [], output=odd)


def run(deltas: Sequence[str]) -> list[UIEvent]:
    machine = StreamMachine(output=OutputType(Table), dialects="auto")
    events = [event for delta in deltas for event in machine.feed(TextDelta(delta))]
    return [*events, *machine.feed(ProviderCompleted(finish_reason="stop")), *machine.close()]


@given(st.sampled_from([WRITTEN, WRITTEN[:-9], '{"title": 1, "x": 2}', "No.", "[]", '"', WRITTEN + "!"]), sizes)
def test_events_are_the_same_at_each_cut(text: str, size: int) -> None:
    """Partials and warnings are compared after coalescing."""
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
def test_each_invalid_answer_gets_one_warning(text: str, told: list[Code]) -> None:
    """The last one fails the run. A turn with a call may have any text before it."""
    events = run([text])
    assert [event.code for event in events if isinstance(event, Warning)] == told
    assert [event.code for event in events if isinstance(event, Error) and event.call is None] == told
    outputs.validate(events)


def test_a_json_schema_is_checked() -> None:
    """Types, words, items, and required and forbidden fields are checked. A valid answer is plain data."""
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
    for right in [
        '{"a": 1}',
        '{"a": 1.0}',
        "null",
        '{"a": 1, "b": ["red"], "c": null, "d": 1, "e": [], "f": 2, "g": "x"}',
    ]:
        assert kind.validate(right) == json.loads(right)
    for wrong, why in [
        ({}, "the value lacks 'a'"),
        ({"a": "x"}, "a cannot be this string"),
        ({"a": 1.5}, "a cannot be this number"),
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
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    age: int


def test_the_message_of_an_invalid_answer_does_not_repeat_the_tag_of_a_union() -> None:
    kind = OutputType(Annotated[Cat | Dog, Field(discriminator="kind")])
    with pytest.raises(ValueError, match=r"^the value: 'kind' is none of 'cat', 'dog'$"):
        kind.validate('{"kind": "s3cret"}')


def test_each_reference_of_a_json_schema_is_followed_once() -> None:
    """A chain in which each definition refers to the next one twice takes one step for each definition."""
    names = [f"d{at}" for at in range(60)]
    both = {one: {"anyOf": [{"$ref": f"#/$defs/{other}"}] * 2} for one, other in pairwise(names)}
    kind = OutputType({"$defs": both | {names[-1]: {"enum": ["a", "b"]}}, "$ref": "#/$defs/d0"})
    with pytest.raises(ValueError, match="the value cannot be this string"):
        kind.validate('"c"')


# Requests to a model.


async def test_a_chat_describes_the_type_in_words() -> None:
    """This is for providers without schemas and requests with tools. It repeats up to the limit."""
    model = ScriptedModel(["No.", '{"title": 1}', WRITTEN])
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "A table, please"}]
    async with chat(model, messages, output=OutputOptions(Table, retries=2)) as stream:
        items = [row async for row in stream.items(Row)]

    assert stream.result.output == TABLE
    assert items == TABLE.rows
    assert (stream.result.reason, stream.result.errors) == ("finished", [])
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


def test_a_provider_gets_the_schema() -> None:
    """The request has the provider's field for it. An explicit option of the caller has precedence."""
    schema = OutputType(Table).schema
    openai = ask_of(OpenAIChat("m", api_key=""))
    assert openai["response_format"]["json_schema"] == {"name": "Table", "schema": schema, "strict": False}
    assert ask_of(OpenAIChat("m", api_key=""), response_format={"type": "text"})["response_format"]["type"] == "text"
    assert ask_of(OpenAIResponses("m", api_key=""))["text"]["format"]["schema"] == schema
    assert ask_of(GeminiChat("m", api_key=""))["generationConfig"]["responseJsonSchema"] == schema
    assert ask_of(OllamaChat("m"))["format"] == schema
    assert ask_of(AnthropicMessages("m", api_key=""))["tools"][0]["input_schema"] == schema


async def test_a_turn_with_calls_may_have_any_text() -> None:
    """The last answer is the value."""

    def rows() -> list[int]:
        """Count the rows."""
        return [1, 2]

    call = 'I count.\n~~~tool_call\n{"name": "rows"}\n~~~\n'
    model = ScriptedModel([call, WRITTEN], native_tool_calls=False)
    async with chat(model, [{"role": "user", "content": "Hi"}], tools=[rows], output=Table) as stream:
        assert [row async for row in stream.items(Row)] == TABLE.rows
    assert stream.result.output == TABLE
    assert not stream.result.warnings


async def test_a_value_continues_with_the_next_model() -> None:
    second = ScriptedModel([WRITTEN[30:]])
    fallback = Fallback(ScriptedModel([[WRITTEN[:30], OSError()]]), second)
    async with chat(fallback, [{"role": "user", "content": "Hi"}], output=Table) as stream:
        assert [row async for row in stream.items(Row)] == TABLE.rows
    assert stream.result.output == TABLE
