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
    """Return an error body of Anthropic's API (`format` "anthropic") or OpenAI's, which also has `param` and `code`."""
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


class _TextMembers:
    """Collects the pieces of string fields that arrive in deltas. `join` sets each field to its joined pieces."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, str], tuple[Body, list[str]]] = {}

    def add(self, holder: Body, name: str, piece: str) -> None:
        holder.setdefault(name, "")
        self._pieces.setdefault((id(holder), name), (holder, []))[1].append(piece)

    def join(self) -> None:
        for (_, name), (holder, pieces) in self._pieces.items():
            holder[name] = "".join([holder[name] or "", *pieces])


def _join_chunks(chunks: list[Body]) -> Body:
    """Join the chunks of a streamed chat completion into a chat completion."""
    texts = _TextMembers()
    choices: dict[int, Body] = {}
    usage = None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for delta in chunk["choices"]:
            index = delta["index"]
            choice = choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}})
            _add_delta(choice["message"], delta["delta"], texts)
            choice["finish_reason"] = delta["finish_reason"]
    texts.join()
    for choice in choices.values():
        message = choice["message"]
        message["content"] = message["content"] or (None if "tool_calls" in message else "")
        message.setdefault("refusal", None)
        choice["logprobs"] = None
    head = {name: value for name, value in chunks[0].items() if name not in ("choices", "usage")}
    whole = {**head, "object": "chat.completion", "choices": [choices[index] for index in sorted(choices)]}
    return whole | ({"usage": usage} if usage else {})


def _add_delta(message: Body, delta: Body, texts: _TextMembers) -> None:
    for name in ("content", "reasoning_content"):
        if delta.get(name):
            texts.add(message, name, delta[name])
    for piece in delta.get("tool_calls", ()):
        calls = message.setdefault("tool_calls", [])
        if piece["index"] == len(calls):
            calls.append({name: value for name, value in piece.items() if name != "index"})
            continue
        kind = "custom" if "custom" in piece else "function"
        for name, text in piece[kind].items():
            texts.add(calls[piece["index"]][kind], name, text)


def _join_message(events: list[Body]) -> Body:
    """Join the streaming events of Anthropic's Messages API into a message."""
    message: Body = events[0]["message"]
    content: list[Body] = message["content"]
    texts = _TextMembers()
    inputs: dict[int, list[str]] = {}
    for event in events:
        match event:
            case {"content_block": block}:
                content.append(block)
            case {"index": index, "delta": {"type": "input_json_delta", "partial_json": text}}:
                inputs.setdefault(index, []).append(text)
            case {"index": index, "delta": {"type": kind, **delta}}:
                name = kind.removesuffix("_delta")
                texts.add(content[index], name, str(delta[name]))
            case {"delta": delta, "usage": usage}:
                message |= delta | {"usage": usage}
    texts.join()
    for index, pieces in inputs.items():
        try:
            content[index]["input"] = json.loads("".join(pieces))
        except ValueError:  # the arguments were cut off
            content[index]["input"] = {}
    return message


_JOIN: dict[str, Callable[[list[Body]], Body]] = {
    "openai": _join_chunks,
    "responses": lambda events: events[-1]["response"],  # the last event contains the complete response
    "anthropic": _join_message,
}
