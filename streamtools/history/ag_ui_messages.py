"""Reads the messages that clients of AG-UI post.

They are like OpenAI's messages with other field names, and each has an id. All of their content comes from a client and
is not trusted. Reasoning is kept as plain text only, unless its provider has signed or encrypted it. Activity messages
are for the interface and are ignored. An `encryptedValue` that this library wrote contains the format of its
provider (see `outputs/front_end.py`). Any other `encryptedValue` is ignored: its provider is unknown, and a different
provider would refuse it in every later request.

Source: the package `ag-ui-protocol` 1.0.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamtools.history.content import Content, part_of_url, read_content, signed_or_encrypted, string_at, text_in
from streamtools.history.history_reader import HistoryReader, TurnDraft
from streamtools.history.message_keys import refuse_misspelled_keys
from streamtools.history.parts import ProviderItem, Thought, User
from streamtools.json_values import ARRAY, OBJECT, Rejected, decode_json

_ROLES = ("system", "developer", "user", "assistant", "tool", "reasoning", "activity")
_FOREIGN_MEMBERS = ("type", "parts", "tool_calls", "tool_call_id")  # fields of other formats


def is_message(message: Mapping[str, Any]) -> bool:
    """Return whether a message has this format: a role, an id, and no field that only other formats have."""
    if not isinstance(message.get("id"), str) or message.get("role") not in _ROLES:
        return False
    return not any(name in message for name in _FOREIGN_MEMBERS)


def read(message: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add a message to the history of `reader`.

    Raises ValueError for a system message that is not allowed, and for a key that looks like a typing error.
    """
    content = message.get("content")
    if message["role"] != "activity":
        refuse_misspelled_keys(message, "ag-ui")
    match message["role"]:
        case "system" | "developer":
            reader.add_system(text_in(read_content(content)))
        case "user":
            reader.add_message(User(_content(content)))
        case "assistant":
            _read_assistant(message, reader)
        case "reasoning":
            turn, text = reader.open_turn(None), text_in(read_content(content))
            data = _provider_data(message, turn)
            if entries := signed_or_encrypted(data.get("reasoning_details")):
                turn.parts.append(Thought(text, extra=ProviderItem("openai", {"reasoning_details": entries})))
            else:
                redacted = data.get("redacted") is True
                turn.add_thought(text, data.get("signature"), data.get("id"), redacted=redacted)
        case "tool":
            error, result = string_at(message, "error"), _content(content)
            result = result if text_in(result) else error or result
            reader.add_native_result(None, message.get("toolCallId"), result, {}, is_error=bool(error))


def _read_assistant(message: Mapping[str, Any], reader: HistoryReader) -> None:
    turn = reader.open_turn(None)
    data = _provider_data(message, turn)
    text = text_in(read_content(message.get("content")))
    if turn.format == "gemini" and (signature := string_at(data, "signature")):
        turn.add_text(text, {"thoughtSignature": signature})
    elif text:
        turn.add_text(text)
    calls = message.get("toolCalls")
    for call in calls if isinstance(calls, ARRAY) else ():
        id = string_at(call, "id")
        if isinstance(call, OBJECT) and id and not reader.is_open(id):
            turn.add_call(call, id, signature=_provider_data(call, turn).get("signature"))


def _provider_data(message: Mapping[str, Any], turn: TurnDraft) -> Mapping[str, Any]:
    """Return the data in the `encryptedValue` of a message or a call.

    Returns {} if there is no data, or if it comes from a different provider than the earlier data of the turn.
    """
    try:
        data = decode_json(string_at(message, "encryptedValue")).value
    except Rejected:
        return {}
    format = string_at(data, "format")
    return data if isinstance(data, OBJECT) and format and turn.claim_format(format) else {}


def _content(content: object) -> Content:
    """Return the content of a user message or a tool message as text, images and files."""
    if not isinstance(content, ARRAY):
        return read_content(content)
    return [_part(part) if isinstance(part, OBJECT) else {"type": "text", "text": str(part)} for part in content]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = string_at(part, "type")
    source = part.get("source")
    holder = source if isinstance(source, OBJECT) else part  # a `binary` part has no source
    media = string_at(holder, "mimeType")
    data = string_at(holder, "value") if string_at(holder, "type") == "data" else string_at(holder, "data")
    url = f"data:{media};base64,{data}" if data else string_at(holder, "url") or string_at(holder, "value")
    if kind == "text" or not url:
        return {"type": "text", "text": string_at(part, "text")}
    return part_of_url(url, "image/" if kind == "image" else media or kind, string_at(part, "filename"))
