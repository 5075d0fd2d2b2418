"""The function `record`: it records a stream of bytes while a reader reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from httpx_sse import aconnect_sse

from streamtools import ToolStream, sources
from streamtools.recording import RecordingTransport, read_recording, record
from tests.support.bodies import Pieces
from tests.support.loopback import Loopback

CHUNKS = [b"data: caf\xc3", b"\xa9\n\n", b"data: [DONE]\n\n"]
SSE = [b'data: {"choices":[{"delta":{"content":"Hi."}}]}\n\n', b'data: {"choices":[{"finish_reason":"stop"}]}\n\n']


@pytest.mark.usefixtures("seconds")
async def test_an_asynchronous_iterable_is_recorded(tmp_path: Path) -> None:
    """Times are counted from the call of `record`."""
    path = tmp_path / "a.jsonl"
    stream = record(Pieces(*CHUNKS), path, source="openai")
    assert CHUNKS == [data async for data in stream]
    recording = read_recording(path)
    assert [(1000.0, CHUNKS[0]), (2000.0, CHUNKS[1]), (3000.0, CHUNKS[2])] == list(recording.chunks)
    assert ("end", 4000.0, "") == recording.end
    assert ("openai", None, None) == (recording.head.source, recording.head.request, recording.head.response)
    assert (None, None, None) == (stream.status_code, stream.headers, stream.write_error)
    await stream.aclose()
    assert recording == read_recording(path)


@pytest.mark.usefixtures("seconds")
@pytest.mark.parametrize(("error", "kind"), [(TimeoutError("late"), "timeout"), (KeyError("s3cret"), "reset")])
async def test_an_exception_is_recorded_by_its_name(error: Exception, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(type(error)):
        [data async for data in record(Pieces(CHUNKS[0], error), path)]
    assert (kind, 2000.0, type(error).__name__) == read_recording(path).end
    assert b"s3cret" not in path.read_bytes()


async def test_a_closed_stream_is_recorded_as_left(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    inner = Pieces(*CHUNKS)
    async with record(inner, path) as stream:
        assert CHUNKS[0] == await anext(stream)
    assert inner.closed
    assert ("left", "") == read_recording(path).end[::2]


async def test_chunks_must_be_bytes(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        async with record(Pieces("text"), tmp_path / "a.jsonl") as stream:  # type: ignore[arg-type]
            await anext(stream)


async def test_a_source_reads_a_recorded_response(tmp_path: Path) -> None:
    """It may also be an event source of httpx-sse."""
    path = tmp_path / "a.jsonl"
    async with Loopback(SSE) as server, httpx.AsyncClient() as client:
        headers = {"authorization": "Bearer s3cret"}
        async with client.stream("POST", server.url + "?key=s3cret", json={"a": 1}, headers=headers) as response:
            async with ToolStream(sources.detect(record(response, path, record_body=True))) as events:
                assert ["Hi."] == [event.text async for event in events if event.type == "text"]
            assert response.is_closed
        recording = read_recording(path)
        async with (
            aconnect_sse(client, "POST", server.url, json={"a": 1}) as event_source,
            ToolStream(sources.detect(record(event_source, path))) as events,
        ):
            assert ["Hi."] == [event.text async for event in events if event.type == "text"]
    assert recording.data == read_recording(path).data == b"".join(SSE)
    assert recording.head.request is not None
    assert ("POST", server.url + "?key=%5Bredacted%5D", {"a": 1}) == (
        recording.head.request.method,
        recording.head.request.url,
        recording.head.request.body,
    )
    assert recording.head.response is not None
    assert (200, "text/event-stream") == (
        recording.head.response.status,
        recording.head.response.headers["content-type"],
    )
    assert b"s3cret" not in path.read_bytes()


async def test_a_response_without_request_or_headers_is_recorded(tmp_path: Path) -> None:
    class Bare:
        status_code = 200

        async def aiter_bytes(self) -> AsyncIterator[bytes]:
            yield b"a"

    for response in (httpx.Response(200, content=b"a"), Bare()):
        assert [b"a"] == [data async for data in record(response, tmp_path / "a.jsonl")]
        head = read_recording(tmp_path / "a.jsonl").head
        assert head.request is None
        assert head.response is not None
        assert 200 == head.response.status


async def test_an_invalid_secret_is_refused_before_the_file_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("precious")
    with pytest.raises(ValueError, match="a secret text must have"):
        record([], path, redact=[""])
    with pytest.raises(ValueError, match="a secret text must have"):
        RecordingTransport(httpx.AsyncHTTPTransport(), path, redact=[""])
    assert "precious" == path.read_text()
