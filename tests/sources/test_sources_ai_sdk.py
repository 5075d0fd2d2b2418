"""The AI SDK's UI message stream as a source: turns, who runs which tool, and ends."""

from __future__ import annotations

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
    TextDelta,
    ToolCallStart,
    Usage,
)
from streamtools.limits import Limits
from streamtools.sources.wire_formats.ai_sdk import AISDKMessages
from tests.machine.test_machine import story
from tests.sources.adapters import forwarded, read
from tests.support.cases import together
from tests.support.chat_chunks import sse


def part(type: Any, **fields: Any) -> bytes:
    return sse({"type": type, **fields})


def say(text: Any) -> bytes:
    return part("text-delta", id="0", delta=text)


def called(id: str, name: str = "f", input: Any = None, **more: Any) -> bytes:
    return part("tool-input-available", toolCallId=id, toolName=name, input=input or {}, **more)


def turn(reason: str = "stop", raw: str | None = None, usage: Usage | None = None) -> ProviderCompleted:
    return ProviderCompleted(
        finish_reason=reason,  # type: ignore[arg-type]
        raw_finish_reason=raw,
        usage=usage,
        ends_run=False,
    )


def finished(reason: str = "stop", raw: str = "stop", usage: Usage | None = None) -> list[SourceEvent]:
    return [turn(reason, raw, usage), ChainCompleted()]


def raw(type: str, **fields: Any) -> SourceRaw:
    return SourceRaw({"type": type, **fields})


def theirs(id: str, name: str = "f", input: Any = None) -> NativeToolCall:
    return NativeToolCall(name, input or {}, id, id, provider_executed=True)


def ours(id: str, name: str = "f", input: Any = None, **more: Any) -> NativeToolCall:
    return NativeToolCall(name, input or {}, id, id, **more)


def step(*frames: bytes) -> list[bytes]:
    return [BEGIN, *frames, END]


BEGIN, END, DONE = part("start-step"), part("finish-step"), sse("[DONE]")
FINISH = part("finish", finishReason="stop")

METADATA = {
    "finishReason": "content-filter",
    "totalUsage": {
        "inputTokens": 9,
        "outputTokens": 3,
        "totalTokens": 12,
        "inputTokenDetails": {"cacheReadTokens": 2},
        "outputTokenDetails": {"reasoningTokens": 1},
    },
}

