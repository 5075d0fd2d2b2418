"""What providers send: an answer's deltas as the bytes of their streams, in frames of the size that real ones have."""

from __future__ import annotations

import json
from typing import Any


def openai(deltas: list[str]) -> list[bytes]:
    """Return chat completion chunks, about 260 bytes each, one a delta, and the usual ones around them."""
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


def text_of(value: dict[str, Any]) -> str:
    """Return the piece of text in one frame's JSON, as somebody reads it who does without a library."""
    if "choices" in value:
        return "".join(choice["delta"].get("content") or "" for choice in value["choices"])
    return str(value.get("textDelta", ""))


def chunks(frames: list[bytes], count: int) -> list[bytes]:
    """Return `frames` in network chunks of `count` frames."""
    return [b"".join(frames[at : at + count]) for at in range(0, len(frames), count)]


def _data(value: object) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"
