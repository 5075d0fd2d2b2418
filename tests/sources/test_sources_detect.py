"""Which provider's stream it is: the first event that says anything shows it, however it arrives."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from streamtools import sources
from streamtools.errors import UnreadableSource
from streamtools.events import SourceError, SourceEvent, TextDelta
from streamtools.limits import Limits
from streamtools.sources import ADAPTERS
from streamtools.sources.detection import Undecided
from tests.support import event_streams
from tests.support.cases import together

OPENAI = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi."}}]}
RESPONSES = {
    "type": "response.output_text.delta",
    "item_id": "m",
    "output_index": 0,
    "content_index": 0,
    "delta": "Hi.",
}
ANTHROPIC = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi."}}
GEMINI = {"candidates": [{"content": {"parts": [{"text": "Hi."}]}}]}
OLLAMA = {"model": "llama3.2", "message": {"role": "assistant", "content": "Hi."}, "done": False}
AI_SDK = {"type": "text-delta", "id": "0", "delta": "Hi."}
LATITUDE = {"type": "text-delta", "textDelta": "Hi."}
ANTHROPIC_START = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
INTERACTION: list[dict[str, Any]] = [
    {"event_type": "interaction.created", "interaction": {"id": "i", "status": "in_progress"}},
    {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}},
    {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hi."}},
]
COHERE = {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hi."}}}}
SILENCE = b'\xef\xbb\xbf: PROCESSING\n\nevent: ping\ndata: {"type": "ping"}\n\nevent: ping\n\ndata: [1]\n\n'


def event(value: Any, name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(value).encode() + b"\n\n"


def line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


STREAMS: dict[str, tuple[str, bytes]] = {
    "OpenAI": ("openai", event(OPENAI)),
    "OpenAI's Responses": ("responses", event(RESPONSES, RESPONSES["type"])),  # type: ignore[arg-type]
    "Anthropic": ("anthropic", event(ANTHROPIC_START) + event(ANTHROPIC)),
    "Gemini": ("gemini", event(GEMINI).replace(b"\n", b"\r\n")),
    "Ollama": ("ollama", line(OLLAMA)),
    "the AI SDK": ("ai_sdk", event({"type": "start"}) + event({"type": "text-start", "id": "0"}) + event(AI_SDK)),
    "Latitude": ("latitude", event(LATITUDE, "provider-event")),
    "Latitude, in an envelope": ("latitude", event({"type": "provider-event", "data": LATITUDE})),
    "Latitude, through a proxy": ("latitude", event({"type": "event", "event": "provider-event", "data": LATITUDE})),
    "OpenAI, behind comments and pings": ("openai", SILENCE + event(OPENAI)),
    "Ollama, behind an empty line": ("ollama", b"\n" + line(OLLAMA)),
    "Interactions": ("gemini", b"".join(event(each, each["event_type"]) for each in INTERACTION)),
    "Bedrock": ("bedrock", event_streams.event("contentBlockDelta", {"delta": {"text": "Hi."}})),
    "Cohere": ("cohere", event({"type": "message-start", "id": "m"}) + event(COHERE, "content-delta")),
}  # fmt: skip


def pieces(stream: bytes) -> list[list[bytes]]:
    """The stream whole, byte by byte, and cut in two everywhere."""
    halves = [[stream[:at], stream[at:]] for at in range(1, len(stream))]
    return [[stream], [stream[at : at + 1] for at in range(len(stream))], *halves]


def read(adapter: sources.Adapter, chunks: list[bytes]) -> list[SourceEvent]:
    return [event for chunk in chunks for event in adapter.take(chunk)] + adapter.close()


@together(("name", "stream"), STREAMS.values(), ids=STREAMS)
def test_each_format_is_detected(name: str, stream: bytes) -> None:
    """It gives the events that its own adapter gives, at every cut."""
    for chunks in pieces(stream):
        expected = read(ADAPTERS[name](Limits()), chunks)
        assert [TextDelta("Hi.")] == [each for each in expected if isinstance(each, TextDelta)]
        assert expected == read(Undecided(), chunks)


def test_objects_of_an_sdk_are_detected() -> None:
    """Objects are converted back into frames."""
    adapter = Undecided()
    assert [] == adapter.take({"type": "ping"})
    assert TextDelta("Hi.") == adapter.take(OPENAI)[-1]
    assert not adapter.ended


def test_unknown_values_have_no_format() -> None:
    """It is the caller's mistake, as with any adapter, once it is known whose."""
    adapter = Undecided()
    adapter.take(OPENAI)
    with pytest.raises(UnreadableSource):
        adapter.take(5)


def test_the_content_type_decides_the_format() -> None:
    """NDJSON is detected as Ollama before the first line."""
    adapter = Undecided("application/x-ndjson; charset=utf-8")
    assert isinstance(adapter.take(line({"error": "no"}))[0], SourceError)
    assert adapter.ended


NOTHING: dict[str, tuple[bytes, str]] = {
    "an error event": (event({"error": {"message": "no"}}, "error"), "no"),
    "an error line": (line({"error": "no"}), "no"),
    "an error on many lines": (json.dumps({"error": {"code": 503, "message": "no"}}, indent=2).encode(), "no"),
}


@pytest.mark.parametrize(("stream", "message"), NOTHING.values(), ids=NOTHING)
def test_errors_are_reported_before_the_format_is_known(stream: bytes, message: str) -> None:
    """An error is read although it shows no format."""
    for chunks in pieces(stream):
        errors = [each for each in read(Undecided(), chunks) if isinstance(each, SourceError)]
        assert [message] == [each.message for each in errors]


def test_an_empty_stream_gives_no_events() -> None:
    """Without an event, there is nothing to report."""
    assert [] == Undecided().close()
    assert [] == read(Undecided(), [b"\n", b": nothing\n\n"])


def test_a_long_stream_without_a_known_event_gets_the_default_format() -> None:
    """It is read as chat completion chunks, which most servers speak, and nothing of it is lost."""
    adapter = Undecided()
    frame = event({"odd": "x" * 1000})
    events = [each for _ in range(100) for each in adapter.take(frame)]
    assert 100 == len(events)


def test_a_stream_that_breaks_off_before_its_first_event_is_an_interruption() -> None:
    """The error equals that of other adapters."""
    error = SourceError("no", status=500)
    assert [error] == Undecided().close(error)
    assert ["stream_interrupted"] == [each.code for each in Undecided().close("reset") if isinstance(each, SourceError)]


async def test_a_response() -> None:
    """`sources.detect` reads a response, or anything that other sources read."""

    async def body() -> AsyncIterator[bytes]:
        yield line({"error": "no"})

    headers = {"content-type": "application/x-ndjson"}
    response = httpx.Response(200, headers=headers, content=body())
    batches = [batch async for batch in sources.detect(response)]
    assert ["no"] == [each.message for batch in batches for each in batch if isinstance(each, SourceError)]

    batches = [batch async for batch in sources.detect([event(OPENAI)])]
    assert TextDelta("Hi.") in [each for batch in batches for each in batch]
