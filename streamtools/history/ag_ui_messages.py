"""Messages of AG-UI, as its clients post them: OpenAI's in another spelling, each with an id.

Calls stand beside the text of an assistant's message, results in messages of their own. All of it is a client's: what
the model was thinking comes back only as far as its provider has encrypted it, and activities are for the interface.
An `encryptedValue` of ours says whose it is (`outputs/protected.py`). Any other counts for nothing, as nobody knows
whose it is: a provider refuses a signature that is not its own, and so it would each later request of the thread.

Source: the package `ag-ui-protocol` 1.0.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamtools.history.content import Content, encrypted, given, read_content, text_in
from streamtools.history.history_reader import HistoryReader, TurnDraft, read_call
from streamtools.history.parts import ProviderItem, Thought, User
from streamtools.json_values import Rejected, decode_json

_ROLES = ("system", "developer", "user", "assistant", "tool", "reasoning", "activity")
MALFORMED = "$malformed"
_OTHERS = ("type", "parts", "tool_calls", "tool_call_id")  # of messages that are none of these


def is_one(message: Mapping[str, Any]) -> bool:
    """Return whether a message is one of these: it has a role and an id, and no member of other formats."""
    if not isinstance(message.get("id"), str) or message.get("role") not in _ROLES:
        return False
    return not any(name in message for name in _OTHERS)


def read(message: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add what a message says. Raises ValueError for words of the system's that are not allowed."""
    content = message.get("content")
    match message["role"]:
        case "system" | "developer":
            reader.instruct(text_in(read_content(content)))
        case "user":
            reader.hear(User(_content(content)))
        case "assistant":
            _read_assistant(message, reader)
        case "reasoning":
            said, text = reader.go_on(None), text_in(read_content(content))
            held = _protected(message, said)
            if entries := encrypted(held.get("reasoning_details")):
                said.parts.append(Thought(text, own=ProviderItem("openai", {"reasoning_details": entries})))
            else:
                redacted = held.get("redacted") is True
                said.add_thought(text, held.get("signature"), held.get("id"), redacted=redacted)
        case "tool":
            error = given(message, "error")
            text = text_in(_content(content)) or error
            reader.answer(message.get("toolCallId"), _content(content), is_error=bool(error), text=text)


def _read_assistant(message: Mapping[str, Any], reader: HistoryReader) -> None:
    said = reader.go_on(None)
    held = _protected(message, said)
    text = text_in(read_content(message.get("content")))
    if said.format == "gemini" and (signature := given(held, "signature")):
        said.add_text(text, {"thoughtSignature": signature})
    elif text:
        said.add_text(text)
    calls = message.get("toolCalls")
    for call in calls if isinstance(calls, list | tuple) else ():
        id = given(call, "id")
        if isinstance(call, Mapping) and id and not reader.is_open(id):
            signed = _protected(call, said).get("signature")
            reader.call(said, read_call(_as_written(call), id, id, reader.budget, signature=signed))


def _as_written(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a malformed call, whose arguments our encoder has put into an object, as the model wrote it."""
    function = call.get("function")
    arguments = given(function, "arguments")
    if isinstance(function, Mapping) and arguments.startswith(f'{{"{MALFORMED}"'):
        try:
            held = decode_json(arguments).value
        except Rejected:
            return call
        if list(held) == [MALFORMED] and (raw := given(held, MALFORMED)):
            return {**call, "function": {**function, "arguments": raw}}
    return call


def _protected(message: Mapping[str, Any], said: TurnDraft) -> Mapping[str, Any]:
    """Return what protects a message or a call, unless it is of another provider than the rest of its turn."""
    try:
        held = decode_json(given(message, "encryptedValue")).value
    except Rejected:
        return {}
    format = given(held, "format")
    return held if isinstance(held, Mapping) and format and said.is_of(format) else {}


def _content(content: object) -> Content:
    """Return what a user or a tool says, in texts, images and files."""
    if not isinstance(content, list | tuple):
        return read_content(content)
    return [_part(each) if isinstance(each, Mapping) else {"type": "text", "text": str(each)} for each in content]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = given(part, "type")
    source = part.get("source")
    held = source if isinstance(source, Mapping) else part  # `binary` has none
    media = given(held, "mimeType")
    data = given(held, "value") if given(held, "type") == "data" else given(held, "data")
    url = f"data:{media};base64,{data}" if data else given(held, "url") or given(held, "value")
    if kind == "text" or not url:
        return {"type": "text", "text": given(part, "text")}
    if kind == "image" or media.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    name = given(part, "filename")
    if url.startswith("data:"):
        return {"type": "file", "file": {**({"filename": name} if name else {}), "file_data": url}}
    return {"type": "text", "text": f"[{name or media or kind}: {url}]"}
