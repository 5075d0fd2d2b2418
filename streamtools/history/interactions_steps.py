"""Reads and writes the steps of Google's Interactions API.

User input, thoughts, output, calls and results are separate steps. A thought is sent back with its signature, before
the output or call that followed it. Steps of Google's built-in tools, and output with several parts or without text,
are sent back unchanged. `write` skips system messages, because the request carries the system prompt in a separate
field.

Source: the package `google-genai` 3.4.0 (`interactions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.content import Content, data_of, is_text, read_part, string_at, without, write_parts
from streamtools.history.history_reader import HistoryReader, TurnDraft
from streamtools.history.parts import Assistant, CallResult, Message, Part, Results, System, TextPart, Thought, User
from streamtools.history.writing import call_provider_fields, in_order, provider_fields

FORMAT = "interactions"
_CONVERSATION_STEPS = ("user_input", "model_output", "thought", "function_result")
_TOOLS = ("code_execution", "google_maps", "google_search", "mcp_server_tool", "processing", "retrieval", "url_context")
# Types of the steps of Google's built-in tools
_HOSTED = {f"{tool}_{kind}" for tool in _TOOLS for kind in ("call", "result")}
_HOSTED |= {"file_search_result", "tool_search_result"}
_CONTENT = ("text", "image", "document", "audio", "video")
_SHARED = ("function_call", "file_search_call", "tool_search_call")  # item types that OpenAI's Responses API also uses


def is_step(message: Mapping[str, Any], reader: HistoryReader) -> bool:
    """Return whether a message is a step.

    An ambiguous message, which may also be a Responses item, is a step if earlier messages are steps.
    """
    kind = message.get("type")
    if not isinstance(kind, str) or "role" in message:
        return False
    if kind in _SHARED:
        has_arguments = kind == "function_call" and isinstance(message.get("arguments"), Mapping)
        is_certain = has_arguments or "signature" in message
        follows_steps = reader.list_format == FORMAT
        return "call_id" not in message and "status" not in message and (is_certain or follows_steps)
    return kind in _CONVERSATION_STEPS or kind in _HOSTED


def read(step: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add a step to the history: a part of a turn, a result, or user input."""
    reader.list_format = reader.list_format or FORMAT
    match step["type"]:
        case "user_input":
            content = step.get("content")
            listed = content if isinstance(content, list | tuple) else [content]
            reader.add_message(
                User(content if isinstance(content, str) else [_read_part(part) for part in listed if part])
            )
        case "function_result":
            result = step.get("result")
            parts = [_read_part(part) for part in result] if isinstance(result, list | tuple) else result
            content_fields = {} if isinstance(result, str) else {"result": result}
            rest = without(step, "type", "call_id", "name", "result", "is_error")
            failed = step.get("is_error") is True
            reader.add_native_result(FORMAT, step.get("call_id"), parts, rest | content_fields, is_error=failed)
        case "model_output":
            _read_output(step, reader.open_turn(FORMAT))
        case "thought":
            summary = step.get("summary")
            texts = (string_at(entry, "text") for entry in (summary if isinstance(summary, list) else [summary]))
            reader.open_turn(FORMAT).add_thought("".join(texts), step.get("signature"), extra=step)
        case "function_call":
            rest = without(step, "type", "id", "name", "arguments", "signature")
            reader.open_turn(FORMAT).add_call(step, step.get("id"), rest, step.get("signature"))
        case _:
            reader.open_turn(FORMAT).add_item(step)


def _read_output(step: Mapping[str, Any], turn: TurnDraft) -> None:
    content = step.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [part["text"] for part in parts if isinstance(part, Mapping) and is_text(part)]
    if not texts:
        turn.add_item(step)
        return
    plain = len(step) == 2 and parts == [{"type": "text", "text": texts[0]}]
    turn.add_text("".join(texts), None if plain else without(step, "type"))


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
    """Return the history as steps.

    `history` must hold a result for each call. Results of calls in text must already be user messages.
    """
    steps: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, Assistant):
            steps += (step for part in in_order(message) for step in _write(part))
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


def _write(part: Part) -> list[dict[str, Any]]:
    match part:
        case TextPart(text, extra):
            written = {"type": "model_output", "content": [{"type": "text", "text": text}]}
            return [written | provider_fields(part)] if text or extra else []
        case ToolCall():
            call = {"type": "function_call", "id": part.id, "name": part.name, "arguments": part.arguments}
            signature_field = {"signature": part.signature} if part.signature else {}
            return [call | signature_field | call_provider_fields(part, FORMAT)]
        case Thought(text, signature, extra=extra):
            if extra:
                return [dict(extra.data)]
            summary = {"summary": [{"type": "text", "text": text}]} if text else {}
            return [{"type": "thought", "signature": signature, **summary}] if signature and not part.id else []
    return [dict(part.data)]


def _result(result: CallResult) -> dict[str, Any]:
    parts = [part for part in _parts(list(result.parts)) if part.get("type") in _CONTENT]
    content: Any = parts or result.text
    error = {"is_error": True} if result.is_error else {}
    written = {"type": "function_result", "call_id": result.call_id, "name": result.name, "result": content}
    return written | error | provider_fields(result)
