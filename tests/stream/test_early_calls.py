"""Tools that begin while their call is being written: what they are given, and that nothing of a bad call counts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Self

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel, Field

from streamtools import ToolStream, chat, tool
from streamtools.conversation import Fallback, ScriptedModel
from streamtools.errors import Code
from streamtools.events import (
    Done,
    Error,
    Executed,
    Executing,
    NativeToolCall,
    Partial,
    Progress,
    ProviderCompleted,
    SourceError,
    SourceEvent,
    SourceWarning,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UIEvent,
)
from streamtools.stream.early_calls import ITEMS
from streamtools.tools import Tool, ToolContext, ToolError
from streamtools.tools.call import CallEnded
from tests.support.cases import together

pytestmark = pytest.mark.anyio


class Row(BaseModel):
    name: str
    n: int = 0


class Held:
    """A source whose batches come when they may: an event among them is waited for."""

    def __init__(self, *steps: SourceEvent | anyio.Event) -> None:
        self.left = list(steps)
        self.read = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[SourceEvent]:
        while self.left and isinstance(self.left[0], anyio.Event):
            await self.left.pop(0).wait()  # type: ignore[union-attr]  # which it is
        if not self.left:
            raise StopAsyncIteration
        step = self.left.pop(0)
        self.read += 1
        assert not isinstance(step, anyio.Event)
        return [step]

    async def aclose(self) -> None:
        """Close nothing."""


class Seen:
    """What a tool has been given, and how that ended."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.first = anyio.Event()
        self.fault: BaseException | None = None
        self.stopped = False
        self.runs = 0

    def tool(self, **options: Any) -> Tool[..., Any]:
        """Return a tool that takes rows, and tries to go on when they end badly."""

        async def save(table: str, rows: AsyncIterator[Row]) -> str:
            """Look rows up."""
            self.runs += 1
            try:
                async for row in rows:
                    self.rows.append(row)
                    self.first.set()
            except Exception as error:
                self.fault = error
                try:
                    await anyio.lowlevel.checkpoint()
                except BaseException:
                    self.stopped = True
                    raise
            return f"{len(self.rows)} in {table}"

        return tool(begins_early=True, **options)(save)


HEAD: list[SourceEvent] = [
    ToolCallStart("0", "c0", "save"),
    ToolCallDelta("0", '{"table": "t", "rows": [{"name": "a"},'),
]
TAIL = ToolCallDelta("0", '{"name": "b", "n": 2}]}')
WHOLE = NativeToolCall("0", "save", None, "c0")
END = ProviderCompleted(finish_reason="tool_calls")


async def run(stream: ToolStream) -> list[UIEvent]:
    with anyio.fail_after(20):
        async with stream as events:
            return [event async for event in events]


def of(kind: type[Any], events: Sequence[UIEvent]) -> list[Any]:
    return [event for event in events if type(event) is kind]


async def test_a_tool_has_the_first_item_before_the_call_is_complete() -> None:
    """The rest of the call comes only when the tool has the first row; its result stands where it always does."""
    seen = Seen()
    source = Held(*HEAD, seen.first, TAIL, WHOLE, END)
    stream = ToolStream(source, tools=[seen.tool()], execute="eager")
    events = await run(stream)

    assert seen.rows == [Row(name="a"), Row(name="b", n=2)]
    assert [type(event) for event in events if type(event) in (Executing, Executed, Done)] == [
        Executing,
        Executed,
        Done,
    ]
    assert [outcome.result for outcome in stream.result.outcomes] == ["2 in t"]
    assert stream.result.outcomes[0].call.arguments == {"table": "t", "rows": [{"name": "a"}, {"name": "b", "n": 2}]}
    assert seen.runs == 1
    assert [event.value for event in of(Partial, events) if event.path[-1:] == ["name"]] == ["a", "b"]


async def test_a_call_in_text() -> None:
    """Where the model is declared to make no native calls, and under any dialect."""
    seen = Seen()
    text = '~~~tool_call\n{"name": "save", "arguments": {"table": "t", "rows": [{"name": "a"},'
    source = Held(TextDelta(text), seen.first, TextDelta(' {"name": "b"}]}}\n~~~\n'), ProviderCompleted())
    stream = ToolStream(source, tools=[seen.tool()], execute="eager", native_tool_calls=False)
    await run(stream)

    assert [outcome.result for outcome in stream.result.outcomes] == ["2 in t"]
    assert seen.runs == 1


