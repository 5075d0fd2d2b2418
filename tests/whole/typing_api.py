"""The public API as a user writes it, for the type checker: checked with the tests, never run.

`assert_type` states what a user's editor shows; `assert_never` that a union is closed.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from typing import Any, Literal, assert_never, assert_type

import httpx
import httpx_sse
from pydantic import BaseModel

import streamtools
import streamtools.gateway
from streamtools import (
    Code,
    Dialect,
    Emulation,
    Limits,
    OutputOptions,
    Parser,
    ParserOptions,
    RunnerOptions,
    StreamMachine,
    StreamToolsError,
    TextJudge,
    TextOptions,
    Tool,
    ToolCall,
    ToolError,
    ToolOutcome,
    ToolRegistry,
    ToolResult,
    ToolStream,
    TurnResult,
    UiTexts,
    chat,
    coalesce,
    conversation,
    dialects_for,
    outputs,
    parse,
    replay,
    rules,
    sources,
    telemetry,
    tool,
)
from streamtools import history as histories_of
from streamtools.conversation import RequestOptions
from streamtools.errors import ToolCallFailed
from streamtools.events import (
    ApprovalRequested,
    Call,
    CallDelta,
    CallStart,
    ChainCompleted,
    Done,
    DoneReason,
    Error,
    Executed,
    Executing,
    FinishReason,
    FollowUp,
    Markup,
    Matched,
    NativeToolCall,
    Partial,
    Progress,
    ProviderCompleted,
    Raw,
    Reasoning,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    SourceWarning,
    Start,
    StepEnd,
    StepStart,
    StepSuperseded,
    Text,
    TextDelta,
    Thinking,
    ToolCallDelta,
    ToolCallStart,
    UIEvent,
    Usage,
    UsageReport,
    Warning,
    json_schema,
    read_ui_event,
)
from streamtools.gateway import FallbackUpstream, Rewrite, ToolCallTransport
from streamtools.gateway import app as gateway_app
from streamtools.parsing import (
    BLANKS,
    LINE_END,
    SPACES,
    ModelFamily,
    NearMiss,
    OneOf,
    Opener,
    ParseResult,
    Some,
    Span,
    Tag,
    families_for,
    json_calls,
    text_calls,
)
from streamtools.parsing.dialects import hash_marker, tilde_fence
from streamtools.recording import Recording, shipped
from streamtools.rules import Rule

# Events: two closed unions.


def describe(event: UIEvent) -> object:
    """Take every event apart by position and by keyword; a type that is forgotten here is an error of the checker."""
    match event:
        case Start(run_id):
            return assert_type(run_id, str)
        case StepStart(step) | StepEnd(step) | StepSuperseded(step):
            return assert_type(step, int)
        case Text(text) | Reasoning(text) | Markup(text):
            return assert_type(text, str)
        case Partial(path, _, complete, call_id=of_call):
            return assert_type(path, list[str | int]), assert_type(complete, bool), assert_type(of_call, str | None)
        case Thinking(active, call_id):
            return assert_type(active, bool), assert_type(call_id, str | None)
        case CallStart(call_id, name):
            return assert_type(call_id, str), assert_type(name, str)
        case CallDelta(call_id, text):
            return assert_type(call_id, str), assert_type(text, str)
        case Call(call) | Executing(call):
            return assert_type(call, ToolCall)
        case ApprovalRequested(call, expires):
            return assert_type(call, ToolCall), assert_type(expires, float | None)
        case Progress(call_id, data):
            return assert_type(call_id, str), data
        case Executed(call=call, message=message, elapsed=elapsed):
            return assert_type(call, ToolCall), assert_type(message, str | None), assert_type(elapsed, float)
        case Error(code, message):
            return assert_type(code, Code), assert_type(message, str), assert_type(event.call, ToolCall | None)
        case Warning(code=code, count=count):
            return assert_type(code, Code), assert_type(count, int | None)
        case FollowUp(messages):
            return assert_type(messages, list[dict[str, Any]])
        case UsageReport(usage):
            return assert_type(usage, Usage)
        case Raw(data):
            return data
        case Matched(rule, action, position, length):
            assert_type(rule, str), assert_type(event.match, str | None)
            return action, assert_type(position, int), assert_type(length, int)
        case Done(reason, finish_reason, _, pending):
            assert_type(reason, DoneReason)
            return assert_type(finish_reason, str | None), assert_type(pending, list[ToolCall])
        case _:
            assert_never(event)


def describe_source(event: SourceEvent) -> object:
    """Take every source event apart."""
    match event:
        case TextDelta(text) | ReasoningDelta(text):
            return assert_type(text, str)
        case ToolCallStart(key) | ToolCallDelta(key) | NativeToolCall(key):
            return assert_type(key, str)
        case SourceUsage(usage):
            return assert_type(usage, Usage)
        case ProviderCompleted(finish_reason=reason):
            return assert_type(reason, FinishReason | None)
        case ChainCompleted(conversation_id):
            return assert_type(conversation_id, str | None)
        case SourceError(message) | SourceWarning(message=message):
            return assert_type(message, str)
        case SourceRaw(data):
            return data
        case _:
            assert_never(event)


def switch(event: UIEvent) -> str:
    """Switch on the `type`, which narrows like a class, and on the code, as an interface does."""
    if event.type == "executed":
        return assert_type(event, Executed).call.name
    if event.type == "error" and event.code == Code.UNKNOWN_TOOL:
        return assert_type(event.message, str)
    return assert_type(event.to_json(), str)


def travel(event: UIEvent) -> None:
    """Write and read events, publish their schema, use them in a model."""
    assert_type(read_ui_event(event.to_json()), UIEvent)
    assert_type(json_schema(), dict[str, Any])
    assert_type(coalesce([Text("a"), Text("b")]), list[Text])
    events: list[UIEvent] = [event, Text("a")]
    assert_type(coalesce(events), list[UIEvent])


class Message(BaseModel):
    """A model of the user's own with an event in it."""

    event: Text | Executed
    last: Done | None = None


