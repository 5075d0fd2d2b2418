"""Tests of sources over real connections: reading, responses that are no streams, and closing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
import httpx
import httpx_sse
import msgspec
import pytest

from streamtools import sources
from streamtools.errors import Code, UnreadableSource
from streamtools.events import ProviderCompleted, SourceError, SourceEvent, SourceUsage, TextDelta, Usage
from streamtools.sources.transport import MAX_BODY
from streamtools.sources.wire_formats.latitude import Latitude
from tests.sources.adapters import collect
from tests.support.cases import together
from tests.support.loopback import Loopback

STREAM = [
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}\n\nid: 1\n\n: wait\n\n',
    b"data: [DONE]\n\n",
]
EVENTS = [TextDelta("a"), TextDelta("b"), ProviderCompleted(finish_reason="stop", raw_finish_reason="stop")]


def lost(cause: str) -> SourceError:
    return SourceError("the connection to the provider was lost", Code.STREAM_INTERRUPTED, cause=cause)


def connect() -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, timeout=10)


@asynccontextmanager
async def request(server: Loopback) -> AsyncIterator[httpx.Response]:
    """Yield a response whose body was not read."""
    async with connect() as client, client.stream("POST", server.url, json={"stream": True}) as response:
        yield response


async def fetch(server: Loopback) -> list[SourceEvent]:
    """Return the events of one request, read as a backend would."""
    async with request(server) as response:
        source = sources.openai(response)
        events = await collect(source)
        await source.aclose()
    told = server.url.partition("://")[2]
    assert {told, None} >= {each.url for each in events if isinstance(each, SourceError)}
    return [msgspec.structs.replace(each, url=None) if isinstance(each, SourceError) else each for each in events]


async def test_a_response_of_httpx_is_read() -> None:
    """The bytes of the response are decoded, whatever its chunks are."""
    async with Loopback(STREAM) as server:
        assert await fetch(server) == EVENTS
    assert server.requests[0].endswith(b'{"stream":true}')
    async with Loopback([bytes([byte]) for chunk in STREAM for byte in chunk]) as server:
        assert await fetch(server) == EVENTS


async def test_each_network_chunk_gives_one_batch() -> None:
    """The events of a chunk are delivered before the next chunk arrives."""
    first, second = anyio.Event(), anyio.Event()
    script: list[bytes | anyio.Event] = [STREAM[0], first, STREAM[1], second, STREAM[2]]
    async with Loopback(script) as server, request(server) as response:
        source = sources.openai(response)
        assert [EVENTS[0]] == await anext(source)
        first.set()
        assert [EVENTS[1]] == await anext(source)
        second.set()
        assert [EVENTS[2]] == await anext(source)
        assert await anext(source) == []
        with pytest.raises(StopAsyncIteration):
            await anext(source)
        await source.aclose()


async def test_an_event_source_of_httpx_sse_is_read() -> None:
    """Its response is read, because its decoder loses events."""
    async with (
        Loopback([*STREAM[:-1], STREAM[-1].rstrip()]) as server,
        connect() as client,
        httpx_sse.aconnect_sse(client, "POST", server.url) as events,
    ):
        assert await collect(sources.openai(events)) == EVENTS


async def test_server_sent_events_of_httpx_sse_are_read() -> None:
    """Objects with `event` and `data` are read too, and the empty ones that httpx-sse invents mean nothing."""
    async with (
        Loopback(STREAM) as server,
        connect() as client,
        httpx_sse.aconnect_sse(client, "POST", server.url) as events,
    ):
        assert await collect(sources.openai(events.aiter_sse())) == EVENTS
    decoded = [httpx_sse.ServerSentEvent(event="", data="[DONE]")]
    assert [ProviderCompleted(finish_reason="stop")] == await collect(sources.openai(decoded))


async def test_iterables_of_bytes_are_read() -> None:
    """Any iterable of bytes and a single `bytes` object are read."""

    async def stream() -> AsyncIterator[bytes]:
        for chunk in STREAM:
            yield chunk

    assert await collect(sources.openai(stream())) == EVENTS
    assert await collect(sources.openai(STREAM)) == EVENTS
    assert await collect(sources.openai(b"".join(STREAM))) == EVENTS
    assert await collect(sources.openai(chunk for chunk in STREAM)) == EVENTS
    assert await collect(sources.openai([bytearray(STREAM[0]), memoryview(STREAM[1]), STREAM[2]])) == EVENTS


JSON = "application/json"
CHECK_URL = "check the URL: its path is `/v1/chat/completions` for most servers"
NO_STREAM = "the response is one JSON document and not a stream"
REFUSALS: dict[str, tuple[int, str | None, Any, SourceError]] = {
    "OpenAI": (
        429,
        JSON,
        {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}},
        SourceError("Rate limit reached", status=429, cause="requests rate_limit_exceeded"),
    ),
    "Ollama": (404, JSON, {"error": "model 'x' not found"}, SourceError("model 'x' not found", status=404)),
    "FastAPI": (
        422,
        JSON,
        {"detail": [{"loc": ["body"], "msg": "Field required", "type": "missing"}]},
        SourceError("Field required", status=422, cause="missing"),
    ),
    "a gateway": (502, "text/html", b"<html>Bad", SourceError("Bad Gateway", status=502)),
    "a status nobody knows": (599, None, b"", SourceError("HTTP status 599", status=599)),
    "a wrong URL": (
        404,
        JSON,
        {"detail": "Not Found"},
        SourceError("Not Found; check the URL: its path is `/v1/chat/completions` for most servers", status=404),
    ),
    "a URL without POST": (
        405,
        JSON,
        {"detail": "Method Not Allowed"},
        SourceError(
            "Method Not Allowed; check the URL: its path is `/v1/chat/completions` for most servers", status=405
        ),
    ),
    "a redirect": (307, None, b"", SourceError("Temporary Redirect", status=307)),
    "an error as an event stream": (
        500,
        "text/event-stream",
        {"error": {"message": "no", "code": 400}},
        SourceError("no", status=500, cause="400"),
    ),
    "an error with the status of success": (
        200,
        "application/json; charset=utf-8",
        {"error": {"message": "no", "code": 400}},
        SourceError("no", status=400, cause="400"),
    ),
    "an answer that is no stream": (
        200,
        JSON,
        {"choices": [{"message": {"content": "hi"}}]},
        SourceError(f"{NO_STREAM}; was the request sent with `stream: true`?"),
    ),
    "an answer of Gemini without `alt=sse`": (
        200,
        JSON,
        [{"candidates": [{"content": {"parts": [{"text": "hi"}]}}]}],
        SourceError(f"{NO_STREAM}; add `alt=sse` to the URL"),
    ),
    "JSON of another kind": (200, "application/problem+json", b" \n[1]", SourceError(NO_STREAM)),
    "JSON that is none": (200, JSON, b'{"a":', SourceError(NO_STREAM)),
    "JSON that is empty": (200, JSON, b"", SourceError(NO_STREAM)),
}


@together(("status", "declared", "body", "expected"), REFUSALS.values(), ids=REFUSALS)
async def test_an_error_or_a_document_is_no_stream(
    status: int, declared: str | None, body: Any, expected: SourceError
) -> None:
    """It is one error with the provider's words, or with those of its status."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with Loopback(
        [sent[at : at + 5] for at in range(0, len(sent), 5)], status=status, declared=declared
    ) as server:
        assert await fetch(server) == [expected]


