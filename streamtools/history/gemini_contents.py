"""Contents of Gemini: a turn of the model is a list of parts, and results of its calls are objects.

The signature of a call goes back on its part; that of a text or a thought, on the text. As many responses follow a turn
as it holds calls, and nothing else is beside them. The system prompt has its own place in the request. Contents are
written, and not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.messages import Assistant, CallResult, Message, Results, System
from streamtools.history.turns import Names, data_of, write_parts
from streamtools.json_values import Rejected, decode_json


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the contents of a settled history, in which answers to calls in text are the user's."""
    names = Names(history)
    contents: list[dict[str, Any]] = []
    joins = False  # more may stand in the last content, which holds no response
    known: set[str] = set()  # calls of the last turn that have an id of their provider's
    for message in history:
        if isinstance(message, System):
            continue
        if isinstance(message, Assistant):
            known = {call.id for call in message.calls if call.provider_id}
            joins = _add("model", _model(message, names), contents, joins)
        elif isinstance(message, Results):
            responses = [{"functionResponse": _response(result, names, known)} for result in message.results]
            contents.append({"role": "user", "parts": responses})
            joins = False
        else:
            joins = _add("user", write_parts(message.content, _text, _image), contents, joins)
    return contents


def _add(role: str, parts: list[dict[str, Any]], contents: list[dict[str, Any]], joins: bool) -> bool:
    """Add parts to the last content, if that `joins` and has the same role; return whether others may join them."""
    if not parts:
        return joins
    if joins and contents[-1]["role"] == role:
        contents[-1]["parts"] += parts
    else:
        contents.append({"role": role, "parts": parts})
    return not any("functionResponse" in part for part in parts)


def _text(part: dict[str, Any]) -> dict[str, Any] | None:
    return {"text": part["text"]} if part["text"] else None


def _image(image: dict[str, Any]) -> dict[str, Any]:
    if found := data_of(image["url"]):
        return {"inlineData": {"mimeType": found[0], "data": found[1]}}
    return {"fileData": {"fileUri": image["url"]}}


def _model(message: Assistant, names: Names) -> list[dict[str, Any]]:
    signed = [each.signature for each in message.thoughts if each.signature and not (each.id or each.redacted)]
    parts: list[dict[str, Any]] = [{"text": message.text}] if message.text else []
    if signed:
        parts = [{"text": message.text, "thoughtSignature": signed[-1]}]
    return parts + [_call(call, names) for call in message.calls]


def _call(call: ToolCall, names: Names) -> dict[str, Any]:
    given: dict[str, Any] = {"name": names.of(call.name), "args": call.arguments}
    part: dict[str, Any] = {"functionCall": given | {"id": call.id} if call.provider_id else given}
    return part | {"thoughtSignature": call.signature} if call.signature else part


def _response(result: CallResult, names: Names, known: set[str]) -> dict[str, Any]:
    value: Any = {"error": result.text}
    if not result.is_error:
        try:
            value = decode_json(result.text).value
        except Rejected:
            value = result.text
    response = {"name": names.of(result.name), "response": value if isinstance(value, dict) else {"result": value}}
    return response | {"id": result.call_id} if result.call_id in known else response