# The parser alone.


def read(deltas: Sequence[str]) -> ParseResult:
    """Use the parser, whole and in pieces, with dialects in every form."""
    parser = Parser()
    for delta in deltas:
        assert_type(parser.feed(delta), list[UIEvent])
    assert_type(parser.close(), list[UIEvent])
    assert_type(parser.calls, list[ToolCall])
    assert_type(parser.errors, list[Error])
    assert_type(parser.pending, str)
    Parser("auto", call_deltas=True, reasoning="anywhere", limits=Limits(call=1_000))
    Parser(["hash_marker", tilde_fence(in_code="call")], in_reasoning=True)
    Parser((), None, False, True)
    Parser(on_malformed="txt")  # type: ignore[arg-type]  # a misspelt policy is found while it is written
    Parser(trimm=True)  # type: ignore[call-arg]  # so is a misspelt option
    dialect: Dialect = hash_marker(marker_at="line_start")
    result = parse(deltas, dialects=dialect.id, after_call="hide", strict=True)
    assert_type(result.content, str)
    assert_type(result.calls[0].arguments, dict[str, Any])
    assert_type(result.errors[0].raw, str | None)
    assert_type(result.warnings, list[Warning])
    return parse("".join(deltas))


def choose_dialects(model: str, text: str) -> ParseResult:
    """The dialects of a model, and one of the house."""
    assert_type(dialects_for(model), tuple[str, ...])
    house = Dialect(
        id="house",
        openers=(Opener(("@call", SPACES), json_calls("@end"), ahead=("{",)), Opener(("@now",), read_nothing)),
        write_call=lambda name, arguments: f"@call {name} {arguments['a']} @end",
        write_result=lambda name, text: f"@result {name} {text}",
        near=(NearMiss(("@", OneOf(("calls", "call_")), Some("0-9", 1, 2), BLANKS, LINE_END), "it is misspelt"),),
        tags=(Tag(("@@",), line_feeds=1),),
        space_at_start=True,
    )
    assert_type(house.instructions("now", {}), str)
    assert_type(house.teachable, bool)
    parse(text, dialects=house)
    words = Dialect("words", (Opener(("@@",), text_calls("@@", lambda said: (said, {"n": 1}))),), house.write_call)
    parse(text, dialects=[words, "auto"])
    return parse(text, dialects=[house, *dialects_for(model)], repair=True)


def read_nothing(span: Span) -> Generator[None, None, None]:
    """A grammar of the house."""
    assert_type((yield from span.peek()), str)
    span.call("now")
    span.close()


# Tools.


class Trip(BaseModel):
    """What a tool takes."""

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
    """Call tools as the functions that they were: a decorator keeps the signature."""
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


