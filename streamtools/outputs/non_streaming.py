"""Writes an answer as one JSON body, for clients that do not request a stream. Also writes error bodies. Sans-IO.

The body is made from the events of the streamed answer, in the way in which the SDKs join these events. So a client
receives the same answer with and without streaming.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from streamtools.outputs.sse import to_json

Body = dict[str, Any]

_OPENAI_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_ANTHROPIC_ERROR_TYPES = {**_OPENAI_ERROR_TYPES, 413: "request_too_large", 529: "overloaded_error"}
_BAD_GATEWAY = 502
"""The HTTP status of an answer that failed."""


def error_body(format: str, status: int, message: str, param: str | None = None, code: str | None = None) -> bytes:
    """Return an error body of Anthropic's API if `format` is "anthropic", otherwise of OpenAI's API.

    Only OpenAI's body has `param` and `code`.
    """
    if format == "anthropic":
        kind = _ANTHROPIC_ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        return to_json({"type": "error", "error": {"type": kind, "message": message}})
    kind = _OPENAI_ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return to_json({"error": {"message": message, "type": kind, "param": param, "code": code}})


def join_stream(format: str, stream: bytes) -> tuple[int, bytes]:
    """Return the HTTP status and the JSON body of an answer. `stream` is the complete streamed answer.

    `format` is "openai", "responses" or "anthropic".
    """
    events = list(_read_events(stream))
    holders = (event["response"] if event.get("type") == "response.failed" else event for event in events)
    error = next((error for holder in holders if (error := holder.get("error"))), None)
    if error is not None:
        return _BAD_GATEWAY, error_body(format, _BAD_GATEWAY, error.get("message", ""), code=error.get("code"))
    return 200, to_json(_JOIN[format](events))


def _read_events(stream: bytes) -> Iterator[Body]:
    for event in stream.split(b"\n\n"):
        data = event.rpartition(b"\n")[2].removeprefix(b"data: ")
        if data.startswith(b"{"):
            yield json.loads(data)


def _join_chunks(chunks: list[Body]) -> Body:
    """Join the chunks of a streamed chat completion into a chat completion."""
    texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
    calls: list[Body] = []
    arguments: dict[int, list[str]] = {}  # further pieces of arguments, by the index of the call
    usage = finish_reason = None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            finish_reason, delta = choice["finish_reason"], choice["delta"]
            for name, pieces in texts.items():
                pieces.append(delta.get(name) or "")
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(calls):
                    calls.append(call)
                else:
                    arguments.setdefault(call["index"], []).append(call["function"]["arguments"])
    for index, pieces in arguments.items():
        calls[index]["function"]["arguments"] += "".join(pieces)
    content, reasoning = map("".join, texts.values())
    message: Body = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    message |= {"reasoning_content": reasoning} if reasoning else {}
    if calls:
        message["tool_calls"] = [{name: call[name] for name in call if name != "index"} for call in calls]
    choice = {"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": None}
    whole = {**chunks[0], "object": "chat.completion", "choices": [choice]}
    return whole | ({"usage": usage} if usage else {})


def _join_message(events: list[Body]) -> Body:
    """Join the streaming events of Anthropic's Messages API into a message."""
    message: Body = events[0]["message"]
    content: list[Body] = message["content"]
    texts: list[list[str]] = []  # the pieces of each block
    for event in events:
        match event:
            case {"content_block": block}:
                content.append(block)
                texts.append([])
            case {"index": index, "delta": {"type": _, **delta}}:
                texts[index] += map(str, delta.values())
            case {"delta": delta, "usage": usage}:
                message |= delta | {"usage": usage}
    for block, pieces in zip(content, texts, strict=True):
        text = "".join(pieces)
        if block["type"] != "tool_use":
            block[block["type"]] = text
            continue
        try:
            block["input"] = json.loads(text)
        except ValueError:  # the arguments were cut off
            block["input"] = {}
    return message


_JOIN: dict[str, Callable[[list[Body]], Body]] = {
    "openai": _join_chunks,
    "responses": lambda events: events[-1]["response"],  # the last event contains the complete response
    "anthropic": _join_message,
}
