"""The streams of providers: the deltas of an answer as bytes, in frames of realistic size."""

from __future__ import annotations

import json
from typing import Any


def openai(deltas: list[str]) -> list[bytes]:
    """Return chat completion chunks: about 260 bytes a delta, with the usual first and last chunks."""
    head = {
        "id": "chatcmpl-Bv7kQ2mXw9RtLz3NcYpD5sHgJ8fUa",
        "object": "chat.completion.chunk",
        "created": 1785000000,
        "model": "gpt-4o-mini-2024-07-18",
        "service_tier": "default",
        "system_fingerprint": "fp_3a7c91e2b4",
    }

    def frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data(head | {"choices": [choice], "usage": None})

    usage = {"prompt_tokens": 31, "completion_tokens": len(deltas), "total_tokens": 31 + len(deltas)}
    return [
        frame({"role": "assistant", "content": "", "refusal": None}),
        *(frame({"content": delta}) for delta in deltas),
        frame({}, "stop"),
        _data(head | {"choices": [], "usage": usage}),
        b"data: [DONE]\n\n",
    ]


def latitude(deltas: list[str]) -> list[bytes]:
    """Return a Latitude run of one turn, about 90 bytes a delta; its completion repeats the text."""
    text = "".join(deltas)
    usage = {"promptTokens": 31, "completionTokens": len(deltas), "totalTokens": 31 + len(deltas)}
    uuid = "0d6f3a52-9c1e-4b7d-8f20-5e4a1c7b9d36"
    chain = {"timestamp": 1785000000000, "uuid": uuid, "messages": [{"role": "user", "content": "Tell me."}]}
    response = {"streamType": "text", "text": text, "toolCalls": [], "usage": usage}
    provider, run = "provider-event", "latitude-event"
    events: list[tuple[str, dict[str, Any]]] = [
        (run, {"type": "chain-started"} | chain),
        (run, {"type": "step-started"} | chain),
        (run, {"type": "provider-started", "config": {"model": "gpt-4o-mini"}} | chain),
        (provider, {"type": "text-start", "id": "0"}),
        *((provider, {"type": "text-delta", "id": "0", "textDelta": delta}) for delta in deltas),
        (provider, {"type": "text-end", "id": "0"}),
        (provider, {"type": "finish", "finishReason": "stop", "totalUsage": usage}),
        (
            run,
            {"type": "provider-completed", "finishReason": "stop", "response": response, "tokenUsage": usage} | chain,
        ),
        (run, {"type": "step-completed"} | chain),
        (run, {"type": "chain-completed", "finishReason": "stop", "response": response} | chain),
    ]
    return [
        b"event: %s\n%sid: %d\n\n" % (name.encode(), _data(event)[:-1], n) for n, (name, event) in enumerate(events)
    ]


def responses(deltas: list[str]) -> list[bytes]:
    """Return OpenAI Responses events: about 230 bytes a delta. Two of the last events repeat the text."""
    text = "".join(deltas)
    item = "msg_0a7c91e2b4fd3a5268c0d1e9f7b36a42"
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
    place = {"item_id": item, "output_index": 0, "content_index": 0}
    message = {"id": item, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    whole = message | {"status": "completed", "content": [part | {"text": text}]}
    response = {"id": "resp_5f2e", "object": "response", "status": "in_progress", "model": "gpt-4o-mini", "output": []}
    usage = {"input_tokens": 31, "output_tokens": len(deltas), "total_tokens": 31 + len(deltas)}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.in_progress", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": message},
        {"type": "response.content_part.added", "part": part} | place,
        *({"type": "response.output_text.delta", "delta": delta, "logprobs": []} | place for delta in deltas),
        {"type": "response.output_text.done", "text": text} | place,
        {"type": "response.content_part.done", "part": part | {"text": text}} | place,
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {
            "type": "response.completed",
            "response": response | {"status": "completed", "output": [whole], "usage": usage},
        },
    ]
    return [
        b"event: %s\n%s" % (event["type"].encode(), _data(event | {"sequence_number": n}))
        for n, event in enumerate(events)
    ]


def anthropic(deltas: list[str]) -> list[bytes]:
    """Return Anthropic events: about 130 bytes a delta, some with padding."""
    usage = {"input_tokens": 31, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": []}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": delta}}
            for delta in deltas
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": len(deltas)},
        },
        {"type": "message_stop"},
    ]
    return [
        b"event: %s\n%s" % (event["type"].encode(), _data(event)[:-2] + b" " * (n % 8) + b"\n\n")
        for n, event in enumerate(events)
    ]


def gemini(deltas: list[str]) -> list[bytes]:
    """Return Gemini responses: about 330 bytes a delta, with their spaces, CRLF and token counts."""

    def frame(count: int, delta: str, finish: str | None = None) -> bytes:
        candidate: dict[str, Any] = {"content": {"parts": [{"text": delta}], "role": "model"}, "index": 0}
        counts = {
            "promptTokenCount": 31,
            "candidatesTokenCount": count,
            "totalTokenCount": 31 + count,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 31}],
        }
        value = {
            "candidates": [candidate | {"finishReason": finish} if finish else candidate],
            "usageMetadata": counts,
            "modelVersion": "gemini-2.5-flash",
            "responseId": "x7QhaZyvG5m0mtkP3Z6Q0A4",
        }
        return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\r\n\r\n"

    return [*(frame(count, delta) for count, delta in enumerate(deltas)), frame(len(deltas), "", "STOP")]


def ollama(deltas: list[str]) -> list[bytes]:
    """Return Ollama lines: about 130 bytes a delta."""
    head = {"model": "llama3.2", "created_at": "2026-11-07T20:22:19.184789123Z"}
    counts = {"total_duration": 182242375, "prompt_eval_count": 31, "eval_count": len(deltas)}

    def line(delta: str, **more: Any) -> bytes:
        value = head | {"message": {"role": "assistant", "content": delta}, "done": False} | more
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"

    return [*(line(delta) for delta in deltas), line("", done=True, done_reason="stop", **counts)]


def text_of(value: dict[str, Any]) -> str:
    """Return the text in the JSON of one frame, as code without a library reads it."""
    if "choices" in value:
        return "".join(choice["delta"].get("content") or "" for choice in value["choices"])
    if "candidates" in value:
        return "".join(part["text"] for part in value["candidates"][0]["content"]["parts"])
    if "done" in value:
        return str(value["message"]["content"])
    if value["type"] == "response.output_text.delta":
        return str(value["delta"])
    if value["type"] == "content_block_delta":
        return str(value["delta"]["text"])
    return str(value.get("textDelta", ""))


def chunks(frames: list[bytes], count: int) -> list[bytes]:
    """Return `frames` in network chunks of `count` frames."""
    return [b"".join(frames[at : at + count]) for at in range(0, len(frames), count)]


def _data(value: object) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"
