"""Tests of the spans of a run: their names, parents, attributes and ends."""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from streamtools import ToolError, ToolStream, chat, sources, tool
from streamtools.conversation import Fallback, OpenAIChat, RequestOptions, Timeouts
from streamtools.errors import Code
from streamtools.events import Executing, Text
from tests.support.chat_chunks import DONE, chunk
from tests.support.collected import collecting, context_of, is_child
from tests.support.loopback import Loopback
from tests.support.provider import Provider

ASK = [{"role": "user", "content": "How is the weather in Rome?"}]
CALL = '###:{"name": "get_weather", "arguments": {"city": "Rome"}}'
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
SAID = [chunk({"content": "It rains."}, id="chatcmpl-2", model="m-2"), chunk(finish="stop"), chunk(usage=USAGE), DONE]
CALLS = [chunk({"content": f"I look. {CALL}\n"}, id="chatcmpl-1", model="m-2"), chunk(finish="stop"), DONE]


@tool
async def get_weather(city: str) -> str:
    """Tell the weather."""
    with trace.get_tracer("app").start_as_current_span("look up"):
        return f"rain in {city}"


def model(server: Loopback, name: str = "m", **options: Any) -> OpenAIChat:
    return OpenAIChat(name, base_url=server.url, api_key="", native_tool_calls=False, **options)


async def test_a_run_has_a_span_for_each_request_and_each_call() -> None:
    with collecting(agent="weather") as collected:
        trace_provider = collected.tracers
        async with Provider(Loopback(CALLS), Loopback(SAID)) as server:
            with trace_provider.get_tracer("app").start_as_current_span("GET /chat") as request:
                await chat(model(server), ASK, tools=[get_weather])
        run, (first, second), call = (
            collected.one("invoke_agent"),
            collected.named("chat"),
            collected.one("execute_tool"),
        )
    assert ["invoke_agent weather", "chat m", "execute_tool get_weather", "chat m"] == [
        span.name for span in collected.spans if span.name != "GET /chat"
    ]
    assert run.parent is not None
    assert run.parent.span_id == request.get_span_context().span_id
    assert all(is_child(span, run) for span in (first, second, call))
    assert [SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL] == [run.kind, first.kind, call.kind]
    assert first.end_time is not None
    assert call.start_time is not None
    assert first.end_time <= call.start_time, "a request has ended before the tools run"
    assert {StatusCode.UNSET} == {span.status.status_code for span in collected.spans}
    told = dict(second.attributes or {})
    assert 0 < float(str(told.pop("gen_ai.response.time_to_first_chunk"))) < 60
    assert {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.id": "chatcmpl-2",
        "gen_ai.response.model": "m-2",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "server.address": "127.0.0.1",
        "server.port": httpx.URL(server.url).port,
    } == told
    told = dict(call.attributes or {})
    assert ("hash_marker", "Tell the weather.") == (told["streamtools.dialect"], told["gen_ai.tool.description"])
    assert ("weather", "finished") == (run.attributes["gen_ai.agent.name"], run.attributes["streamtools.done.reason"])  # type: ignore[index]


async def test_spans_in_a_tool_are_children_of_its_span() -> None:
    """The span is current in the task or thread of the tool, and never in that of the consumer."""

    @tool
    def in_thread(city: str) -> str:
        """Tell what is current."""
        return format(trace.get_current_span().get_span_context().span_id, "x")

    text = CALL.replace("get_weather", "in_thread")
    with collecting() as collected:
        async with ToolStream(sources.text([text]), tools=[in_thread]) as events:
            async for _ in events:
                assert not trace.get_current_span().get_span_context().is_valid
    assert [format(context_of(collected.one("execute_tool")).span_id, "x")] == [
        each.result for each in events.result.outcomes
    ]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_failed_calls_have_their_error_types() -> None:
    @tool
    def broken(city: str) -> str:
        """Break."""
        raise RuntimeError("no weather")

    @tool
    def refuses(city: str) -> str:
        """Refuse."""
        raise ToolError("not today")

    text = "".join(CALL.replace("get_weather", name) + "\n" for name in ("broken", "refuses", "unheard_of"))
    with collecting() as collected:
        await ToolStream(sources.text([text]), tools=[broken, refuses])
        calls = {span.name: span for span in collected.named("execute_tool")}
    errors = {name: (span.attributes or {})["error.type"] for name, span in calls.items()}
    assert {
        "execute_tool broken": "RuntimeError",
        "execute_tool refuses": "ToolError",
        "execute_tool _OTHER": "unknown_tool",
    } == errors, "a name that a model has made up is none of a span or a metric"
    assert {StatusCode.ERROR} == {span.status.status_code for span in calls.values()}
    (event,) = calls["execute_tool broken"].events
    assert "exception" == event.name
    assert "no weather" in str((event.attributes or {})["exception.stacktrace"])
    assert StatusCode.UNSET is collected.one("invoke_agent").status.status_code, "a failed tool fails no run"
    assert 1 == collected.total("gen_ai.execute_tool.duration", **{"error.type": "RuntimeError"})


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Loopback([b'{"error": {"message": "no"}}'], status=401, declared="application/json"), "401"),
        (Loopback([chunk({"content": "It ra"})], drop=True), "stream_interrupted"),
        (Loopback([chunk({"content": "It rains"})]), "stream_interrupted"),
    ],
)
async def test_a_failed_response_fails_its_request_and_the_run(answer: Loopback, error: str) -> None:
    with collecting() as collected:
        async with answer as server:
            await chat(model(server, retries=0), ASK)
    for span in (collected.one("chat"), collected.one("invoke_agent")):
        assert (error, StatusCode.ERROR) == ((span.attributes or {})["error.type"], span.status.status_code)
    assert 1 == collected.total("gen_ai.client.operation.duration", **{"error.type": error})