async def test_an_event_stream_declared_as_json_is_read() -> None:
    """The first byte of the response decides, not its content type."""
    async with Loopback([b"\n", b"\r\n", *STREAM], declared="application/json") as server:
        assert await fetch(server) == EVENTS
    async with Loopback([b"\n" * (MAX_BODY + 1), *STREAM], declared="application/json") as server:
        assert await fetch(server) == EVENTS
    async with Loopback(STREAM, declared=None) as server:
        assert await fetch(server) == EVENTS


async def test_an_endless_error_is_read_up_to_a_limit() -> None:
    """So much of a body is read as an error needs, and the connection is closed."""
    async with Loopback([b" " * 65536] * 64, status=500, hold=True) as server:
        assert [SourceError("Internal Server Error", status=500)] == await fetch(server)
        with anyio.fail_after(10):
            await server.disconnected.wait()


async def test_an_error_response_may_break_off() -> None:
    """The status is reported even if the body never arrives."""
    async with Loopback([b'{"error":'], status=500, drop=True) as server:
        assert [SourceError("Internal Server Error", status=500)] == await fetch(server)


async def test_a_connection_that_breaks_off_is_an_interruption() -> None:
    """The exception of the client is an event, with its type for the log: its text may hold an address with a key."""
    async with Loopback(STREAM[:1], drop=True) as server:
        first, second = await fetch(server)
    assert TextDelta("a") == first
    assert isinstance(second, SourceError)
    assert Code.STREAM_INTERRUPTED is second.code
    assert second.cause == "httpx.RemoteProtocolError"


