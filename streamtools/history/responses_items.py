"""Items of OpenAI's Responses: reasoning, what was said, each call and each of its results are items of their own.

Reasoning goes back where it has its id and its encrypted content, before what it led to; without the latter a request
that stores nothing is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.messages import Assistant, Message, Results, System, Thought
from streamtools.history.turns import (
    Draft,
    Names,
    Reader,
    arguments_text,
    in_order,
    list_of,
    read_call,
    text_of,
    text_or_none,
    write_parts,
)


def read_block(part: object, said: Draft) -> bool:
    """Add a part of an assistant's message, if it is one of Responses."""
    match part:
        case {"type": "output_text", "text": str() as text} | {"type": "refusal", "refusal": str() as text}:
            said.texts.append(text)
            return True
    return False


def read_item(item: Mapping[str, Any], reader: Reader) -> None:
    """Add an item that is no message: a piece of a turn, or a result."""
    kind = item.get("type")
    if kind == "function_call_output":
        reader.answer(item.get("call_id"), item.get("output"))
        return
    if kind == "reasoning":
        said = reader.go_on(anew=True)
        text = "\n\n".join(text_of([part]) for part in list_of(item.get("summary") or []))
        signature, id = text_or_none(item.get("encrypted_content")), text_or_none(item.get("id"))
        said.thoughts.append(Thought(text, signature, id, behind=len(said.calls)))
    elif kind == "function_call":
        call = read_call({**item, "id": None}, item.get("call_id"), f"call_{reader.place}_0")
        reader.call(reader.go_on(), call)
    else:
        raise ValueError(f"it has no role, and an item of type {kind!r} cannot be read")


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the items of a settled history, in which answers to calls in text are the user's."""
    names = Names(history)
    items: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, System):
            items.append({"role": "system", "content": message.text})
        elif isinstance(message, Assistant):
            items += (item for each in in_order(message) for item in _write(each, names))
        elif isinstance(message, Results):
            for each in message.results:
                items.append({"type": "function_call_output", "call_id": each.call_id, "output": each.text})
        else:
            content = message.content
            parts = content if isinstance(content, str) else write_parts(content, _text, _image)
            items.append({"role": "user", "content": parts})
    return items


def _text(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_text", "text": part["text"]}


def _image(image: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}


def _write(said: Thought | str | ToolCall, names: Names) -> list[dict[str, Any]]:
    match said:
        case str():
            return [{"role": "assistant", "content": said}]
        case ToolCall():
            name = names.of(said.name)
            return [{"type": "function_call", "call_id": said.id, "name": name, "arguments": arguments_text(said)}]
    if not (said.id and said.signature):  # another provider's
        return []
    summary = [{"type": "summary_text", "text": said.text}] if said.text else []
    return [{"type": "reasoning", "id": said.id, "summary": summary, "encrypted_content": said.signature}]
