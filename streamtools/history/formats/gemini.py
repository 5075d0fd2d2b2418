"""Contents of Gemini: a turn of the model is a list of parts, and results of its calls are objects.

The signature of a call goes back on its part; that of a text or a thought, on the text. As many responses follow a turn
as it holds calls, and nothing else stands beside them. The system prompt stands elsewhere in the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.formats.turns import Names
from streamtools.history.messages import Assistant, CallResult, Message, Results, System
from streamtools.history.parts import gemini_parts
from streamtools.json_values import Rejected, decode_json


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the contents of a settled history, in which answers to calls in text are the user's."""
    names = Names(history)
    contents: list[dict[str, Any]] = []
    known: set[str] = set()  # calls of the last turn that have an id of their provider's
    for message in history:
        if isinstance(message, System):
            continue
        if isinstance(message, Assistant):
            known = {call.id for call in message.calls if call.provider_id}
            _add("model", _model(message, names), contents)
        elif isinstance(message, Results):
            responses = [{"functionResponse": _response(result, names, known)} for result in message.results]
            contents.append({"role": "user", "parts": responses})
        else:
            _add("user", gemini_parts(message.content), contents)
    return contents


def _add(role: str, parts: list[dict[str, Any]], contents: list[dict[str, Any]]) -> None:
    last = contents[-1] if contents else None
    if parts and last and last["role"] == role and not any("functionResponse" in part for part in last["parts"]):
        last["parts"] += parts
    elif parts:
        contents.append({"role": role, "parts": parts})


def _text(text: str) -> list[dict[str, Any]]:
    return [{"text": text}] if text else []


def _model(message: Assistant, names: Names) -> list[dict[str, Any]]:
    signed = [each.signature for each in message.thoughts if each.signature and not (each.id or each.redacted)]
    parts = _text(message.text)
    if signed:
        parts = [{"text": message.text, "thoughtSignature": signed[-1]}]
    return parts + [_call(call, names) for call in message.calls]


def _call(call: ToolCall, names: Names) -> dict[str, Any]:
    given: dict[str, Any] = {"name": names.of(call.name), "args": call.arguments}
    part: dict[str, Any] = {"functionCall": given | {"id": call.id} if call.provider_id else given}
    return part | {"thoughtSignature": call.signature} if call.signature else part


def _response(result: CallResult, names: Names, known: set[str]) -> dict[str, Any]:
    response = {"name": names.of(result.name), "response": _as_object(result)}
    return response | {"id": result.call_id} if result.call_id in known else response


def _as_object(result: CallResult) -> dict[str, Any]:
    if result.is_error:
        return {"error": result.text}
    try:
        value = decode_json(result.text).value
    except Rejected:
        value = result.text
    return value if isinstance(value, dict) else {"result": value}
