"""The public API in user code, for the type checker. The code is checked with the tests and never runs.

`assert_type` states the type that an editor shows, and `assert_never` that a union is closed.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, assert_never, assert_type

from pydantic import BaseModel

import streamtools
import streamtools.gateway
from streamtools import (
    Answer,
    Approve,
    Code,
    Deny,
    InvalidItem,
    Tool,
    ToolCall,
    ToolError,
    ToolRegistry,
    ToolResult,
    ToolStream,
    chat,
    conversation,
    events,
    sources,
    telemetry,
    tool,
    tools,
)
from streamtools.conversation import RequestOptions
from streamtools.outputs import asgi
from streamtools.runs import LostRun, RedisStore, Run, Runs

# Events: two closed unions.


def describe(event: events.UIEvent) -> object:
    """Match each event by position and by keyword. The type checker reports a missing type."""
    match event:
        case events.Start(run_id):
            return assert_type(run_id, str)
        case events.StepStart(step) | events.StepEnd(step) | events.StepSuperseded(step):
            return assert_type(step, int)
        case events.Text(text) | events.Reasoning(text) | events.Markup(text):
            return assert_type(text, str)
        case events.Partial(path, _, complete, call_id=of_call):
            return assert_type(path, list[str | int]), assert_type(complete, bool), assert_type(of_call, str | None)
        case events.Thinking(active, call_id):
            return assert_type(active, bool), assert_type(call_id, str | None)
        case events.CallStart(call_id, name):
            return assert_type(call_id, str), assert_type(name, str)
        case events.CallDelta(call_id, text):
            return assert_type(call_id, str), assert_type(text, str)
        case events.Call(call) | events.Executing(call):
            return assert_type(call, ToolCall)
        case events.ApprovalRequested(call, expires):
            return assert_type(call, ToolCall), assert_type(expires, float | None)
        case events.Progress(call_id, data):
            return assert_type(call_id, str), data
        case events.Executed(call=call, message=message, elapsed=elapsed):
            return assert_type(call, ToolCall), assert_type(message, str | None), assert_type(elapsed, float)
        case events.Error(code, message):
            return assert_type(code, Code), assert_type(message, str), assert_type(event.call, ToolCall | None)
        case events.Warning(code=code, count=count):
            return assert_type(code, Code), assert_type(count, int | None)
        case events.FollowUp(messages):
            return assert_type(messages, list[dict[str, Any]])
        case events.UsageReport(usage):
            return assert_type(usage, events.Usage)
        case events.Raw(data):
            return data
        case events.Matched(rule, action, position, length):
            assert_type(rule, str), assert_type(event.match, str | None)
            return action, assert_type(position, int), assert_type(length, int)
        case events.Done(reason, finish_reason, _, pending, client=client):
            assert_type(reason, events.DoneReason), assert_type(client, list[str])
            return assert_type(finish_reason, str | None), assert_type(pending, list[ToolCall])
        case _:
            assert_never(event)


def describe_source(event: events.SourceEvent) -> object:
    """Match each source event."""
    match event:
        case events.TextDelta(text) | events.ReasoningDelta(text):
            return assert_type(text, str)
        case events.ToolCallStart(key) | events.ToolCallDelta(key) | events.NativeToolCall(key=key):
            return assert_type(key, str)
        case events.SourceUsage(usage):
            return assert_type(usage, events.Usage)
        case events.ProviderCompleted(finish_reason=reason):
            return assert_type(reason, events.FinishReason | None)
        case events.ChainCompleted(conversation_id):
            return assert_type(conversation_id, str | None)
        case events.SourceError(message) | events.SourceWarning(message=message):
            return assert_type(message, str)
        case events.SourceRaw(data):
            return data
        case _:
            assert_never(event)


def switch(event: events.UIEvent) -> str:
    """Branch on `type`, which narrows like a class, and on the code, as an interface does."""
    if event.type == "executed":
        return assert_type(event, events.Executed).call.name
    if event.type == "error" and event.code == Code.UNKNOWN_TOOL:
        return assert_type(event.message, str)
    return assert_type(event.to_json(), str)


# Tools.


class Trip(BaseModel):
    """The arguments of a tool."""

    city: str
    days: int = 1


@tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool(name="get_weather", timeout=5)
async def weather(city: str, *, unit: Literal["C", "F"] = "C") -> dict[str, str]:
    """Tell the weather."""
    return {"message": f"rain in {city}, {unit}"}


@tool
async def plan(trip: Trip) -> AsyncIterator[str]:
    """Plan a trip."""
    yield trip.city


@tool
def refuse() -> ToolResult:
    """Refuse."""
    if random.random() < 0.5:
        raise ToolError("not today")
    return ToolResult(model="3 rows", ui=[1, 2, 3])


TOGETHER = [add, weather, plan]
ToolRegistry(TOGETHER)


async def call_tools() -> None:
    """Call tools like their functions: a decorator keeps the signature."""
    assert_type(add(1, 2), float)
    assert_type(await weather("Oslo", unit="F"), dict[str, str])
    assert_type(refuse(), ToolResult)
    async for place in plan(Trip(city="Oslo")):
        assert_type(place, str)
    add("1", 2)  # type: ignore[arg-type]
    await weather(town="Oslo")  # type: ignore[call-arg]
    assert_type(add.name, str)
    assert_type(add.parameters, dict[str, Any])
    by_hand: Tool[[str], int] = Tool(len_of, name="length")
    assert_type(by_hand("abc"), int)
    handler: Tool[[dict[str, Any]], object] = tool(lookup, parameters={"type": "object"})
    handler({})


def len_of(text: str) -> int:
    """Count."""
    return len(text)


def lookup(arguments: dict[str, Any]) -> object:
    """Look up."""
    return arguments


# The stream.


def refused_by_the_checker(model: conversation.Model) -> None:
    """Misspelled options and values."""
    chat(model, [Trip.model_construct()], last_step="answer")  # a pydantic model is a message
    chat(model, [], last_step="all")  # type: ignore[arg-type]
    chat(model, [], folow_up="never")  # type: ignore[call-arg]
    chat(model, [], request=RequestOptions(emulation="always"))  # type: ignore[arg-type]
    conversation.CohereChat("m", send_reasoning="sometimes")  # type: ignore[arg-type]
    conversation.OpenAIChat("m", reasoning_field="content")  # type: ignore[arg-type]
    telemetry.instrument(tracer_provider="jaeger")  # type: ignore[arg-type]
    chat(model, []).items(int, invalid="raise")  # type: ignore[call-overload]


async def show_items(model: conversation.Model) -> None:
    """Read valid and invalid items. The class is the type of the items; for other types, it is not known."""
    answer = chat(model, [], system="Be brief.")
    assert_type(answer.items(int, path=["rows"]), AsyncIterator[int])
    assert_type(answer.items(list[int] | None), AsyncIterator[Any])
    assert_type(await chat(model, []), streamtools.TurnResult)
    assert_type(streamtools.errors.DecisionRefused("no").code, streamtools.errors.RefusalCode)
    async for trip in answer.items(Trip, invalid="yield"):
        match trip:
            case InvalidItem(path, _, errors):
                assert_type(path, list[str | int]), assert_type(errors, list[str])
            case _:
                assert_type(trip, Trip)


def continue_run(model: conversation.Model, run: Run) -> RedisStore:
    """A decided run can be resumed, and a lost run continued. A chat from `recover` may be awaited."""

    async def recover(lost: LostRun) -> conversation.Chat | None:
        return chat(model, [], continue_from=lost)

    @asynccontextmanager
    async def resume(run: Run) -> AsyncIterator[conversation.Chat]:
        async with chat(model, [], resume=run) as events:
            yield events

    Runs(resume=resume), assert_type(run.attach().items(int), AsyncIterator[int])
    return RedisStore(["redis://a", "redis://b"], recover=recover, max_recoveries=1)


def hide_names(model: conversation.Model, vault: streamtools.rules.Vault) -> object:
    """The vault of a conversation, and what takes it."""
    names = streamtools.rules.Vault(
        [streamtools.rules.email()], finders={"person": lambda text: [text]}, skip_roles=["system"], state=vault.state
    )
    assert_type(names.replace("Ann"), str)
    assert_type(names.restore("<PERSON_1>"), str)
    streamtools.gateway.app("http://127.0.0.1:8080/v1", vault=names, max_rate=30)
    messages = [{"role": "user", "content": "Hello"}]
    return streamtools.chat(model, messages, text=streamtools.TextOptions(vault=names))


async def use_context(city: str, context: streamtools.ToolContext[dict[str, str]]) -> str:
    """The context declares the type of its state."""
    assert_type(context.state, dict[str, str])
    await context.progress({"at": city})
    return city


def mix_tools() -> None:
    """A list of tools with unrelated functions is a list of tools. Messages fit the types of an SDK."""

    @tool
    def count(text: str) -> int:
        return len(text)

    @tool
    async def find(places: list[str], *, most: int = 3) -> dict[str, str]:
        return dict.fromkeys(places[:most], "")

    both = [count, find]
    stream = ToolStream(sources.text("Hi"), tools=both)
    chat(conversation.ScriptedModel([]), [], tools=both)
    sent: list[dict[str, str]] = stream.result.messages("openai")
    assert sent == []


async def respond(runs: Runs) -> asgi.EventStreamResponse:
    """A run is started and sent with fewer messages."""
    run = await runs.start(ToolStream(sources.text("Hi")), owner="ann", conversation="c", exclusive=True)
    assert_type(run, Run)
    return asgi.event_stream_response(run, max_rate=30)


async def converse(websocket: asgi.AnyWebSocket) -> None:
    """Websockets."""
    await asgi.serve_websocket(websocket, lambda message, session: None, read=lambda frame: {"cancel": True, **frame})


def decide(body: bytes) -> Approve | Deny | Answer:
    """The decision in the body of a request."""
    decision = tools.parse_decision(body)
    assert_type(decision, Approve | Deny | Answer)
    return decision
