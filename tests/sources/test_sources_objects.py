"""Streams whose items are dicts or an SDK's objects, and the exceptions that an SDK raises in mid-stream.

The classes here have the shape of the SDKs', which are made with pydantic too: fields that were not sent are unset, and
those that nobody declared are kept.
"""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ConfigDict, Field

from streamtools import events as kinds
from streamtools import sources
from streamtools.errors import Code, UnreadableSource
from streamtools.sources.adapter import Frame, as_frame
from tests.sources.adapters import called, collect
from tests.support.cases import together
from tests.support.loopback import Loopback


class Shape(BaseModel):
    model_config = ConfigDict(extra="allow", populate_by_name=True)


class Delta(Shape):
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class Choice(Shape):
    delta: Delta
    finish_reason: str | None = None
    index: int = 0


class Chunk(Shape):
    choices: list[Choice]
    usage: dict[str, int] | None = None
    service_tier: str | None = Field(default=None, alias="serviceTier")


CALL = {"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
VALUES: list[dict[str, Any]] = [
    {"choices": [{"index": 0, "delta": {"content": "a", "reasoning_content": "b"}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}]},
]
EVENTS: list[kinds.SourceEvent] = [
    kinds.ReasoningDelta("b", own={"openai": {"reasoning_content": None}}),
    kinds.TextDelta("a"),
    *called("0", "x", "f", '{"a":1}'),
    kinds.ProviderCompleted(finish_reason="tool_calls", raw_finish_reason="tool_calls"),
]


class Written:
    """An object that knows how to write itself, without pydantic."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def to_dict(self) -> Any:
        return self._value


def take(*items: object) -> list[kinds.SourceEvent]:
    adapter = sources.adapter("openai")
    return [event for item in items for event in adapter.take(item)] + adapter.close()


@pytest.mark.parametrize("make", [dict, Chunk.model_validate, Written], ids=["dicts", "pydantic", "to_dict"])
async def test_items_of_each_kind_are_read_like_bytes(make: Any) -> None:
    """The same chunks give the same events, fields that the SDK does not know included."""
    items = [make(value) for value in VALUES]
    assert take(*items) == EVENTS

    async def stream() -> AsyncIterator[Any]:
        for item in items:
            yield item

    assert await collect(sources.openai(stream())) == EVENTS
    assert await collect(sources.openai(items)) == EVENTS


def test_unset_fields_of_objects_are_omitted() -> None:
    """Null is not the same as nothing in every format, and names are those of the wire."""
    frame = as_frame(Chunk(choices=[], serviceTier="flex"))
    assert frame == Frame(b'{"choices":[],"serviceTier":"flex"}')


def test_objects_in_dicts_are_read() -> None:
    """Wherever an SDK left one; times and the like are written as JSON has them."""
    item = {"choices": [Choice(delta=Delta(content="a"), finish_reason="stop")], "at": datetime.date(2026, 1, 1)}
    assert [kinds.TextDelta("a"), kinds.ProviderCompleted(finish_reason="stop", raw_finish_reason="stop")] == take(item)


def test_a_whole_completion_is_read_as_one_chunk() -> None:
    """A whole completion is one chunk, whose calls have no index."""
    calls = [{"id": "x", "function": {"name": "f", "arguments": '{"a":1}'}}]
    message = {"role": "assistant", "content": "a", "reasoning_content": "b", "tool_calls": calls}
    assert take({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}) == EVENTS


def test_errors_may_be_dicts() -> None:
    """They are the same errors as in bytes."""
    assert take({"error": {"message": "no", "code": 429}}) == [kinds.SourceError("no", status=429, cause="429")]
    assert take({"type": "error", "message": "no"}) == [kinds.SourceError("no")]


def test_server_sent_events_may_be_dicts() -> None:
    """Some hand on the name and the data of an event, with the data read or not."""
    adapter = sources.adapter("latitude")
    events = adapter.take({"event": "provider-event", "data": {"type": "text-delta", "textDelta": "a"}})
    events += adapter.take({"event": "latitude-event", "data": '{"type":"chain-completed"}', "id": "1"})
    assert [type(event) for event in events] == [kinds.TextDelta, kinds.ProviderCompleted, kinds.ChainCompleted]
    assert take({"event": "", "data": "[DONE]"}) == [kinds.ProviderCompleted(finish_reason="stop")]
    assert take({"event": "x", "data": 5})[0] == kinds.SourceRaw({"event": "x", "data": 5})


def test_surrogate_pairs_that_two_objects_share_are_joined() -> None:
    """They wait for one another like those in bytes."""
    deltas = [[{"delta": {"content": each}}] for each in ("\ud83d", "\ude00")]
    assert take(*({"choices": each} for each in deltas)) == [kinds.TextDelta("😀")]
    assert take(*(Chunk.model_construct(choices=each) for each in deltas)) == [kinds.TextDelta("😀")]


@pytest.mark.parametrize(
    "item",
    [5, None, object(), "text", Written([1]), ("choices", [])],
    ids=["number", "none", "object", "text", "written", "tuple"],
)
def test_other_objects_are_refused(item: Any) -> None:
    """They are our caller's mistake."""
    with pytest.raises(UnreadableSource, match="got an item of"):
        take(item)


def test_objects_with_values_other_than_json_are_refused() -> None:
    """They are our caller's mistake too."""
    with pytest.raises(UnreadableSource, match="cannot be written as JSON: <class 'object'> is not a JSON value"):
        take({"choices": object()})


def test_objects_that_nest_too_deep_are_warnings() -> None:
    """A model may write such arguments: they cost a warning and no exception."""
    ring: dict[str, Any] = {}
    ring["ring"] = ring

    class Ring(Shape):
        def model_dump(self, **options: Any) -> dict[str, Any]:
            raise ValueError("Circular reference detected (depth exceeded)")

    for item in (ring, Ring()):
        warning, text = take(item, {"choices": [{"delta": {"content": "a"}}]})
        assert isinstance(warning, kinds.SourceWarning)
        assert warning.code is Code.BAD_FRAME
        assert text == kinds.TextDelta("a")


# Streams of SDKs: objects that iterate over chunks and have the response beside them.


class Stream:
    """The shape of an SDK's asynchronous stream: an iterator over objects, with their response."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self._chunks = self._read()

    async def __anext__(self) -> Chunk:
        return await anext(self._chunks)

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        async for chunk in self._chunks:
            yield chunk

    async def _read(self) -> AsyncIterator[Chunk]:
        async for line in self.response.aiter_lines():
            if line.startswith("data: {"):
                yield Chunk.model_validate_json(line[6:])


BODY = [f"data: {Chunk.model_validate(value).model_dump_json(exclude_unset=True)}\n\n".encode() for value in VALUES]


async def test_a_stream_of_an_sdk_is_read_as_bytes() -> None:
    """The bytes contain more than the objects, here an error that the SDK does not know."""
    async with (
        Loopback([*BODY, b'data: {"error":"no"}\n\n']) as server,
        httpx.AsyncClient(trust_env=False) as client,
        client.stream("POST", server.url) as response,
    ):
        source = sources.openai(Stream(response))
        assert await collect(source) == [*EVENTS[:-2], kinds.SourceError("no")]
        await source.aclose()
        assert response.is_closed


async def test_a_stream_that_was_partly_read_continues_with_objects() -> None:
    """The caller has looked at the first one; its response is closed in the end."""
    async with (
        Loopback(BODY, hold=True) as server,
        httpx.AsyncClient(trust_env=False) as client,
        client.stream("POST", server.url) as response,
    ):
        stream = Stream(response)
        await anext(stream)
        source = sources.openai(stream)
        assert await anext(source) == EVENTS[2:4]
        await source.aclose()
        assert response.is_closed


class Waiting:
    """The shape of an SDK's synchronous stream."""

    def __init__(self, chunks: list[Chunk], body: httpx.SyncByteStream) -> None:
        self.response = httpx.Response(200, stream=body)
        self._chunks = chunks

    def __iter__(self) -> Iterator[Chunk]:
        yield from self._chunks


class Body(httpx.SyncByteStream):
    closed = False

    def __iter__(self) -> Iterator[bytes]:
        raise NotImplementedError("nobody reads it")

    def close(self) -> None:
        self.closed = True


async def test_a_synchronous_stream_of_an_sdk_is_an_iterable() -> None:
    """Its bytes cannot be awaited; its objects can be had, and its response is closed in the end."""
    body = Body()
    source = sources.openai(Waiting([Chunk.model_validate(value) for value in VALUES], body))
    assert await collect(source) == EVENTS
    await source.aclose()
    assert body.closed


# What SDKs raise.


class APIError(Exception):
    """The shape of the exceptions of openai, anthropic, groq and others."""

    def __init__(self, message: str, body: object = None, status_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.body = body
        if status_code is not None:
            self.status_code = status_code


class ResponseError(Exception):
    """The shape of the exceptions of ollama. In mid-stream, they have no status."""

    def __init__(self, error: str, status_code: int = -1) -> None:
        super().__init__(error)
        self.error = error
        self.status_code = status_code


class ClientError(Exception):
    """The shape of the exceptions of google-genai."""

    def __init__(self, code: int, details: Any) -> None:
        self.code = code
        self.message = "too many"
        self.status = "RESOURCE_EXHAUSTED"
        self.details = details


class Broken(Exception):
    @property
    def body(self) -> object:
        raise RuntimeError("a property that fails")


GROQ = {"message": "m", "type": "t", "code": "tool_use_failed", "failed_generation": "x" * 5000, "status_code": 400}
NAME = f"{__name__}.APIError"

RAISED: dict[str, tuple[Exception, kinds.SourceError]] = {
    "openai, in a chunk": (
        APIError("no", {"message": "no", "code": 400}),
        kinds.SourceError("no", status=400, cause="400"),
    ),
    "groq": (
        APIError("m", {"error": GROQ}),
        kinds.SourceError("m", status=400, cause="t tool_use_failed", failed_generation="x" * 5000),
    ),
    "anthropic, whose status is that of the stream": (
        APIError("x", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 200),
        kinds.SourceError("Overloaded", cause="overloaded_error"),
    ),
    "a status and no body": (
        APIError("Error code: 503", None, 503),
        kinds.SourceError("Error code: 503", status=503, cause=NAME),
    ),
    "a body that is text": (APIError("x", "<html>", 502), kinds.SourceError("<html>", status=502)),
    "a body that is the text of JSON": (
        APIError("x", '{"error": {"message": "no"}}', 500),
        kinds.SourceError("no", status=500),
    ),
    "no words": (
        APIError(b"x", None, 500),  # type: ignore[arg-type]
        kinds.SourceError("the provider reported an error", status=500, cause=NAME),
    ),
    "ollama": (ResponseError("model crashed"), kinds.SourceError("model crashed")),
    "google": (
        ClientError(429, {"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}}),
        kinds.SourceError("Quota", status=429, cause="429"),
    ),
}


def failing(error: Exception, *items: object) -> Iterator[Any]:
    yield from items
    raise error


@together(("error", "expected"), RAISED.values(), ids=RAISED)
async def test_an_exception_of_an_sdk_is_the_providers_error(error: Exception, expected: kinds.SourceError) -> None:
    """It has the message of the provider and is not an interruption. It is the last event."""
    assert await collect(sources.openai(failing(error, VALUES[0]))) == [*EVENTS[:2], expected]
    assert await collect(sources.text(failing(error, "a"))) == [kinds.TextDelta("a"), expected]
    assert await collect(sources.events(failing(error, kinds.TextDelta("a")))) == [kinds.TextDelta("a"), expected]


@pytest.mark.parametrize("error", [APIError("Connection error."), OSError(5, "no"), Broken()], ids=repr)
async def test_a_transport_exception_is_an_interruption(error: Exception) -> None:
    """Then the type is for the log, and a stream that had ended before is whole."""
    *_, last = await collect(sources.openai(failing(error, VALUES[0])))
    assert isinstance(last, kinds.SourceError)
    assert last.code is Code.STREAM_INTERRUPTED
    assert await collect(sources.openai(failing(error, *VALUES))) == EVENTS


async def test_an_error_replaces_a_finish_reason() -> None:
    """In bytes, the error would be in the next chunk. After the terminator, it is ignored."""
    error = APIError("no", {"message": "no"})
    assert await collect(sources.openai(failing(error, *VALUES))) == [*EVENTS[:4], kinds.SourceError("no")]
    assert await collect(sources.openai(failing(error, *VALUES, b"data: [DONE]\n\n"))) == EVENTS
    done = kinds.ProviderCompleted(finish_reason="stop")
    assert await collect(sources.events(failing(error, done))) == [done]


async def test_buffered_data_precedes_the_error_of_an_sdk() -> None:
    """Buffered halves of surrogate pairs are reported first."""
    begun = {"choices": [{"delta": {"content": "\ud83d", "tool_calls": [{"id": "x", "function": {"name": "f"}}]}}]}
    assert [kinds.ToolCallStart("0", "x", "f"), kinds.TextDelta("\ufffd"), kinds.SourceError("no")] == await collect(
        sources.openai(failing(APIError("no", "no"), begun))
    )


async def test_groq_refuses_before_the_stream_begins() -> None:
    """The body of the response contains the whole text of the model, of any length."""
    body = b'{"error":{"message":"m","code":"tool_use_failed","failed_generation":"%s"}}' % (b"x" * 200_000)
    async with (
        Loopback([body], status=400, declared="application/json") as server,
        httpx.AsyncClient(trust_env=False) as client,
        client.stream("POST", server.url) as response,
    ):
        assert await collect(sources.openai(response)) == [
            kinds.SourceError(
                "m",
                status=400,
                cause="tool_use_failed",
                failed_generation="x" * 200_000,
                url=server.url.partition("://")[2],
            )
        ]


def test_other_refusals_contain_no_call() -> None:
    """Groq's JSON mode also sends the text. It contains no call."""
    error = {"message": "m", "code": "json_validate_failed", "failed_generation": "x"}
    assert take({"error": error}) == [kinds.SourceError("m", cause="json_validate_failed")]
    assert take({"error": {"message": "m", "code": "tool_use_failed", "failed_generation": 5}}) == [
        kinds.SourceError("m", cause="tool_use_failed")
    ]
