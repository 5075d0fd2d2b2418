"""A text model behind chat completions, as the gateway calls it, and clients that collect its answers.

The clients follow the documentation of the formats and share no code with the package. The collected stream is compared
with the non-streaming body.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from streamtools.gateway import Exchange, Rewrite

CLIENTS = ("openai", "responses", "anthropic")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
HEADERS = [("content-type", "text/event-stream"), ("x-request-id", "r1"), ("transfer-encoding", "chunked")]


class Collected(NamedTuple):
    """The answer that a client has collected."""

    text: str
    reasoning: str
    calls: list[tuple[str, str, Any]]
    finish: str | None
    error: str | None = None


def request(
    client: str, *, streamed: bool = True, tools: Sequence[str] = ("get_weather", "get_time"), **more: Any
) -> Any:
    """Return the body of a request with these tools, in a client's format."""
    body: dict[str, Any] = {"model": "tiny", "stream": streamed}
    question = [{"role": "user", "content": "What is it like in Zürich?"}]
    if client == "openai":
        functions = [{"name": name, "description": f"{name}.", "parameters": SCHEMA} for name in tools]
        body |= {"messages": question, "tools": [{"type": "function", "function": each} for each in functions]}
        body |= {"stream_options": {"include_usage": True}} if streamed else {}
    elif client == "responses":
        body |= {"input": question}
        body |= {"tools": [{"type": "function", "name": name, "parameters": SCHEMA} for name in tools]}
    else:
        body |= {"messages": question, "max_tokens": 100}
        body |= {"tools": [{"name": name, "input_schema": SCHEMA} for name in tools]}
    return body | more


def stream(deltas: Iterable[str], finish: str | None = "stop", *, reasoning: str = "", done: bool = True) -> bytes:
    """Return the streamed response of a text model."""
    head = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1, "model": "tiny-text"}
    parts: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    parts += [{"reasoning_content": reasoning}] if reasoning else []
    parts += [{"content": delta} for delta in deltas]
    chunks = [{**head, "choices": [{"index": 0, "delta": part, "finish_reason": None}]} for part in parts]
    if finish:
        chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        chunks.append({**head, "choices": [], "usage": USAGE})
    return b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in chunks) + b"data: [DONE]\n\n" * done


def whole(text: str, finish: str = "stop", *, reasoning: str = "") -> bytes:
    """Return the same response as one body."""
    message = {"role": "assistant", "content": text} | ({"reasoning_content": reasoning} if reasoning else {})
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return json.dumps({"id": "chatcmpl-7", "object": "chat.completion", "created": 1, "model": "tiny-text",
                       "choices": choices, "usage": USAGE}).encode()  # fmt: skip


def begin(client: str, body: Any, **options: Any) -> Exchange:
    """Return the exchange of a request, with fixed ids and times."""
    numbers = itertools.count(1)
    options = {"new_id": lambda: f"call_text_{next(numbers)}"} | options
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Rewrite(**options).begin(client, content)  # type: ignore[arg-type]  # one of the clients


def answer(exchange: Exchange, *bodies: bytes | Sequence[bytes], status: int = 200, cause: str | None = None) -> bytes:
    """Return the client's body for these bodies of the upstream, one for each upstream request."""
    parts = []
    left = iter(bodies)
    while exchange.request is not None:
        body = next(left)
        declared = (
            HEADERS if isinstance(body, bytes) and body.startswith(b"data") else [("content-type", "application/json")]
        )
        exchange.begin(status, HEADERS if not isinstance(body, bytes) else declared)
        parts += [exchange.feed(each) for each in ([body] if isinstance(body, bytes) else body)]
        parts.append(exchange.close(cause))
    return b"".join(parts) if bodies else exchange.close()


def collect(client: str, body: bytes) -> Collected:
    """Return the answer that a client collects from a stream or reads in a body."""
    if not body.startswith((b"data: ", b"event: ")):
        return _READ[client](json.loads(body))
    events = [each.rpartition(b"\n")[2].removeprefix(b"data: ") for each in body.split(b"\n\n") if each]
    return _COLLECT[client]([json.loads(each) for each in events if each != b"[DONE]"])