async def register() -> ToolRegistry:
    """Register tools in every way there is."""
    registry = ToolRegistry(add, len_of, {"find": lookup}, [weather, plan], on_duplicate="error").register(refuse)

    @registry.tool
    def now() -> str:
        """Tell the time."""
        return "12:00"

    @registry.tool(name="then", timeout=1.5)
    async def later(seconds: int) -> str:
        """Tell a later time."""
        return str(seconds)

    assert_type(now(), str)
    assert_type(await later(1), str)
    assert_type(registry.names, list[str])
    assert_type(registry.definitions("openai"), list[dict[str, Any]])
    try:
        await registry.execute("add", '{"a": 1, "b": 2}')
    except ToolCallFailed as error:
        assert_type(error.name, str)
        assert_type(error.code, Code)
    return registry


# The stream.


def log_outcome(call: ToolCall, outcome: ToolOutcome) -> None:
    """Note an outcome."""
    print(call.name, assert_type(outcome.error, Code | None), outcome.text)


async def save_outcome(call: ToolCall, outcome: ToolOutcome) -> None:
    """Keep an outcome."""


async def stream(client: httpx.AsyncClient, url: str, send: Callable[[str], Awaitable[None]]) -> TurnResult:
    """Run a stream from each kind of source, with every option."""
    async with (
        client.stream("POST", url) as response,
        ToolStream(sources.openai(response), tools=[add, weather]) as events,
    ):
        async for event in events:
            await send(assert_type(event, UIEvent).to_json())
    async with (
        httpx_sse.aconnect_sse(client, "POST", url) as source,
        ToolStream(
            sources.latitude(source, limits=Limits(frame=1_000_000)),
            tools=await register(),
            dialects=("tilde_fence",),
            runner=RunnerOptions(
                execute="eager",
                on_result=save_outcome,
                on_error=lambda call, error: (assert_type(call, ToolCall), assert_type(error, BaseException)),
                concurrency=2,
                timeout=10,
            ),
            tool_choice={"type": "function", "function": {"name": "add"}},
            native_tool_calls=False,
            run_id="mine",
            parser=ParserOptions(after_call="stop", new_id=lambda: "call_1"),
            text=TextOptions(
                rules=[assert_type(rules.email(), Rule), rules.replace("a", str.upper), rules.stop(["END", "STOP"])],
                history="as_shown",
                pace="words",
                rules_in_reasoning=True,
                rules_in_arguments=True,
                judge=TextJudge(is_fine, release=300, unanswered="open"),
            ),
            output=OutputOptions(dict[str, int]),
        ) as run,
    ):
        assert_type(run.run_id, str)
        assert_type(await anext(run), UIEvent)
        await run.aclose()
    text = ToolStream(sources.text(["a", "b"]), tools=add, runner=RunnerOptions(on_result=log_outcome))
    async with text as events, ToolStream(sources.events([TextDelta("a")])):
        pass
    ToolStream(sources.text("a"), exekute="never")  # type: ignore[arg-type]
    return result_of(events.result)


async def is_fine(text: str, before: str) -> bool:
    """Say whether a text may be shown."""
    return text != before


async def converse(client: httpx.AsyncClient, send: Callable[[str], Awaitable[None]]) -> list[dict[str, Any]]:
    """Hold a conversation, and go on with its history."""
    model = conversation.OpenAIChat("qwen3", base_url="http://127.0.0.1:8000/v1", client=client, temperature=0)
    async with chat(model, [{"role": "user", "content": "Hi"}], tools=[add, weather], tool_choice="required") as events:
        async for event in events:
            await send(assert_type(event, UIEvent).to_json())
    assert_type(events, conversation.Chat)
    assert_type(events.items(int, path=["rows"]), AsyncIterator[Any])
    fallback = conversation.Fallback(model, conversation.ScriptedModel(["Hi"]), on_break="restart_step")
    later_model: conversation.Model = fallback
    assert_type(conversation.chat(later_model, []).result.usage_by_model, dict[str, Usage])
    assert_type(events.history, list[conversation.Message])
    later = [*events.history, conversation.User("And tomorrow?")]
    emulation = Emulation(mode="force", keep_system="quote")
    async with chat(
        model,
        later,
        tools=add,
        request=RequestOptions(emulation=emulation),
        follow_up=approve,
        max_steps=3,
        runner=RunnerOptions(concurrency=2),
    ) as events:
        assert_type(await anext(events), UIEvent)
    chat(model, later, folow_up="never")  # type: ignore[call-arg]
    chat(model, later, request=RequestOptions(emulation="always"))  # type: ignore[arg-type]
    return events.messages("anthropic")


