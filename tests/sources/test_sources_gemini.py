"""Gemini: what Google and Vertex send, each way in which it differs from what one expects, whole and at every cut.

The streams are written by hand after what the providers send; ids, times and models are left out.
"""

from __future__ import annotations

import json
from typing import Any

from streamtools.errors import Code
from streamtools.events import (
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    SourceWarning,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from streamtools.limits import Limits
from streamtools.sources.wire_formats.gemini import Gemini
from tests.sources.adapters import called, forwarded, read, texts

SIGNED = {"thoughtSignature": "s"}


def sse(value: Any) -> bytes:
    """Return an event as Google frames it: CRLF, and no name."""
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {data}\r\n\r\n".encode()


def chunk(*parts: Any, finish: str | None = None, **more: Any) -> bytes:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}} if parts else {}
    if finish:
        candidate["finishReason"] = finish
    return sse({"candidates": [candidate], **more})


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, **more}


def call(**fields: Any) -> dict[str, Any]:
    return {"functionCall": fields}


def stop(raw: str = "STOP", reason: str = "stop", usage: Usage | None = None) -> ProviderCompleted:
    return ProviderCompleted(finish_reason=reason, raw_finish_reason=raw, usage=usage)  # type: ignore[arg-type]


def step(kind: str, index: int = 0, **more: Any) -> bytes:
    return sse({"index": index, "event_type": f"step.{kind}", **more})


def item(kind: str, **members: Any) -> SourceRaw:
    return SourceRaw({"type": kind, **members}, "interactions")


def interaction(kind: str, **fields: Any) -> bytes:
    return sse({"event_type": f"interaction.{kind}", "interaction": fields})


ERROR = '{\n  "error": {\n    "code": 503,\n    "message": "Overloaded",\n    "status": "UNAVAILABLE"\n  }\n}\n'
BROKEN: SourceEvent = SourceError("Overloaded", status=503, cause="503")

Stream = tuple[list[bytes], list[SourceEvent]]
"""The frames of events and their source events."""

