"""Tests of Cohere's chat, version 2: nested deltas, the plan before calls, and ends with an error."""

from __future__ import annotations

from typing import Any

from streamtools import events as kinds
from streamtools.errors import Code
from streamtools.limits import Limits
from streamtools.sources.wire_formats.cohere import Cohere
from tests.sources.adapters import called, forwarded, read, texts, thoughts
from tests.support.chat_chunks import DONE, sse


def event(type: str, index: Any = None, **message: Any) -> bytes:
    place = {} if index is None else {"index": index}
    return sse({"type": type, **place, "delta": {"message": message}}, type)


def said(text: Any, kind: str = "text", index: int = 0) -> bytes:
    return event("content-delta", index, content={kind: text})


def asked(index: int, id: str, name: str, *pieces: Any) -> list[bytes]:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    grown = [event("tool-call-delta", index, tool_calls={"function": {"arguments": piece}}) for piece in pieces]
    return [event("tool-call-start", index, tool_calls=call), *grown, event("tool-call-end", index)]


def end(reason: str | None = "COMPLETE", **more: Any) -> bytes:
    return sse({"type": "message-end", "delta": {"finish_reason": reason, **more}}, "message-end")


START = sse({"type": "message-start", "id": "m1", "delta": {"message": {"role": "assistant"}}}, "message-start")
USAGE = {"billed_units": {"input_tokens": 2, "output_tokens": 1}, "tokens": {"input_tokens": 9.0, "output_tokens": 4.0}}
CITED = {"start": 0, "end": 5, "text": "Paris", "sources": [{"type": "document", "id": "d"}]}
STOP = kinds.ProviderCompleted(finish_reason="stop", raw_finish_reason="COMPLETE")

STREAMS: dict[str, tuple[list[bytes], list[kinds.SourceEvent]]] = {
    "thinking and text": (
        [
            START,
            event("content-start", 0, content={"type": "thinking", "thinking": ""}),
            said("Hm", "thinking"),
            event("content-end", 0),
            event("content-start", 1, content={"type": "text", "text": ""}),
            *(said("Par", index=1), said("is", index=1), event("content-end", 1)),
            end(usage=USAGE | {"cached_tokens": 3}),
            DONE,
        ],
        [
            kinds.ReasoningDelta("Hm"),
            *texts("Par", "is"),
            kinds.ProviderCompleted(
                finish_reason="stop", raw_finish_reason="COMPLETE", usage=kinds.Usage(input=9, output=4, cache_read=3)
            ),
        ],
    ),
    "a plan and calls": (
        [
            *(START, event("tool-plan-delta", tool_plan="I "), event("tool-plan-delta", tool_plan="look")),
            *(*asked(0, "f_1", "f", '{"a":', "1}"), *asked(1, "g_2", "g"), end("TOOL_CALL")),
        ],
        [
            *thoughts("I ", "look"),
            *called("1", "f_1", "f", '{"a":', "1}"),
            *called("2", "g_2", "g"),
            kinds.ProviderCompleted(finish_reason="tool_calls", raw_finish_reason="TOOL_CALL"),
        ],
    ),
    "citations": (
        [said("Paris"), event("citation-start", 0, citations=CITED), event("citation-end", 0), end()],
        [
            kinds.TextDelta("Paris"),
            kinds.SourceRaw({"type": "citation-start", "index": 0, "delta": {"message": {"citations": CITED}}}),
            STOP,
        ],
    ),
    "an end that is an error": (
        [said("a"), end("ERROR", error="No more", usage=USAGE), said("b"), end()],
        [
            kinds.TextDelta("a"),
            kinds.SourceUsage(kinds.Usage(input=9, output=4)),
            kinds.SourceError("No more", cause="ERROR"),
        ],
    ),
    "an error in its usual shape": ([sse({"message": "invalid"}, "error")], [kinds.SourceError("invalid")]),
    "a length": (
        [said("a"), end("MAX_TOKENS")],
        [kinds.TextDelta("a"), kinds.ProviderCompleted(None, None, "length", "MAX_TOKENS")],
    ),
    "leaves of an odd type cost themselves": (
        [said(5), event("tool-plan-delta", tool_plan=6), said("a"), sse([1]), sse({"type": 7}), end()],
        [
            kinds.SourceRaw({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": 5}}}}),
            kinds.SourceRaw({"type": "tool-plan-delta", "delta": {"message": {"tool_plan": 6}}}),
            kinds.TextDelta("a"),
            *forwarded([1], {"type": 7}),
            STOP,
        ],
    ),
    "a piece of a call that nobody can read": (
        [*asked(0, "f_1", "f", 5), end()],
        [
            *called("1", "f_1", "f", fault=Code.INVALID_ARGUMENTS),
            kinds.SourceRaw(
                {
                    "type": "tool-call-delta",
                    "index": 0,
                    "delta": {"message": {"tool_calls": {"function": {"arguments": 5}}}},
                }
            ),
            STOP,
        ],
    ),
}


def test_calls_over_the_limit_are_refused() -> None:
    """Each that begins while as many are open is refused, and not kept."""
    begun = [asked(index, f"c{index}", "f")[0] for index in range(4)]
    events = read(lambda: Cohere(Limits(calls=2)), *begun, end("TOOL_CALL"))
    assert [Code.TOO_MANY_CALLS] * 2 == [each.fault for each in events if isinstance(each, kinds.NativeToolCall)]
