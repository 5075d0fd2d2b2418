"""Finds misspelled keys in messages. With such a key, a message would reach the provider without its content or calls.

Unknown keys are allowed, because providers extend their formats. A key counts as misspelled if it is similar to a known
key that the object lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from streamtools.errors import nearest
from streamtools.json_values import ARRAY, OBJECT
from streamtools.logs import Logger

log = Logger(__name__)

_KEYS = {
    "message": "role content tool_calls tool_call_id name parts context parents function_call refusal reasoning"
    " thinking reasoning_content reasoning_details images audio tool_plan citations",
    "ag-ui": "role name toolCallId content toolCalls encryptedValue",
    "item": "role type",
    "step": "role type call_id name arguments output result content context",
    "part": "type text refusal image_url input_audio file source thinking name input tool_use_id content document"
    " toolUse toolResult context image resource document_url document_name",
    "ui-part": "type text state input output toolCallId toolName url mediaType filename functionCall functionResponse"
    " inlineData fileData thoughtSignature toolCall toolResponse function_call function_response inline_data file_data"
    " thought_signature",
    "call": "id type function custom",
    "object": "name arguments args response toolUseId input content status url detail data format file_data file_id"
    " filename type media_type mimeType mime_type",
    # The next entries are not kinds. `steps` lists the types of steps, `objects` the keys whose value is an "object",
    # `beside` the keys of messages whose values are not content, and `extra` keys that are known in every kind.
    "steps": "function_call function_call_output function_result user_input model_output",
    "objects": "function functionCall functionResponse toolUse toolResult image_url input_audio file source inlineData",
    "beside": "role name tool_call_id toolCallId context parents",
    "extra": "id type status phase metadata createdAt prefix cache_control annotations tool_name error state citations"
    " providerMetadata",
}
"""The known keys of each kind of object. A provider's key that is similar to a known key must be listed, too."""

_KNOWN = {kind: dict.fromkeys(keys.split()).keys() for kind, keys in _KEYS.items()}
_CONTENT = {kind: keys - _KNOWN["beside"] for kind, keys in _KNOWN.items()}
_KINDS = dict.fromkeys(_KNOWN["objects"], "object")
_KINDS |= {"content": "part", "parts": "ui-part", "tool_calls": "call", "toolCalls": "call"}
"""Maps a key to the kind of the object, or of the list of objects, that is its value."""
_MEMBERS = {"function": "arguments", "function_call": "arguments", "functionCall": "args"}
_MEMBERS |= {"tool_use": "input", "toolUse": "input", "tool_result": "content", "toolResult": "content"}
_MEMBERS |= {"function_call_output": "output", "functionResponse": "response"}
"""Maps calls to the key of their arguments, and results to the key of their content.

The name of a call or a result is its `type`, or the key that holds it.
"""
_ARGUMENTS, _RESULTS = {"arguments", "args", "input", "parameters"}, {"content", "output", "result", "response"}
_SYNONYMS = dict.fromkeys(_ARGUMENTS, _ARGUMENTS) | dict.fromkeys(_RESULTS, _RESULTS)
"""Maps each key of arguments, and each key of content, to the keys that other formats use instead."""
_TEXTS = ("text", "input_text", "output_text")
_LONG = 8  # keys of this length must be more similar, because different long keys share parts such as `reasoning_`
_MAX_LENGTH = 32  # longer keys are not compared, and not kept in the cache
_MAX_LETTERS = 4  # the maximum number of letters that only one of two similar keys has


def refuse_misspelled_keys(message: Mapping[str, Any], kind: str = "message") -> None:
    """Raise ValueError for a misspelled key in a message, its parts or its calls.

    Also raises ValueError if a message without content, or a text part without text, has an unknown key. `kind` is a
    key of `_KEYS`. For an object without a role, `kind` is ignored: the object is an item or a step.
    """
    role = message.get("role")
    if role is None:
        kind = "step" if message.get("type") in [*_KNOWN["steps"]] else "item"
    elif message.keys().isdisjoint(_CONTENT[kind]) and (unknown := message.keys() - _KNOWN[kind] - _KNOWN["extra"]):
        _refuse_similar(message, kind)
        raise ValueError(f"the message has no 'content', and its key {min(unknown, key=str)!r} is unknown")
    waiting: list[tuple[object, str, bool]] = [(message, kind, role in ("tool", "function"))]
    while waiting:
        value, kind, is_result = waiting.pop()
        for item in value if isinstance(value, ARRAY) else (value,):
            if not isinstance(item, OBJECT) or (is_result and kind == "part" and "type" not in item):
                if "part" in kind and not (is_result or isinstance(item, str | Mapping | None)):
                    advice = "content must be a text or a list of parts"
                    log.warning("content_of_other_type", kind=type(item).__name__, advice=advice)
                continue  # results may hold any data
            if isinstance(named := item.get("type"), str) and named in _MEMBERS:
                _refuse_synonyms(named, item)
            part = named if "part" in kind else None
            inside = is_result or part == "tool_result"
            for key, member in item.items():
                if key in _KINDS and member is not None and not isinstance(member, str):
                    if key in _MEMBERS:
                        _refuse_synonyms(key, member)
                    if key in _KNOWN[kind]:
                        waiting.append((member, _KINDS[key], inside))
            if (part not in _TEXTS or "text" not in item) and not item.keys() <= _KNOWN[kind]:
                _refuse_similar(item, kind)  # a text needs no other key
            if part in _TEXTS and "text" not in item and (unknown := item.keys() - _KNOWN["extra"]):
                raise ValueError(f"the part has no 'text', and its key {min(unknown, key=str)!r} is unknown")


def _refuse_synonyms(name: str, value: object) -> None:
    """Raise ValueError if the call or result `value` has the key of another format. `name` is its type or its key."""
    right = _MEMBERS[name]
    if not isinstance(value, OBJECT) or right in value:
        return
    for wrong in _SYNONYMS[right] & value.keys():
        raise ValueError(f"the key {wrong!r} of {name!r} is unknown; did you mean {right!r}?")


def _refuse_similar(item: Mapping[str, Any], kind: str) -> None:
    for key in item:
        is_unknown = isinstance(key, str) and len(key) <= _MAX_LENGTH and key not in _KNOWN[kind]
        if is_unknown and (meant := _similar(key, kind)) and meant not in item:
            raise ValueError(f"the key {key!r} is unknown; did you mean {meant!r}?")


@lru_cache(maxsize=1024)
def _similar(key: str, kind: str) -> str | None:
    """Return the known key that is similar to an unknown key, or None."""
    letters = {*key.lower()}
    known = [one for one in _KNOWN[kind] if len(letters ^ {*one.lower()}) <= _MAX_LETTERS]  # saves 50 µs
    return nearest(key, known, 0.81 if len(key) < _LONG else 0.87) if known else None
