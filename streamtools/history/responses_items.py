"""Items of OpenAI's Responses: reasoning, what was said, each call and each of its results are items of their own.

Reasoning goes back before what it led to: where it has its id and its encrypted content, or beside items that the
provider knows by their ids, and else not at all: a request that stores nothing is refused with it. Calls of custom
tools have a text where others have arguments, and so have their results a type of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.content import given, text_in, without, write_parts
from streamtools.history.history_reader import HistoryReader, TurnDraft, keep
from streamtools.history.messages import arguments_text, beside, beside_call, in_order
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

FORMAT = "responses"
_CUSTOM = "custom_tool_call"
_CLIENTS = ("computer_call", "local_shell_call", "shell_call", "apply_patch_call")
_BESIDE = ("prompt_cache_breakpoint",)  # a part of content
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def is_item(message: Mapping[str, Any]) -> bool:
    """Return whether what has a role is an item all the same, and no message: tools that were added."""
    return "content" not in message and isinstance(message.get("type"), str) and message["type"] != "message"


def members_of(message: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of what an item may have beside the content; none if the message shows itself to be no item."""
    shows = message.get("type") == "message" or "phase" in message
    shows = shows or any(given(each, "type").startswith("input_") and "input_audio" not in each for each in parts)
    return ("type", "id", "status", "phase") if shows else ()


def is_message(message: Mapping[str, Any]) -> bool:
    """Return whether a message of the assistant's is an output item; a whole answer of Anthropic's calls itself one.

    One as we write it has no type; its phase shows it.
    """
    if "type" not in message and given(message, "phase"):
        return True
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "output_text"}]
    types = [each.get("type") for each in parts if isinstance(each, Mapping)]
    return message.get("type") == "message" and (not types or "output_text" in types or "refusal" in types)


def read_message(message: Mapping[str, Any], said: TurnDraft) -> None:
    """Add an output item that is a message: all of it, and what it says."""
    said.format = FORMAT
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [given(part, "text") or given(part, "refusal") if isinstance(part, Mapping) else part for part in parts]
    said.add_text("".join(each for each in texts if isinstance(each, str)), message)


def read_item(item: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add an item that is no message: a piece of a turn, or a result. Raises ValueError for what is none."""
    kind = item.get("type")
    if kind in _OUTPUTS and isinstance(item.get("call_id"), str):
        output = item.get("output")
        held = {} if isinstance(output, str) else {"output": output}
        own = keep(FORMAT, without(item, "type", "call_id", "output") | held)
        reader.answer(item.get("call_id"), output, own=own)
    elif kind == "reasoning":
        said = reader.go_on(FORMAT, anew=True)
        parts = [item.get("summary"), item.get("content")]
        texts = (given(each, "text") for part in parts if isinstance(part, list) for each in part)
        sound = isinstance(item.get("summary"), list) and isinstance(item.get("id"), str)
        said.add_thought(
            "\n\n".join(filter(None, texts)), item.get("encrypted_content"), item.get("id"), own=item if sound else None
        )
    elif kind in ("function_call", _CUSTOM):
        arguments = {"arguments": {"input": given(item, "input")}} if kind == _CUSTOM else {}
        known = ("type", "call_id", "name", "arguments", "input")[kind == _CUSTOM :]  # the type of those stays
        call = {"name": item.get("name"), "arguments": item.get("arguments")} | arguments
        reader.take_call(FORMAT, call, item.get("call_id"), without(item, *known))
    elif isinstance(kind, str) or (kind is None and given(item, "id") and len(item) <= 2):  # a reference
        reader.go_on(FORMAT).add_item(item)
    else:
        raise ValueError(f"it has no role, and an item of type {kind!r} cannot be read")


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the items of a settled history, in which answers to calls in text are the user's."""
    items: list[dict[str, Any]] = []
    custom: set[str] = set()  # calls of the last turn
    answered = _answered(history)
    for message in history:
        if isinstance(message, System):
            items.append({"role": "system", "content": message.text, **beside(message)})
        elif isinstance(message, Assistant):
            custom = {call.id for call in message.calls if beside_call(call, FORMAT).get("type") == _CUSTOM}
            stored = bool(message.items)
            for each in in_order(message):
                if not _is_unanswered(each, answered):
                    items += _write(each, stored=stored)
                    continue
                while items and items[-1].get("type") == "reasoning":  # which must not go back without it
                    items.pop()
        elif isinstance(message, Results):
            items += (_result(each, custom) for each in message.results)
        else:
            content = message.content
            parts = content if isinstance(content, str) else _parts(content)
            items.append({"role": "user", "content": parts, **beside(message)})
    return items


def _answered(history: Sequence[Message]) -> set[tuple[str, str]]:
    """Return the calls of tools that are no functions, by type and id, which have their output in the history."""
    items = (item.data for message in history if isinstance(message, Assistant) for item in message.items)
    return {
        (kind.removesuffix("_output"), given(item, "call_id") or given(item, "id"))  # of a local shell the second
        for item in items
        if (kind := given(item, "type")).endswith("_output")
    }


def _is_unanswered(said: Part, answered: set[tuple[str, str]]) -> bool:
    """Return whether a part is a call which the client was to answer, and has not: the provider refuses it then."""
    if not isinstance(said, ProviderItem) or said.data.get("type") not in _CLIENTS:
        return False
    return (given(said.data, "type"), given(said.data, "call_id")) not in answered


def _parts(content: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return write_parts(content, _text, _image, _file, _BESIDE)


def _text(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_text", "text": part["text"], **{name: part[name] for name in _BESIDE if name in part}}


def _image(image: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}


def _file(kind: str, data: str, name: str) -> dict[str, Any]:
    named = {"filename": name} if name else {}
    return {"type": "input_file", **named, "file_data": f"data:{kind};base64,{data}"}


def _write(said: Part, *, stored: bool) -> list[dict[str, Any]]:
    """Return the items of one part; `stored`: the turn holds items that the provider knows by their ids."""
    match said:
        case TextPart(text):
            return [{"role": "assistant", "content": text, **beside(said)}]
        case ToolCall():
            own = beside_call(said, FORMAT)
            if own.get("type") == _CUSTOM:
                return [{"call_id": said.id, "name": said.name, "input": given(said.arguments, "input"), **own}]
            made = {"type": "function_call", "call_id": said.id, "name": said.name, "arguments": arguments_text(said)}
            return [made | own]
        case Thought():
            return _thought(said, stored=stored)
    return [dict(said.data)]


def _thought(thought: Thought, *, stored: bool) -> list[dict[str, Any]]:
    if thought.own:
        return [dict(thought.own.data)]
    if not (thought.id and (thought.signature or stored)):  # another provider's
        return []
    summary = [{"type": "summary_text", "text": thought.text}] if thought.text else []
    encrypted = {"encrypted_content": thought.signature} if thought.signature else {}
    return [{"type": "reasoning", "id": thought.id, "summary": summary, **encrypted}]


def _result(result: CallResult, custom: set[str]) -> dict[str, Any]:
    output: Any = result.text
    if result.parts:
        known = ("input_text", "input_image", "input_file")
        output = [each for each in _parts(result.parts) if each.get("type") in known] or text_in(list(result.parts))
    kind = _OUTPUTS[result.call_id in custom]
    return {"type": kind, "call_id": result.call_id, "output": output, **beside(result)}
