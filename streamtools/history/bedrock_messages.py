"""Reads and writes messages of Bedrock's Converse API.

These messages have the structure of Anthropic's messages, but each block is an object with one field. The name of this
field is the type of the block. So Anthropic's blocks are written first, and then converted. A block that has no
equivalent in a history is sent back unchanged. Converse requires content in each result, and call ids of at most 64
characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamtools.history import anthropic_messages as anthropic
from streamtools.history.content import file_of, string_at, without
from streamtools.history.history_reader import HistoryReader, TurnDraft
from streamtools.history.parts import Message
from streamtools.json_values import ARRAY, OBJECT, json_text

FORMAT = "bedrock"
_EMPTY_RESULT = "(nothing)"  # the text of an empty result
# Maps Converse's names of document formats to media types.
_DOCUMENTS = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
}
_DOCUMENT_FORMATS = {kind: name for name, kind in _DOCUMENTS.items()}


def is_block(part: object) -> bool:
    """Return whether a part is a block of Converse: an object whose only field is named after its type."""
    return isinstance(part, OBJECT) and "type" not in part and len(part) == 1


def read_block(part: Mapping[str, Any], turn: TurnDraft) -> bool:
    """Add a block to `turn` if it is a block of Converse. Returns False for any other part."""
    if not is_block(part):
        return False
    turn.format = FORMAT
    match part:
        case {"text": str() as text}:
            turn.add_text(text)
        case {"toolUse": {"toolUseId": id, **call}} if call.get("type") is None:
            turn.add_call({"name": call.get("name"), "input": call.get("input")}, id)
        case {"reasoningContent": {"reasoningText": {"text": str() as text, **rest}}}:
            turn.add_thought(text, rest.get("signature"), extra=None if rest else part)
        case {"reasoningContent": {"redactedContent": str() as data}}:
            turn.add_thought("", data, redacted=True)
        case {"citationsContent": {"content": list() as content}}:
            turn.add_text("".join(string_at(block, "text") for block in content), part)
        case _:
            turn.add_item(part)
    return True


def read_result(part: object, reader: HistoryReader) -> bool:
    """Add a block of a user message if it is a result. Returns False for any other part."""
    result = part.get("toolResult") if isinstance(part, OBJECT) and is_block(part) else None
    if not isinstance(result, OBJECT):
        return False
    blocks = result.get("content")
    content = [as_part(block) for block in blocks] if isinstance(blocks, ARRAY) else blocks
    plain = isinstance(blocks, list) and len(blocks) == 1 and is_block(blocks[0]) and "text" in blocks[0]
    is_error = result.get("status") == "error"
    rest = without(result, "toolUseId", "content", "type", *(["status"] if is_error else []))
    rest |= {} if plain or not blocks else {"content": blocks}
    reader.add_native_result(FORMAT, result.get("toolUseId"), content, rest, is_error=is_error)
    return True


def as_part(part: Any) -> Any:
    """Return a block of a user message as a part of a history. Other parts are returned unchanged."""
    match part if is_block(part) else None:
        case {"text": str() as text}:
            return {"type": "text", "text": text}
        case {"json": value}:
            return {"type": "text", "text": json_text(value)}
        case {"image": {"format": str() as kind, "source": {"bytes": str() as data}, **rest}} if not rest:
            return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}
        case {
            "document": {"format": str() as kind, "name": str() as name, "source": {"bytes": str() as data}} as document
        }:
            if kind in _DOCUMENTS and len(document) == 3:
                return file_of(_DOCUMENTS[kind], data, f"{name}.{kind}")
    return part


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a history as Converse's messages.

    In the history, each turn must be followed by its results, and results of calls in text must be user messages.
    """
    return [
        {"role": message["role"], "content": [_block(block) for block in message["content"]]}
        for message in anthropic.write(history)
    ]


def _block(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"type": "text", "text": text, "citationsContent": cited}:
            return {"citationsContent": {"content": [{"text": text}], **cited}}
        case {"type": "text", "text": text}:
            return {"text": text}
        case {"type": "tool_use", "id": id, "name": name, "input": arguments}:
            return {"toolUse": {"toolUseId": id[-64:], "name": name, "input": arguments}}
        case {"type": "tool_result", "tool_use_id": id}:
            status = {"status": "error"} if block.get("is_error") else {n: block[n] for n in ("status",) if n in block}
            return {"toolResult": {"toolUseId": id[-64:], "content": _content(block.get("content")), **status}}
        case {"type": "thinking", "thinking": text, "signature": signature}:
            return {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}
        case {"type": "redacted_thinking", "data": data}:
            return {"reasoningContent": {"redactedContent": data}}
        case {"type": "image", "source": {"type": "base64", "media_type": str() as kind, "data": data}}:
            return {"image": {"format": kind.rpartition("/")[2], "source": {"bytes": data}}}
        case {"type": "document", "source": {"type": "base64", "media_type": str() as kind, "data": data}}:
            title = string_at(block, "title")
            name = title.rpartition(".")[0] or title or "document"
            valid = "".join(char if char.isalnum() or char in " -()[]" else "-" for char in name)
            format = _DOCUMENT_FORMATS.get(kind) or kind.rpartition("/")[2]
            return {"document": {"format": format, "name": valid, "source": {"bytes": data}}}
        case {"type": "search_result", "source": source, "title": title, "content": content}:
            texts = [{"text": string_at(block, "text")} for block in content]
            return {"searchResult": {"source": source, "title": title, "content": texts}}
    return block


def _content(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        return [{"text": content or _EMPTY_RESULT}]
    blocks = [block for block in map(_block, content) if "type" not in block]
    return blocks or [{"text": _EMPTY_RESULT}]
