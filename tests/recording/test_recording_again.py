"""A recording that is replayed and recorded again is the same file, except for its date, times and title."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from streamtools.recording import RecordedRequest, RecordingTransport, read_recording, read_recordings, shipped
from streamtools.recording.format import RecordedResponse
from streamtools.recording.transports import ReplayTransport
from tests.support.loopback import Loopback
from tests.support.planted import KEYS, found

BODY = {"messages": [{"role": "user", "content": f"My key is {KEYS['anthropic']}"}]}
HEADERS = {"authorization": KEYS["bearer"], "x-other": "1"}
CHUNKS = [
    b"data: caf\xc3",
    b"\xa9 " + KEYS["openai"].encode()[:10],
    KEYS["openai"].encode()[10:] + b"\n\n",
    b"data: \xff\xfe\n\n" + b"see sk-abc",
]


def after_head(path: Path) -> tuple[RecordedRequest | None, RecordedResponse | None, bytes]:
    """Return the request, the response, and the lines after the head, which contains the date. Times are removed."""
    head = read_recording(path).head
    return head.request, head.response, re.sub(rb'"at":[0-9.]+', b"", path.read_bytes().partition(b"\n")[2])


def recording(inner: Any, path: Path) -> RecordingTransport:
    return RecordingTransport(inner, path, source="openai", record_body=True)


async def ask(transport: RecordingTransport, url: str) -> list[bytes | str]:
    """Return the chunks of a response, and the name of the exception that ended it."""
    chunks: list[bytes | str] = []
    async with httpx.AsyncClient(transport=transport) as client:
        try:
            async with client.stream("POST", url, json=BODY, headers=HEADERS) as response:
                async for data in response.aiter_bytes():
                    chunks.append(data)
        except httpx.TransportError as error:
            chunks.append(type(error).__name__)
    return chunks


@pytest.mark.parametrize("drop", [False, True], ids=["end", "reset"])
async def test_a_recorded_response_is_recorded_again_unchanged(drop: bool, tmp_path: Path) -> None:
    """The response may break within a key."""
    first, second, third = (tmp_path / f"{name}.jsonl" for name in ("first", "second", "third"))
    async with Loopback(CHUNKS, drop=drop) as server:
        seen = await ask(recording(httpx.AsyncHTTPTransport(), first), server.url)
        url = server.url
    for before, after in ((first, second), (second, third)):
        again = await ask(recording(ReplayTransport(before), after), url)
        assert [len(data) for data in seen] == [len(data) for data in again]
    assert ("RemoteProtocolError" in seen) is drop
    assert after_head(first) == after_head(second) == after_head(third)
    assert [] == found(first.read_bytes())


async def test_shipped_recordings_are_recorded_again_unchanged(tmp_path: Path) -> None:
    for name, path in shipped().items():
        (before,) = read_recordings(path)
        request = before.head.request
        assert request is not None
        again = tmp_path / f"{name}.jsonl"
        transport = RecordingTransport(ReplayTransport(path), again, source=before.head.source, record_body=True)
        async with httpx.AsyncClient(transport=transport) as client:
            await client.request(request.method, request.url, json=request.body, headers=request.headers)
        assert after_head(path) == after_head(again), name