async def test_a_connection_may_break_off_after_the_end() -> None:
    """Once the finish reason is there, nothing that the transport does takes it back."""
    for script in (STREAM, STREAM[:2]):
        async with Loopback(script, drop=True) as server:
            assert await fetch(server) == EVENTS
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1}}'
    async with Loopback([*STREAM[:2], usage], drop=True) as server:
        *_, told, end = await fetch(server)
    assert SourceUsage(Usage(input=1)) == told
    assert ProviderCompleted(finish_reason="stop", raw_finish_reason="stop", usage=Usage(input=1)) == end


async def test_closing_disconnects() -> None:
    """The provider notices it. Further calls of `aclose` and reads have no effect."""
    async with Loopback(STREAM[:1], hold=True) as server, request(server) as response:
        source = sources.openai(response)
        assert [TextDelta("a")] == await anext(source)
        await source.aclose()
        assert response.is_closed
        await source.aclose()
        assert await collect(source) == []
        with anyio.fail_after(10):
            await server.disconnected.wait()


async def test_closing_before_the_first_read_disconnects() -> None:
    """A source that was never read is closed, too."""
    async with Loopback(STREAM[:1], hold=True) as server, request(server) as response:
        await sources.openai(response).aclose()
        with anyio.fail_after(10):
            await server.disconnected.wait()


async def test_closing_ends_the_read_of_another_task() -> None:
    """The read ends quietly."""
    ended = anyio.Event()

    async def read(source: sources.Source) -> None:
        assert await collect(source) == []
        ended.set()

    class Quiet(Patient):
        async def aclose(self) -> None:
            self.ready.set()

    async with Loopback(STREAM[:1], hold=True) as server, request(server) as response:
        source = sources.openai(response)
        await anext(source)
        for reading in (source, sources.text(Quiet())):  # type: ignore[arg-type]
            ended = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(read, reading)
                await anyio.wait_all_tasks_blocked()
                await reading.aclose()
                with anyio.fail_after(10):
                    await ended.wait()


async def test_a_cancelled_task_closes_in_a_shielded_scope() -> None:
    """A `finally` block can close the source."""
    async with Loopback(STREAM[:1], hold=True) as server, request(server) as response:
        source = sources.openai(response)
        with anyio.CancelScope() as scope:
            try:
                await anext(source)
                scope.cancel()
                await anext(source)
            finally:
                with anyio.CancelScope(shield=True):
                    await source.aclose()
        assert scope.cancelled_caught
        with anyio.fail_after(10):
            await server.disconnected.wait()


async def test_a_cancelled_read_of_a_response_is_the_last_one() -> None:
    """The client gives the connection up; the next read says so, instead of passing off the silence as the end."""
    async with Loopback(STREAM[:1], hold=True) as server, request(server) as response:
        source = sources.openai(response)
        await anext(source)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anext(source)
        assert [lost("the read was cancelled")] == await anext(source)
        await source.aclose()


