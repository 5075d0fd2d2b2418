"""Reads and writes Gemini's contents.

A content is a message with a list of parts. Results of calls are JSON objects. A signature is sent back in the part
that it arrived in: a call, a text, or an empty text. The content after a turn must hold all results of its calls, and
nothing else. The system prompt is not part of the contents. It has a separate field in the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.content import Content, data_of, part_of_url, read_part, string_at, without, write_parts
from streamtools.history.history_reader import HistoryReader, TurnDraft
from streamtools.history.parts import Assistant, CallResult, Message, Part, Results, System, TextPart, Thought, User
from streamtools.history.writing import call_provider_fields, in_order, provider_fields
from streamtools.json_values import OBJECT, Rejected, decode_json, json_text

FORMAT = "gemini"
_after_underscore = re.compile("_([a-z])")


def read_content(content: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add a content to the history of `reader`: a turn of the model, or results of calls and a user message."""
    listed = content.get("parts")
    parts = [_camel(part) for part in (listed if isinstance(listed, list) else [listed]) if isinstance(part, OBJECT)]
    if content.get("role") == "model":
        turn = TurnDraft(reader.index, reader.budget, format=FORMAT, client=reader.client)
        for part in parts:
            _read_part(part, turn)
        reader.add_turn(turn.finish())
        return
    user: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(answer := part.get("functionResponse"), OBJECT):
            _read_response(answer, without(part, "functionResponse"), reader)
        else:
            user.append(_user_part(part))
    if user or not parts:
        reader.add_message(User(user))


