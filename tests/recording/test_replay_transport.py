"""`ReplayTransport`: the choice of exchanges, the recorded ends, and faults."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import httpx
import pytest

from streamtools.errors import RecordingError, UnrecordedRequest
from streamtools.recording import ReplayTransport
from streamtools.recording.format import EndKind, RecordedResponse
from tests.recording.exchanges import ANSWERED, URL, ask, post, post_blocking, request, write


async def test_each_exchange_is_played_once_in_recorded_order(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        (request(ask("one")), [b"1"]),
        (request(ask("two")), [b"2", b"", b"2"]),
        (request(ask("one")), [b"3"]),
    )
    transport = ReplayTransport(path)
    assert [1, 2, 3] == [each.number for each in transport.unplayed]
    assert b"22" == await post(transport, ask("two"))
    assert f"{path}, exchange 1; {path}, exchange 3" == "; ".join(map(str, transport.unplayed))
    assert b"1" == await post(transport, ask("one"))
    with pytest.raises(RecordingError, match=re.escape(f"not requested: {path}, exchange 3, POST {URL}")):
        transport.check()
    assert b"3" == post_blocking(transport, ask("one"))
    transport.check()

    client = httpx.AsyncClient(transport=ReplayTransport(path))
    async with client, client.stream("POST", URL, json=ask("two")) as response:
        assert (200, ANSWERED.headers) == (response.status_code, dict(response.headers))
        assert [b"2", b"2"] == [data async for data in response.aiter_bytes()]


async def test_repeat_plays_an_exchange_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (request(ask("one")), [b"1"]), (request(ask("one")), [b"2"]))
    transport = ReplayTransport(path, repeat=True)
    assert [b"1", b"2", b"2", b"2"] == [await post(transport, ask("one")) for _ in range(4)]
    transport.check()
    once = ReplayTransport(path)
    assert [b"1", b"2"] == [await post(once, ask("one")) for _ in range(2)]
    with pytest.raises(UnrecordedRequest, match=re.escape(f"; it equals {path}, exchange 1, which was already played")):
        await post(once, ask("one"))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be read: No such file"):
        ReplayTransport(tmp_path / "d.jsonl")


def test_an_incomplete_file_is_refused(tmp_path: Path) -> None:
    """A wrong digest is reported by `check` after the replay."""
    path = write(tmp_path / "a.jsonl", (request({}), [b"1"]), (request({}), [b'"end" "streamtools"']))
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for missing, name in ((2, "exchange 1"), (5, "exchange 2")):
        path.write_bytes(b"".join(line for at, line in enumerate(lines) if at != missing))
        with pytest.raises(RecordingError, match=f"{name} breaks off, without an end line"):
            ReplayTransport(path)
    path.write_bytes(whole[:-9])
    with pytest.raises(RecordingError, match="exchange 2 breaks off"):
        ReplayTransport(path)
    path.write_bytes(whole.replace(b'"text":"1"', b'"text":"2"'))
    transport = ReplayTransport(path)
    with pytest.raises(RecordingError, match=r"line 3, has a length or digest that does not match"):
        post_blocking(transport, {})
    with pytest.raises(RecordingError, match="digest"):
        transport.check()


BROKEN: dict[str, tuple[EndKind, str, type[Exception]]] = {
    "reset": ("reset", "", httpx.ReadError),
    "timeout": ("timeout", "", httpx.ReadTimeout),
    "as recorded": ("reset", "RemoteProtocolError", httpx.RemoteProtocolError),
    "a time as recorded": ("timeout", "PoolTimeout", httpx.PoolTimeout),
    "no error of a transport": ("reset", "InvalidURL", httpx.ReadError),
    "no error at all": ("reset", "Client", httpx.ReadError),
    "of another kind": ("reset", "ReadTimeout", httpx.ReadError),
}


@pytest.mark.parametrize(("end", "error", "raised"), BROKEN.values(), ids=BROKEN)
async def test_a_recorded_exception_is_raised_again(
    tmp_path: Path, end: EndKind, error: str, raised: type[Exception]
) -> None:
    for response in (RecordedResponse(status=200), None):
        chunks = [b"1"] if response else []
        path = write(tmp_path / "a.jsonl", (request({}), chunks), end=end, error=error, response=response)
        for wait in (True, False):
            transport = ReplayTransport(path)
            with pytest.raises(httpx.TransportError) as caught:
                await post(transport, {}) if wait else post_blocking(transport, {})
            assert raised is type(caught.value)
            transport.check()


async def test_a_client_may_leave_where_the_recorded_client_left(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (request({}), [b"1"]), end="left")
    transport = ReplayTransport(path)
    response = await transport.handle_async_request(httpx.Request("POST", URL, json={}))
    assert b"1" == await anext(response.stream)
    await response.aclose()
    transport.check()
    response = ReplayTransport(path).handle_request(httpx.Request("POST", URL, json={}))
    assert b"1" == next(response.stream)
    response.close()


@pytest.mark.parametrize("response", [RecordedResponse(status=200), None])
async def test_a_client_waits_where_the_recorded_client_left(tmp_path: Path, response: RecordedResponse | None) -> None:
    """It waits until it closes the response or its timeout expires."""
    path = write(tmp_path / "a.jsonl", (request({}), [b"1"] * bool(response)), end="left", response=response)

    with anyio.move_on_after(0.01) as scope:
        await post(ReplayTransport(path), {}, timeout=None)
    assert scope.cancelled_caught
    for wait in (True, False):
        transport = ReplayTransport(path)
        with pytest.raises(httpx.ReadTimeout):
            await post(transport, {}, timeout=0.01) if wait else post_blocking(transport, {}, timeout=0.01)
    if response is not None:
        assert b"1" == await post(ReplayTransport(path, cut_after=1), {})


async def test_faults_and_times_are_those_of_playback(tmp_path: Path) -> None:
    """The read timeout is that of the request."""
    path = write(tmp_path / "a.jsonl", (request({}), [b"12", b"34"]))
    for transport, raised in (
        (ReplayTransport(path, reset_after=3), httpx.ReadError),
        (ReplayTransport(path, stall_after=3), httpx.ReadTimeout),
        (ReplayTransport(path, speed=1), httpx.ReadTimeout),
    ):
        with pytest.raises(raised):
            post_blocking(transport, {}, timeout=0.01)
    assert b"123" == await post(ReplayTransport(path, cut_after=3), {})
    with pytest.raises(httpx.ReadTimeout):
        await post(ReplayTransport(path, stall_after=2), {}, timeout=0.01)
    with pytest.raises(ValueError, match="speed"):
        ReplayTransport(path, speed=-1)


def test_closing_the_transport_closes_open_responses(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (request({}), [b"12"]), (request({}), [b"12"]))
    with ReplayTransport(path) as transport:
        for _ in range(2):
            transport.handle_request(httpx.Request("POST", URL, json={}))


async def test_a_client_closes_its_transport(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (request({}), [b"12"]))
    transport = ReplayTransport(path)
    client = httpx.AsyncClient(transport=transport)
    response = await client.send(client.build_request("POST", URL, json={}), stream=True)
    await client.aclose()
    assert [] == [data async for data in response.aiter_bytes()]
