"""Anthropic's Messages: each thing that its streams are known for, whole and at every cut.

The streams are written by hand after what the provider, its SDK and gateways in front of it send.
"""

from __future__ import annotations

from typing import Any

from streamtools.errors import Code
from streamtools.events import (
    FinishReason,
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from streamtools.limits import Limits
from streamtools.sources.wire_formats.anthropic import Anthropic
from tests.sources.adapters import called, forwarded, read, started, texts, thoughts
from tests.support.chat_chunks import sse

Events = list[dict[str, Any]]


def begin(id: str | None = "msg_1", **usage: Any) -> Events:
    message: dict[str, Any] = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "usage": usage,
    }
    return [{"type": "message_start", "message": message}]


def start(index: int, kind: str, **block: Any) -> Events:
    return [{"type": "content_block_start", "index": index, "content_block": {"type": kind, **block}}]


def delta(index: int, kind: str, **more: Any) -> Events:
    return [{"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}]


def stop(index: int) -> Events:
    return [{"type": "content_block_stop", "index": index}]


def say(*texts: str, index: int = 0) -> Events:
    deltas = [each for text in texts for each in delta(index, "text_delta", text=text)]
    return start(index, "text", text="") + deltas + stop(index)


def call(index: int, *pieces: str, id: str = "toolu_1", name: str = "f", **more: Any) -> Events:
    deltas = [each for piece in pieces for each in delta(index, "input_json_delta", partial_json=piece)]
    return start(index, "tool_use", id=id, name=name, **({"input": {}} | more)) + deltas


def whole_call(index: int, *pieces: str, **more: Any) -> Events:
    return call(index, *pieces, **more) + stop(index)


def block(index: int, kind: str, **members: Any) -> Events:
    return start(index, kind, **members) + stop(index)


def end(reason: str | None = "end_turn", **usage: Any) -> Events:
    return [{"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}, *STOP]


PING: Events = [{"type": "ping"}]
STOP: Events = [{"type": "message_stop"}]


def frames(*events: Events, named: bool = True) -> list[bytes]:
    return [sse(each, each.get("type") if named else None) for group in events for each in group]


def message(*events: Events, reason: str = "end_turn") -> list[bytes]:
    return frames(begin(), *events, end(reason))


def own(kind: str, **members: Any) -> dict[str, Any]:
    """Return the fields of a call that Anthropic has run, for the next request."""
    return {"anthropic": {"type": kind, **members}}


def item(kind: str, **members: Any) -> SourceRaw:
    """Return a block that the next request repeats."""
    return SourceRaw({"type": kind, **members}, "anthropic")


def done(raw: str | None = "end_turn", reason: FinishReason = "stop", usage: Usage | None = None) -> ProviderCompleted:
    return ProviderCompleted(finish_reason=reason, raw_finish_reason=raw, usage=usage)


CALLED = NativeToolCall("f", None, "1", "toolu_1")

STREAMS: dict[str, tuple[list[bytes], list[SourceEvent]]] = {
    "text": (frames(begin(), say("Hel", "", "lo"), end()), [TextDelta("Hel"), TextDelta("lo"), done()]),
    # Anthropic pads its lines with spaces, so that their length tells nothing; pings come anywhere.
    "padding and pings": (
        [
            b"event: ping\ndata: {}\n\n",
            *(each[:-2] + b" " * 9 + b"\n\n" for each in frames(begin(), PING, call(0, "", "{}"), PING)),
            *frames(stop(0), PING, end("tool_use"), PING),
        ],
        [ToolCallStart("1", "toolu_1", "f"), ToolCallDelta("1", "{}"), CALLED, done("tool_use", "tool_calls")],
    ),
    # The SDK drops events without a name; the data names them too. And the other way round, from a proxy.
    "names in the data only": (frames(begin(), say("a"), end(), named=False), [TextDelta("a"), done()]),
    "names of the events only": (
        [
            sse({"index": 0, "delta": {"type": "text_delta", "text": "a"}}, "content_block_delta"),
            sse({}, "message_stop"),
        ],
        [TextDelta("a"), done(None)],
    ),
    # Figures are totals: they overwrite, and what is left out or null stays. What is cached is counted apart.
    "usage": (
        frames(
            begin(input_tokens=10, cache_read_input_tokens=5, cache_creation_input_tokens=2, output_tokens=1),
            say("a"),
            [{"type": "message_delta", "delta": {}, "usage": {"output_tokens": 4, "input_tokens": None}}],
            [{"type": "message_delta", "delta": {}, "usage": None}],
            end(output_tokens=9, cache_read_input_tokens=7, output_tokens_details={"thinking_tokens": 3}),
        ),
        [
            SourceUsage(Usage(input=17, output=1, cache_read=5, cache_write=2)),
            TextDelta("a"),
            SourceUsage(Usage(input=17, output=4, cache_read=5, cache_write=2)),
            SourceUsage(Usage(input=19, output=9, cache_read=7, cache_write=2, reasoning=3)),
            done(usage=Usage(input=19, output=9, cache_read=7, cache_write=2, reasoning=3)),
        ],
    ),
    "text and two calls": (
        message(
            say("a"),
            whole_call(1, "", '{"x"', ":1}"),
            whole_call(2, '{"y":2}', id="toolu_2", name="g", caller={"type": "direct"}),
            reason="tool_use",
        ),
        [
            TextDelta("a"),
            *called("1", "toolu_1", "f", '{"x"', ":1}"),
            *called("2", "toolu_2", "g", '{"y":2}'),
            done("tool_use", "tool_calls"),
        ],
    ),
    # A tool without arguments streams one empty string; {} is the machine's to say.
    "a call without arguments": (
        frames(begin(), whole_call(0, ""), end("tool_use")),
        [ToolCallStart("1", "toolu_1", "f"), CALLED, done("tool_use", "tool_calls")],
    ),
    # Servers that do not stream arguments, and finished messages.
    "arguments in the start of their block": (
        message(
            whole_call(0, input={"x": 1}),
            whole_call(1, input='{"x":1}', id="toolu_2"),
            whole_call(2, '{"x":2}', input={"x": 1}, id="toolu_3"),
            reason="tool_use",
        ),
        [
            *called("1", "toolu_1", "f", arguments={"x": 1}),
            *called("2", "toolu_2", "f", arguments='{"x":1}'),
            *called("3", "toolu_3", "f", '{"x":2}'),
            done("tool_use", "tool_calls"),
        ],
    ),
    # With max_tokens the last block has no stop, and its JSON breaks off.
    "a call that a limit cut off": (
        frames(begin(), call(0, '{"x": "ab'), end("max_tokens")),
        [ToolCallStart("1", "toolu_1", "f"), ToolCallDelta("1", '{"x": "ab'), done("max_tokens", "length")],
    ),
    # Eager input streaming: nobody looked at the JSON, and the block stops all the same.
    "a call that is cut off and stopped": (
        frames(begin(), whole_call(0, '{"x": "ab'), end("max_tokens")),
        [ToolCallStart("1", "toolu_1", "f"), ToolCallDelta("1", '{"x": "ab'), CALLED, done("max_tokens", "length")],
    ),
    "a block that starts where another has not stopped": (
        frames(begin(), call(0, '{"x"'), whole_call(0, "{}", id="toolu_2"), stop(0), end("tool_use")),
        [*started("1", "toolu_1", "f", '{"x"'), *called("2", "toolu_2", "f", "{}"), done("tool_use", "tool_calls")],
    ),
    # The signature goes back with the next request, and so does what Anthropic hides.
    "thinking": (
        message(
            start(0, "thinking", thinking="", signature=""),
            delta(0, "thinking_delta", thinking="H"),
            delta(0, "thinking_delta", thinking="m"),
            delta(0, "thinking_delta", thinking=""),
            delta(0, "signature_delta", signature="c2ln"),
            stop(0),
            block(1, "redacted_thinking", data="aGlk"),
            say("a", index=2),
        ),
        [
            *thoughts("H", "m"),
            ReasoningDelta("", signature="c2ln"),
            ReasoningDelta("", signature="aGlk", redacted=True),
            TextDelta("a"),
            done(),
        ],
    ),
    "thinking that comes at once, and whose block does not stop": (
        message(
            start(0, "thinking", thinking="Hm", signature="c2ln"),
            start(0, "thinking", thinking="So", signature="b3Ro"),
            start(1, "thinking", thinking="and"),
        ),
        [
            ReasoningDelta("Hm"),
            ReasoningDelta("", signature="c2ln"),
            *thoughts("So", "and"),
            ReasoningDelta("", signature="b3Ro"),
            done(),
        ],
    ),
    "text that comes at once": (
        frames(begin(), block(0, "text", text="ab", citations=None), end()),
        [TextDelta("ab"), done()],
    ),
    # Tools that Anthropic runs are nobody's to run; their results come as blocks.
    "a server's tool": (
        message(
            start(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={}),
            delta(0, "input_json_delta", partial_json=""),
            delta(0, "input_json_delta", partial_json='{"query":'),
            delta(0, "input_json_delta", partial_json='"x"}'),
            stop(0),
            block(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[]),
            block(2, "mcp_tool_use", id="mcptoolu_1", name="echo", server_name="s", input={"x": 1}),
            block(3, "mcp_tool_result", tool_use_id="mcptoolu_1", content=[]),
        ),
        [
            NativeToolCall(
                *("web_search", '{"query":"x"}', "1", "srvtoolu_1", True),
                own=own("server_tool_use", id="srvtoolu_1", name="web_search", input={"query": "x"}),
            ),
            item("web_search_tool_result", tool_use_id="srvtoolu_1", content=[]),
            NativeToolCall(
                *("echo", {"x": 1}, "2", "mcptoolu_1", True),
                own=own("mcp_tool_use", id="mcptoolu_1", name="echo", server_name="s", input={"x": 1}),
            ),
            item("mcp_tool_result", tool_use_id="mcptoolu_1", content=[]),
            done(),
        ],
    ),
    "a server's tool that is cut off": (
        frames(begin(), start(0, "server_tool_use", id="srvtoolu_1", name="web_search"), end("max_tokens")),
        [done("max_tokens", "length")],
    ),
    "citations": (
        message(
            start(0, "text", text="", citations=[{"cited_text": "x"}]),
            delta(0, "text_delta", text="a"),
            delta(0, "citations_delta", citation={"cited_text": "y"}),
            stop(0),
        ),
        [
            SourceRaw(start(0, "text", text="", citations=[{"cited_text": "x"}])[0]),
            TextDelta("a"),
            SourceRaw(delta(0, "citations_delta", citation={"cited_text": "y"})[0]),
            SourceRaw({"citations": [{"cited_text": "x"}, {"cited_text": "y"}]}, "anthropic", "text"),
            done(),
        ],
    ),
    # Beta: another model answers in the place of one that refused, and a context that is summed up.
    "fallback and compaction": (
        message(
            block(0, "fallback", to={"model": "m"}),
            start(1, "compaction", content=None),
            delta(1, "compaction_delta", content="all of it"),
            stop(1),
            say("a", index=2),
            reason="compaction",
        ),
        [
            item("fallback", to={"model": "m"}),
            item("compaction", content="all of it"),
            TextDelta("a"),
            done("compaction", "pause"),
        ],
    ),
    "a message that begins twice": (
        frames(begin(output_tokens=1), begin(output_tokens=1), say("a"), end(output_tokens=2), begin(output_tokens=1)),
        [SourceUsage(Usage(output=1)), TextDelta("a"), SourceUsage(Usage(output=2)), done(usage=Usage(output=2))],
    ),
    "a message that begins again, behind its text": (
        frames(begin(), say("a"), begin(output_tokens=1), begin(None), say("b"), end()),
        [TextDelta("a"), SourceRaw({}, "anthropic", "text"), TextDelta("b"), done()],
    ),
    "a second generation behind reasoning and half a call": (
        frames(
            begin(input_tokens=5),
            block(0, "thinking", thinking="Hm", signature="c2ln"),
            call(1, '{"x":'),
            begin("msg_2", output_tokens=1),
            whole_call(0, '{"x":2}', id="toolu_2"),
            stop(1),
            end("tool_use"),
        ),
        [
            SourceUsage(Usage(input=5)),
            ReasoningDelta("Hm"),
            ReasoningDelta("", signature="c2ln"),
            *started("1", "toolu_1", "f", '{"x":'),
            SourceError("the provider began its answer again in mid-stream", cause="message_start"),
        ],
    ),
    # What the reader has seen cannot be taken back, and would stand there twice.
    "a second generation behind text": (
        frames(begin(), delta(0, "text_delta", text="a"), begin("msg_2"), say("ab"), end()),
        [TextDelta("a"), SourceError("the provider began its answer again in mid-stream", cause="message_start")],
    ),
    # A call that is complete would run twice.
    "a second generation behind a call": (
        frames(begin(), whole_call(0, "{}"), begin("msg_2"), whole_call(0, "{}"), end("tool_use")),
        [
            *called("1", "toolu_1", "f", "{}"),
            SourceError("the provider began its answer again in mid-stream", cause="message_start"),
        ],
    ),
    # Why it refused is told once, beside the reason; the container of its code goes into the next request.
    "a refusal with details": (
        frames(
            begin(),
            say("I"),
            [{"type": "message_delta", "delta": {"container": {"id": "c"}}}],
            [{"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": {"category": "bio"}}}],
            [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}],
            STOP,
        ),
        [
            TextDelta("I"),
            item("container", id="c"),
            SourceRaw(
                {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": {"category": "bio"}}}
            ),
            done("refusal", "content_filter"),
        ],
    ),
    "a stop without a reason": (frames(begin(), say("a"), STOP), [TextDelta("a"), done(None)]),
    # The reason alone is not the end.
    "no stop": (frames(begin(), say("a"), end()[:1]), [TextDelta("a")]),
    "[DONE], of gateways": (
        [*frames(begin(), say("a")), b"data: [DONE]\n\n", *frames(end()), b"data: [DONE]\n\n"],
        [TextDelta("a"), done()],
    ),
    # HTTP says 200; the request's id is what the support asks for.
    "an error": (
        message(
            delta(0, "text_delta", text="a"),
            [{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "req_1"}],
            [{"type": "error", "error": {"type": "api_error", "message": "again"}}],
        ),
        [TextDelta("a"), SourceError("Overloaded", cause="req_1 overloaded_error")],
    ),
    "an error with a name and no type": (
        [sse({"error": {"type": "api_error", "message": "no"}}, "error"), *frames(end())],
        [SourceError("no", cause="api_error")],
    ),
    "an error that is a text": ([sse("upstream timed out", "error")], [SourceError("upstream timed out")]),
    "an error that is a list": ([sse(["no"], "error")], [SourceError("no")]),
    # What `messages.stream()` of the SDK yields between the events of the wire, and its own ends, which hold the whole.
    "events of the SDK's helper": (
        frames(
            begin(),
            start(0, "text", text=""),
            delta(0, "text_delta", text="a"),
            [{"type": "text", "text": "a", "snapshot": "a"}],
            [{"type": "citation", "citation": {}, "snapshot": []}],
            [{"type": "content_block_stop", "index": 0, "content_block": {"type": "text", "text": "a"}}],
            start(1, "thinking", thinking=""),
            delta(1, "thinking_delta", thinking="b"),
            [{"type": "thinking", "thinking": "b", "snapshot": "b"}],
            [{"type": "signature", "signature": "c2ln"}],
            call(2, "{}"),
            [{"type": "input_json", "partial_json": "{}", "snapshot": {}}],
            [{"type": "content_block_stop", "index": 2, "content_block": {"type": "tool_use", "input": {}}}],
            end("tool_use")[:1],
            [{"type": "message_stop", "message": {"content": [{"type": "text", "text": "a"}]}}],
        ),
        [TextDelta("a"), ReasoningDelta("b"), *called("1", "toolu_1", "f", "{}"), done("tool_use", "tool_calls")],
    ),
    "events nobody knows": (
        [*frames([{"type": "future", "x": 1}]), sse({"x": 2}), sse([3]), sse("null"), *frames(end())],
        [SourceRaw({"type": "future", "x": 1}), SourceRaw({"x": 2}), SourceRaw([3]), SourceRaw(None), done()],
    ),
    "deltas that belong nowhere": (
        frames(
            delta(0, "input_json_delta", partial_json="{"),
            delta(0, "signature_delta", signature="c2ln"),
            delta(0, "future_delta", x=1),
            call(0),
            delta(0, "signature_delta", signature="c2ln"),
            start(1, "thinking"),
            delta(1, "input_json_delta", partial_json="{"),
            STOP,
        ),
        [
            SourceRaw(delta(0, "input_json_delta", partial_json="{")[0]),
            *forwarded(delta(0, "signature_delta", signature="c2ln")[0], delta(0, "future_delta", x=1)[0]),
            ToolCallStart("1", "toolu_1", "f"),
            SourceRaw(delta(0, "signature_delta", signature="c2ln")[0]),
            SourceRaw(delta(1, "input_json_delta", partial_json="{")[0]),
            done(None),
        ],
    ),
    "a message that begins with content": (
        frames([{"type": "message_start", "message": {"id": "m", "content": [{"type": "text", "text": "a"}]}}], STOP),
        [
            SourceRaw({"type": "message_start", "message": {"id": "m", "content": [{"type": "text", "text": "a"}]}}),
            done(None),
        ],
    ),
    "fields of an odd type cost themselves": (
        [
            sse({"type": "message_start", "message": "m"}),
            sse({"type": "message_start", "message": {"id": 1, "usage": []}}),
            sse(
                {"type": "content_block_start", "index": [], "content_block": {"type": "tool_use", "id": 5, "name": ""}}
            ),
            sse({"type": "content_block_stop", "index": {}}),
            sse({"type": "content_block_start", "content_block": 1}),
            sse({"type": "content_block_start", "content_block": {"type": [], "text": 1}}),
            sse({"type": "content_block_start", "content_block": {"type": "redacted_thinking", "data": None}}),
            sse({"type": "content_block_start", "content_block": {"type": "text", "text": 5}}),
            sse({"type": "content_block_delta", "delta": {"type": "text_delta", "text": None}}),
            sse({"type": "content_block_delta", "delta": [1]}),
            sse({"type": "message_delta", "delta": "x", "usage": {"output_tokens": 3, "input_tokens": "many"}}),
            sse({"type": "message_delta", "delta": {"stop_reason": 7}}),
            sse({"type": {}}),
            sse({"type": "message_stop", "index": 1}),
        ],
        [
            *called("1", None, None),
            SourceRaw({"type": "content_block_start", "content_block": 1}),
            SourceRaw({"type": "content_block_start", "content_block": {"type": [], "text": 1}}),
            SourceRaw({"type": "content_block_start", "content_block": {"type": "redacted_thinking", "data": None}}),
            SourceRaw({"type": "content_block_delta", "delta": {"type": "text_delta", "text": None}}),
            SourceRaw({"type": "content_block_delta", "delta": [1]}),
            SourceUsage(Usage(output=3)),
            SourceRaw({"type": {}}),
            done(None, usage=Usage(output=3)),
        ],
    ),
    # Escapes of a character beyond U+FFFF that stand in two deltas.
    "pairs in two deltas": (
        [
            *frames(begin(), start(0, "text", text="")),
            sse(r'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\ud83d"}}'),
            sse(r'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ude00b"}}'),
            sse(r'{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"c\ud83d"}}'),
            sse(r'{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"\ude01"}}'),
            *frames(call(1)),
            sse(
                r'{"type":"content_block_delta","index":1,'
                r'"delta":{"type":"input_json_delta","partial_json":"{\"x\":\"\ud83d"}}'
            ),
            sse(
                r'{"type":"content_block_delta","index":1,'
                r'"delta":{"type":"input_json_delta","partial_json":"\ude02\"}"}}'
            ),
            *frames(stop(1), end("tool_use")),
        ],
        [
            *texts("a", "😀b"),
            *thoughts("c", "😁"),
            *called("1", "toolu_1", "f", '{"x":"', '😂"}'),
            done("tool_use", "tool_calls"),
        ],
    ),
}


def test_input_that_nests_too_deep_is_a_fault() -> None:
    """The call is reported as faulty, because its arguments cannot be written as JSON."""
    deep = '{"x":' + "[" * 100 + "]" * 100 + "}"
    block = (
        '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"f","input":' + deep + "}}"
    )
    assert read(Anthropic, sse(block), *frames(stop(0), STOP)) == [
        *called("1", None, "f", fault=Code.TOO_DEEP),
        done(None),
    ]


def test_the_input_of_a_server_tool_is_bounded() -> None:
    """It is kept until it is complete, up to the limit of a call; those of the client are passed on at once."""
    pieces = [each for _ in range(3) for each in delta(0, "input_json_delta", partial_json="12345")]
    stream = frames(start(0, "server_tool_use", id="s", name="w"), pieces, stop(0), STOP)
    assert read(lambda: Anthropic(Limits(call=10)), *stream) == [
        NativeToolCall("w", None, "1", "s", True, fault=Code.TOO_LARGE),
        done(None),
    ]
    assert read(lambda: Anthropic(Limits(call=15)), *stream)[0] == NativeToolCall("w", "12345" * 3, "1", "s", True)
