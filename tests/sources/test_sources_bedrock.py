"""Bedrock: binary messages with their checksums, and Converse's blocks."""

from __future__ import annotations

import json
import struct
from typing import Any
from zlib import crc32

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import events as kinds
from streamtools import sources
from streamtools.errors import Code
from streamtools.limits import Limits
from streamtools.sources.adapter import Frame, bad_frame, skipped
from streamtools.sources.wire_formats.bedrock import Bedrock, EventStreamDecoder
from tests.sources.adapters import called, read, texts
from tests.support.bodies import Pieces
from tests.support.cuts import cut, places, usual_cuts
from tests.support.event_streams import event, exception, message
from tests.support.provider_streams import BY_NAME

STOP = kinds.ProviderCompleted(finish_reason="stop", raw_finish_reason="end_turn")


def delta(index: Any = 0, **value: Any) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": value})


def start(index: int = 0, **tool: Any) -> bytes:
    return event("contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": tool}})


def opens(index: int = 0, **block: Any) -> bytes:
    return event("contentBlockStart", {"contentBlockIndex": index, "start": block})


def stop(index: int = 0) -> bytes:
    return event("contentBlockStop", {"contentBlockIndex": index})


def cites(index: int, title: str = "a") -> bytes:
    return delta(index, citation={"title": title})


def end(reason: str = "end_turn") -> bytes:
    return event("messageStop", {"stopReason": reason})


USAGE = {"inputTokens": 5, "outputTokens": 3, "totalTokens": 15, "cacheReadInputTokens": 4, "cacheWriteInputTokens": 3}
READ = kinds.Usage(input=12, output=3, total=15, cache_read=4, cache_write=3)
TRACE = {"trace": {"guardrail": {"actionReason": "none"}}}
CITED = {"contentBlockIndex": 0, "delta": {"citation": {"title": "a"}}}

GROUNDING = {"toolUse": {"toolUseId": "t3", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}}
DEEP: Any = json.loads("[" * 90 + "]" * 90)