TEXT: dict[str, Stream] = {
    # Each chunk has the counts so far, and the last ones are told. There is no sentinel.
    "text": (
        [
            chunk(say("Par"), usageMetadata={"promptTokenCount": 9, "totalTokenCount": 9}, modelVersion="m"),
            chunk(say("is"), usageMetadata={"promptTokenCount": 9, "totalTokenCount": 9}, responseId="r"),
            chunk(
                say("."),
                finish="STOP",
                usageMetadata={
                    "promptTokenCount": 8,
                    "candidatesTokenCount": 3,
                    "totalTokenCount": 20,
                    "thoughtsTokenCount": 4,
                    "cachedContentTokenCount": 2,
                    "toolUsePromptTokenCount": 5,
                    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 8}],
                },
            ),
        ],
        [
            *texts("Par", "is", "."),
            SourceUsage(Usage(input=13, output=7, total=20, cache_read=2, reasoning=4)),
            stop(usage=Usage(input=13, output=7, total=20, cache_read=2, reasoning=4)),
        ],
    ),
    # Vertex: every chunk has a usage that counts nothing; thoughts may be all that there is.
    "usage that counts nothing, or only thoughts": (
        [
            chunk(say("a"), usageMetadata={"trafficType": "ON_DEMAND"}),
            chunk(finish="STOP", usageMetadata={"thoughtsTokenCount": 3}),
            chunk(say("b"), usageMetadata={"trafficType": "ON_DEMAND"}),
            sse({"usageMetadata": {"trafficType": "ON_DEMAND"}}),
        ],
        [*texts("a", "b"), SourceUsage(Usage(output=3, reasoning=3)), stop(usage=Usage(output=3, reasoning=3))],
    ),
    "several parts in a chunk": (
        [chunk(say("Hm", thought=True), say("a"), say("b"), say("", thought=True), say("")), chunk(finish="STOP")],
        [ReasoningDelta("Hm"), TextDelta("a"), TextDelta("b"), stop()],
    ),
    # Gemini 3: a signature may stand on a thought, on text, and on a text that is empty, at the very end.
    "signatures": (
        [
            chunk(say("Hm", thought=True), say("!", thought=True, thoughtSignature="s1")),
            chunk(say("a", thoughtSignature="s2")),
            chunk({"thoughtSignature": "s3"}),
            chunk(say("", thoughtSignature="s4"), finish="STOP"),
        ],
        [
            ReasoningDelta("Hm"),
            ReasoningDelta("!", "s1"),
            SourceRaw({}, "gemini", "text"),
            TextDelta("a"),
            SourceRaw({"thoughtSignature": "s2"}, "gemini", "text"),
            SourceRaw({}, "gemini", "text"),
            SourceRaw({"thoughtSignature": "s3"}, "gemini", "text"),
            SourceRaw({}, "gemini", "text"),
            SourceRaw({"thoughtSignature": "s4"}, "gemini", "text"),
            stop(),
        ],
    ),
    # Files, citations and what grounds an answer: nobody's text, and passed as they came.
    "what is no text": (
        [
            chunk(say("a"), {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thoughtSignature": "s"}),
            chunk({"fileData": {"fileUri": "gs://x"}}, {"functionResponse": {"name": "f"}}),
            sse(
                {
                    "candidates": [
                        {
                            "content": {"parts": [{"text": "b"}]},
                            "groundingMetadata": {"webSearchQueries": ["q"]},
                            "citationMetadata": {"citations": [{"uri": "u"}]},
                            "urlContextMetadata": {},
                            "finishReason": "STOP",
                        }
                    ]
                }
            ),
        ],
        [
            TextDelta("a"),
            SourceRaw({"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thoughtSignature": "s"}, "gemini"),
            SourceRaw({"fileData": {"fileUri": "gs://x"}}, "gemini"),
            SourceRaw({"functionResponse": {"name": "f"}}, "gemini"),
            TextDelta("b"),
            SourceRaw({"groundingMetadata": {"webSearchQueries": ["q"]}}),
            SourceRaw({"citationMetadata": {"citations": [{"uri": "u"}]}}),
            stop(),
        ],
    ),
    # Google's own tools: what they are asked passes as a call that has been run, what they answer as it came.
    "tools of the server": (
        [
            chunk({"executableCode": {"language": "PYTHON", "code": "1+1"}}),
            chunk({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}),
            chunk({"toolCall": {"toolType": "GOOGLE_SEARCH", "args": {"q": 1}, "id": "t"}, "thoughtSignature": "s"}),
            chunk({"toolResponse": {"id": "t"}}, finish="STOP"),
        ],
        [
            NativeToolCall(
                *("code_execution", {"language": "PYTHON", "code": "1+1"}, "1"),
                provider_executed=True,
                own={"gemini": {"executableCode": {"language": "PYTHON", "code": "1+1"}}},
            ),
            SourceRaw({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}, "gemini"),
            NativeToolCall(
                *("GOOGLE_SEARCH", {"q": 1}, "2", "t"),
                provider_executed=True,
                signature="s",
                own={"gemini": {"toolCall": {"toolType": "GOOGLE_SEARCH", "args": {"q": 1}, "id": "t"}} | SIGNED},
            ),
            SourceRaw({"toolResponse": {"id": "t"}}, "gemini"),
            stop(),
        ],
    ),
    # Of several answers the first is read; without an index it is that one.
    "candidates": (
        [
            sse({"candidates": [{"content": {"parts": [{"text": "a"}]}, "index": 0, "safetyRatings": [{}]}]}),
            sse({"candidates": [{"content": {"parts": [{"text": "b"}]}, "index": 1, "finishReason": "SAFETY"}]}),
            sse(
                {
                    "candidates": [
                        {"content": {"parts": [{"text": "c"}]}, "index": 0, "avgLogprobs": -0.1, "tokenCount": 1},
                        {"content": {"parts": [{"text": "d"}]}, "index": 2},
                    ]
                }
            ),
            chunk(finish="STOP"),
        ],
        [
            TextDelta("a"),
            SourceRaw({"candidates": [{"content": {"parts": [{"text": "b"}]}, "index": 1, "finishReason": "SAFETY"}]}),
            TextDelta("c"),
            SourceRaw({"candidates": [{"content": {"parts": [{"text": "d"}]}, "index": 2}]}),
            stop(),
        ],
    ),
    # STOP may come with every chunk, and the reason that says more with the last.
    "reasons that come again": (
        [chunk(say("a"), finish="STOP"), chunk(say("b"), finish="MAX_TOKENS"), chunk(say("c"), finish="STOP")],
        [TextDelta("a"), TextDelta("b"), TextDelta("c"), stop("MAX_TOKENS", "length")],
    ),
    # A call that the model wrote badly: the words about it are all that there is.
    "a reason with words": (
        [sse({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed: f("}]})],
        [
            SourceRaw({"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed: f("}),
            stop("MALFORMED_FUNCTION_CALL", "error"),
        ],
    ),
    # A prompt that was blocked has no candidates; harmless ratings of it are no block.
    "a blocked prompt": (
        [
            sse(
                {
                    "promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": "no"},
                    "usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4},
                }
            )
        ],
        [
            SourceRaw({"promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": "no"}}),
            SourceUsage(Usage(input=4, total=4)),
            stop("OTHER", "content_filter", Usage(input=4, total=4)),
        ],
    ),
    "a prompt that was rated": (
        [sse({"promptFeedback": {"safetyRatings": []}}), chunk(say("a"), finish="STOP")],
        [TextDelta("a"), stop()],
    ),
    # The client of Google itself waits for the braces: the error is bare, over several lines.
    "an error in mid-stream": ([chunk(say("a")), ERROR.encode()], [TextDelta("a"), BROKEN]),
    # What was counted before it is told: it has been paid for.
    "an error behind a usage": (
        [
            chunk(say("a"), usageMetadata={"promptTokenCount": 9}),
            sse({"usageMetadata": {"promptTokenCount": 8}, "candidates": []}),
            chunk(say("b"), usageMetadata={"promptTokenCount": 7}),
            ERROR.encode(),
        ],
        [TextDelta("a"), TextDelta("b"), SourceUsage(Usage(input=7)), BROKEN],
    ),
    "an error in an event": (
        [chunk(say("a"), error={"code": 500, "message": "no"})],
        [TextDelta("a"), SourceError("no", status=500, cause="500")],
    ),
    "an error by the name of its event": ([b'event: error\r\ndata: {"message": "no"}\r\n\r\n'], [SourceError("no")]),
    # Proxies that make everything look like OpenAI.
    "a sentinel": ([chunk(say("a"), finish="STOP"), b"data: [DONE]\n\n"], [TextDelta("a"), stop()]),
    "unknown objects": (
        [sse({"x": 1}), sse([1]), sse([]), sse("null"), chunk({}), sse({"modelVersion": "m"}), chunk(finish="STOP")],
        [SourceRaw({"x": 1}), SourceRaw([1]), SourceRaw([]), SourceRaw(None), stop()],
    ),
    "leaves of an odd type cost themselves": (
        [
            sse({"candidates": "none", "promptFeedback": 1, "usageMetadata": [2]}),
            sse({"candidates": [3, None, {"content": "a"}, {"content": {"parts": {"text": "b"}}}]}),
            chunk({"text": 4, "functionCall": 5, "executableCode": 6, "toolCall": []}, "c", None, say("d", x=7)),
            chunk({"text": 8, "thoughtSignature": 9}, {"executableCode": {"id": 1}}, say("e", thoughtSignature=[])),
            sse({"candidates": [{"finishReason": ["STOP"]}]}),
            sse({"candidates": [{"finishReason": 2}]}),
        ],
        [
            *forwarded({"candidates": [3]}, {"candidates": [None]}, "a"),
            TextDelta("b"),
            SourceRaw({"text": 4, "functionCall": 5, "executableCode": 6, "toolCall": []}, "gemini"),
            SourceRaw("c"),
            TextDelta("d"),
            SourceRaw({"x": 7}),
            SourceRaw({"text": 8, "thoughtSignature": 9}, "gemini"),
            NativeToolCall(
                *("code_execution", {"id": 1}, "1"),
                provider_executed=True,
                own={"gemini": {"executableCode": {"id": 1}}},
            ),
            TextDelta("e"),
            stop("2", "other"),
        ],
    ),
    "pairs in two parts": (
        [
            sse(r'{"candidates":[{"content":{"parts":[{"text":"a\ud83d"},{"text":"b\ud83d","thought":true}]}}]}'),
            chunk(say("", thought=True), say("")),
            sse(r'{"candidates":[{"content":{"parts":[{"text":"\ude00c\ud83d"},{"text":"\ude01","thought":true}]}}]}'),
            chunk(say("d"), finish="STOP"),
            sse(r'{"candidates":[{"content":{"parts":[{"text":"\ud83d"},{"text":"\ud83d","thought":true}]}}]}'),
        ],
        [
            *(TextDelta("a"), ReasoningDelta("b"), TextDelta("😀c"), ReasoningDelta("😁"), TextDelta("\ufffdd")),
            *(ReasoningDelta("\ufffd"), TextDelta("\ufffd"), stop()),
        ],
    ),
}

CALLS: dict[str, Stream] = {
    # STOP though calls were made, and a call often has no id. Several in one chunk are parallel.
    "whole calls": (
        [
            chunk(call(name="f", args={"a": 1}), call(name="g", args={}, id="t"), call(name="h")),
            chunk(say(""), finish="STOP"),
        ],
        [NativeToolCall("f", {"a": 1}, "1"), NativeToolCall("g", {}, "2", "t"), NativeToolCall("h", key="3"), stop()],
    ),
    # Gemini 3: without its signature the call is refused in the next request.
    "a call with a signature": (
        [chunk(call(name="f", args={}) | {"thoughtSignature": "s"}, finish="STOP")],
        [NativeToolCall("f", {}, "1", signature="s"), stop()],
    ),
    # Google's SDK writes the same bytes in another alphabet.
    "a signature from the SDK": (
        [chunk({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "--__"}, finish="STOP")],
        [NativeToolCall("f", {}, "1", signature="++//"), stop()],
    ),
    # Vertex, with streamed arguments: the name, values that go on and end, and a call that is empty.
    "streamed arguments": (
        [
            chunk(call(name="f", willContinue=True) | {"thoughtSignature": "s"}),
            chunk(
                call(partialArgs=[{"jsonPath": "$.a", "stringValue": "Bos", "willContinue": True}], willContinue=True)
            ),
            chunk(call(partialArgs=[{"jsonPath": "$.a", "stringValue": "ton"}], willContinue=True)),
            chunk(call(willContinue=True)),
            chunk(call(partialArgs=[{"jsonPath": "$.b[0].c", "numberValue": 5}], willContinue=True)),
            chunk(call()),
            chunk(call(name="g", id="t", willContinue=True)),
            chunk(call(), finish="STOP"),
        ],
        [
            *called("1", None, "f", '{"a":"Bos', "ton", '","b":[{"c":5', "}]}", signature="s"),
            *called("2", "t", "g"),
            stop(),
        ],
    ),
    "an id, a signature and arguments that come late": (
        [
            chunk(call(name="f", willContinue=True)),
            chunk(call(id="t", args={"a": 1}, willContinue=True) | {"thoughtSignature": "s"}),
            chunk(call(id="u"), finish="STOP"),
        ],
        [
            ToolCallStart("1", None, "f"),
            ToolCallStart("1", "t"),
            NativeToolCall("f", {"a": 1}, "1", "t", signature="s"),
            stop(),
        ],
    ),
    # The provider never said that it had ended.
    "a call that another one cuts off": (
        [
            chunk(call(name="f", willContinue=True)),
            chunk(call(partialArgs=[{"jsonPath": "$.a", "stringValue": "b", "willContinue": True}], willContinue=True)),
            chunk(call(name="g", args={}), finish="STOP"),
        ],
        [ToolCallStart("1", None, "f"), ToolCallDelta("1", '{"a":"b'), NativeToolCall("g", {}, "2"), stop()],
    ),
    "an end of no call, and calls without a name": (
        [
            chunk(call(), call(id="t"), call(args={"a": 1}), call(name="", willContinue=True)),
            chunk(call(name=["f"], args="x"), finish="STOP"),
        ],
        [
            NativeToolCall(None, None, "1", "t"),
            NativeToolCall(None, {"a": 1}, "2"),
            *called("3", None, None, arguments="x"),
            stop(),
        ],
    ),
    "pieces that are none": (
        [chunk(call(name="f", partialArgs=7)), chunk(call(name="g", partialArgs=[7]), finish="STOP")],
        [
            ToolCallStart("1", None, "f"),
            SourceRaw({"functionCall": {"name": "f", "partialArgs": 7}}),
            NativeToolCall("f", key="1", fault=Code.INVALID_ARGUMENTS),
            *called("2", None, "g", fault=Code.INVALID_ARGUMENTS),
            stop(),
        ],
    ),
}

COUNTS = {
    "total_tokens": 130,
    "total_input_tokens": 50,
    "total_cached_tokens": 0,
    "total_output_tokens": 15,
    "total_tool_use_tokens": 5,
    "total_thought_tokens": 60,
}
COUNTED = Usage(input=55, output=75, total=130, cache_read=0, reasoning=60)

INTERACTIONS: dict[str, Stream] = {
    # Steps with an index each; a call has its arguments as pieces of JSON, and what is asked for is done by us.
    "a thought and a call": (
        [
            interaction("created", status="in_progress"),
            sse({"interaction_id": "i", "status": "in_progress", "event_type": "interaction.status_update"}),
            step("start", step={"type": "thought"}),
            step("delta", delta={"type": "thought_summary", "content": {"type": "text", "text": "Hm"}}),
            step("delta", delta={"type": "thought_signature", "signature": "s"}),
            step("stop"),
            step("start", 1, step={"type": "function_call", "id": "t", "name": "f", "signature": "", "arguments": {}}),
            step("delta", 1, delta={"type": "arguments_delta", "arguments": '{"a":'}),
            step("delta", 1, delta={"type": "arguments_delta", "arguments": ""}),
            step("delta", 1, delta={"type": "arguments_delta", "arguments": "1}"}),
            step("delta", 1, delta={"type": "thought_signature", "signature": "z"}),
            step("stop", 1),
            interaction("completed", status="requires_action", usage=COUNTS),
            b"event: done\r\ndata: [DONE]\r\n\r\n",
        ],
        [
            ReasoningDelta("Hm"),
            ReasoningDelta("", "s"),
            *called("1", "t", "f", '{"a":', "1}", signature="z"),
            SourceUsage(COUNTED),
            stop("requires_action", "tool_calls", COUNTED),
        ],
    ),
    "text, and a call whose arguments come at once": (
        [
            step("start", step={"type": "model_output", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}),
            step("delta", delta={"type": "text", "text": "b"}),
            step("delta", delta={"type": "text", "text": ""}),
            step("stop", usage=COUNTS),
            step("start", 1, step={"type": "function_call", "name": "f", "arguments": {"a": 1}}),
            step("stop", 1),
            step("stop", 7),
            interaction("completed"),
        ],
        [
            *texts("a", "b"),
            *called("1", None, "f", arguments={"a": 1}),
            SourceUsage(COUNTED),
            stop("completed", usage=COUNTED),
        ],
    ),
    "a thought that comes at once": (
        [step("start", step={"type": "thought", "summary": [{"text": "a"}, {"text": "b"}], "signature": "s"})],
        [ReasoningDelta("ab", "s")],
    ),
    # Google's own tools, and what is no text.
    "what passes as it came": (
        [
            step("delta", delta={"type": "google_search_result"}),
            step("delta", delta={"type": "text", "text": 5}),
            step("delta", delta={"type": "arguments_delta", "arguments": "x"}),
            sse({"event_type": "step.start"}),
            sse({"event_type": "heartbeat"}),
            interaction("completed", status="budget_exceeded"),
        ],
        [
            SourceRaw({"index": 0, "event_type": "step.delta", "delta": {"type": "google_search_result"}}),
            SourceRaw({"index": 0, "event_type": "step.delta", "delta": {"type": "text", "text": 5}}),
            SourceRaw({"index": 0, "event_type": "step.delta", "delta": {"type": "arguments_delta", "arguments": "x"}}),
            *forwarded({"event_type": "step.start"}, {"event_type": "heartbeat"}),
            stop("budget_exceeded", "length"),
        ],
    ),
    "steps of Google's own tools, whole for the next request": (
        [
            step("start", step={"type": "google_search_call", "id": "t", "arguments": {}}),
            step("delta", delta={"type": "google_search_call", "arguments": {"queries": ["x"]}, "signature": "s"}),
            step("stop"),
            step("start", 1, step={"type": "google_search_result", "call_id": "t", "result": [{"a": 1}]}),
            step("delta", 1, delta={"type": "google_search_result", "result": [{"a": 2}], "is_error": False}),
            step("start", 2, step={"type": "code_execution_result", "call_id": "u"}),
            step("delta", 2, delta={"type": "code_execution_result", "result": "1"}),
            step("delta", 2, delta={"type": "code_execution_result", "result": "2", "signature": ""}),
            step("start", 2, step={"type": "model_output", "content": [{"type": "image", "data": "aGk="}]}),
            step("delta", 2, delta={"type": "image", "uri": "u"}),
            interaction("completed"),
        ],
        [
            item("google_search_call", id="t", arguments={"queries": ["x"]}, signature="s"),
            item("code_execution_result", call_id="u", result="12"),
            item("model_output", content=[{"type": "image", "data": "aGk="}]),
            item("model_output", content=[{"type": "image", "uri": "u"}]),
            item("google_search_result", call_id="t", result=[{"a": 1}, {"a": 2}], is_error=False),
            stop("completed"),
        ],
    ),
    "an interaction that fails": (
        [step("delta", delta={"type": "text", "text": "a"}), interaction("completed", status="failed", error="no")],
        [TextDelta("a"), SourceError("no")],
    ),
    "an error": (
        [sse({"event_type": "error", "error": {"code": "quota", "message": "no"}}), interaction("completed")],
        [SourceError("no", cause="quota")],
    ),
    "a pair in two pieces": (
        [
            sse(r'{"event_type":"step.delta","delta":{"type":"text","text":"\ud83d"}}'),
            sse(r'{"event_type":"step.delta","delta":{"type":"text","text":"\ude00\ud83d"}}'),
            sse(r'{"event_type":"error"}'),
        ],
        [TextDelta("😀"), TextDelta("\ufffd"), SourceError("the provider reported an error")],
    ),
}

STREAMS = TEXT | CALLS | INTERACTIONS


def test_steps_over_the_limits_are_forwarded() -> None:
    """The step is forwarded as raw data, and the next request does not contain it."""
    began = {"type": "google_search_call", "id": "t"}
    start, delta = step("start", step=began), step("delta", delta={"type": "google_search_call", "arguments": {"a": 1}})
    call = step("start", 1, step={"type": "function_call", "id": "c", "name": "f"})
    event = {"index": 0, "event_type": "step.start", "step": began}
    for limits, parts, expected in (
        (Limits(calls=0), [start], [SourceRaw(event)]),
        (Limits(text=len(start)), [start, delta], [SourceRaw(began), SourceRaw(json.loads(delta[6:]))]),
        (Limits(calls=0), [call], [NativeToolCall("f", key="1", id="c", fault=Code.TOO_MANY_CALLS)]),
    ):
        adapter = Gemini(limits)
        told = [each for part in parts for each in adapter.feed(part)]
        assert expected == [each for each in told if not isinstance(each, ToolCallStart)]
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    (warning,) = read(Gemini, step("start", step={**began, "x": deep}), step("stop"))[:1]
    assert isinstance(warning, SourceWarning)
