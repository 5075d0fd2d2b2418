"""Finds misspelled keys in messages. A message with one would reach the provider without its content or its calls.

Unknown keys are allowed, because providers extend their formats. A key counts as misspelled if it is similar to a known
key that the object lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from streamtools.errors import nearest

_KEYS = {
    "message": "role content parts name tool_calls tool_call_id function_call refusal reasoning_content thinking images"
    " tool_plan context parents",
    "ag-ui": "role content name toolCalls toolCallId encryptedValue",
    "item": "role type",
    "function_call": "type call_id name arguments",
    "function_call_output": "type call_id output",
    "function_result": "type call_id name result",
    "user_input": "type content context",
    "model_output": "type content context",
    "content": "type text refusal image_url input_audio file source thinking name input tool_use_id content document"
    " toolUse toolResult context image resource document_url document_name",
    "parts": "type text state input output toolCallId toolName url mediaType filename functionCall functionResponse"
    " inlineData fileData thoughtSignature toolCall toolResponse function_call function_response inline_data file_data"
    " thought_signature",
    "tool_calls": "id type function custom",
    "toolCalls": "id type function",
    "function": "name arguments",
    "functionCall": "name args",
    "functionResponse": "name response",
    "inlineData": "mimeType data",
    "toolUse": "toolUseId name input",
    "toolResult": "toolUseId content status",
    "image_url": "url detail",
    "input_audio": "data format",
    "file": "file_data file_id filename",
    "source": "type media_type data url",
}
"""Maps the name of a message's form, or the key of an object, to the known keys of this object."""

_KNOWN = {name: keys.split() for name, keys in _KEYS.items()}
_CONTENT = {
    *(
        "content",
        "parts",
        "tool_calls",
        "function_call",
        "refusal",
        "reasoning",
        "reasoning_content",
        "images",
        "audio",
    ),
    *("reasoning_details", "thinking", "tool_plan", "citations", "toolCalls", "encryptedValue"),
}
_NO_CONTENT = {
    *("id", "type", "status", "phase", "metadata", "createdAt", "prefix", "cache_control", "annotations", "tool_name"),
    *("error", "state", "citations", "providerMetadata"),
}
_TEXTS = ("text", "input_text", "output_text")
_LONG, _LONGEST = 8, 32  # lengths of keys; two long keys may have a longer part in common, such as `reasoning_te`
_LETTERS = 4  # in how many letters two similar keys differ at most


def refuse_misspelled_keys(message: Mapping[str, Any], form: str = "message") -> None:
    """Raise ValueError for a misspelled key in a message, its parts or its calls.

    Also raises it for a message, or a text, that would be empty without its unknown keys. `form` is a key of `_KEYS`.
    """
    role = message.get("role")
    if role is None:
        form = str(message.get("type"))
        form = form if form in _KNOWN else "item"
    _check(message, form, role in ("tool", "function"))
    unknown = message.keys() - _KNOWN[form] - _NO_CONTENT
    if role is not None and unknown and not message.keys() & _CONTENT:
        raise ValueError(f"the message has no 'content', and its key {min(unknown)!r} is unknown")


def _check(value: object, name: str, is_result: bool) -> None:
    for item in value if isinstance(value, list | tuple) else (value,):
        if not isinstance(item, Mapping) or (is_result and name == "content" and "type" not in item):
            continue  # results may hold any data
        kind = item.get("type")
        for key, inner in item.items():
            if key in _KNOWN[name]:
                if key in _KNOWN:
                    _check(inner, key, is_result or kind == "tool_result")
            elif (meant := _similar(key, name)) and meant not in item:
                raise ValueError(f"the key {key!r} is unknown; did you mean {meant!r}?")
        unknown = item.keys() - _NO_CONTENT
        if name in ("content", "parts") and kind in _TEXTS and unknown and "text" not in unknown:
            raise ValueError(f"the part has no 'text', and its key {min(unknown)!r} is unknown")


@lru_cache(maxsize=1024)
def _similar(key: str, name: str) -> str | None:
    if not isinstance(key, str) or len(key) > _LONGEST:
        return None
    letters = {*key.lower()}
    known = [one for one in _KNOWN[name] if len(letters ^ {*one.lower()}) <= _LETTERS]  # saves 50 µs
    return nearest(key, known, 0.8 if len(key) < _LONG else 0.87) if known else None