STREAMS: dict[str, tuple[list[bytes], list[kinds.SourceEvent]]] = {
    # Only blocks of calls are started; the usage comes behind the reason, and counts what was cached apart.
    "text": (
        [
            event("messageStart", {"role": "assistant"}),
            *(delta(text="Par"), delta(text="is"), stop(), end()),
            event("metadata", {"usage": USAGE, "metrics": {"latencyMs": 9}} | TRACE),
        ],
        [
            *texts("Par", "is"),
            kinds.SourceUsage(READ),
            kinds.SourceRaw(TRACE),
            kinds.ProviderCompleted(finish_reason="stop", raw_finish_reason="end_turn", usage=READ),
        ],
    ),
    "reasoning": (
        [
            delta(reasoningContent={"text": "Hm"}),
            delta(reasoningContent={"signature": "s"}),
            delta(1, reasoningContent={"redactedContent": "ZGF0YQ=="}),
            *(delta(2, text="a"), end("max_tokens")),
        ],
        [
            kinds.ReasoningDelta("Hm"),
            kinds.ReasoningDelta("", "s"),
            kinds.ReasoningDelta("", "ZGF0YQ==", redacted=True),
            kinds.TextDelta("a"),
            kinds.ProviderCompleted(finish_reason="length", raw_finish_reason="max_tokens"),
        ],
    ),
    "calls": (
        [
            *(start(1, toolUseId="t1", name="f"), delta(1, toolUse={"input": '{"a":'})),
            *(delta(1, toolUse={"input": "1}"}), stop(1), start(2, toolUseId="t2", name="g"), stop(2)),
            start(3, toolUseId="t3", name="nova_grounding", type="server_tool_use"),
            *(delta(3, toolUse={"input": "{}"}), stop(3), end("tool_use")),
        ],
        [
            *called("1", "t1", "f", '{"a":', "1}"),
            *called("2", "t2", "g"),
            kinds.NativeToolCall("nova_grounding", "{}", "3", "t3", provider_executed=True, own={"bedrock": GROUNDING}),
            kinds.ProviderCompleted(finish_reason="tool_calls", raw_finish_reason="tool_use"),
        ],
    ),
    "a tool that Bedrock runs, and its result": (
        [
            start(1, toolUseId="t3", name="nova_grounding", type="server_tool_use"),
            *(delta(1, toolUse={"input": "{}"}), stop(1)),
            opens(2, toolResult={"toolUseId": "t3", "type": "nova_grounding_result", "status": "success"}),
            delta(2, toolResult=[{"text": "a"}, {"text": "b"}, 5]),
            delta(2, toolResult=[{"json": {"a": 1}}, {"text": "c"}]),
            *(delta(2, text="So."), stop(2), opens(3, image={"format": "png"})),
            *(delta(3, image={"source": {"bytes": "aGk="}}), stop(3), opens(4, image={"format": "png"}), end()),
        ],
        [
            kinds.NativeToolCall("nova_grounding", "{}", "1", "t3", provider_executed=True, own={"bedrock": GROUNDING}),
            kinds.TextDelta("So."),
            kinds.SourceRaw(
                {
                    "toolResult": {
                        "toolUseId": "t3",
                        "type": "nova_grounding_result",
                        "status": "success",
                        "content": [{"text": "ab"}, {"json": {"a": 1}}, {"text": "c"}],
                    }
                },
                "bedrock",
            ),
            kinds.SourceRaw({"image": {"format": "png", "source": {"bytes": "aGk="}}}, "bedrock"),
            kinds.SourceRaw({"image": {"format": "png"}}),
            STOP,
        ],
    ),
    "a result that nests too deep, and arguments that are none": (
        [
            opens(2, toolResult={"toolUseId": "t3"}),
            *(delta(2, toolResult=[{"json": DEEP}]), stop(2)),
            start(3, toolUseId="t3", name="nova_grounding", type="server_tool_use"),
            *(delta(3, toolUse={"input": "{"}), stop(3), end()),
        ],
        [
            kinds.SourceWarning(Code.BAD_FRAME, "an event could not be decoded: it nests too deep"),
            kinds.SourceRaw({"toolResult": {"toolUseId": "t3", "content": []}}, "bedrock"),
            kinds.NativeToolCall("nova_grounding", "{", "1", "t3", provider_executed=True),
            STOP,
        ],
    ),
    "what is neither text nor a call": (
        [
            event("contentBlockDelta", CITED),
            event("novelty", {"a": 1}),
            event("contentBlockStart", {"contentBlockIndex": 4, "start": {"novelty": {"format": "png"}}}),
            event("messageStop", {"stopReason": "guardrail_intervened", "additionalModelResponseFields": {"b": 2}}),
        ],
        [
            kinds.SourceRaw({"contentBlockDelta": CITED}),
            kinds.SourceRaw({"a": 1}),
            kinds.SourceRaw({"contentBlockStart": {"contentBlockIndex": 4, "start": {"novelty": {"format": "png"}}}}),
            kinds.SourceRaw({"additionalModelResponseFields": {"b": 2}}),
            kinds.ProviderCompleted(finish_reason="content_filter", raw_finish_reason="guardrail_intervened"),
        ],
    ),
    "citations, which go back with the text that they stand behind": (
        [
            *(delta(text="I "), delta(text="see: "), stop(), delta(1, text="it "), delta(1, text="is so"), cites(1)),
            *(cites(1, "b"), stop(1), delta(2, text="."), stop(2), end()),
        ],
        [
            *texts("I ", "see: "),
            kinds.SourceRaw({}, "bedrock", "text"),
            *texts("it ", "is so"),
            kinds.SourceRaw({"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"citation": {"title": "a"}}}}),
            kinds.SourceRaw({"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"citation": {"title": "b"}}}}),
            kinds.SourceRaw({"citationsContent": {"citations": [{"title": "a"}, {"title": "b"}]}}, "bedrock", "text"),
            kinds.TextDelta("."),
            STOP,
        ],
    ),
    "a piece of a call that nobody can read": (
        [start(toolUseId="t", name="f"), delta(toolUse={"input": 5}), end()],
        [
            *called("1", "t", "f", fault=Code.INVALID_ARGUMENTS),
            kinds.SourceRaw({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": 5}}}}),
            STOP,
        ],
    ),
    "an exception in mid-stream": (
        [delta(text="a"), exception("throttlingException", {"message": "Too many"}), delta(text="b"), end()],
        [kinds.TextDelta("a"), kinds.SourceError("Too many (throttlingException)", cause="throttlingException")],
    ),
    "an exception without words": (
        [exception("internalServerException", {})],
        [kinds.SourceError("the request failed (internalServerException)", cause="internalServerException")],
    ),
    "an error of the transport": (
        [message(b"", {":message-type": "error", ":error-code": "500", ":error-message": "Oops"})],
        [kinds.SourceError("Oops (500)", cause="500")],
    ),
    "no end": ([delta(text="a")], [kinds.TextDelta("a")]),
}


def test_events_of_boto3_are_read_like_bytes() -> None:
    """One object with one member each, is the same as the message."""
    value = {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "a"}}}
    assert [kinds.TextDelta("a")] == Bedrock().take(value)
    told = Bedrock().take({"validationException": {"message": "No"}})
    assert [kinds.SourceError("No (validationException)", cause="validationException")] == told


@pytest.mark.parametrize("declared", ["application/vnd.amazon.eventstream", "application/octet-stream"])
async def test_streams_of_bedrock_are_detected(declared: str) -> None:
    """By its content type, and else by its first byte."""
    body = BY_NAME["bedrock"].body
    for source in (sources.detect, sources.bedrock):
        response = httpx.Response(200, headers={"content-type": declared}, stream=Pieces(body[:1], body[1:]))
        events = [event async for batch in source(response) for event in batch]
        assert read(Bedrock, body) == events


# The framing.


def decode(*chunks: bytes, limit: int = 1000) -> list[Any]:
    decoder = EventStreamDecoder(limit)
    return [frame for chunk in chunks for frame in decoder.feed(chunk)] + decoder.close()


def test_headers_of_every_type_are_read() -> None:
    """Only texts say anything here; the others are as long as their types are."""
    sizes = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
    others = b"".join(b"\x01x" + bytes([kind]) + bytes(size) for kind, size in sizes.items())
    others += b"\x01y\x06\x00\x03abc"
    plain = event("a", 1)
    size, length = int.from_bytes(plain[:4], "big"), int.from_bytes(plain[4:8], "big")
    written = plain[12 : 12 + length]
    assert [Frame(b"1", "a")] == decode(plain)
    assert [Frame(b"1", "a")] == decode(_framed(others + written, plain[12 + length : size - 4]))
    for bad in (b"\x05ab", b"\x01x\x0a", b"\x01x\x07\x00\x09a", b"\x01x\x09abc", b"\x01"):
        assert [bad_frame("the headers of a message cannot be read")] == decode(_framed(bad, b"1"))


def _framed(headers: bytes, payload: bytes) -> bytes:
    """Return a message with these headers as they are."""
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return body + struct.pack(">I", crc32(body))


def test_a_message_with_a_wrong_checksum_is_dropped() -> None:
    """The next one is read; a prelude that fails its own ends the stream."""
    one, two = event("a", "one"), event("a", "two")
    flipped = one[:20] + bytes([one[20] ^ 1]) + one[21:]
    lost = bad_frame("a message fails its checksum")
    ended = kinds.SourceError("the prelude of a message is invalid", cause="framing")
    for chunks in usual_cuts(flipped + two):
        assert [lost, Frame(b'"two"', "a")] == decode(*chunks)
    for at in range(12):
        broken = one[:at] + bytes([one[at] ^ 1]) + one[at + 1 :]
        for chunks in ([two + broken + two], [two, broken[:5], broken[5:], two]):
            assert [Frame(b'"two"', "a"), ended] == decode(*chunks)


def test_damaged_messages_are_reported() -> None:
    """A lost message is a warning, and a lost framing the end, which no success follows."""
    flipped = delta(text="one")[:-1] + b"?"
    lost = read(Bedrock, delta(text="a"), flipped, delta(text="b"), end())
    assert [kinds.TextDelta, kinds.SourceWarning, kinds.TextDelta, kinds.ProviderCompleted] == [
        type(each) for each in lost
    ]
    broken = read(Bedrock, delta(text="a"), b"x" * 20, end())
    assert [kinds.TextDelta("a"), kinds.SourceError("the prelude of a message is invalid", cause="framing")] == broken
    (page,) = read(Bedrock, b"<html>Bad gateway</html>")
    assert isinstance(page, kinds.SourceError)
    assert "begins with the line `<html>Bad" in page.message


def test_a_message_over_the_limit_is_skipped() -> None:
    """It is not stored, and the next message is read. It is reported when its size is known."""
    long, short = event("a", "x" * 2000), event("a", 1)
    for chunks in ([short + long + short], [(short + long + short)[at : at + 7] for at in range(0, 2400, 7)]):
        assert [Frame(b"1", "a"), skipped(len(long), 1000), Frame(b"1", "a")] == decode(*chunks)
    decoder = EventStreamDecoder(1000)
    found = [frame for at in range(0, 1500, 50) for frame in decoder.feed(long[at : at + 50])]
    assert [skipped(len(long), 1000)] == found
    assert not decoder._buffer
    assert [] == decoder.close()
    assert [bad_frame("the last message is cut off")] == decode(short[:-1])


@given(st.lists(st.binary(max_size=60), max_size=4), places, st.integers(0, 300))
def test_any_bytes_give_the_same_frames_at_any_cut(payloads: list[bytes], where: list[int], at: int) -> None:
    """Nothing raises, and the cut makes no difference, whether a bit is wrong or not."""
    stream = b"".join(message(each, {":event-type": "chunk"}) for each in payloads)
    assert [Frame(each, "chunk") for each in payloads] == decode(*cut(stream, where))
    if at < len(stream):
        stream = stream[:at] + bytes([stream[at] ^ 4]) + stream[at + 1 :]
    chunks = cut(stream, where)
    assert decode(stream) == decode(*chunks)
    assert read(lambda: Bedrock(Limits(frame=50)), stream) == read(lambda: Bedrock(Limits(frame=50)), *chunks)