STREAMS: dict[str, tuple[list[bytes], list[SourceEvent]]] = {
    "text and reasoning": (
        [
            part("start", messageId="m"),
            *step(
                *(part("reasoning-start", id="r"), part("reasoning-delta", id="r", delta="Hm")),
                *(part("reasoning-end", id="r"), part("text-start", id="0")),
                *(say("Par"), say(""), say("is"), part("text-end", id="0")),
            ),
            *(FINISH, DONE),
        ],
        [ReasoningDelta("Hm"), TextDelta("Par"), TextDelta("is"), *finished()],
    ),
    # Two turns: the second reports why the first ended, and the end of the stream reports why the second ended.
    "turns": (
        [*step(say("a")), part("data-x", data=1), *step(say("b")), part("finish", finishReason="length"), DONE],
        [TextDelta("a"), raw("data-x", data=1), turn(), TextDelta("b"), *finished("length", "length")],
    ),
    # Backends that are not the AI SDK leave out the steps, and its version 4 the reason.
    "no steps and no reason": ([say("a"), part("finish")], [TextDelta("a"), turn(), ChainCompleted()]),
    "text after a step": ([say("a"), END, say("b"), FINISH], [TextDelta("a"), turn(), TextDelta("b"), *finished()]),
    "an end of nothing": ([END, FINISH], finished()),
    # There is no place for them in the protocol but the metadata, whose shape is the backend's own.
    "usage and reason in the metadata": (
        [
            part("start", messageMetadata={"model": "m"}),
            part("message-metadata", messageMetadata={"usage": {"inputTokens": 1}}),
            say("a"),
            part("finish", messageMetadata=METADATA),
        ],
        [
            raw("start", messageMetadata={"model": "m"}),
            raw("message-metadata", messageMetadata={"usage": {"inputTokens": 1}}),
            TextDelta("a"),
            raw("finish", messageMetadata=METADATA),
            *finished(
                "content_filter", "content-filter", Usage(input=9, output=3, total=12, cache_read=2, reasoning=1)
            ),
        ],
    ),
    # Anthropic's signature comes with a delta that is empty, Google's with the end of the block.
    "signatures": (
        [
            part("reasoning-delta", id="r", delta="", providerMetadata={"anthropic": {"signature": "s"}}),
            part("reasoning-end", id="r", providerMetadata={"x": 1, "google": {"thoughtSignature": "t"}}),
            part("reasoning-delta", id="r", providerMetadata={"anthropic": {"signature": "", "redactedData": 5}}),
            FINISH,
        ],
        [ReasoningDelta("", "s"), ReasoningDelta("", "t"), *finished()],
    ),
    # What passes as it came.
    "files, sources, data and what is new": (
        [
            part("file", url="u", mediaType="image/png"),
            part("source-url", sourceId="s", url="u"),
            part("text-end", id="0", citations=[{"url": "u"}]),
            part("custom", kind="a.b"),
            part("data-x", data=None, transient=True),
            part(["?"]),
            sse({}),
            sse([1]),
            sse("null"),
            FINISH,
        ],
        [
            raw("file", url="u", mediaType="image/png"),
            raw("source-url", sourceId="s", url="u"),
            raw("text-end", id="0", citations=[{"url": "u"}]),
            raw("custom", kind="a.b"),
            raw("data-x", data=None, transient=True),
            *forwarded({"type": ["?"]}, {}, [1], None),
            *finished(),
        ],
    ),
    # A call without an output in its turn, at the end of the stream, is the front end's: ours.
    "calls that are left to us": (
        [
            BEGIN,
            part("tool-input-start", toolCallId="t", toolName="f", dynamic=True),
            part("tool-input-delta", toolCallId="t", inputTextDelta='{"a":'),
            part("tool-input-delta", toolCallId="t", inputTextDelta="1}"),
            called("t", input={"a": 1}, dynamic=True),
            called("u", "g", providerMetadata={"google": {"thoughtSignature": "s"}}),
            say("b"),
            END,
            part("finish", finishReason="tool-calls"),
        ],
        [
            TextDelta("b"),
            ours("t", input={"a": 1}),
            ours("u", "g", signature="s"),
            *finished("tool_calls", "tool-calls"),
        ],
    ),
    # The other side's tools: each result comes after its call, in the order in which they are done.
    "calls that the other side runs": (
        [
            BEGIN,
            called("t", input={"a": 1}),
            called("u"),
            part("tool-input-start", toolCallId="v", toolName="f"),
            part("tool-input-error", toolCallId="v", toolName="f", input="{", errorText="no JSON"),
            part("tool-output-error", toolCallId="u", errorText="kaput"),
            part("tool-output-available", toolCallId="t", output=1, preliminary=True),
            part("tool-output-available", toolCallId="t", output=2),
            called("w", providerExecuted=True),
            part("tool-output-denied", toolCallId="x"),
            END,
            *step(say("b")),
            FINISH,
        ],
        [
            raw("tool-input-error", toolCallId="v", toolName="f", input="{", errorText="no JSON"),
            theirs("u"),
            raw("tool-output-error", toolCallId="u", errorText="kaput"),
            theirs("t", input={"a": 1}),
            raw("tool-output-available", toolCallId="t", output=1, preliminary=True),
            raw("tool-output-available", toolCallId="t", output=2),
            theirs("w"),
            raw("tool-output-denied", toolCallId="x"),
            turn(),
            TextDelta("b"),
            *finished(),
        ],
    ),
    # Nobody here may run what the other side asks its user about, or went on without.
    "calls that nobody may run": (
        [
            *step(called("t")),
            *step(
                called("u"),
                part("tool-approval-request", approvalId="p", toolCallId="u"),
                part("tool-approval-request", approvalId="p", toolCallId="x"),
                called("v"),
            ),
            FINISH,
        ],
        [
            ours("t", answerable=False),
            turn(),
            raw("tool-approval-request", approvalId="p", toolCallId="u"),
            raw("tool-approval-request", approvalId="p", toolCallId="x"),
            ours("u", answerable=False),
            ours("v"),
            *finished(),
        ],
    ),
    # A step that is tried again: its calls never were; its text has been shown.
    "a step that is taken back": (
        [BEGIN, say("a"), called("t"), part("reset-step"), called("u"), END, FINISH],
        [TextDelta("a"), raw("reset-step"), ours("u"), *finished()],
    ),
    "a call that never came whole": (
        [part("tool-input-start", toolCallId="t", toolName=""), END, FINISH],
        [ToolCallStart("t", "t"), *finished()],
    ),
    "a call that is announced again, or told again after its result": (
        [
            called("t"),
            part("tool-input-start", toolCallId="t", toolName="f"),
            part("tool-output-available", toolCallId="t", output=1),
            called("t"),
            FINISH,
        ],
        [theirs("t"), raw("tool-output-available", toolCallId="t", output=1), *finished()],
    ),
    # The text of an error is masked by the SDK itself; it closes the step and says that it is finished after it.
    "an error": (
        [BEGIN, say("a"), called("t"), part("error", errorText="An error occurred."), END, FINISH, DONE],
        [TextDelta("a"), ours("t"), SourceError("An error occurred.")],
    ),
    "an error by the name of its event": ([b'event: error\ndata: ["no"]\n\n'], [SourceError("no")]),
    # Somebody has stopped it there: it is cut off, and no call is earned.
    "an abort": (
        [say("a"), called("t"), part("abort", reason="user"), DONE],
        [TextDelta("a"), raw("abort", reason="user"), ours("t"), *finished("cancelled", "abort")],
    ),
    "an abort without a reason": ([say("a"), part("abort")], [TextDelta("a"), *finished("cancelled", "abort")]),
    "leaves of an odd type cost themselves": (
        [
            part("text-delta", delta=5),
            part("reasoning-delta", delta=6, providerMetadata=7),
            part("tool-input-start", toolCallId=8, toolName="f"),
            part("tool-input-available", toolCallId=9, toolName=["f"], input="x", providerExecuted=True),
            part("tool-output-available", toolCallId=10),
            part("tool-approval-request", toolCallId=None),
            part("start", messageMetadata=11),
            part("finish", finishReason=12, messageMetadata=[]),
        ],
        [
            raw("text-delta", delta=5),
            raw("tool-input-start", toolCallId=8, toolName="f"),
            raw("tool-output-available", toolCallId=10),
            raw("tool-approval-request", toolCallId=None),
            raw("start", messageMetadata=11),
            NativeToolCall(None, "x", "call 1"),
            turn(),
            ChainCompleted(),
        ],
    ),
    "pairs in two parts": (
        [
            sse(r'{"type":"text-delta","delta":"a\ud83d"}'),
            sse(r'{"type":"reasoning-delta","delta":"\ud83d"}'),
            sse(r'{"type":"text-delta","delta":"\ude00\ud83d"}'),
            FINISH,
        ],
        [TextDelta("a"), TextDelta("😀"), ReasoningDelta("\ufffd"), TextDelta("\ufffd"), *finished()],
    ),
}


