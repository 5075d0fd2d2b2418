"""Entries of a conversation with Mistral: what is said, each call and each result is one, with a type.

What the model thinks stands in an output before its text. What Mistral's own tools have done, and handed over from one
agent to another, goes back as it came. Instructions have their own place in the request.

Source: the package `mistralai` 3.7.0 (`InputEntries`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.content import given, read_content, without, write_parts
from streamtools.history.history_reader import HistoryReader, TurnDraft, keep
from streamtools.history.messages import arguments_text, beside, beside_call, in_order
from streamtools.history.parts import (
    Assistant,
    CallResult,
    Message,
    ProviderItem,
    Results,
    System,
    TextPart,
    Thought,
    User,
)

FORMAT = "mistral"
_OUTPUTS = ("message.input", "message.output")
_TYPES = (*_OUTPUTS, "function.call", "function.result", "tool.execution", "agent.handoff")
_ENTRY: dict[str, Any] = {"object": "entry"}


def is_one(message: Mapping[str, Any]) -> bool:
    return message.get("type") in _TYPES


def read(entry: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add an entry: a piece of a turn, a result, or what the user says."""
    kind = entry["type"]
    rest = without(entry, "object", "type", "tool_call_id", "name", "arguments", "result", "content")
    if kind == "message.input" and entry.get("role") != "assistant":
        reader.hear(User(read_content(entry.get("content"))))
    elif kind in _OUTPUTS:
        _read_output(entry, rest | ({"type": kind} if kind == "message.input" else {}), reader.go_on(FORMAT))
    elif kind == "function.call":
        call = {"name": entry.get("name"), "arguments": entry.get("arguments")}
        reader.take_call(FORMAT, call, entry.get("tool_call_id"), rest)
    elif kind == "function.result":
        reader.answer(entry.get("tool_call_id"), entry.get("result"), own=keep(FORMAT, rest))
    else:
        reader.go_on(FORMAT).add_item(entry)


def _read_output(entry: Mapping[str, Any], rest: dict[str, Any], said: TurnDraft) -> None:
    """Add the chunks of an output; what stands beside its content goes with the first."""
    rest = {name: value for name, value in rest.items() if (name, value) != ("role", "assistant")}
    content = entry.get("content")
    chunks = content if isinstance(content, list | tuple) else [content]
    own: dict[str, Any] = {"entry": rest} if rest or said.parts else {}
    for chunk in chunks:
        kind = chunk.get("type") if isinstance(chunk, Mapping) else None
        if not isinstance(chunk, Mapping):
            said.add_text(chunk if isinstance(chunk, str) else "", own)
        elif kind == "thinking":
            thinking = chunk.get("thinking")
            texts = [given(each, "text") for each in thinking] if isinstance(thinking, list | tuple) else [thinking]
            thought = "".join(each for each in texts if isinstance(each, str))
            said.add_thought(thought, chunk.get("signature"), own={**own, "chunk": dict(chunk)})
        elif kind == "text":
            beside = without(chunk, "type", "text")
            said.add_text(given(chunk, "text"), own | ({"chunk": beside} if beside else {}))
        else:
            if own:
                said.add_text("", own)
            said.add_item(chunk)
        own = {}


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the entries of a settled history, in which answers to calls in text are the user's."""
    entries: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, Assistant):
            entries += _turn(message)
        elif isinstance(message, Results):
            entries += map(_result, message.results)
        elif not isinstance(message, System):
            content = message.content
            said = content if isinstance(content, str) else write_parts(content, dict, _image, _file)
            entries.append(_ENTRY | {"type": "message.input", "role": "user", "content": said})
    return entries


def _image(image: dict[str, Any]) -> dict[str, Any]:
    return {"type": "image_url", "image_url": image if "detail" in image else image["url"]}


def _file(kind: str, data: str, name: str) -> dict[str, Any]:
    named = {"document_name": name} if name else {}
    return {"type": "document_url", "document_url": f"data:{kind};base64,{data}", **named}


def _turn(message: Assistant) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    chunks: list[dict[str, Any]] | None = None  # of the output that is open
    for part in in_order(message):
        if isinstance(part, ToolCall):
            call = {"tool_call_id": part.id, "name": part.name, "arguments": arguments_text(part)}
            entries.append(_ENTRY | {"type": "function.call"} | call | beside_call(part, FORMAT))
            chunks = None
        elif isinstance(part, ProviderItem) and is_one(part.data):
            entries.append(_ENTRY | part.data)
            chunks = None
        else:
            own = {} if isinstance(part, ProviderItem) else beside(part)
            if chunks is None or "entry" in own:
                chunks = []
                members = own.get("entry", {})
                entries.append(_ENTRY | {"type": "message.output", "role": "assistant", "content": chunks} | members)
            chunks += _chunk(part, own, ours=message.origin.format in (None, FORMAT))
    for entry in entries:
        match entry.get("content"):
            case [{"type": "text", "text": str() as text, **rest}] if not rest:
                entry["content"] = text
    return [entry for entry in entries if entry.get("content") != []]


def _chunk(part: TextPart | Thought | ProviderItem, own: Mapping[str, Any], *, ours: bool) -> list[dict[str, Any]]:
    if isinstance(part, ProviderItem):
        return [dict(part.data)]
    if isinstance(part, TextPart):
        return [{"type": "text", "text": part.text, **own.get("chunk", {})}] if part.text else []
    if "chunk" in own:
        return [dict(own["chunk"])]
    if not ours or part.redacted or not (part.text or part.signature):
        return []
    signed = {"signature": part.signature} if part.signature else {}
    return [{"type": "thinking", "thinking": [{"type": "text", "text": part.text}], **signed}]


def _result(result: CallResult) -> dict[str, Any]:
    written = {"type": "function.result", "tool_call_id": result.call_id, "result": result.text}
    return _ENTRY | written | beside(result)
