"""Reads and writes items of OpenAI's Responses API.

Reasoning, messages, calls and results are separate items. Reasoning is sent back before the message or the call that it
led to. If the whole reasoning item is known, it is sent back unchanged. Other reasoning is sent back only if it has an
id. Such reasoning must also have encrypted content, or be in a turn with provider items. Requests with the option
`store: false` refuse any other reasoning, so it is omitted. Reasoning directly before an unanswered client call is
omitted with the call. A call of a custom tool has a text instead of arguments. Its result is an item of type
`custom_tool_call_output`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.content import string_at, text_in, without, write_parts
from streamtools.history.history_reader import HistoryReader, TurnDraft
from streamtools.history.parts import (
    Assistant,
    CallResult,
    Message,
    Part,
    ProviderItem,
    Results,
    System,
    TextPart,
    Thought,
)
from streamtools.history.writing import arguments_text, call_provider_fields, in_order, provider_fields

FORMAT = "responses"
_CUSTOM = "custom_tool_call"
_CLIENT_CALLS = ("computer_call", "local_shell_call", "shell_call", "apply_patch_call")  # the client runs them
_MEMBERS = ("prompt_cache_breakpoint",)  # additional fields of a content part that are sent back
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def is_item(message: Mapping[str, Any]) -> bool:
    """Return whether an object with a role is an item and not a message, for example an item that adds tools."""
    return "content" not in message and isinstance(message.get("type"), str) and message["type"] != "message"


def members_of(message: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of the fields of a message item besides role and content, or () for another format."""
    has_format = message.get("type") == "message" or "phase" in message
    has_format = has_format or any(
        string_at(part, "type").startswith("input_") and "input_audio" not in part for part in parts
    )
    return ("type", "id", "status", "phase") if has_format else ()


