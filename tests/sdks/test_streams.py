"""The streams of the providers' SDKs give the same events as the bytes on the network."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import ParserOptions, ToolStream, coalesce, sources
from streamtools.errors import Code
from streamtools.events import Done, Error, Executed, UIEvent
from streamtools.machine.event_order import validate
from tests.sdks.clients import WAYS, Way
from tests.sdks.conftest import MARKS, Serve
from tests.support.provider_streams import BY_NAME, CALLS, TOO_MUCH

pytestmark = MARKS

ways = pytest.mark.parametrize(
    ("way", "anyio_backend"),
    [
        pytest.param(way, backend, id=f"{name}, {backend}")
        for name, way in WAYS.items()
        for backend in ("asyncio", "trio")
        if backend == "asyncio" or way.on_trio
    ],
)


def weather(city: str) -> str:
    return f"sunny in {city}"


async def clock(zone: str, seconds: bool) -> str:
    return f"noon in {zone}"


async def told(name: str, origin: Any) -> list[UIEvent]:
    """Return what the interface is told of a stream, with the tools run."""
    async with ToolStream(
        getattr(sources, name)(origin), tools=[weather, clock], parser=ParserOptions(call_deltas=True)
    ) as stream:
        events = [event async for event in stream]
    validate(events)
    return coalesce(events)


@ways
async def test_an_answer(way: Way, serve: Serve) -> None:
    """Reasoning, text, two calls that are run, the usage and the end."""
    provider = BY_NAME[way.name]
    expected = await told(way.name, [provider.body])
    assert [name for name, _ in CALLS] == [event.call.name for event in expected if isinstance(event, Executed)]

    async with way.ask(serve(provider.body, provider.declared)) as stream:
        assert expected == await told(way.name, stream)


@ways
async def test_an_error_in_mid_stream(way: Way, serve: Serve) -> None:
    """Some SDKs raise the error and some return it. It is the same error, after the same text."""
    provider = BY_NAME[way.name]
    expected = await told(way.name, [provider.broken])
    assert [TOO_MUCH] == [event.message for event in expected if isinstance(event, Error) and event.call_id is None]

    async with way.ask(serve(provider.broken, provider.declared)) as stream:
        assert expected == await told(way.name, stream)


@ways
async def test_a_connection_that_is_lost(way: Way, serve: Serve) -> None:
    """Nothing is run, and nothing is said to have finished."""
    provider = BY_NAME[way.name]
    body = b"".join(provider.frames[: provider.turn - 1])
    async with way.ask(serve(body, provider.declared, drop=True)) as stream:
        events = await told(way.name, stream)

    assert Code.STREAM_INTERRUPTED in [event.code for event in events if isinstance(event, Error)]
    assert not any(isinstance(event, Executed) for event in events)
    assert isinstance(events[-1], Done)
    assert "failed" == events[-1].reason
