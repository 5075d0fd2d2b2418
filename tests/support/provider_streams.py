"""The same answer as a stream of each provider: reasoning, text, two calls, usage, and the end.

The streams are written by hand, and complete enough for the SDKs of the providers. Each stream is a list of frames, so
that it can break off between two frames. `turn` and `end` are the numbers of frames after which the turn and the run
are complete. `trouble` holds the frames of an error that replace the rest, and `finished` is the non-streaming body.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.support import event_streams

REASONING = "Two things are asked."
TEXT = "I look up both: ☂ and ⏰."
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("weather", {"city": "Zürich"}),
    ("clock", {"zone": "Europe/Zurich", "seconds": True}),
]
TOO_MUCH = "Too much to do"

_ONE, _TWO = (json.dumps(arguments, ensure_ascii=False) for _, arguments in CALLS)
_HALVES = [(_ONE[:7], _ONE[7:]), (_TWO[:9], _TWO[9:])]


class Provider(NamedTuple):
    """The streams of one provider."""

    adapter: str
    declared: str
    frames: list[bytes]
    turn: int
    end: int
    trouble: list[bytes]
    finished: dict[str, Any]

    @property
    def body(self) -> bytes:
        """The whole stream."""
        return b"".join(self.frames)

    @property
    def broken(self) -> bytes:
        """A stream that has an error after some text."""
        return b"".join([*self.frames[: len(self.frames) // 2], *self.trouble])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sse(value: Any, event: str | None = None, end: str = "\n") -> bytes:
    data = value if isinstance(value, str) else _json(value)
    return ((f"event: {event}{end}" if event else "") + f"data: {data}{end}{end}").encode()


def _openai() -> Provider:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 20, "completion_tokens": 30, "total_tokens": 50}
    functions = [{"name": name, "arguments": _json(arguments)} for name, arguments in CALLS]

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _sse({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None})

    def piece(index: int, arguments: str, **more: Any) -> bytes:
        name = more.pop("name", None)
        function = ({"name": name} if name else {}) | {"arguments": arguments}
        return chunk({"tool_calls": [{"index": index, **more, "function": function}]})

    frames = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": REASONING[:4]}),
        chunk({"reasoning_content": REASONING[4:]}),
        chunk({"content": TEXT[:9]}),
        chunk({"content": TEXT[9:]}),
        piece(0, "", id="call_a", type="function", name="weather"),
        piece(0, _HALVES[0][0]),
        piece(0, _HALVES[0][1]),
        piece(1, "", id="call_b", type="function", name="clock"),
        piece(1, _HALVES[1][0]),
        piece(1, _HALVES[1][1]),
        chunk({}, "tool_calls"),
        _sse({**head, "choices": [], "usage": usage}),
        _sse("[DONE]"),
    ]
    message = {
        "role": "assistant",
        "content": TEXT,
        "reasoning_content": REASONING,
        "tool_calls": [
            {"id": id, "type": "function", "function": function}
            for id, function in zip(("call_a", "call_b"), functions, strict=True)
        ],
    }
    finished = {
        **head,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}],
        "usage": usage,
    }
    error = {"error": {"message": TOO_MUCH, "type": "server_error", "code": "overloaded", "param": None}}
    return Provider("openai", "text/event-stream", frames, 12, 12, [_sse(error)], finished)


def _responses() -> Provider:
    counter = iter(range(1000))

    def event(type: str, **fields: Any) -> bytes:
        return _sse({"type": type, "sequence_number": next(counter), **fields}, type)

    def response(status: str, **fields: Any) -> dict[str, Any]:
        head = {"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "m", "error": None}
        asked: dict[str, Any] = {"instructions": None, "metadata": {}, "parallel_tool_calls": True}
        asked |= {"temperature": 1.0, "top_p": 1.0, "tool_choice": "auto", "tools": []}
        return {**head, **asked, "incomplete_details": None, "output": [], "usage": None, **fields}

    summary = {"type": "summary_text", "text": REASONING}
    thought = {"id": "rs_1", "type": "reasoning", "summary": [summary], "encrypted_content": "c2ln"}
    part = {"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    calls = [
        {"id": f"fc_{id}", "call_id": f"call_{id}", "type": "function_call", "status": "completed", "name": name}
        | {"arguments": _json(arguments)}
        for id, (name, arguments) in zip("ab", CALLS, strict=True)
    ]
    usage: dict[str, Any] = {"input_tokens": 20, "output_tokens": 30, "total_tokens": 50}
    usage |= {"input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 6}}
    at: dict[str, Any] = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    here: dict[str, Any] = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
    frames = [
        event("response.created", response=response("in_progress")),
        event("response.in_progress", response=response("in_progress")),
        event("response.output_item.added", output_index=0, item={"id": "rs_1", "type": "reasoning", "summary": []}),
        event("response.reasoning_summary_part.added", **at, part={"type": "summary_text", "text": ""}),
        event("response.reasoning_summary_text.delta", **at, delta=REASONING[:4]),
        event("response.reasoning_summary_text.delta", **at, delta=REASONING[4:]),
        event("response.reasoning_summary_text.done", **at, text=REASONING),
        event("response.reasoning_summary_part.done", **at, part=summary),
        event("response.output_item.done", output_index=0, item=thought),
        event("response.output_item.added", output_index=1, item=message | {"status": "in_progress", "content": []}),
        event("response.content_part.added", **here, part=part | {"text": ""}),
        event("response.output_text.delta", **here, delta=TEXT[:9], logprobs=[]),
        event("response.output_text.delta", **here, delta=TEXT[9:], logprobs=[]),
        event("response.output_text.done", **here, text=TEXT, logprobs=[]),
        event("response.content_part.done", **here, part=part),
        event("response.output_item.done", output_index=1, item=message),
    ]
    for index, (item, halves) in enumerate(zip(calls, _HALVES, strict=True), 2):
        begun = item | {"status": "in_progress", "arguments": ""}
        place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
        frames += [
            event("response.output_item.added", output_index=index, item=begun),
            *(event("response.function_call_arguments.delta", **place, delta=half) for half in halves),
            event("response.function_call_arguments.done", **place, name=item["name"], arguments="".join(halves)),
            event("response.output_item.done", output_index=index, item=item | {"arguments": "".join(halves)}),
        ]
    finished = response("completed", output=[thought, message, *calls], usage=usage)
    frames.append(event("response.completed", response=finished))
    error = {"type": "error", "sequence_number": 99, "code": "overloaded", "message": TOO_MUCH, "param": None}
    trouble = [_sse(error, "error")]
    return Provider("responses", "text/event-stream", frames, len(frames), len(frames), trouble, finished)


def _anthropic() -> Provider:
    def event(type: str, **fields: Any) -> bytes:
        return _sse({"type": type, **fields}, type)

    def start(index: int, **block: Any) -> bytes:
        return event("content_block_start", index=index, content_block=block)

    def delta(index: int, type: str, **fields: Any) -> bytes:
        return event("content_block_delta", index=index, delta={"type": type, **fields})

    def stop(index: int) -> bytes:
        return event("content_block_stop", index=index)

    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    usage = {"input_tokens": 20, "output_tokens": 30, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0}
    frames = [
        event(
            "message_start", message={**head, "content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
        ),
        start(0, type="thinking", thinking="", signature=""),
        event("ping"),
        delta(0, "thinking_delta", thinking=REASONING[:4]),
        delta(0, "thinking_delta", thinking=REASONING[4:]),
        delta(0, "signature_delta", signature="c2ln"),
        stop(0),
        start(1, type="text", text=""),
        delta(1, "text_delta", text=TEXT[:9]),
        delta(1, "text_delta", text=TEXT[9:]),
        stop(1),
    ]
    blocks: list[dict[str, Any]] = []
    for index, ((name, arguments), halves) in enumerate(zip(CALLS, _HALVES, strict=True), 2):
        blocks.append({"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": arguments})
        frames += [
            start(index, type="tool_use", id=f"toolu_{index}", name=name, input={}),
            *(delta(index, "input_json_delta", partial_json=piece) for piece in ("", *halves)),
            stop(index),
        ]
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    frames += [event("message_delta", delta=end, usage=usage), event("message_stop")]
    thought = {"type": "thinking", "thinking": REASONING, "signature": "c2ln"}
    content = [thought, {"type": "text", "text": TEXT}, *blocks]
    finished = {**head, "content": content, "stop_reason": "tool_use", "usage": usage}
    trouble = [event("error", error={"type": "overloaded_error", "message": TOO_MUCH})]
    return Provider("anthropic", "text/event-stream", frames, len(frames), len(frames), trouble, finished)


def _gemini() -> Provider:
    counts = {"promptTokenCount": 20, "candidatesTokenCount": 24, "thoughtsTokenCount": 6, "totalTokenCount": 50}
    metadata: dict[str, Any] = {"usageMetadata": counts, "modelVersion": "m", "responseId": "r"}

    def chunk(*parts: dict[str, Any], **more: Any) -> bytes:
        candidate = {"content": {"parts": list(parts), "role": "model"}, **more, "index": 0}
        return _sse(json.dumps({"candidates": [candidate], **metadata}), end="\r\n")

    calls: list[dict[str, Any]] = [{"functionCall": {"name": name, "args": arguments}} for name, arguments in CALLS]
    calls[0]["thoughtSignature"] = "++//"  # in the part of its call
    thought = {"text": REASONING, "thought": True}
    frames = [
        chunk(thought | {"text": REASONING[:4]}),
        chunk(thought | {"text": REASONING[4:]}),
        chunk({"text": TEXT[:9]}),
        chunk({"text": TEXT[9:]}),
        chunk(calls[0]),
        chunk(calls[1]),
        chunk({"text": ""}, finishReason="STOP"),
    ]
    content = {"role": "model", "parts": [thought, {"text": TEXT}, *calls]}
    finished = {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], **metadata}
    error = {"error": {"code": 503, "message": TOO_MUCH, "status": "UNAVAILABLE"}}
    return Provider(
        "gemini", "text/event-stream", frames, 7, 7, [json.dumps(error, indent=2).encode() + b"\n"], finished
    )


def _ollama() -> Provider:
    head = {"model": "m", "created_at": "2026-01-02T03:04:05.678Z"}
    counts = {"total_duration": 5, "load_duration": 1, "prompt_eval_count": 20, "prompt_eval_duration": 2}
    counts |= {"eval_count": 30, "eval_duration": 2}

    def line(content: str = "", **message: Any) -> bytes:
        return (
            _json({**head, "message": {"role": "assistant", "content": content, **message}, "done": False}).encode()
            + b"\n"
        )

    calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in CALLS]
    empty = {"role": "assistant", "content": ""}
    end = {"done": True, "done_reason": "stop", **counts}
    frames = [
        line(thinking=REASONING[:4]),
        line(thinking=REASONING[4:]),
        line(TEXT[:9]),
        line(TEXT[9:]),
        line(tool_calls=calls[:1]),
        line(tool_calls=calls[1:]),
        _json({**head, "message": empty, **end}).encode() + b"\n",
    ]
    message = empty | {"content": TEXT, "thinking": REASONING, "tool_calls": calls}
    finished = {**head, "message": message, **end}
    return Provider(
        "ollama", "application/x-ndjson", frames, 7, 7, [_json({"error": TOO_MUCH}).encode() + b"\n"], finished
    )


def _ai_sdk() -> Provider:
    def part(type: str, **fields: Any) -> bytes:
        return _sse({"type": type, **fields})

    frames = [
        part("start", messageId="m"),
        part("start-step"),
        part("reasoning-start", id="r"),
        part("reasoning-delta", id="r", delta=REASONING[:4]),
        part("reasoning-delta", id="r", delta=REASONING[4:]),
        part("reasoning-end", id="r"),
        part("text-start", id="t"),
        part("text-delta", id="t", delta=TEXT[:9]),
        part("text-delta", id="t", delta=TEXT[9:]),
        part("text-end", id="t"),
    ]
    for id, (name, arguments), halves in zip("ab", CALLS, _HALVES, strict=True):
        frames += [
            part("tool-input-start", toolCallId=id, toolName=name),
            *(part("tool-input-delta", toolCallId=id, inputTextDelta=half) for half in halves),
            part("tool-input-available", toolCallId=id, toolName=name, input=arguments),
        ]
    frames += [part("finish-step"), part("finish", finishReason="tool-calls"), _sse("[DONE]")]
    end = len(frames) - 1
    return Provider("ai_sdk", "text/event-stream", frames, end, end, [part("error", errorText=TOO_MUCH)], {})


def _latitude() -> Provider:
    counter = iter(range(1000))
    chat = [{"role": "user", "content": [{"type": "text", "text": "?"}]}]

    def event(name: str, data: dict[str, Any]) -> bytes:
        return _sse(data, name).removesuffix(b"\n") + f"id: {next(counter)}\n\n".encode()

    def chain(type: str, **more: Any) -> bytes:
        return event("latitude-event", {"type": type, "uuid": "c-1", "messages": chat, "timestamp": 1, **more})

    def part(type: str, **more: Any) -> bytes:
        return event("provider-event", {"type": type, **more})

    calls = [
        {"id": id, "name": name, "arguments": arguments} for id, (name, arguments) in zip("ab", CALLS, strict=True)
    ]
    usage = {"inputTokens": 20, "outputTokens": 30, "totalTokens": 50}
    response = {"streamType": "text", "text": TEXT, "toolCalls": calls, "usage": usage}
    frames = [
        chain("chain-started"),
        chain("step-started"),
        chain("provider-started", config={"model": "m"}),
        part("reasoning-delta", id="r", text=REASONING[:4]),
        part("reasoning-delta", id="r", text=REASONING[4:]),
        part("text-delta", id="t", textDelta=TEXT[:9]),
        part("text-delta", id="t", textDelta=TEXT[9:]),
        *(
            part("tool-call", toolCallId=id, toolName=name, args=args)
            for id, (name, args) in zip("ab", CALLS, strict=True)
        ),
        chain("provider-completed", finishReason="tool-calls", tokenUsage=usage, response=response),
        chain("step-completed"),
        chain("chain-completed", finishReason="tool-calls", tokenUsage=usage, response=response, toolCalls=calls),
    ]
    trouble = [
        chain("chain-error", error={"name": "ChainError", "message": TOO_MUCH}),
        chain("chain-completed", finishReason="stop"),
    ]
    return Provider("latitude", "text/event-stream", frames, len(frames), len(frames), trouble, {})


def _bedrock() -> Provider:
    def delta(index: int, **value: Any) -> bytes:
        return event_streams.event("contentBlockDelta", {"contentBlockIndex": index, "delta": value, "p": "ab"})

    def stop(index: int) -> bytes:
        return event_streams.event("contentBlockStop", {"contentBlockIndex": index, "p": "abc"})

    usage = {"inputTokens": 20, "outputTokens": 30, "totalTokens": 50}
    frames = [
        event_streams.event("messageStart", {"role": "assistant", "p": "abcd"}),
        delta(0, reasoningContent={"text": REASONING[:4]}),
        delta(0, reasoningContent={"text": REASONING[4:]}),
        delta(0, reasoningContent={"signature": "c2ln"}),
        stop(0),
        delta(1, text=TEXT[:9]),
        delta(1, text=TEXT[9:]),
        stop(1),
    ]
    for index, ((name, _), halves) in enumerate(zip(CALLS, _HALVES, strict=True), 2):
        tool = {"toolUse": {"toolUseId": f"tooluse_{index}", "name": name}}
        frames += [
            event_streams.event("contentBlockStart", {"contentBlockIndex": index, "start": tool}),
            *(delta(index, toolUse={"input": half}) for half in halves),
            stop(index),
        ]
    frames += [
        event_streams.event("messageStop", {"stopReason": "tool_use", "p": "a"}),
        event_streams.event("metadata", {"usage": usage, "metrics": {"latencyMs": 5}, "p": "ab"}),
    ]
    turn = len(frames) - 1
    trouble = [event_streams.exception("throttlingException", {"message": TOO_MUCH})]
    return Provider("bedrock", "application/vnd.amazon.eventstream", frames, turn, turn, trouble, {})


def _cohere() -> Provider:
    def event(type: str, index: int | None = None, **message: Any) -> bytes:
        place = {} if index is None else {"index": index}
        delta = {"delta": {"message": message}} if message else {}
        return _sse({"type": type, **place, **delta}, type)

    frames = [
        _sse({"type": "message-start", "id": "m", "delta": {"message": {"role": "assistant"}}}, "message-start"),
        event("content-start", 0, content={"type": "thinking", "thinking": ""}),
        event("content-delta", 0, content={"thinking": REASONING[:4]}),
        event("content-delta", 0, content={"thinking": REASONING[4:]}),
        event("content-end", 0),
        event("content-start", 1, content={"type": "text", "text": ""}),
        event("content-delta", 1, content={"text": TEXT[:9]}),
        event("content-delta", 1, content={"text": TEXT[9:]}),
        event("content-end", 1),
    ]
    for index, ((name, _), halves) in enumerate(zip(CALLS, _HALVES, strict=True)):
        call = {"id": f"{name}_1", "type": "function", "function": {"name": name, "arguments": ""}}
        frames += [
            event("tool-call-start", index, tool_calls=call),
            *(event("tool-call-delta", index, tool_calls={"function": {"arguments": half}}) for half in halves),
            event("tool-call-end", index),
        ]
    billed, tokens = {"input_tokens": 9, "output_tokens": 9}, {"input_tokens": 20, "output_tokens": 30}
    usage = {"billed_units": billed, "tokens": tokens}
    end = {"finish_reason": "TOOL_CALL", "usage": usage}
    frames += [_sse({"type": "message-end", "delta": end}, "message-end"), _sse("[DONE]")]
    error = {"finish_reason": "ERROR", "error": TOO_MUCH}
    trouble = [_sse({"type": "message-end", "delta": error}, "message-end")]
    return Provider("cohere", "text/event-stream", frames, len(frames) - 1, len(frames) - 1, trouble, {})


PROVIDERS: Sequence[Provider] = tuple(
    make() for make in (_openai, _responses, _anthropic, _gemini, _ollama, _ai_sdk, _latitude, _bedrock, _cohere)
)
NAMES = [provider.adapter for provider in PROVIDERS]
BY_NAME = dict(zip(NAMES, PROVIDERS, strict=True))
