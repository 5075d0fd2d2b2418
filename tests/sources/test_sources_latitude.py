"""Tests of Latitude's runs: envelopes, versions, and errors before an apparent success."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streamtools.events import (
    ChainCompleted,
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceWarning,
    TextDelta,
    ToolCallStart,
    Usage,
    read_source_event,
)
from streamtools.sources.wire_formats.latitude import Latitude
from tests.machine.test_machine import story
from tests.sources.adapters import forwarded, texts
from tests.support.cases import cases, together
from tests.support.cuts import usual_cuts

Event = tuple[str, dict[str, Any]]

CHAT = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


def read(*chunks: bytes) -> list[SourceEvent]:
    adapter = Latitude()
    return [event for chunk in chunks for event in adapter.feed(chunk)] + adapter.close()


def frame(value: Any, event: str = "") -> bytes:
    data = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return (f"event: {event}\n" if event else "").encode() + f"data: {data}\n\n".encode()


def native(*events: Event) -> bytes:
    return b"".join(frame(data, name) for name, data in events)


def documented(*events: Event) -> bytes:
    return b"".join(frame({"type": name, "data": data}) for name, data in events)


def proxied(*events: Event) -> bytes:
    return b"".join(frame({"type": "event", "event": name, "data": data}) for name, data in events)


ENVELOPES = [native, documented, proxied]


def chain(type: str, **more: Any) -> Event:
    return "latitude-event", {"type": type, "uuid": "c-1", "messages": CHAT, "timestamp": 1765000000000, **more}


def part(type: str, **more: Any) -> Event:
    return "provider-event", {"type": type, **more}


def turn(
    text: str | None,
    reason: str = "stop",
    usage: Usage | None = None,
    raw: str | None = None,
    calls: list[NativeToolCall] | None = None,
) -> ProviderCompleted:
    return ProviderCompleted(
        text=text,
        tool_calls=calls,
        finish_reason=reason,  # type: ignore[arg-type]
        raw_finish_reason=raw or reason.replace("_", "-"),
        usage=usage,
        ends_run=False,
    )


def pending(id: str, name: str | None = "f", arguments: Any = None, key: str = "") -> NativeToolCall:
    return NativeToolCall(name, arguments, key or id, id, answerable=False)


STOPPED = ProviderCompleted(finish_reason="stop", ends_run=False)
V4 = {"promptTokens": 3, "completionTokens": 2, "totalTokens": 5}
V5 = {
    "inputTokens": 3,
    "outputTokens": 2,
    "promptTokens": 0,
    "completionTokens": 0,
    "totalTokens": 5,
    "reasoningTokens": 1,
    "cachedInputTokens": 2,
}

RUNS: dict[str, tuple[list[Event], list[SourceEvent]]] = {
    # API v3 of February 2025, over AI SDK 4: two turns in one chain.
    "v3": (
        [
            chain("chain-started"),
            chain("step-started"),
            chain("provider-started", config={"model": "m"}),
            part("text-delta", textDelta="Let me "),
            part("text-delta", textDelta="see."),
            part("step-finish", finishReason="stop", usage=V4),
            part("finish", finishReason="stop", usage=V4),
            chain("provider-completed", finishReason="stop", tokenUsage=V4, response={"text": "Let me see."}),
            chain("step-completed"),
            chain("step-started"),
            chain("provider-started"),
            part("reasoning", textDelta="Hm"),
            part("reasoning-signature", signature="s-1"),
            part("text-delta", textDelta="Yes."),
            chain("provider-completed", finishReason="length", response={"text": "Yes.", "usage": V4}),
            chain("step-completed"),
            chain("chain-completed", finishReason="length", tokenUsage=V4),
        ],
        [
            *texts("Let me ", "see."),
            turn("Let me see.", usage=Usage(input=3, output=2, total=5)),
            ReasoningDelta("Hm"),
            ReasoningDelta("", "s-1"),
            TextDelta("Yes."),
            turn("Yes.", "length", Usage(input=3, output=2, total=5)),
            ChainCompleted("c-1"),
        ],
    ),
    # AI SDK 5, since October 2025: `textDelta` was kept for text, `text` for reasoning, and the usage has both names.
    "v3 over AI SDK 5": (
        [
            chain("chain-started"),
            part("start"),
            part("start-step", request={}, warnings=[]),
            part("reasoning-start", id="r"),
            part("reasoning-delta", id="r", text="Hm"),
            part("reasoning-end", id="r"),
            part("text-start", id="0"),
            part("text-delta", id="0", textDelta="a"),
            part("text-delta", id="0", text="b"),
            part("text-delta", id="0", delta="c"),
            part("text-delta", id="0"),
            part("text-end", id="0"),
            part("finish-step", finishReason="stop", usage=V5),
            part("finish", finishReason="stop", totalUsage=V5),
            chain("provider-completed", tokenUsage=V5, finishReason="content-filter", response={"text": "abc"}),
            chain("chain-completed", response={"text": "abc"}, toolCalls=[], finishReason="stop"),
        ],
        [
            ReasoningDelta("Hm"),
            *texts("a", "b", "c"),
            ProviderCompleted(
                text="abc",
                finish_reason="content_filter",
                raw_finish_reason="content-filter",
                usage=Usage(input=3, output=2, total=5, cache_read=2, reasoning=1),
                ends_run=False,
            ),
            ChainCompleted("c-1"),
        ],
    ),
    # Before v3: other names, and the reason and the usage only in the provider's own parts.
    "v1 and v2": (
        [
            chain("chain-step", isLastStep=False, config={}),
            part("text-delta", textDelta="a"),
            part("finish", finishReason="tool-calls", usage=V4),
            chain("chain-step-complete", response={"text": "a"}),
            chain("chain-step", isLastStep=True, config={}),
            part("text-delta", textDelta="b"),
            part("finish", finishReason="unknown", usage=V4),
            chain("chain-complete", response={"text": "b"}),
        ],
        [
            TextDelta("a"),
            turn("a", "tool_calls", Usage(input=3, output=2, total=5)),
            TextDelta("b"),
            turn("b", "other", Usage(input=3, output=2, total=5), "unknown"),
            ChainCompleted("c-1"),
        ],
    ),
    # Before v3, out of Latitude's cache: nothing streams.
    "an answer that comes only at the end": (
        [chain("chain-complete", response={"text": "cached"}, finishReason="stop")],
        [turn("cached"), ChainCompleted("c-1")],
    ),
    "an object as the answer": (
        [chain("provider-completed", response={"streamType": "object", "object": {"a": 1}}), chain("chain-completed")],
        [STOPPED, ChainCompleted("c-1")],
    ),
    # v3 until tools were answered out of band: the chain ends in asking for them.
    "a chain that ends in asking for tools": (
        [
            part("tool-call", toolCallId="t", toolName="f", args={}),
            chain("provider-completed", finishReason="tool-calls", response={"text": ""}),
            chain("tools-requested", tools=[{"id": "t", "name": "f", "arguments": {}}]),
            chain("step-completed"),
        ],
        [pending("t", arguments={}), turn("", "tool_calls"), ChainCompleted("c-1")],
    ),
    # The same, where the provider's own events were not passed on.
    "calls that only the request for tools names": (
        [
            chain("provider-completed", finishReason="tool-calls", response={"text": ""}),
            chain("tools-requested", tools=[{"id": "t", "name": "f", "arguments": {"a": 1}}, {"name": "g"}, "h", {}]),
        ],
        [turn("", "tool_calls"), pending("t", arguments={"a": 1}, key="listed 1"), STOPPED, ChainCompleted("c-1")],
    ),
    # AI SDK 5: the call is announced, its arguments stream, and then it comes whole. Its completion repeats it.
    "a call over AI SDK 5": (
        [
            part("tool-input-start", id="t", toolName="f"),
            part("tool-input-delta", id="t", delta='{"a":'),
            part("tool-input-delta", id="t", delta="1}"),
            part("tool-input-end", id="t"),
            part("tool-call", toolCallId="t", toolName="f", args={"a": 1}, _sourceData={"source": "client"}),
            part("text-delta", textDelta="b"),
            chain(
                "provider-completed",
                finishReason="stop",
                response={"text": "b", "toolCalls": [{"id": "t", "name": "f", "arguments": {"a": 1}}]},
            ),
            chain("chain-completed", toolCalls=[{"id": "t", "name": "f", "arguments": {"a": 1}}]),
        ],
        [
            TextDelta("b"),
            pending("t", arguments={"a": 1}),
            turn("b", calls=[pending("t", arguments={"a": 1}, key="listed 1")]),
            ChainCompleted("c-1"),
        ],
    ),
    # AI SDK 4 has other names, and `args` may be missing altogether.
    "a call over AI SDK 4": (
        [
            part("tool-call-streaming-start", toolCallId="t", toolName="f"),
            part("tool-call-delta", toolCallId="t", toolName="f", argsTextDelta="{}"),
            part("tool-call", toolCallId="t", toolName="f"),
            part("tool-call", toolCallId="u", toolName="g", input={"b": 2}),
            chain("chain-complete", response={"text": ""}, finishReason="tool-calls"),
        ],
        [pending("t"), pending("u", "g", {"b": 2}), turn("", "tool_calls"), ChainCompleted("c-1")],
    ),
    # Built-in tools and integrations: the service has run the tool, and says so in the same turn.
    "a call that the service runs": (
        [
            part("tool-call", toolCallId="t", toolName="f", args={"a": 1}),
            part("tool-result", toolCallId="t", toolName="f", args={"a": 1}, result=2),
            part("tool-call", toolCallId="u", toolName="g", args={}, providerExecuted=True),
            part("tool-call", toolCallId="v", toolName="h", args={}),
            part("tool-error", toolCallId="v", error="no"),
            chain("tools-started", tools=[{"id": "t", "name": "f"}]),
            chain(
                "provider-completed",
                finishReason="stop",
                response={"text": "", "toolCalls": [{"id": "t", "name": "f"}, {"id": "w", "name": "i"}]},
            ),
            chain("chain-completed"),
        ],
        [
            NativeToolCall("f", {"a": 1}, "t", "t", provider_executed=True),
            SourceRaw({"type": "tool-result", "toolCallId": "t", "toolName": "f", "args": {"a": 1}, "result": 2}),
            NativeToolCall("g", {}, "u", "u", provider_executed=True),
            NativeToolCall("h", {}, "v", "v", provider_executed=True),
            SourceRaw({"type": "tool-error", "toolCallId": "v", "error": "no"}),
            SourceRaw(
                {
                    "type": "tools-started",
                    "uuid": "c-1",
                    "timestamp": 1765000000000,
                    "tools": [{"id": "t", "name": "f"}],
                }
            ),
            turn("", calls=[pending("w", "i", key="listed 1")]),
            ChainCompleted("c-1"),
        ],
    ),
    # API v4 of February 2026, and v1: calls that only stand in what completes the turn or the chain.
    "calls that only a completion names": (
        [
            chain("chain-step-complete", response={"text": "a", "toolCalls": [{"id": "t", "name": "f"}]}),
            chain("chain-completed", toolCalls=[{"id": "t", "name": "f"}, {"id": "u", "name": "g"}]),
        ],
        [
            ProviderCompleted("a", [pending("t", key="listed 1")], "stop", ends_run=False),
            pending("u", "g", key="listed 3"),
            STOPPED,
            ChainCompleted("c-1"),
        ],
    ),
    "a chain whose calls nobody told before": (
        [
            part("text-delta", textDelta="a"),
            chain("chain-completed", response={"text": "a"}, toolCalls=[{"toolCallId": "t", "toolName": "f"}]),
        ],
        [
            TextDelta("a"),
            ProviderCompleted("a", [pending("t", key="listed 1")], "stop", ends_run=False),
            ChainCompleted("c-1"),
        ],
    ),
    # A call that is cut off is announced and never completed; one that is whole is told, and nothing earns it.
    "calls before the stream breaks off": (
        [part("tool-call", toolCallId="t", toolName="f", args={}), part("tool-input-start", id="u", toolName="g")],
        [pending("t", arguments={}), ToolCallStart("u", "u", "g")],
    ),
    "calls whose fields have odd types": (
        [
            part("tool-input-start", id=5, toolName="f"),
            part("tool-input-start", id="t", toolName=["f"]),
            part("tool-call", toolCallId="t", toolName={}, args="{"),
            part("tool-result", toolCallId=7),
            chain("provider-completed", response={"toolCalls": "none"}),
            chain("chain-completed", toolCalls={"id": "t"}),
        ],
        [SourceRaw({"type": "tool-result", "toolCallId": 7}), pending("t", None, "{"), STOPPED, ChainCompleted("c-1")],
    ),
    # A tool call that no completion follows is a turn of its own.
    "a turn of a call alone": (
        [part("tool-call", toolName="f"), chain("chain-completed", finishReason="tool-calls")],
        [NativeToolCall("f", key="call 1", answerable=False), turn(None, "tool_calls"), ChainCompleted("c-1")],
    ),
    # The last engine says `chain-completed` after its error, with the finish reason "stop".
    "an error and a success after it": (
        [
            part("text-delta", textDelta="a"),
            part("error", error={"name": "AI_APICallError"}),
            chain("chain-error", error={"name": "ChainError", "message": "boom", "stack": "at x"}),
            chain("chain-completed", finishReason="stop", response={"text": "a"}),
        ],
        [TextDelta("a"), SourceError("boom", cause="ChainError")],
    ),
    "an error of the chain without words": (
        [part("error", error={"message": "too long"}), chain("chain-error", error={"name": "ChainError"})],
        [SourceError("too long")],
    ),
    "an error part and a turn that completes": (
        [part("error", error="overloaded"), chain("provider-completed", response={"text": ""}), chain("chain-error")],
        [SourceError("overloaded")],
    ),
    "an error part and a chain that completes": (
        [part("error", error="overloaded"), chain("chain-completed")],
        [SourceError("overloaded")],
    ),
    "a stream that breaks off": ([part("text-delta", textDelta="a")], [TextDelta("a")]),
    # Events for an interface, and those that are new: passed on without the conversation.
    "events nobody knows": (
        [
            ("latitude-event", {"type": "integration-waking-up", "integrationName": "x", "messages": CHAT}),
            part("tool-result", toolCallId="t", result=1),
            part("file", data="aGk="),
            ("provider-event", {"type": ["?"]}),
            ("provider-event", {}),
        ],
        [
            SourceRaw({"type": "integration-waking-up", "integrationName": "x"}),
            SourceRaw({"type": "tool-result", "toolCallId": "t", "result": 1}),
            *forwarded({"type": "file", "data": "aGk="}, {"type": ["?"]}, {}),
        ],
    ),
    "a completion without the shape of one": (
        [chain("provider-completed", response="text", finishReason=5), chain("chain-completed", response=[])],
        [STOPPED, ChainCompleted("c-1")],
    ),
    "a pair in two deltas": (
        [
            part("text-delta", textDelta="\ud83d"),
            part("reasoning", textDelta="\ud83d"),
            part("text-delta", textDelta="\ude00\ud83d"),
            chain("provider-completed", response={"text": "😀\ud83d"}, finishReason="stop"),
        ],
        [TextDelta("😀"), ReasoningDelta("\ufffd"), TextDelta("\ufffd"), turn("😀\ufffd")],
    ),
}


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_runs_give_the_same_events_in_every_envelope(envelope: Callable[..., bytes]) -> None:
    """Each run says the same in each envelope, at once and byte by byte, and each event survives JSON."""
    with cases() as case:
        for name, (events, expected) in RUNS.items():
            with case(name):
                stream = envelope(*events)
                assert expected == read(stream)
                assert expected == read(*(stream[at : at + 1] for at in range(len(stream))))
                for event in expected:
                    assert type(event) is type(read_source_event(event.to_json()))


PROXIES: dict[str, tuple[bytes, list[SourceEvent]]] = {
    # A proxy's own short events beside those that it passes on.
    "text and an end": (
        frame({"type": "text-delta", "content": "a"})
        + proxied(chain("chain-started"))
        + frame({"type": "tool-result", "name": "f"})
        + frame({"type": "finished"})
        + frame("[DONE]"),
        [TextDelta("a"), SourceRaw({"type": "tool-result", "name": "f"}), STOPPED, ChainCompleted("c-1")],
    ),
    "only the sentinel": (
        frame({"type": "text-delta", "content": "a"}) + frame("[DONE]"),
        [TextDelta("a"), STOPPED, ChainCompleted()],
    ),
    "a stream error": (
        frame({"type": "stream-error", "error": "lost"}) + frame({"type": "finished"}) + frame("[DONE]"),
        [SourceError("lost")],
    ),
    "an error": (frame({"type": "error", "message": "no"}) + frame("[DONE]"), [SourceError("no")]),
    "an error in other words": (frame({"type": "error", "content": "no"}), [SourceError("no")]),
    "an error by the name of its event": (frame({"detail": "x", "message": "no"}, "error"), [SourceError("no")]),
    "an error that is a list": (frame([{"message": "no"}], "error"), [SourceError("no")]),
    "an error that is no JSON": (frame("no", "error"), [SourceError("no")]),
    "values that are no events": (
        frame([1]) + frame("null") + frame({"type": "text-delta", "textDelta": "a"}, "provider-event"),
        [SourceRaw([1]), SourceRaw(None), TextDelta("a")],
    ),
    "pings": (b"event: ping\n\n: wait\n\n", []),
}


@together(("stream", "expected"), PROXIES.values(), ids=PROXIES)
def test_streams_of_proxies_give_the_same_events_at_every_cut(stream: bytes, expected: list[SourceEvent]) -> None:
    """Additional events of proxies are read, too."""
    for chunks in usual_cuts(stream):
        assert expected == read(*chunks), chunks


@pytest.mark.parametrize(
    "name", ["a chain that ends in asking for tools", "calls that only the request for tools names"]
)
def test_calls_remain_pending(name: str) -> None:
    """The service accepts no results, so its calls are reported and not run."""
    told = story(*read(native(*RUNS[name][0])))
    calls = ["thinking t", "t is f", "call t", "not thinking t"]
    assert calls == [line for line in told if line in calls]
    assert "pending t" in told[-1].split(", ")
    assert not any(line.startswith("run ") for line in told)


def test_nested_envelopes_are_not_opened() -> None:
    """A hostile event with deeply nested data is one event."""
    for depth in (2, 40, 900, 100_000):
        stream = frame('{"type":"event","data":' * depth + "1" + "}" * depth)
        first, *unread = read(stream)
        assert type(first) is (SourceRaw if depth < 64 else SourceWarning)
        assert [SourceError] * (depth == 100_000) == [type(event) for event in unread]