def _camel(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part with JSON names such as `functionCall`. SDKs may write protobuf names such as `function_call`."""
    return {
        _after_underscore.sub(lambda found: found[1].upper(), str(name)): _camel(value)
        if name in ("inline_data", "file_data") and isinstance(value, OBJECT)
        else value
        for name, value in part.items()
    }


def _read_part(part: Mapping[str, Any], turn: TurnDraft) -> None:
    signature = part.get("thoughtSignature")
    if isinstance(call := part.get("functionCall"), OBJECT):
        rest = without(call, "name", "args", "id")
        extra = without(part, "functionCall", "thoughtSignature") | ({"functionCall": rest} if rest else {})
        turn.add_call({"name": call.get("name"), "args": call.get("args")}, call.get("id"), extra, signature)
    elif not isinstance(text := part.get("text"), str):
        turn.add_item(part)
    elif part.get("thought") is True:
        turn.add_thought(text, signature, extra=part)
    else:
        turn.add_text(text, without(part, "text"))


def _read_response(answer: Mapping[str, Any], fields: dict[str, Any], reader: HistoryReader) -> None:
    """Add a result. `fields` are the other fields of its part."""
    response = answer.get("response")
    failed = isinstance(response, OBJECT) and set(response) == {"error"}
    value: Any = response
    if isinstance(response, OBJECT) and len(response) == 1 and (failed or "result" in response):
        (value,) = response.values()
    text = value if isinstance(value, str) else json_text(value)
    inside = {"response": response, **without(answer, "name", "id", "response")}
    id = answer.get("id") or reader.find_open_call(answer.get("name"))
    reader.add_native_result(FORMAT, id, text, {**fields, "functionResponse": inside}, is_error=failed)


def _user_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(part.get("text"), str) and len(part) == 1:
        return {"type": "text", "text": part["text"]}
    blob = part.get("inlineData")
    kind, data = string_at(blob, "mimeType"), string_at(blob, "data")
    extra = {} if part == {"inlineData": {"mimeType": kind, "data": data}} else {FORMAT: dict(part)}
    if data and kind.startswith(("image/", "application/", "text/")):
        return part_of_url(f"data:{kind};base64,{data}", kind) | extra
    return read_part(part)


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a history as Gemini's contents.

    In the history, each turn must be followed by its results, and results of calls in text must be user messages.
    """
    contents: list[dict[str, Any]] = []
    known: set[str] = set()  # the ids that the provider gave to calls of the last turn
    for message in history:
        if isinstance(message, System):
            continue
        if isinstance(message, Assistant):
            known = {call.id for call in message.calls if call.provider_id}
            from_gemini = message.origin.format == FORMAT
            parts = [written for part in _ordered(message) for written in _write(part, from_gemini=from_gemini)]
            _add("model", parts, contents)
        elif isinstance(message, Results):
            contents.append({"role": "user", "parts": [_response(result, known) for result in message.results]})
        else:
            _add("user", _user(message.content), contents)
    return contents


def _add(role: str, parts: list[dict[str, Any]], contents: list[dict[str, Any]]) -> None:
    """Add parts to the last content if it has the same role and holds no results, otherwise add a new content."""
    last = contents[-1] if contents else None
    if parts and last is not None and last["role"] == role and "functionResponse" not in last["parts"][-1]:
        last["parts"] += parts
    elif parts:
        contents.append({"role": role, "parts": parts})


def _user(content: Content) -> list[dict[str, Any]]:
    """Return user content as Gemini's parts. A part that came from Gemini is sent back unchanged."""
    parts: Sequence[Any] = [content] if isinstance(content, str) else content
    written = (
        [part[FORMAT]]
        if isinstance(part, dict) and isinstance(part.get(FORMAT), dict)
        else write_parts([part], _text, _image, _file)
        for part in parts
    )
    return list(chain.from_iterable(written))


def _text(part: dict[str, Any]) -> dict[str, Any] | None:
    return {"text": part["text"]} if part["text"] else None


def _image(image: dict[str, Any]) -> dict[str, Any]:
    if found := data_of(image["url"]):
        return {"inlineData": {"mimeType": found[0], "data": found[1]}}
    return {"fileData": {"fileUri": image["url"]}}


def _file(kind: str, data: str, name: str) -> dict[str, Any]:
    return {"inlineData": {"mimeType": kind, "data": data}}


def _ordered(message: Assistant) -> Sequence[Part]:
    """Return the parts of a turn. At the end of the turn, reasoning and empty text are omitted.

    If any reasoning of the turn is signed or came from Gemini, all parts are returned, because Gemini accepts them.
    """
    signed = any(isinstance(part, Thought) and (part.signature or part.extra) for part in message.parts)
    return message.parts if signed else tuple(in_order(message))


def _write(part: Part, *, from_gemini: bool) -> list[dict[str, Any]]:
    """Return one part of a turn in Gemini's format. `from_gemini` is True if the turn is known to come from Gemini."""
    if isinstance(part, TextPart):
        return [{"text": part.text, **provider_fields(part)}]
    if isinstance(part, ToolCall):
        return [_call(part)]
    if not isinstance(part, Thought):
        return [dict(part.data)]
    if part.extra:
        return [dict(part.extra.data)]
    if not part.signature or part.id or part.redacted:
        return []  # it is not signed, or another provider signed it
    thought = {"text": part.text, "thought": True} if from_gemini and part.text else {"text": ""}
    return [{**thought, "thoughtSignature": part.signature}]


def _call(call: ToolCall) -> dict[str, Any]:
    extra = call_provider_fields(call, FORMAT)
    given: dict[str, Any] = {"name": call.name, "args": call.arguments}
    part: dict[str, Any] = {"functionCall": given | {"id": call.id} if call.provider_id else given}
    part |= {"thoughtSignature": call.signature} if call.signature else {}
    return {**part, **extra, "functionCall": {**part["functionCall"], **extra.get("functionCall", {})}}


def _response(result: CallResult, known: set[str]) -> dict[str, Any]:
    value: Any = {"error": result.text}
    if not result.is_error:
        try:
            value = decode_json(result.text).value
        except Rejected:
            value = result.text
    value = value if isinstance(value, dict) else {"result": value}
    response: dict[str, Any] = {"name": result.name, "response": value}
    response |= {"id": result.call_id} if result.call_id in known else {}
    files = [part for part in write_parts(result.parts, lambda _: None, _image, _file) if "inlineData" in part]
    response = {**response, "parts": files} if files else response
    extra = provider_fields(result)
    return {**extra, "functionResponse": response | extra.get("functionResponse", {})}
