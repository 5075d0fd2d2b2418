"""Steps of Google's Interactions: what the user says, each thought, output, call and result of a turn is a step.

A thought goes back with its signature, before what it led to. Steps of Google's own tools go back as they came, and so
does an output that is more than one text. The system's words have their own place in the request.

Source: the package `google-genai` 3.4.0 (`interactions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.content import Content, data_of, given, is_text, read_part, without, write_parts
from streamtools.history.history_reader import HistoryReader, TurnDraft, keep
from streamtools.history.messages import beside, beside_call, in_order
from streamtools.history.parts import Assistant, CallResult, Message, Part, Results, System, TextPart, Thought, User

FORMAT = "interactions"
_OURS = ("user_input", "model_output", "thought", "function_result")
_TOOLS = ("code_execution", "google_maps", "google_search", "mcp_server_tool", "processing", "retrieval", "url_context")
_HOSTED = {f"{tool}_{kind}" for tool in _TOOLS for kind in ("call", "result")} | {
    *("file_search_result", "tool_search_result"),
}
_CONTENT = ("text", "image", "document", "audio", "video")
_SHARED = ("function_call", "file_search_call", "tool_search_call")  # types that items of Responses have too


def is_one(message: Mapping[str, Any], reader: HistoryReader) -> bool:
    """Return whether a message is a step; one that may be an item of Responses is where steps stand before it."""
    kind = message.get("type")
    if not isinstance(kind, str) or "role" in message:
        return False
    if kind in _SHARED:
        known = (kind == "function_call" and isinstance(message.get("arguments"), Mapping)) or "signature" in message
        of_steps = reader.shown == FORMAT
        return "call_id" not in message and "status" not in message and (known or of_steps)
    return kind in _OURS or kind in _HOSTED


def read(step: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add a step: a piece of a turn, a result, or what the user says."""
    reader.shown = reader.shown or FORMAT
    match step["type"]:
        case "user_input":
            content = step.get("content")
            listed = content if isinstance(content, list | tuple) else [content]
            reader.hear(User(content if isinstance(content, str) else [_read_part(each) for each in listed if each]))
        case "function_result":
            result = step.get("result")
            parts = [_read_part(each) for each in result] if isinstance(result, list | tuple) else result
            held = {} if isinstance(result, str) else {"result": result}
            rest = without(step, "type", "call_id", "name", "result", "is_error")
            own, failed = keep(FORMAT, rest | held), step.get("is_error") is True
            reader.answer(step.get("call_id"), parts, is_error=failed, own=own)
        case "model_output":
            _read_output(step, reader.go_on(FORMAT))
        case "thought":
            summary = step.get("summary")
            texts = (given(each, "text") for each in (summary if isinstance(summary, list) else [summary]))
            reader.go_on(FORMAT).add_thought("".join(texts), step.get("signature"), own=step)
        case "function_call":
            rest = without(step, "type", "id", "name", "arguments", "signature")
            call = {"name": step.get("name"), "arguments": step.get("arguments")}
            reader.take_call(FORMAT, call, step.get("id"), rest, step.get("signature"))
        case _:
            reader.go_on(FORMAT).add_item(step)


def _read_output(step: Mapping[str, Any], said: TurnDraft) -> None:
    content = step.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [each["text"] for each in parts if isinstance(each, Mapping) and is_text(each)]
    if not texts:
        said.add_item(step)
        return
    plain = len(step) == 2 and parts == [{"type": "text", "text": texts[0]}]
    said.add_text("".join(texts), None if plain else without(step, "type"))


def _read_part(part: Any) -> dict[str, Any]:
    match part:
        case {"type": "image", "data": str() as data, "mime_type": str() as kind, **rest} if not rest:
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
        case {"type": "image", "uri": str() as uri, **rest} if not rest:
            return {"type": "image_url", "image_url": {"url": uri}}
        case {"type": "document", "data": str() as data, "mime_type": str() as kind, **rest} if not rest:
            return {"type": "file", "file": {"file_data": f"data:{kind};base64,{data}"}}
    return read_part(part)


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the steps of a settled history, in which answers to calls in text are the user's."""
    steps: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, Assistant):
            steps += (step for each in in_order(message) for step in _write(each))
        elif isinstance(message, Results):
            steps += (_result(result) for result in message.results)
        elif not isinstance(message, System):
            steps.append({"type": "user_input", "content": _parts(message.content)})
    return steps


def _parts(content: Content) -> list[dict[str, Any]]:
    document = {"type": "document"}
    return write_parts(content, _text, _image, lambda kind, data, _: document | {"data": data, "mime_type": kind})


def _text(part: dict[str, Any]) -> dict[str, Any]:
    return {name: part[name] for name in ("type", "text", "annotations") if name in part}


def _image(image: dict[str, Any]) -> dict[str, Any]:
    if found := data_of(image["url"]):
        return {"type": "image", "data": found[1], "mime_type": found[0]}
    return {"type": "image", "uri": image["url"]}


def _write(said: Part) -> list[dict[str, Any]]:
    match said:
        case TextPart(text, own):
            written = {"type": "model_output", "content": [{"type": "text", "text": text}]}
            return [written | beside(said)] if text or own else []
        case ToolCall():
            call = {"type": "function_call", "id": said.id, "name": said.name, "arguments": said.arguments}
            return [call | ({"signature": said.signature} if said.signature else {}) | beside_call(said, FORMAT)]
        case Thought(text, signature, own=own):
            if own:
                return [dict(own.data)]
            summary = {"summary": [{"type": "text", "text": text}]} if text else {}
            return [{"type": "thought", "signature": signature, **summary}] if signature and not said.id else []
    return [dict(said.data)]


def _result(result: CallResult) -> dict[str, Any]:
    parts = [each for each in _parts(list(result.parts)) if each.get("type") in _CONTENT]
    said: Any = parts or result.text
    error = {"is_error": True} if result.is_error else {}
    written = {"type": "function_result", "call_id": result.call_id, "name": result.name, "result": said}
    return written | error | beside(result)
