"""Tests of the metrics and their names."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from opentelemetry.semconv import attributes
from opentelemetry.semconv._incubating import attributes as incubating
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.schemas import Schemas

from streamtools import TextOptions, ToolStream, chat, observing, rules, sources
from streamtools.conversation import OpenAIChat
from streamtools.events import Text
from streamtools.runs import Runs
from tests.support.chat_chunks import DONE, chunk
from tests.support.collected import Collected, collecting
from tests.support.loopback import Loopback
from tests.support.provider import Provider

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
CALL = '###:{"name": "get_weather", "arguments": {"city": "Rome"}}'
ASK = [{"role": "user", "content": "How is the weather in Rome?"}]


def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


async def answered() -> Collected:
    """Return the metrics of a chat with a tool call and an answer in three pieces."""
    calls = [chunk({"content": CALL + "\n"}), chunk(finish="stop"), chunk(usage=USAGE), DONE]
    says = [chunk({"content": text}) for text in ("It ", "rains", ".")] + [chunk(finish="stop"), DONE]
    with collecting(content=True) as collected:
        async with Provider(Loopback(calls), Loopback(says)) as server:
            model = OpenAIChat("m", base_url=server.url, api_key="", native_tool_calls=False)
            await chat(model, ASK, tools=[get_weather])
    return collected


def constants(package: Any) -> set[str]:
    """Return the texts that the modules of a package name as constants."""
    modules = [
        importlib.import_module(f"{package.__name__}.{each.name}") for each in pkgutil.iter_modules(package.__path__)
    ]
    return {value for module in modules for value in vars(module).values() if isinstance(value, str)}


async def test_metric_names_are_from_the_conventions() -> None:
    """The published package defines the names, except for a few newer names in this test."""
    collected = await answered()
    known = constants(incubating) | constants(attributes)
    told = {name for span in collected.spans for name in span.attributes or {}}
    told |= {name for metric in collected.metrics for found, _ in collected.points(metric) for name in found}
    assert {"gen_ai.operation.name", "gen_ai.output.messages", "gen_ai.input.messages", "server.port"} <= told
    assert [] == sorted(name for name in told - known if not name.startswith("streamtools."))
    measured = constants_of_metrics()
    names = {name for name in collected.metrics if not name.startswith("streamtools.")}
    assert {"gen_ai.execute_tool.duration", "gen_ai.invoke_agent.duration"} == names - measured
    assert {
        "gen_ai.client.operation.duration": "s",
        "gen_ai.client.operation.time_to_first_chunk": "s",
        "gen_ai.client.token.usage": "{token}",
    } == {name: collected.metrics[name].unit for name in names & measured}
    scopes = {span.instrumentation_scope.schema_url for span in collected.spans if span.instrumentation_scope}
    assert {Schemas.V1_41_0.value} == scopes


def constants_of_metrics() -> set[str]:
    return {value for value in vars(gen_ai_metrics).values() if isinstance(value, str)}


async def test_times_and_tokens_are_recorded_once_per_request() -> None:
    collected = await answered()
    of_model = {"gen_ai.request.model": "m", "gen_ai.provider.name": "openai", "gen_ai.operation.name": "chat"}
    assert 2 == collected.total("gen_ai.client.operation.duration", **of_model)
    assert 2 == collected.total("gen_ai.client.operation.time_to_first_chunk", **of_model)
    assert 1 == collected.total("gen_ai.execute_tool.duration", **{"gen_ai.tool.name": "get_weather"})
    assert 1 == collected.total("gen_ai.invoke_agent.duration")
    kinds = {found["gen_ai.token.type"]: value for found, value in collected.points("gen_ai.client.token.usage")}
    assert ({"input": 1, "output": 1}, [5, 7]) == (kinds, sorted(collected.sums("gen_ai.client.token.usage")))


async def test_calls_and_errors_are_counted_by_dialect_and_code() -> None:
    text = (
        f'Write to jo@example.org. {CALL}\n<tool_call>\n{{"name": "get_weather", "arguments": {{"city": 1,}}}}'
        "\n</tool_call>\n"
        f'`{CALL}` <tool_call>\n{{"name": "get_wea'
    )
    with collecting() as collected:
        await ToolStream(
            sources.text([text]),
            tools=[get_weather],
            dialects=["hash_marker", "hermes_json"],
            text=TextOptions(rules=[rules.email()]),
        )
    assert 1 == collected.total("streamtools.calls", dialect="hash_marker")
    assert 1 == collected.total("streamtools.errors", dialect="hermes_json", code="invalid_json")
    assert 1 == collected.total("streamtools.errors", dialect="hermes_json", code="truncated")
    assert 1 == collected.total("streamtools.warnings", dialect="hash_marker", code="near_miss")
    assert 1 == collected.total("streamtools.rule_matches", rule="email", action="replace")


async def test_readers_and_resumes_are_counted() -> None:
    with collecting() as collected:
        async with Runs() as runs:
            run = await runs.start(ToolStream(sources.text(["It ", "rains."])), owner="me")
            async with run.attach() as events:
                async for event in events:
                    if isinstance(event, Text):
                        break
                assert 1 == collected.total("streamtools.readers")
            async with run.attach(after=events.position) as events:
                async for _ in events:
                    pass
        observing.report("fenced_appends")
    assert (0, 1) == (collected.total("streamtools.readers"), collected.total("streamtools.resumes"))
    assert 1 == collected.total("streamtools.fenced_appends")
    assert 1 == len(collected.named("invoke_agent"))