BAD: dict[str, tuple[Sequence[SourceEvent], Code]] = {
    "cut": ([ProviderCompleted(finish_reason="length")], Code.TRUNCATED),
    "malformed": ([ToolCallDelta("0", "oops]}"), WHOLE, END], Code.INVALID_ARGUMENTS),
    "an object in place of an array": ([ToolCallDelta("0", '], "table": "u"}'), WHOLE, END], Code.INVALID_ARGUMENTS),
    "a second table": ([ToolCallDelta("0", '{"name": "b"}], "table": "u"}'), WHOLE, END], Code.DUPLICATE_KEY),
    "run by the provider": ([NativeToolCall("0", "save", None, "c0", provider_executed=True), END], Code.SUPERSEDED),
    "two names": ([ToolCallStart("0", "c0", "other"), TAIL, WHOLE, END], Code.CONFLICTING_FIELDS),
    "a part is lost": ([SourceWarning(Code.BAD_FRAME, "?"), TAIL, WHOLE, END], Code.TRUNCATED),
    "an unknown member": ([ToolCallDelta("0", '{"name": "b"}], "x": 1}'), WHOLE, END], Code.TOOL_INPUT),
    "an item that does not fit": ([ToolCallDelta("0", '{"name": 1}]}'), WHOLE, END], Code.TOOL_INPUT),
    "other items at the end": (
        [NativeToolCall("0", "save", {"table": "t", "rows": [{"name": "z"}]}, "c0"), END],
        Code.TOOL_FAILED,
    ),
    "another table at the end": (
        [NativeToolCall("0", "save", {"table": "u", "rows": [{"name": "a"}]}, "c0"), END],
        Code.TOOL_FAILED,
    ),
    "the connection breaks": ([SourceError("gone")], Code.TRUNCATED),
}


@together("name", BAD)
async def test_a_call_that_does_not_count(name: str) -> None:
    """The list raises, the tool is cancelled, and the call ends in its error: no result reaches anybody."""
    seen = Seen()
    rest, code = BAD[name]
    stream = ToolStream(Held(*HEAD, seen.first, *rest), tools=[seen.tool()], execute="eager")
    events = await run(stream)

    assert isinstance(seen.fault, CallEnded)
    assert seen.stopped
    assert seen.runs == 1
    assert not of(Executed, events)
    assert [event.code for event in of(Error, events) if event.call_id is not None] == [code]
    assert "in t" not in repr(stream.result.messages())


async def test_a_run_that_is_left() -> None:
    """The tool is cancelled with it."""
    seen = Seen()
    never = anyio.Event()
    stream = ToolStream(Held(*HEAD, never), tools=[seen.tool()], execute="eager")
    async with stream:
        await seen.first.wait()
    assert stream.result.reason == "cancelled"
    assert not stream.result.outcomes


@together(
    "options",
    [
        {"execute": "completed"},
        {"execute": "eager", "native_tool_calls": False},
        {"execute": "eager", "guards": None, "concurrency": 1},
    ],
    ids=["completed", "in doubt", "eager"],
)
@together("behind", [False, True])
async def test_otherwise_it_is_given_a_whole_list(options: dict[str, Any], behind: bool) -> None:
    """Also where another argument stands behind the list; the tool is the same, and runs once."""
    seen = Seen()
    arguments = '{"rows": [{"name": "a"}], "table": "t"}' if behind else '{"table": "t", "rows": [{"name": "a"}]}'
    source = Held(HEAD[0], ToolCallDelta("0", arguments), WHOLE, END)
    stream = ToolStream(source, tools=[seen.tool()], **options)
    await run(stream)

    assert [outcome.result for outcome in stream.result.outcomes] == ["1 in t"]
    assert seen.runs == 1


@pytest.mark.parametrize("choice", ["none", "required", {"type": "function", "function": {"name": "save"}}])
async def test_a_choice_of_tools_is_held_to(choice: Any) -> None:
    """With one, nothing runs before the turn is complete, and nothing may be run eagerly that has to be."""
    seen = Seen()
    eager = choice == "none"
    source = Held(*HEAD, TAIL, WHOLE, END)
    stream = ToolStream(source, tools=[seen.tool()], tool_choice=choice, execute="eager" if eager else "completed")
    await run(stream)
    assert seen.runs == (0 if eager else 1)