async def approve(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Let a person decide what the model is told."""
    return messages or None


def result_of(result: TurnResult) -> TurnResult:
    """Look at a result."""
    assert_type(result.text, str)
    assert_type(result.calls, list[ToolCall])
    assert_type(result.outcomes, list[ToolOutcome])
    assert_type(result.errors, list[Error])
    assert_type(result.usage, Usage | None)
    assert_type(result.reason, DoneReason | None)
    assert_type(result.messages(), list[Any])
    return result


async def play(recording: Recording) -> None:
    """Replay a recording as a list and as a stream."""
    assert_type(await replay("weather.jsonl"), list[UIEvent])
    assert_type(await replay(shipped()["tilde-call"], tools=[weather], cut="byte"), list[UIEvent])
    async with replay("weather.jsonl", speed=1, cut=7, dialects="auto") as events:
        async for event in events:
            assert_type(event, UIEvent)
    assert_type(recording.data, bytes)


def words(event: UIEvent) -> str | None:
    """Render events in another language."""
    return UiTexts(waiting="Un instant…", executing="Appel de {name}…").render(event)


def drive() -> list[UIEvent]:
    """Use the machine by hand."""
    machine = StreamMachine(native_tool_calls=False, execute="never", on_malformed="text")
    events = machine.start() + machine.feed(TextDelta("a")) + machine.feed(ProviderCompleted()) + machine.close()
    assert_type(machine.take_runnable(), list[ToolCall])
    return assert_type(events, list[UIEvent])


def wrong() -> StreamToolsError:
    """Name the base of all exceptions."""
    return StreamToolsError()


def finished_responses(response: dict[str, Any]) -> list[str]:
    """Calls and errors, by name or unpacked."""
    extracted = streamtools.extract_tool_calls(response, native_tool_calls=None, self_contained=False)
    calls, errors = extracted
    assert_type(calls, list[streamtools.ToolCall])
    assert_type(extracted.errors, list[streamtools.events.Error])
    return [call.name for call in calls] + [str(error.raw) for error in errors]


def sources_of_all_kinds(response: object) -> list[streamtools.sources.Source]:
    """A function for each provider, and one that finds out."""
    kinds = streamtools.sources
    made = [kinds.responses(response), kinds.anthropic(response), kinds.gemini(response), kinds.ollama(response)]
    return [*made, kinds.ai_sdk(response), kinds.detect(response, limits=streamtools.Limits(calls=8))]


async def told_by_a_tool(city: str, context: streamtools.ToolContext[dict[str, str]]) -> str:
    """A context says of what type the state is."""
    assert_type(context.state, dict[str, str])
    await context.progress({"at": context.remaining})
    return city


def bounds() -> streamtools.Guards:
    """Each bound may be left out."""
    return streamtools.Guards(repeated_calls=3, tokens=1000, seconds=60.0)


def histories(stored: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of one provider into those of another."""
    history = streamtools.conversation.read_messages(stored)
    return streamtools.conversation.write_messages(streamtools.conversation.without_reasoning(history), "anthropic")


def taught(tools: list[Any]) -> tuple[str, list[dict[str, str]]]:
    """A prompt, and examples for base models."""
    shown = streamtools.conversation.Example("How warm?", "weather", {"city": "Oslo"}, "9 °C", "It is 9 °C.")
    nonce = streamtools.conversation.new_nonce()
    assert_type(nonce, str)
    prompt = streamtools.augment_system_prompt(None, tools, "hash_marker", compact=True, examples=[shown])
    return prompt, streamtools.conversation.few_shot("tilde_fence", tools, [shown])


async def under_an_sdk(client: streamtools.gateway.Client, sent: bytes) -> bytes:
    """The transport, and the rewrite behind it."""
    transport = ToolCallTransport(mode="auto", dialects=["hermes_json"], few_shot=True, ask_again=1)
    async with httpx.AsyncClient(transport=transport) as http:
        await http.get("http://localhost/")
    exchange = Rewrite(on_malformed="text", now=lambda: 0).begin(client, sent, host="localhost")
    assert_type(exchange, streamtools.gateway.Exchange)
    assert_type(exchange.request, streamtools.gateway.UpstreamRequest | None)
    exchange.begin(200, streamtools.gateway.headers_for(client, [("x-api-key", "k")]))
    assert_type(exchange.head, streamtools.gateway.ResponseHead | None)
    assert_type(streamtools.gateway.client_of("POST", "/v1/messages"), streamtools.gateway.Client | None)
    second = FallbackUpstream(url="http://127.0.0.1:8001/v1", key="k", model="big", prefill="vllm")
    gateway_app(
        "http://localhost/v1", mode="native", dialects=["hermes_json"], key="k", client_key="c", record="a.jsonl"
    )
    gateway_app("http://localhost/v1", fallbacks=[second])
    gateway_app("http://localhost/v1", mode={"gemma": "text", "*": "native"}, text_judge=TextJudge(is_fine))
    ToolCallTransport(fallbacks=[second])
    ToolCallTransport(mode={"gemma": "text", "*": "native"}, text_judge=TextJudge(is_fine))
    return exchange.feed(b"") + exchange.close()


def encoded(events: list[UIEvent], front_end: str) -> Generator[bytes, None, None]:
    """Encoders are protocols' functions with options, chosen by name, and what one writes oneself."""
    made: list[outputs.Encoder] = [
        outputs.native(framing="ndjson", exclude={"raw"}),
        outputs.ai_sdk(6, dynamic=False),
        outputs.ag_ui(protocol_version="1.0"),
        outputs.openai(model="m", include_usage=True, call_deltas=True),
        outputs.responses(model="m", created=0, custom=["run"], request={"metadata": {}}),
        outputs.anthropic(model="m", call_deltas=True),
        outputs.text(render=UiTexts().render),
        _Shouting(),
    ]
    assert_type(outputs.make_encoder(front_end), outputs.Encoder)
    encoder = outputs.make_encoder(made[0] if front_end else outputs.native)
    outputs.validate(events)
    yield from map(encoder.encode, events)
    yield encoder.close()


def what_goes_back(posted: list[dict[str, Any]], result: TurnResult) -> list[dict[str, Any]]:
    """A history that a client keeps, what its provider alone understands, and who gave the answer."""
    read = histories_of.read_messages(posted, client=True, system=False)
    item = histories_of.ProviderItem("anthropic", {"type": "server_tool_use"})
    said = histories_of.Assistant(parts=["Hi.", item], origin=histories_of.Origin("anthropic", "a.test", "m"))
    assert_type(said.items, tuple[histories_of.ProviderItem, ...])
    assert_type(
        said.parts, tuple[histories_of.TextPart | histories_of.Thought | ToolCall | histories_of.ProviderItem, ...]
    )
    assert_type((result.response_id, result.model), tuple[str | None, str | None])
    provider = histories_of.Origin("openai", "b.test")
    return histories_of.write_messages([*read, said], "openai", provider=provider, send_reasoning="since_user")


def newer_providers(response: object) -> None:
    """Bedrock, Cohere and Mistral; and what is known of a model by its name."""
    for source in (
        sources.bedrock(response),
        sources.cohere(response, limits=Limits(calls=3)),
    ):
        assert_type(source, sources.Source)
    conversation.BedrockConverse("m", region="eu-west-1", native_tool_calls=True)
    conversation.CohereChat("m", send_reasoning="sometimes")  # type: ignore[arg-type]
    conversation.OpenAIChat("m", reasoning_field="reasoning_content")
    conversation.OpenAIChat("m", reasoning_field="content")  # type: ignore[arg-type]
    conversation.GeminiInteractions("m", previous_id=True, thinking_level="low")
    assert_type(histories_of.write_messages([], "interactions"), list[Any])
    assert_type(histories_of.Assistant("Hi", response_id="r1").response_id, str | None)
    for family in families_for("qwen3:8b"):
        assert_type(family, ModelFamily)
        assert_type(family.in_reasoning, bool | None)
        Parser(family.dialects, in_reasoning=bool(family.in_reasoning), calls_at="anywhere")


def of_several_types() -> None:
    """A list of tools whose functions have nothing in common is one of tools; what is sent back fits an SDK."""

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


def watched() -> None:
    """OpenTelemetry, and what else tells what happened."""
    telemetry.instrument(agent="a", content=True, by_chunk=True)
    telemetry.uninstrument()
    telemetry.instrument(tracer_provider="jaeger")  # type: ignore[arg-type]
    assert_type(Warning(Code.NEAR_MISS, "").dialect, str | None)
    assert_type(streamtools.__version__, str)
    Parser(pace="words")


class _Shouting:
    content_type = "text/plain"
    headers = {"cache-control": "no-cache"}  # noqa: RUF012  # as a user writes it
    keep_alive = b""
    resumable = False

    def encode(self, event: UIEvent) -> bytes:
        return event.text.upper().encode() if isinstance(event, Text) else b""

    def close(self) -> bytes:
        return b""
