"""The operator's story: an application with a tool that fails, a model that has drifted and a provider that is slow.

What the operator has is what the application has logged, its spans and its metrics; nothing else is looked at. The slow
provider says nothing until all others have been answered, so that no clock decides what is slow.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import anyio
import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamtools import chat
from streamtools.conversation import OpenAIChat
from streamtools.outputs.asgi import event_stream_response
from tests.support.chat_chunks import DONE, chunk
from tests.support.collected import Collected, collecting, context_of
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.serving import Served

SAYS = Loopback([chunk({"content": "It rains."}), chunk(finish="stop"), DONE])
MALFORMED = '<tool_call>\n{"name": "look_up", "arguments": {"city": "Rome", }}\n</tool_call>\n'
OF_ANOTHER = '[TOOL_CALLS][{"name": "look_up", "arguments": {"city": "Rome"}}]'
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"city": "Rome"}}\n</tool_call>\n'


def look_up(city: str) -> str:
    """Look a city up."""
    raise LookupError("the index is gone")


def now(zone: str = "UTC") -> str:
    """Tell the time."""
    return f"noon in {zone}"


class Findings(NamedTuple):
    """What an operator says is wrong."""

    tool: tuple[str, str]
    """Its name, and what it raises."""
    raised_at: str
    drifted: tuple[str, str]
    """The model, and the dialect in which most of what it writes comes near to a call or is a malformed one."""
    slow: str
    """The request that has waited for longest."""


def told(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


def diagnose(collected: Collected, records: list[logging.LogRecord]) -> Findings:
    """Name the three faults, from metrics first, and then from the spans and records behind them."""
    failed: Counter[tuple[str, str]] = Counter()
    for of, count in collected.points("gen_ai.execute_tool.duration"):
        if "error.type" in of:
            failed[of["gen_ai.tool.name"], of["error.type"]] += int(count)
    tool, error = failed.most_common(1)[0][0]
    (span,) = (each for each in collected.named("execute_tool") if told(each)["gen_ai.tool.name"] == tool)
    values = [vars(each).get("streamtools", {}) for each in records if each.levelno == logging.ERROR]
    (raised,) = (each["raised_at"] for each in values if each["call_id"] == told(span)["gen_ai.tool.call.id"])

    unread: Counter[tuple[str, str]] = Counter()
    for of, count in (*collected.points("streamtools.errors"), *collected.points("streamtools.near_misses")):
        if of.get("streamtools.code") in (None, "invalid_json"):
            unread[of["gen_ai.request.model"], of["streamtools.dialect"]] += int(count)
    drifted = unread.most_common(1)[0][0]
    seen = {
        told(each)["gen_ai.request.model"] for each in collected.named("chat") if "streamtools.malformed" in told(each)
    }
    assert {drifted[0]} == seen

    waits = {span.name: told(span)["gen_ai.response.time_to_first_chunk"] for span in collected.named("chat")}
    slow = max(waits, key=lambda name: waits[name])
    return Findings((tool, error), raised, drifted, slow)


def application(upstreams: dict[str, Loopback]) -> Starlette:
    """Return a backend that asks the model which the path names."""

    async def answer(request: Request) -> Response:
        name = request.path_params["model"]
        model = OpenAIChat(name, base_url=upstreams[name].url, api_key="", native_tool_calls=False)
        question = [{"role": "user", "content": (await request.body()).decode()}]
        events = chat(model, question, tools=[look_up, now], dialects="hermes_json")
        return event_stream_response(events)

    return Starlette(routes=[Route("/{model}", answer, methods=["POST"])])


def test_the_three_faults_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streamtools")
    answered = anyio.Event()

    def answering(*texts: str) -> Provider:
        pieces = [chunk({"content": text}) for text in texts]
        return Provider(Loopback([*pieces, chunk(finish="stop"), DONE]), SAYS)

    async def story() -> None:
        upstreams: dict[str, Loopback] = {
            "steady": answering("I look. ", CALL),
            "drifted": answering("I look. ", MALFORMED, OF_ANOTHER, "\n", OF_ANOTHER),
            "fine": answering("I look. ", CALL.replace("look_up", "now").replace("city", "zone")),
            "slow": Provider(Loopback([answered, chunk({"content": "Well."}), chunk(finish="stop"), DONE])),
        }
        async with AsyncExitStack() as stack:
            for upstream in upstreams.values():
                await stack.enter_async_context(upstream)
            server = await stack.enter_async_context(Served(application(upstreams)))
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url))

            async def ask(model: str) -> None:
                assert 200 == (await client.post(model, content="How is Rome?")).status_code

            async with anyio.create_task_group() as group:
                group.start_soon(ask, "slow")
                while not upstreams["slow"].requests:
                    await anyio.lowlevel.checkpoint()
                for model in ("fine", "drifted", "steady", "fine"):
                    await ask(model)
                answered.set()

    with collecting(agent="weather") as collected:
        anyio.run(story)
    found = diagnose(collected, caplog.records)
    place, line = found.raised_at.rsplit(":", 1)
    assert (("look_up", "LookupError"), ("drifted", "mistral_list"), "chat slow") == (
        found.tool,
        found.drifted,
        found.slow,
    )
    assert (__file__, look_up.__code__.co_firstlineno + 2) == (place, int(line))
    traces = [context_of(span).trace_id for span in collected.named("invoke_agent")]
    assert 5 == len(set(traces))
    said = str([dict(span.attributes or {}) for span in collected.spans]) + caplog.text
    assert "Rome" not in said, "what was said is nowhere"
