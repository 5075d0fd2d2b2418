"""Tests of Ollama's chat: lines of JSON, whole calls, and an end in the line of the last text."""

from __future__ import annotations

import json
from typing import Any

from streamtools.events import (
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    TextDelta,
    Usage,
)
from tests.sources.adapters import forwarded, texts


def line(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode() + b"\n"


def said(content: Any = "", **more: Any) -> bytes:
    return line({"message": {"role": "assistant", "content": content, **more}, "done": False})


def done(reason: Any = "stop", **more: Any) -> bytes:
    fields = {} if reason is None else {"done_reason": reason}
    return line({"message": {"role": "assistant", "content": ""}, "done": True, **fields, **more})


def called(name: Any, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


def stop(raw: str | None = "stop", reason: str = "stop", usage: Usage | None = None) -> ProviderCompleted:
    return ProviderCompleted(finish_reason=reason, raw_finish_reason=raw, usage=usage)  # type: ignore[arg-type]


STREAMS: dict[str, tuple[list[bytes], list[SourceEvent]]] = {
    # Thinking comes in a field of its own; the counts come with the end, and those that are zero are left out.
    "thinking and text": (
        [
            said("", thinking="Hm"),
            said("Par"),
            said("is"),
            done(total_duration=5, prompt_eval_count=9, eval_count=3, eval_duration=7),
        ],
        [ReasoningDelta("Hm"), TextDelta("Par"), TextDelta("is"), stop(usage=Usage(input=9, output=3))],
    ),
    "the last text with the end": (
        [line({"message": {"content": "a", "thinking": "b"}, "done": True, "done_reason": "length", "eval_count": 2})],
        [ReasoningDelta("b"), TextDelta("a"), stop("length", "length", Usage(output=2))],
    ),
    # Arguments are an object, whole; the reason stays "stop". The index is zero for each call of some versions.
    "calls": (
        [
            said("a", tool_calls=[{"function": {"index": 0, "name": "f", "arguments": {"b": 1}}}]),
            said("", tool_calls=[called("f", {}), called("g", None)]),
            done(),
        ],
        [
            *(TextDelta("a"), NativeToolCall("f", {"b": 1}, "1"), NativeToolCall("f", {}, "2")),
            *(NativeToolCall("g", key="3"), stop()),
        ],
    ),
    "calls with an id": (
        [said(tool_calls=[called("f", {}, id="t"), called("g", {}, id="t")]), done()],
        [NativeToolCall("f", {}, "1", "t"), NativeToolCall("g", {}, "2", "t"), stop()],
    ),
    "images": ([said("a", images=["aGk="]), done()], [TextDelta("a"), SourceRaw({"images": ["aGk="]}), stop()]),
    "an unloaded model": ([done("unload")], [stop("unload", "other")]),
    "an empty reason": ([said("a"), done("")], [TextDelta("a"), stop("", "other")]),
    # Before there were reasons, and without a message.
    "no reason": ([said("a"), line({"done": True})], [TextDelta("a"), stop(None)]),
    # The status stays 200; a model of the cloud may want the user to sign in.
    "an error": (
        [said("a"), line({"error": "an error was encountered"}), said("b"), done()],
        [TextDelta("a"), SourceError("an error was encountered")],
    ),
    "an error that asks to sign in": (
        [line({"error": "unauthorized", "signin_url": "https://ollama.com/connect"})],
        [SourceError("unauthorized; sign in at https://ollama.com/connect")],
    ),
    "an error in other words": (
        [line({"error": {"message": "no", "code": 500}, "signin_url": 1})],
        [SourceError("no", status=500, cause="500")],
    ),
    "no end": ([said("a"), said("b")], [TextDelta("a"), TextDelta("b")]),
    "fields that are null": (
        [
            line({"message": {"content": None, "thinking": None, "tool_calls": None, "images": None}}),
            said("a", tool_calls=[]),
            done(),
        ],
        [TextDelta("a"), stop()],
    ),
    "lines nobody knows": (
        [line({"status": "pulling"}), line([1]), line("null"), line({"message": "a", "done": False}), done()],
        [*forwarded({"status": "pulling"}, [1], None, {"message": "a", "done": False}), stop()],
    ),
    "leaves of an odd type cost themselves": (
        [
            said(5, thinking=6, tool_calls="f"),
            said("a", tool_calls=[7, {"function": "f"}, called(["f"], "x", id=8), None]),
            line({"message": {"content": "b"}, "done": 1}),
            line({"message": {"content": "c"}, "done": True, "done_reason": 9, "eval_count": "many"}),
        ],
        [
            *forwarded(5, {"tool_calls": ["f"]}),
            TextDelta("a"),
            *forwarded({"tool_calls": [7]}, {"tool_calls": [{"function": "f"}]}),
            NativeToolCall(None, "x", "1"),
            *texts("b", "c"),
            stop(None),
        ],
    ),
    "pairs in two lines": (
        [
            line(r'{"message":{"content":"a\ud83d","thinking":"\ud83d"}}'),
            line(r'{"message":{"content":"\ude00\ud83d"}}'),
            said("b"),
            line(r'{"message":{"content":"\ud83d"}}'),
            done(),
        ],
        [TextDelta("a"), TextDelta("😀"), TextDelta("\ufffdb"), ReasoningDelta("\ufffd"), TextDelta("\ufffd"), stop()],
    ),
}
