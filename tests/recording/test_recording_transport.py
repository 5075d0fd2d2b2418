"""`RecordingTransport`: the recording holds the bytes that the client reads, and how the response ended."""

from __future__ import annotations

import errno
import gzip
import io
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from streamtools.recording import Recording, read_recording, read_recordings
from streamtools.recording.transports import RecordingTransport
from tests.support.bodies import Pieces
from tests.support.loopback import Loopback

CHUNKS = [b"data: caf\xc3", b"\xa9\n\n", b"data: [DONE]\n\n"]


def answering(*answers: httpx.Response | Exception) -> httpx.AsyncBaseTransport:
    """Return a transport with these responses, in order."""
    left = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        given = next(left)
        if isinstance(given, Exception):
            raise given
        return given

    return httpx.MockTransport(answer)


def client(inner: httpx.AsyncBaseTransport, target: Path | io.BytesIO) -> httpx.AsyncClient:
    """Return a client whose exchanges are recorded."""
    return httpx.AsyncClient(transport=RecordingTransport(inner, target, source="openai", record_body=True))


def in_memory(file: io.BytesIO, folder: Path) -> list[Recording]:
    """Return the exchanges in `file`."""
    path = folder / "memory.jsonl"
    path.write_bytes(file.getvalue())
    return read_recordings(path)


@pytest.mark.usefixtures("seconds")
async def test_each_read_is_recorded_as_a_chunk(tmp_path: Path) -> None:
    """The recording contains no credentials."""
    path = tmp_path / "answer.jsonl"
    inner = answering(httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces(*CHUNKS)))
    async with client(inner, path) as asking:
        request = asking.stream(
            "POST", "http://x/v1?api_key=s3cret", json={"model": "m"}, headers={"Authorization": "Bearer s3cret"}
        )
        async with request as response:
            read = [data async for data in response.aiter_bytes()]

    recording = read_recording(path)
    assert CHUNKS == read
    assert [(1000.0, CHUNKS[0]), (2000.0, CHUNKS[1]), (3000.0, CHUNKS[2])] == list(recording.chunks)
    assert ("end", 4000.0, "") == recording.end
    assert recording.head.request is not None
    assert recording.head.response is not None
    assert ("POST", {"model": "m"}) == (recording.head.request.method, recording.head.request.body)
    assert (200, {"content-type": "text/event-stream"}) == (
        recording.head.response.status,
        recording.head.response.headers,
    )
    assert recording.head.recorded.endswith("+00:00")
    assert b"s3cret" not in path.read_bytes()
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


async def test_decoded_bytes_are_recorded(tmp_path: Path) -> None:
    """The client gets decoded bytes without `content-encoding`."""
    packed = gzip.compress(b"".join(CHUNKS))
    async with (
        Loopback([packed[:9], packed[9:]], headers={"Content-Encoding": "gzip"}) as server,
        client(httpx.AsyncHTTPTransport(), tmp_path / "answer.jsonl") as asking,
    ):
        response = await asking.post(server.url, content=b"")
    assert b"".join(CHUNKS) == response.content == read_recording(tmp_path / "answer.jsonl").data
    assert "content-encoding" not in response.headers
    assert "text/event-stream" == response.headers["content-type"]