class Patient:
    """An asynchronous iterator that survives a cancelled read, as streams of anyio do."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)
        self.ready = anyio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        await self.ready.wait()
        if not self.chunks:
            raise StopAsyncIteration
        return self.chunks.pop(0)


async def test_a_cancelled_read_continues_if_the_transport_allows_it() -> None:
    """Nothing is lost, and the end is the end."""
    patient = Patient(*STREAM)
    source = sources.openai(patient)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await anext(source)
    patient.ready.set()
    assert await collect(source) == EVENTS
    await source.aclose()
    patient = Patient()
    source = sources.text(patient)  # type: ignore[arg-type]
    with anyio.CancelScope() as scope:
        scope.cancel()
        await anext(source)
    patient.ready.set()
    assert [ProviderCompleted(finish_reason="stop")] == await collect(source)


async def test_closing_closes_iterables() -> None:
    """Both kinds of generators run their `finally`. Other iterators need no closing."""
    closed = []

    async def stream() -> AsyncIterator[bytes]:
        try:
            yield STREAM[0]
        finally:
            closed.append("asynchronous")
            raise OSError("of no use to anybody")

    for origin in (stream(), (closing for closing in [STREAM[0]]), STREAM, Patient()):
        source = sources.openai(origin)
        if not isinstance(origin, Patient):
            assert [TextDelta("a")] == await anext(source)
        await source.aclose()
    assert closed == ["asynchronous"]


async def test_an_error_while_closing_is_suppressed() -> None:
    """Only `aiter_bytes` is asked of a response."""

    class Response:
        def aiter_bytes(self) -> Patient:
            return patient

    patient = Patient(*STREAM)
    patient.ready.set()
    source = sources.openai(Response())
    assert [TextDelta("a")] == await anext(source)
    await source.aclose()


async def test_a_response_that_never_ends_is_closed() -> None:
    """An iterator that never waits and never ends is abandoned after a limit."""

    class Response:
        async def aiter_bytes(self) -> AsyncIterator[bytes]:
            while True:
                yield STREAM[0]

    source = sources.openai(Response())
    assert [TextDelta("a")] == await anext(source)
    await source.aclose()
    assert await collect(source) == []


async def test_a_response_that_was_read_before_is_a_stream() -> None:
    """Content that the client has stored is read as a stream."""
    async with Loopback(STREAM) as server, connect() as client:
        assert await collect(sources.openai(await client.get(server.url))) == EVENTS


def nothing() -> None:
    """Not a stream."""


@pytest.mark.parametrize("origin", [None, 5, {"choices": []}, nothing, httpx.URL("http://x")])
def test_unreadable_objects_are_refused(origin: Any) -> None:
    """They are refused immediately, and the message names the type."""
    with pytest.raises(UnreadableSource, match=r"a source needs a response|is a whole answer"):
        sources.openai(origin)


@together("make", [sources.openai, sources.latitude])
@together("item", ["data: 1\n\n", 5, None])
async def test_unreadable_items_are_refused(make: Callable[[object], sources.Source], item: Any) -> None:
    """A stream of the wrong things is our caller's mistake, and raises."""
    source = make([item])
    with pytest.raises(
        UnreadableSource, match="expected a stream of bytes, of server-sent events or of an SDK's objects"
    ):
        await anext(source)
    assert await collect(source) == []


def test_a_synchronous_response_is_refused() -> None:
    """It would fail at the first read, and be taken for a lost connection."""

    class Body(httpx.SyncByteStream):
        def __iter__(self) -> Any:
            raise NotImplementedError("nobody reads it")

    with pytest.raises(UnreadableSource, match="this response is synchronous"):
        sources.openai(httpx.Response(200, stream=Body()))


def test_adapters_are_made_by_name() -> None:
    """A recording asks for its adapter by name."""
    adapter = sources.adapter("openai")
    assert [event for chunk in STREAM for event in adapter.feed(chunk)] == EVENTS
    assert isinstance(sources.adapter("latitude"), Latitude)
    with pytest.raises(LookupError, match=r"no adapter is named 'x'; there are .*openai"):
        sources.adapter("x")
