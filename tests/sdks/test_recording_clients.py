"""Recording through clients that are not httpx's: those of httpx2, and the SDK of a provider that is built on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamtools import coalesce, replay
from streamtools.recording import RecordingTransport, read_recording, record, shipped
from streamtools.recording.transports import ReplayTransport
from tests.sdks.clients import ASKED
from tests.sdks.conftest import Serve
from tests.support.loopback import Loopback
from tests.support.planted import KEYS, found

pytestmark = [pytest.mark.sdk, pytest.mark.anyio]

STREAM = b"data: caf\xc3\xa9 " + KEYS["openai"].encode() + b"\n\ndata: [DONE]\n\n"


async def test_a_client_of_httpx2(tmp_path: Path) -> None:
    """Its responses are its own, with the same bytes; the recording has no keys, and is replayed through it."""
    import httpx2

    path = tmp_path / "a.jsonl"
    async with Loopback([STREAM[:20], STREAM[20:]]) as server:
        transport = RecordingTransport(httpx2.AsyncHTTPTransport(), path)
        async with httpx2.AsyncClient(transport=transport) as client:
            headers = {"authorization": f"Bearer {KEYS['anthropic']}"}
            async with client.stream("POST", server.url, json={"a": KEYS["groq"]}, headers=headers) as response:
                assert isinstance(response, httpx2.Response)
                assert STREAM == b"".join([data async for data in response.aiter_bytes()])
        url = server.url
    recording = read_recording(path)
    assert len(STREAM) == len(recording.data)
    assert [] == found(path.read_bytes())
    async with httpx2.AsyncClient(transport=ReplayTransport(path)) as client:
        assert recording.data == (await client.post(url, json={"a": KEYS["groq"]})).content


@pytest.mark.parametrize(("drop", "kind"), [(False, "end"), (True, "reset")])
def test_a_blocking_client_of_httpx2(drop: bool, kind: str, serve: Serve, tmp_path: Path) -> None:
    """It records how the response ended, too."""
    import httpx2

    path = tmp_path / "a.jsonl"
    url = serve(STREAM, "text/event-stream", drop=drop)
    with httpx2.Client(transport=RecordingTransport(httpx2.HTTPTransport(), path)) as client:
        if drop:
            with pytest.raises(httpx2.RemoteProtocolError):
                client.post(url)
        else:
            assert STREAM == client.post(url).content
    end = read_recording(path).end
    assert end is not None
    assert (kind, "RemoteProtocolError" if drop else "") == (end.kind, end.error)


async def test_a_response_of_httpx2(tmp_path: Path) -> None:
    """Any response is recorded on the way to its reader, and described."""
    import httpx2

    async with (
        Loopback([STREAM]) as server,
        httpx2.AsyncClient() as client,
        client.stream("POST", server.url, json={"a": 1}) as response,
        record(response, tmp_path / "a.jsonl") as stream,
    ):
        assert STREAM == b"".join([data async for data in stream])
    head = read_recording(tmp_path / "a.jsonl").head
    assert head.request is not None
    assert head.response is not None
    assert ("POST", {"a": 1}, 200) == (head.request.method, head.request.body, head.response.status)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # on trio the SDK leaves its own generators to the collector
async def test_the_client_of_openai(tmp_path: Path) -> None:
    """A stream through the SDK's own client is recorded, and the recording tells what the SDK read."""
    import httpx2
    import openai

    path = tmp_path / "a.jsonl"
    original = shipped()["tilde-call"]
    async with Loopback([chunk.data for chunk in read_recording(original).chunks]) as server:
        http = httpx2.AsyncClient(transport=RecordingTransport(httpx2.AsyncHTTPTransport(), path))
        async with openai.AsyncOpenAI(api_key=KEYS["openai"], base_url=server.url, http_client=http) as client:
            stream: Any = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert read_recording(original).data == read_recording(path).data
    assert [] == found(path.read_bytes())
    assert '~~~tool_call\n{"name": "get_weather"' in text
    assert coalesce(await replay(original)) == coalesce(await replay(path))