async def test_a_slow_tool_slows_the_source() -> None:
    """No more is read than what waits for it, and one event."""
    go = anyio.Event()
    taken: list[int] = []

    @tool(begins_early=True)
    async def take(numbers: AsyncIterator[int]) -> int:
        """Take numbers."""
        async for number in numbers:
            await go.wait()
            taken.append(number)
        return sum(taken)

    many = 10 * ITEMS
    pieces = [ToolCallDelta("0", f"{number},") for number in range(many)]
    source = Held(ToolCallStart("0", "c", "take"), ToolCallDelta("0", '{"numbers": ['), *pieces)
    source.left += [ToolCallDelta("0", "0]}"), NativeToolCall("0", "take", None, "c"), END]
    stream = ToolStream(source, tools=[take], execute="eager")
    with anyio.fail_after(20):
        async with stream as events:
            async for _ in events:
                if source.read > ITEMS:
                    break
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            assert source.read <= ITEMS + 6
            assert not taken
            go.set()
            async for _ in events:
                pass
    assert [outcome.result for outcome in stream.result.outcomes] == [sum(range(many))]


async def test_what_a_tool_says_and_returns_before_the_call_is_complete() -> None:
    """Progress, a result, and a refusal wait for it, and count then."""
    said = anyio.Event()

    @tool(begins_early=True)
    async def first(rows: AsyncIterator[Row], context: ToolContext) -> str:
        """Look at the first."""
        async for row in rows:
            await context.progress(row.name)
            said.set()
            break
        return row.name

    @tool(begins_early=True, name="first")
    async def refuses(rows: AsyncIterator[Row]) -> str:
        """Look at none."""
        said.set()
        raise ToolError("not today")

    cases: list[tuple[Tool[..., Any], str | None]] = [(first, "a"), (refuses, None)]
    for each, result in cases:
        said = anyio.Event()
        begun: list[SourceEvent] = [ToolCallStart("0", "c", "first"), ToolCallDelta("0", '{"rows": [{"name": "a"}, ')]
        end: list[SourceEvent] = [ToolCallDelta("0", '{"name": "b"}]}'), NativeToolCall("0", "first", None, "c"), END]
        stream = ToolStream(Held(*begun, said, *end), tools=[each], execute="eager")
        events = await run(stream)

        (outcome,) = stream.result.outcomes
        assert (outcome.result, outcome.error) == (result, None if result else Code.TOOL_FAILED)
        assert [event.data for event in of(Progress, events)] == ["a"] * bool(result)


async def test_a_model_that_breaks_off() -> None:
    """What had begun is discarded whole, and the call of the next model is run, once."""
    seen = Seen()
    first = ScriptedModel([[*HEAD, OSError("gone")]], name="one", native_tool_calls=True)
    again = [*HEAD, TAIL, WHOLE, END]
    second = ScriptedModel([again, "Done."], name="two", native_tool_calls=True)
    stream = chat(Fallback(first, second), [{"role": "user", "content": "Hi"}], tools=[seen.tool()], execute="eager")
    await run(stream)

    assert [outcome.result for outcome in stream.result.outcomes][-1].endswith("in t")
    assert len(stream.result.outcomes) == 1
    assert stream.result.text == "Done."


def wrong() -> list[tuple[Callable[..., Any], dict[str, Any], str]]:
    async def no_list(table: str) -> None: ...
    async def with_default(rows: AsyncIterator[Row], table: str = "t") -> None: ...
    async def of_any_name(rows: AsyncIterator[Row], **more: str) -> None: ...
    async def right(rows: Annotated[AsyncIterator[Row], Field(max_length=3)]) -> None: ...
    async def two(rows: AsyncIterator[Row], others: AsyncIterator[Row]) -> None: ...
    def blocks(rows: AsyncIterator[Row]) -> None: ...

    return [
        (no_list, {"begins_early": True}, "none of its parameters"),
        (with_default, {"begins_early": True}, "has a default"),
        (of_any_name, {"begins_early": True}, "any name"),
        (right, {"begins_early": True, "requires_approval": True}, "waits for somebody"),
        (right, {"begins_early": True, "sequential": True}, "waits for somebody"),
        (two, {}, "both take"),
        (blocks, {}, "only an async function"),
    ]


def test_tools_that_cannot_begin_early() -> None:
    """The message says why; the list is one in the schema."""
    for function, options, why in wrong():
        with pytest.raises(TypeError, match=why):
            Tool(function, **options)

    right = wrong()[3][0]
    schema = Tool(right).parameters["properties"]["rows"]
    assert (schema["type"], schema["maxItems"]) == ("array", 3)