def is_message(message: Mapping[str, Any]) -> bool:
    """Return whether an assistant message is an output item of this API.

    Anthropic's responses also have the type `message`, but different content. A message that this module wrote may have
    no type. It is recognized by its field `phase`.
    """
    if message.get("type") != "message":
        return "type" not in message and string_at(message, "phase") != ""
    content = message.get("content")
    types = [part.get("type") for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    return not types or "output_text" in types or "refusal" in types


def read_message(message: Mapping[str, Any], turn: TurnDraft) -> None:
    """Add an output message to `turn`, as a text part that also keeps the whole item."""
    turn.format = FORMAT
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [
        string_at(part, "text") or string_at(part, "refusal") if isinstance(part, Mapping) else part for part in parts
    ]
    turn.add_text("".join(text for text in texts if isinstance(text, str)), message)


def read_item(item: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add an item that is a part of a turn, or a result. Raises ValueError for an object that is not an item."""
    kind = item.get("type")
    if kind in _OUTPUTS and isinstance(item.get("call_id"), str):
        output = item.get("output")
        members = {} if isinstance(output, str) else {"output": output}
        rest = without(item, "type", "call_id", "output") | members
        reader.add_native_result(FORMAT, item["call_id"], output, rest)
    elif kind == "reasoning":
        turn = reader.open_turn(FORMAT, only_items=True)
        parts = [item.get("summary"), item.get("content")]
        texts = (string_at(entry, "text") for part in parts if isinstance(part, list) for entry in part)
        complete = isinstance(item.get("summary"), list) and isinstance(item.get("id"), str)
        turn.add_thought(
            "\n\n".join(filter(None, texts)),
            item.get("encrypted_content"),
            item.get("id"),
            extra=item if complete else None,
        )
    elif kind in ("function_call", _CUSTOM):
        known = ("type", "call_id", "name", "arguments", "input")[kind == _CUSTOM :]  # keep the `type` of a custom call
        reader.open_turn(FORMAT).add_call(item, item.get("call_id"), without(item, *known))
    elif isinstance(kind, str) or (kind is None and string_at(item, "id") and len(item) <= 2):  # an item reference
        reader.open_turn(FORMAT).add_item(item)
    else:
        raise ValueError("the message has no role, and an item must have a type, which is a text")


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a history as items.

    In the history, each turn must be followed by its results, and results of calls in text must be user messages.
    """
    items: list[dict[str, Any]] = []
    custom: set[str] = set()  # ids of the calls of custom tools in the last turn
    answered = _answered(history)
    for message in history:
        if isinstance(message, System):
            items.append({"role": "system", "content": message.text, **provider_fields(message)})
        elif isinstance(message, Assistant):
            custom = {call.id for call in message.calls if call_provider_fields(call, FORMAT).get("type") == _CUSTOM}
            has_items = bool(message.items)
            for part in in_order(message):
                if not _is_unanswered(part, answered):
                    items += _write(part, has_items=has_items)
                    continue
                while items and items[-1].get("type") == "reasoning":  # the provider refuses reasoning without its call
                    items.pop()
        elif isinstance(message, Results):
            items += (_result(result, custom) for result in message.results)
        else:
            content = message.content
            parts = content if isinstance(content, str) else _parts(content)
            items.append({"role": "user", "content": parts, **provider_fields(message)})
    return items


def _answered(history: Sequence[Message]) -> set[tuple[str, str]]:
    """Return the type and id of each answered call in the provider items, such as a shell call.

    The output of a local shell call has `id` instead of `call_id`.
    """
    items = (item.data for message in history if isinstance(message, Assistant) for item in message.items)
    return {
        (kind.removesuffix("_output"), string_at(item, "call_id") or string_at(item, "id"))
        for item in items
        if (kind := string_at(item, "type")).endswith("_output")
    }


def _is_unanswered(part: Part, answered: set[tuple[str, str]]) -> bool:
    """Return whether a part is a call in `_CLIENT_CALLS` without an output item. The provider refuses such calls."""
    if not isinstance(part, ProviderItem) or part.data.get("type") not in _CLIENT_CALLS:
        return False
    return (string_at(part.data, "type"), string_at(part.data, "call_id")) not in answered


def _parts(content: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return write_parts(content, _text, _image, _file, _MEMBERS)


def _text(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_text", "text": part["text"], **{name: part[name] for name in _MEMBERS if name in part}}


def _image(image: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}


def _file(kind: str, data: str, name: str) -> dict[str, Any]:
    named = {"filename": name} if name else {}
    return {"type": "input_file", **named, "file_data": f"data:{kind};base64,{data}"}


def _write(part: Part, *, has_items: bool) -> list[dict[str, Any]]:
    """Return one part of a turn as items. `has_items` is True if the turn holds provider items."""
    match part:
        case TextPart(text):
            return [{"role": "assistant", "content": text, **provider_fields(part)}]
        case ToolCall():
            extra = call_provider_fields(part, FORMAT)
            if extra.get("type") == _CUSTOM:
                return [{"call_id": part.id, "name": part.name, "input": string_at(part.arguments, "input"), **extra}]
            made = {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": arguments_text(part)}
            return [made | extra]
        case Thought():
            return _thought(part, has_items=has_items)
    return [dict(part.data)]


def _thought(thought: Thought, *, has_items: bool) -> list[dict[str, Any]]:
    if thought.extra:
        return [dict(thought.extra.data)]
    if not (thought.id and (thought.signature or has_items)):  # the provider would refuse it
        return []
    summary = [{"type": "summary_text", "text": thought.text}] if thought.text else []
    encrypted = {"encrypted_content": thought.signature} if thought.signature else {}
    return [{"type": "reasoning", "id": thought.id, "summary": summary, **encrypted}]


def _result(result: CallResult, custom: set[str]) -> dict[str, Any]:
    output: Any = result.text
    if result.parts:
        known = ("input_text", "input_image", "input_file")
        output = [part for part in _parts(result.parts) if part.get("type") in known] or text_in(list(result.parts))
    kind = _OUTPUTS[result.call_id in custom]
    return {"type": kind, "call_id": result.call_id, "output": output, **provider_fields(result)}