def _collect_chat(chunks: list[Any]) -> Collected:
    text, reasoning, finish = "", "", None
    calls: list[list[str]] = []
    for chunk in chunks:
        if "error" in chunk:
            return Collected(text, reasoning, _loaded(calls), finish, chunk["error"]["message"])
        for choice in chunk["choices"]:
            delta = choice["delta"]
            text += delta.get("content") or ""
            reasoning += delta.get("reasoning_content") or ""
            finish = choice["finish_reason"] or finish
            for piece in delta.get("tool_calls", ()):
                if piece["index"] == len(calls):
                    calls.append([piece["id"], piece["function"]["name"], ""])
                calls[piece["index"]][2] += piece["function"]["arguments"]
    return Collected(text, reasoning, _loaded(calls), finish)


def _loaded(calls: Iterable[Sequence[str]]) -> list[tuple[str, str, Any]]:
    loaded = []
    for id, name, arguments in calls:
        try:
            loaded.append((id, name, json.loads(arguments)))
        except ValueError:
            loaded.append((id, name, arguments))
    return loaded


def _read_chat(body: Any) -> Collected:
    if "error" in body:
        return Collected("", "", [], None, body["error"]["message"])
    (choice,) = body["choices"]
    message = choice["message"]
    calls = [(each["id"], *each["function"].values()) for each in message.get("tool_calls", ())]
    text, reasoning = message["content"] or "", message.get("reasoning_content", "")
    return Collected(text, reasoning, _loaded(calls), choice["finish_reason"])


def _collect_response(events: list[Any]) -> Collected:
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    text, reasoning = "", ""
    arguments: dict[str, str] = {}
    for event in events:
        match event:
            case {"type": "response.output_text.delta", "delta": delta}:
                text += delta
            case {"type": "response.reasoning_text.delta", "delta": delta}:
                reasoning += delta
            case {"type": "response.function_call_arguments.delta", "item_id": id, "delta": delta}:
                arguments[id] = arguments.get(id, "") + delta
    read = _read_response(events[-1]["response"])
    items = [each for each in events[-1]["response"]["output"] if each["type"] == "function_call"]
    assert [each["arguments"] for each in items] == [arguments.get(each["id"], "") for each in items]
    assert (text, reasoning) == (read.text, read.reasoning) or read.error
    return read._replace(text=text, reasoning=reasoning)


def _read_response(body: Any) -> Collected:
    if body.get("error"):
        return Collected("", "", [], None, body["error"]["message"])
    found: dict[str, str] = {"message": "", "reasoning": ""}
    calls = []
    for item in body["output"]:
        if item["type"] == "function_call":
            calls.append((item["call_id"], item["name"], item["arguments"]))
        else:
            found[item["type"]] += "".join(part["text"] for part in item["content"])
    reason = (body["incomplete_details"] or {}).get("reason")
    finish = "length" if reason else "tool_calls" if calls else "stop"
    return Collected(found["message"], found["reasoning"], _loaded(calls), finish)


_STOP = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}


def _collect_message(events: list[Any]) -> Collected:
    blocks: list[Any] = []
    stopped: set[int] = set()
    finish = None
    for event in events:
        match event:
            case {"type": "error", "error": error}:
                return Collected(*_texts(blocks), [], None, error["message"])
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert index == len(blocks)
                blocks.append({**block, "input": ""} if block["type"] == "tool_use" else block)
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                assert index not in stopped
                (text,) = (value for name, value in delta.items() if name != "type")
                name = {"input_json_delta": "input", "text_delta": "text", "thinking_delta": "thinking"}[delta["type"]]
                blocks[index][name] += text
            case {"type": "content_block_stop", "index": index}:
                stopped.add(index)
            case {"type": "message_delta", "delta": delta}:
                finish = _STOP[delta["stop_reason"]]
    assert stopped == set(range(len(blocks)))
    calls = [(each["id"], each["name"], each["input"]) for each in blocks if each["type"] == "tool_use"]
    return Collected(*_texts(blocks), _loaded(calls), finish)


def _texts(blocks: list[Any]) -> tuple[str, str]:
    text = "".join(each["text"] for each in blocks if each["type"] == "text")
    return text, "".join(each["thinking"] for each in blocks if each["type"] == "thinking")


def _read_message(body: Any) -> Collected:
    if body["type"] == "error":
        return Collected("", "", [], None, body["error"]["message"])
    blocks = body["content"]
    calls = [(each["id"], each["name"], each["input"]) for each in blocks if each["type"] == "tool_use"]
    return Collected(*_texts(blocks), calls, _STOP[body["stop_reason"]])


_COLLECT = {"openai": _collect_chat, "responses": _collect_response, "anthropic": _collect_message}
_READ = {"openai": _read_chat, "responses": _read_response, "anthropic": _read_message}
