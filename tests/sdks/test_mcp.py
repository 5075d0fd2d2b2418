"""A real server of MCP's SDK over its standard input and output: its tools behave as local ones."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from streamtools import ToolRegistry, ToolStream, sources
from streamtools.errors import Code
from streamtools.events import Executed, NativeToolCall, Progress, ProviderCompleted, UIEvent

pytestmark = pytest.mark.sdk

SERVER = Path(__file__).with_name("mcp_server.py")


@asynccontextmanager
async def opened() -> AsyncIterator[ToolRegistry]:
    """The tools of the server."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    command = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
    async with stdio_client(command) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield await ToolRegistry().add_mcp(session, prefix="remote_")


async def run(registry: ToolRegistry, *calls: tuple[str, Any]) -> tuple[list[UIEvent], ToolStream]:
    """The events of a stream with these calls."""
    native = [NativeToolCall(f"remote_{name}", given, name, f"n{at}") for at, (name, given) in enumerate(calls)]
    source = sources.events([*native, ProviderCompleted(finish_reason="tool_calls")])
    async with ToolStream(source, tools=registry) as stream:
        return [event async for event in stream], stream


async def test_the_model_gets_the_definitions_of_the_server() -> None:
    """Names have the prefix of the server. Descriptions and schemas are kept."""
    async with opened() as registry:
        assert ["remote_weather", "remote_note", "remote_refuse", "remote_work", "remote_wait"] == registry.names
        weather = registry.find("remote_weather")
        assert "Tell how warm it is." == weather.description
        assert ["city"] == weather.parameters["required"]


async def test_results_errors_and_progress_are_events() -> None:
    """One turn has a structured result, a text, an error and progress."""
    async with opened() as registry:
        wanted = [("weather", {"city": "Paris"}), ("note", {"text": "a"}), ("refuse", {}), ("work", {})]
        events, stream = await run(registry, *wanted)
    weather, note, refuse, work = stream.result.outcomes
    assert ({"city": "Paris", "celsius": 21.0}, '{"city":"Paris","celsius":21.0}') == (weather.result, weather.text)
    assert "noted: a" == note.text
    assert Code.TOOL_FAILED is refuse.error
    assert "refuse" in refuse.text
    assert work.error is None
    assert [{"progress": 1.0, "total": 2.0, "message": "half"}] == [e.data for e in events if isinstance(e, Progress)]
    assert 3 == len([event for event in events if isinstance(event, Executed)])


async def test_invalid_arguments_do_not_reach_the_server() -> None:
    """They are refused locally."""
    async with opened() as registry:
        _, stream = await run(registry, ("weather", {"town": "Paris"}))
    assert [Code.TOOL_INPUT] == [outcome.error for outcome in stream.result.outcomes]


async def test_a_session_works_after_a_cancelled_call() -> None:
    """The call is reported as cancelled, and the session serves the next run."""
    async with opened() as registry:
        call = NativeToolCall("remote_wait", {}, "wait", "n0")
        async with ToolStream(
            sources.events([call, ProviderCompleted(finish_reason="tool_calls")]), tools=registry
        ) as stream:
            async for event in stream:
                if isinstance(event, Progress):
                    break
        assert [Code.TOOL_CANCELLED] == [outcome.error for outcome in stream.result.outcomes]
        events, _ = await run(registry, ("note", {"text": "a"}))
        assert ["noted: a"] == [event.result for event in events if isinstance(event, Executed)]