async def test_a_broken_connection_is_recorded_as_reset(tmp_path: Path) -> None:
    async with (
        Loopback([b"data: 1\n\n"], drop=True) as server,
        client(httpx.AsyncHTTPTransport(), tmp_path / "answer.jsonl") as asking,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await asking.get(server.url)
    recording = read_recording(tmp_path / "answer.jsonl")
    assert b"data: 1\n\n" == recording.data
    assert ("reset", "RemoteProtocolError") == (recording.end.kind, recording.end.error)


@pytest.mark.parametrize(
    ("error", "kind"), [(httpx.ReadTimeout("late"), "timeout"), (httpx.ReadError("gone"), "reset")]
)
async def test_a_timeout_differs_from_a_reset(error: Exception, kind: str, tmp_path: Path) -> None:
    """Before and after the head of the response."""
    file = io.BytesIO()
    async with client(answering(httpx.Response(200, stream=Pieces(b"a", error)), error), file) as asking:
        for _ in range(2):
            with pytest.raises(type(error)):
                await asking.get("http://x")
    broken, none = in_memory(file, tmp_path)
    assert (b"a", b"") == (broken.data, none.data)
    assert [(kind, type(error).__name__)] * 2 == [(each.end.kind, each.end.error) for each in (broken, none)]
    assert none.head.response is None


async def test_a_closed_response_is_recorded_as_left(tmp_path: Path) -> None:
    body = Pieces(*CHUNKS)
    async with client(answering(httpx.Response(200, stream=body)), tmp_path / "answer.jsonl") as asking:
        async with asking.stream("GET", "http://x") as response:
            chunks = response.aiter_bytes()
            assert CHUNKS[0] == await anext(chunks)
        assert body.closed
        assert CHUNKS[1:] == [data async for data in chunks]  # the client has already received them
    recording = read_recording(tmp_path / "answer.jsonl")
    assert CHUNKS[0] == recording.data
    assert ("left", "") == (recording.end.kind, recording.end.error)


async def test_simultaneous_exchanges_are_written_in_the_order_of_requests(tmp_path: Path) -> None:
    file = io.BytesIO()
    answers = [httpx.Response(200, stream=Pieces(name + b"1\n", name + b"2")) for name in (b"a", b"b", b"c")]
    async with client(answering(*answers), file) as asking:
        async with asking.stream("GET", "http://x/1") as one, asking.stream("GET", "http://x/2") as two:
            first, second = one.aiter_bytes(), two.aiter_bytes()
            read = [await anext(second), await anext(first), await anext(second), await anext(first)]
            assert b'"at"' in file.getvalue()  # the first exchange is written while it is read
            assert b"b1" not in file.getvalue()
            assert [] == [data async for data in second] + [data async for data in first]
        await asking.get("http://x/3")

    assert [b"b1\n", b"a1\n", b"b2", b"a2"] == read
    assert [b"a1\na2", b"b1\nb2", b"c1\nc2"] == [each.data for each in in_memory(file, tmp_path)]


@pytest.mark.usefixtures("seconds")
async def test_a_cancelled_request_is_recorded_as_left(tmp_path: Path) -> None:
    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError

    async with client(Silent(), tmp_path / "answer.jsonl") as asking:
        with anyio.CancelScope() as scope:
            await asking.get("http://x")

    recording = read_recording(tmp_path / "answer.jsonl")
    assert recording.head.response is None
    assert ("left", 1000.0, "") == recording.end


def test_a_blocking_client_is_recorded(tmp_path: Path) -> None:
    file = io.BytesIO()

    packed = gzip.compress(b"packed")
    answers: list[httpx.Response | Exception] = [
        httpx.Response(200, stream=Pieces(*CHUNKS)),
        httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Pieces(packed)),
        httpx.Response(200, stream=Pieces(b"a", httpx.ReadError("gone"))),
        httpx.Response(200, stream=Pieces(b"a", b"b")),
        httpx.ConnectTimeout("late"),
    ]
    inner: Any = answering(*answers)  # for asynchronous and blocking clients
    with httpx.Client(transport=RecordingTransport(inner, file, record_body=True)) as asking:
        assert b"".join(CHUNKS) == asking.post("http://x", json={"a": 1}).content
        assert b"packed" == asking.get("http://x").content
        with pytest.raises(httpx.ReadError):
            asking.get("http://x")
        with asking.stream("GET", "http://x") as response:
            assert b"a" == next(response.iter_bytes())
        with pytest.raises(httpx.ConnectTimeout):
            asking.get("http://x")

    recordings = in_memory(file, tmp_path)
    assert CHUNKS == [data for _, data in recordings[0].chunks]
    assert recordings[0].head.request is not None
    assert {"a": 1} == recordings[0].head.request.body
    assert [b"packed", b"a", b"a", b""] == [each.data for each in recordings[1:]]
    ends = [("end", ""), ("end", ""), ("reset", "ReadError"), ("left", ""), ("timeout", "ConnectTimeout")]
    assert ends == [(each.end.kind, each.end.error) for each in recordings]


def test_threads_can_share_a_client(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=request.content * 1000)

    def ask(number: int) -> bytes:
        return asking.post("http://x", content=b"%d" % number).content

    with (
        httpx.Client(transport=RecordingTransport(httpx.MockTransport(answer), path)) as asking,
        ThreadPoolExecutor(8) as threads,
    ):
        answers = list(threads.map(ask, range(64)))
    assert [b"%d" % number * 1000 for number in range(64)] == answers
    assert sorted(answers) == sorted(each.data for each in read_recordings(path))


@pytest.mark.parametrize("blocking", [False, True])
async def test_closing_a_transport_closes_the_inner_transport(blocking: bool, tmp_path: Path) -> None:

    class Inner(httpx.AsyncBaseTransport, httpx.BaseTransport):
        seen: list[str]

        async def aclose(self) -> None:
            self.seen.append("aclose")

        def close(self) -> None:
            self.seen.append("close")

    inner = Inner()
    inner.seen = []
    file = io.BytesIO()
    if blocking:
        with RecordingTransport(inner, tmp_path / "a.jsonl"):
            pass
        RecordingTransport(inner, file).close()
    else:
        async with RecordingTransport(inner, tmp_path / "a.jsonl"):
            pass
        await RecordingTransport(inner, file).aclose()
    assert ["close" if blocking else "aclose"] * 2 == inner.seen
    assert not file.closed


async def test_a_recording_that_cannot_be_written_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The client gets its responses."""

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    answers = [httpx.Response(200, stream=Pieces(*CHUNKS)) for _ in range(2)]
    async with client(answering(*answers), Full()) as asking:
        for _ in answers:
            assert b"".join(CHUNKS) == (await asking.post("http://h/v1", content=b"{}")).content
    (record,) = [each for each in caplog.records if each.name != "httpx"]
    assert "recording_stopped error='OSError' reason='No space left on device'" in record.getMessage()
