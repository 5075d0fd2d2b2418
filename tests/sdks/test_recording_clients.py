"""Recording through clients that are not httpx's: those of httpx2, and the SDK of a provider that is built on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamtools.recording import RecordingTransport, read_recording, record
from streamtools.recording.transports import ReplayTransport
from tests.support.loopback import Loopback
from tests.support.planted import KEYS, found

pytestmark = pytest.mark.sdk

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


async def test_a_response_of_httpx2(tmp_path: Path) -> None:
    """Any response is recorded on the way to its reader, and described."""
    import httpx2

    async with (
        Loopback([STREAM]) as server,
        httpx2.AsyncClient() as client,
        client.stream("POST", server.url, json={"a": 1}) as response,
        record(response, tmp_path / "a.jsonl", record_body=True) as stream,
    ):
        assert STREAM == b"".join([data async for data in stream])
    head = read_recording(tmp_path / "a.jsonl").head
    assert head.request is not None
    assert head.response is not None
    assert ("POST", {"a": 1}, 200) == (head.request.method, head.request.body, head.response.status)