async def test_spans_of_a_stream_that_was_left_are_cancelled() -> None:
    """After the first event the consumer breaks off: the request, the tool and the run say so, in any task."""

    @tool
    async def slow(city: str) -> str:
        """Never end."""
        await anyio.sleep_forever()
        return city

    with collecting() as collected:
        async with Loopback([chunk({"content": "It ra"})], hold=True) as server, chat(model(server), ASK) as said:
            async for event in said:
                if isinstance(event, Text):
                    break
        async with ToolStream(sources.text([CALL.replace("get_weather", "slow")]), tools=[slow]) as events:
            async for event in events:
                if isinstance(event, Executing):
                    async with anyio.create_task_group() as group:
                        group.start_soon(events.aclose)
                    break
    errors = [(span.name, (span.attributes or {}).get("error.type")) for span in collected.spans]
    assert [
        ("invoke_agent", "cancelled"), ("chat m", "cancelled"),
        ("invoke_agent", "cancelled"), ("chat", None), ("execute_tool slow", "cancelled"),
    ] == errors  # fmt: skip


async def test_failovers_are_recorded() -> None:
    refused = Loopback([b"{}"], status=503, headers={"retry-after-ms": "1"})
    with collecting() as collected:
        async with Provider(refused, refused, Loopback(SAID)) as server:
            one, two = model(server, "one", retries=1), model(server, "two", retries=1)
            await chat(Fallback(one, two), ASK)
        first, second = collected.named("chat")
    assert ["chat one", "chat two"] == [first.name, second.name]
    assert "upstream_error" == (first.attributes or {})["error.type"]
    assert StatusCode.UNSET is second.status.status_code
    assert StatusCode.UNSET is collected.one("invoke_agent").status.status_code


async def test_content_is_recorded_on_request_and_without_keys() -> None:
    key = "sk-proj-" + "a1B2" * 10
    question = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"My key is {key}. Rome?"}]
    for content in (False, True):
        with collecting(content=content) as collected:
            async with Provider(Loopback(CALLS), Loopback(SAID)) as server:
                await chat(model(server), question, tools=[get_weather], request=RequestOptions(teach="never"))
        told = json.dumps([dict(span.attributes or {}) for span in collected.spans])
        assert key not in told
        assert content is ("Rome" in told) is ("rain in Rome" in told) is ("It rains." in told)
    first, second = collected.named("chat")
    said = json.loads(str((first.attributes or {})["gen_ai.input.messages"]))
    assert ["system", "user"] == [message["role"] for message in said]
    assert "My key is sk-****" in said[1]["parts"][0]["content"]
    (answer,) = json.loads(str((first.attributes or {})["gen_ai.output.messages"]))
    assert "get_weather" == answer["parts"][-1]["name"]
    (answer,) = json.loads(str((second.attributes or {})["gen_ai.output.messages"]))
    assert ({"type": "text", "content": "It rains."}, "stop") == (answer["parts"][0], answer["finish_reason"])
    call = collected.one("execute_tool").attributes or {}
    assert ('{"city":"Rome"}', "rain in Rome") == (call["gen_ai.tool.call.arguments"], call["gen_ai.tool.call.result"])


async def test_silence_is_an_error_of_the_request() -> None:
    with collecting() as collected:
        async with Loopback([chunk({"content": "It ra"})], hold=True) as server:
            waits = Timeouts(between_bytes=0.05)
            result = await chat(model(server, timeout=waits), ASK)
    assert [Code.STREAM_INTERRUPTED] == [error.code for error in result.errors]
    assert "stream_interrupted" == (collected.one("chat").attributes or {})["error.type"]
