"""An answer as one JSON body, for clients that do not ask for a stream, and errors in the form of each API. Sans-IO.

A whole answer is made of the very events that would have been streamed, put together as the clients' SDKs do it: so
what a client gets does not depend on how it has asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from streamtools.outputs.encoder import to_json

Body = dict[str, Any]

_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_FAILED = 502
"""The status of an answer that is known to have failed before anything of it has been sent."""


def write_fault(format: str, status: int, message: str, param: str | None = None, code: str | None = None) -> bytes:
    """Return the body of an error in the form of OpenAI's API, or of Anthropic's (`"anthropic"`)."""
    if format == "anthropic":
        kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        return to_json({"type": "error", "error": {"type": kind, "message": message}})
    kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return to_json({"error": {"message": message, "type": kind, "param": param, "code": code}})


def write_whole(format: str, stream: bytes) -> tuple[int, bytes]:
    """Return the status and the body of an answer in a format, whose stream this would be."""
    events = list(_read(stream))
    ends = (each["response"] if each.get("type") == "response.failed" else each for each in events)
    fault = next((fault for each in ends if (fault := each.get("error"))), None)
    if fault is not None:
        return _FAILED, write_fault(format, _FAILED, fault.get("message", ""), code=fault.get("code"))
    return 200, to_json(_JOINED[format](events))


def _read(stream: bytes) -> Iterator[Body]:
    for event in stream.split(b"\n\n"):
        data = event.rpartition(b"\n")[2].removeprefix(b"data: ")
        if data.startswith(b"{"):
            yield json.loads(data)


class _Texts:
    """Texts that come in pieces, as members of objects; each is joined once, at the end."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, str], tuple[Body, list[str]]] = {}

    def add(self, holder: Body, name: str, piece: str) -> None:
        holder.setdefault(name, "")
        self._pieces.setdefault((id(holder), name), (holder, []))[1].append(piece)

    def join(self) -> None:
        for (_, name), (holder, pieces) in self._pieces.items():
            holder[name] = "".join([holder[name] or "", *pieces])


def _join_chunks(chunks: list[Body]) -> Body:
    """Return the chat completion that chunks are."""
    texts = _Texts()
    choices: dict[int, Body] = {}
    usage = None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for each in chunk["choices"]:
            index = each["index"]
            choice = choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}})
            _add(choice["message"], each["delta"], texts)
            choice["finish_reason"] = each["finish_reason"]
            if logprobs := each.get("logprobs"):
                known = choice.setdefault("logprobs", {"content": [], "refusal": None})
                known["content"] += logprobs.get("content") or []
    texts.join()
    for choice in choices.values():
        message = choice["message"]
        message["content"] = message["content"] or (None if "tool_calls" in message else "")
        message.setdefault("refusal", None)
        choice.setdefault("logprobs", None)
    head = {name: value for name, value in chunks[0].items() if name not in ("choices", "usage")}
    whole = {**head, "object": "chat.completion", "choices": [choices[index] for index in sorted(choices)]}
    return whole | ({"usage": usage} if usage else {})


def _add(message: Body, delta: Body, texts: _Texts) -> None:
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
    """Return the message of Anthropic's that events are."""
    message: Body = events[0]["message"]
    content: list[Body] = message["content"]
    texts = _Texts()
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
        except ValueError:  # of a call that was cut
            content[index]["input"] = {}
    return message


_JOINED: dict[str, Callable[[list[Body]], Body]] = {
    "openai": _join_chunks,
    "responses": lambda events: events[-1]["response"],  # which stands there whole
    "anthropic": _join_message,
}
