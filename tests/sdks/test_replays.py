"""Recordings as the answers of the providers' own SDKs, over httpx2 or httpx, blocking and not."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from streamtools import ToolStream, coalesce, replay, sources
from streamtools.errors import UnrecordedRequest
from streamtools.events import UIEvent
from streamtools.recording import RecordingTransport, ReplayTransport, shipped
from tests.recording.test_recordings_shipped import TOOLS
from tests.sdks.conftest import MARKS, Serve
from tests.support.provider_streams import BY_NAME

pytestmark = MARKS

libraries = pytest.mark.parametrize("library", ["httpx2", "httpx"])
ASKED: list[Any] = [{"role": "user", "content": "?"}]
ANYTHING = ("method",)
"""What of a request counts where the recorded one is another's."""


def client_of(library: str, transport: Any, *, blocking: bool = False, url: str = "http://localhost/v1") -> Any:
    """Return a client of openai's, on an HTTP client of `library` with this transport."""
    import openai

    http: Any = import_module(library)
    shared: dict[str, Any] = {"api_key": "x", "base_url": url, "max_retries": 0}
    if blocking:
        return openai.OpenAI(http_client=http.Client(transport=transport), **shared)
    return openai.AsyncOpenAI(http_client=http.AsyncClient(transport=transport), **shared)


async def told(stream: Any) -> list[UIEvent]:
    """Return the events of an openai stream, with the tools run."""
    async with ToolStream(sources.openai(stream), tools=TOOLS) as events:
        return coalesce([event async for event in events])


@libraries
@pytest.mark.parametrize("name", ["two-tools", "unicode-call", "cut-call", "headings"])
async def test_a_recording_through_the_client_of_openai(library: str, name: str) -> None:
    """Its bytes, its objects, and a blocking client's objects give the events of a replay."""
    path = shipped()[name]
    expected = coalesce(await replay(path, tools=TOOLS))
    for cut in ("recorded", "byte"):
        transport = ReplayTransport(path, match=ANYTHING, repeat=True, cut=cut)
        async with client_of(library, transport) as client:
            assert expected == await told(await client.chat.completions.create(model="m", messages=ASKED, stream=True))
            objects = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
            assert expected == await told(aiter(objects))
            await objects.close()
        with client_of(library, transport, blocking=True) as client:
            assert expected == await told(client.chat.completions.create(model="m", messages=ASKED, stream=True))
        transport.check()


@libraries
async def test_faults_are_those_of_the_library(library: str) -> None:
    """A reset is the library's ReadError, a silence its ReadTimeout. The SDK converts both into its own errors."""
    import openai

    http: Any = import_module(library)
    faults: list[tuple[Any, type[Exception]]] = [
        ({"reset_after": 999}, http.ReadError),
        ({"stall_after": 999, "read_timeout": 0.01}, http.ReadTimeout),
    ]
    for options, error in faults:
        transport = ReplayTransport(shipped()["headings"], match=ANYTHING, repeat=True, **options)
        async with client_of(library, transport) as client:
            stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
            with pytest.raises(openai.APIConnectionError) as raised:
                async for _ in stream:
                    pass
            assert error is type(raised.value.__cause__)
            await stream.close()
        with client_of(library, transport, blocking=True) as client:
            stream = client.chat.completions.create(model="m", messages=ASKED, stream=True)
            with pytest.raises(openai.APIConnectionError) as raised:
                list(stream)
            assert error is type(raised.value.__cause__)


@libraries
async def test_what_the_client_asks_is_recorded_and_matched(library: str, serve: Serve, tmp_path: Path) -> None:
    """A stream that was recorded on its way to the SDK is found again by its request, and another one is not."""
    http, provider, path = import_module(library), BY_NAME["openai"], tmp_path / "a.jsonl"
    url = serve(provider.body, provider.declared)

    async def ask(transport: Any, model: str = "m") -> list[UIEvent]:
        async with client_of(library, transport, url=url) as client:
            return await told(await client.chat.completions.create(model=model, messages=ASKED, stream=True))

    recorded = await ask(RecordingTransport(http.AsyncHTTPTransport(), path, record_body=True))
    transport = ReplayTransport(path)
    assert recorded == await ask(transport)
    transport.check()

    other = ReplayTransport(path)
    with pytest.raises(UnrecordedRequest, match=r'body.model: "another" was sent, "m" is recorded'):
        await ask(other, "another")
    with pytest.raises(UnrecordedRequest):
        other.check()