@pytest.mark.parametrize("make", [called, lambda id: part("tool-input-start", toolCallId=id, toolName="f")])
def test_calls_over_the_limit_are_not_buffered(make: Any) -> None:
    """The buffer is bounded, and the machine reports the excess."""
    frames = [make(str(count)) for count in range(4)]
    adapter = AISDKMessages(Limits(calls=2))
    assert [0, 0, 3, 0] == [len(adapter.feed(frame)) for frame in frames]
    assert [(1, "3"), (1, None), (1, None)] == [(1, getattr(event, "key", None)) for event in adapter.feed(FINISH)]


# Found by attack: calls that were told before it was known whose they are.

MANY = [str(count) for count in range(33)]
CALLS = b"".join(called(id) for id in MANY)
BEGUN = b"".join(part("tool-input-start", toolCallId=f"b{id}", toolName="f") for id in MANY)
ASKED = part("tool-approval-request", toolCallId="c", approvalId="a")
OUTPUT = part("tool-output-available", toolCallId="c", output=1)

NOT_OURS: dict[str, list[bytes]] = {
    "results of more calls than a turn may have": [
        CALLS,
        *(part("tool-output-available", toolCallId=id, output=1) for id in MANY),
    ],
    "approvals of them": [CALLS, *(part("tool-approval-request", toolCallId=id, approvalId=id) for id in MANY)],
    "the last of them has the mark": [*(called(id) for id in MANY[1:]), called("c", providerExecuted=True)],
    "calls beside more that only begin": [called("c"), BEGUN, OUTPUT],
    "they come again": [CALLS, *(called(id) for id in MANY)],
    "a result before its call, and then too many": [OUTPUT, BEGUN, called("c")],
    "an approval before its call": [ASKED, called("c")],
    "an approval between the name and the input": [part("tool-input-start", toolCallId="c"), ASKED, called("c")],
    "an approval before its call, in the turn before": [BEGIN, ASKED, END, BEGIN, called("c")],
    "an approval before its call, and too many between": [ASKED, CALLS, called("c")],
    "an approval before what is taken back": [ASKED, called("c"), part("reset-step"), called("c")],
}


@together("frames", NOT_OURS.values(), ids=NOT_OURS)
def test_a_call_that_the_backend_may_run_never_runs_here(frames: list[bytes]) -> None:
    """This holds for a call that was reported early and for one that was marked before it arrived."""
    *_, end = story(*read(AISDKMessages, *frames, part("finish", finishReason="tool-calls")))
    assert end.startswith("done finished")
    assert not [line for line in story(*read(AISDKMessages, *frames, FINISH)) if line.startswith("run ")]


def test_calls_without_an_approval_run() -> None:
    """A marked call does not affect the other calls."""
    told = story(*read(AISDKMessages, ASKED, called("c"), called("d"), part("finish", finishReason="tool-calls")))
    assert ["run d"] == [line for line in told if line.startswith("run ")]
