"""Messages of Anthropic: a turn is a list of blocks, and the results of its calls come first in the one that follows.

User and assistant alternate, so neighbours are joined. Blank text is refused, as is white space at the end of a last
turn of the assistant's. Ids of calls are unique in the whole history and of few characters. The system prompt stands
elsewhere in the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.messages import NOT_IN_NAMES, Assistant, CallResult, Message, Results, System, Thought
from streamtools.history.turns import Draft, Names, Reader, data_of, in_order, write_parts

_FAILED = "the call failed"  # an error without words is refused


def read_block(part: Any, said: Draft) -> bool:
    """Add a block of an assistant's message, if it is one of Anthropic's, or a text as OpenAI has it too."""
    match part:
        case {"type": "text", "text": str() as text}:
            said.texts.append(text)
        case {"type": "thinking", "thinking": str() as text}:
            said.add_thought(text, part.get("signature"))
        case {"type": "redacted_thinking", "data": str() as data}:
            said.add_thought("", data, redacted=True)
        case {"type": "tool_use"}:
            said.add_call(part, part.get("id"))
        case _:
            return False
    return True


def read_result(part: Any, reader: Reader) -> bool:
    """Add a block of a user's message, if it is a result."""
    if not isinstance(part, Mapping) or part.get("type") != "tool_result":
        return False
    reader.answer(part.get("tool_use_id"), part.get("content"), is_error=part.get("is_error") is True)
    return True


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a settled history, in which answers to calls in text are the user's."""
    names, ids = Names(history), _Ids()
    messages: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, System):
            continue
        if isinstance(message, Assistant):
            ids.begin_turn(message)
            _add("assistant", _assistant(message, names, ids), messages)
        elif isinstance(message, Results):
            _add("user", [_result(result, ids) for result in message.results], messages)
        else:
            _add("user", write_parts(message.content, _text, _image), messages)
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        if last["type"] == "text":
            last["text"] = last["text"].rstrip()
    return messages


def _add(role: str, blocks: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
    if blocks and messages and messages[-1]["role"] == role:
        messages[-1]["content"] += blocks
    elif blocks:
        messages.append({"role": role, "content": blocks})


def _text(part: dict[str, Any]) -> dict[str, Any] | None:
    return part if part["text"].strip() else None


def _image(image: dict[str, Any]) -> dict[str, Any]:
    if found := data_of(image["url"]):
        return {"type": "image", "source": {"type": "base64", "media_type": found[0], "data": found[1]}}
    return {"type": "image", "source": {"type": "url", "url": image["url"]}}


def _assistant(message: Assistant, names: Names, ids: _Ids) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for each in in_order(message):
        if isinstance(each, str):
            blocks += [{"type": "text", "text": each}] if each.strip() else []
        elif isinstance(each, ToolCall):
            name = names.of(each.name)
            blocks.append({"type": "tool_use", "id": ids.of_turn[each.id], "name": name, "input": each.arguments})
        else:
            blocks += _thought(each)
    while blocks and "thinking" in blocks[-1]["type"]:  # a blank text stood behind it
        blocks.pop()
    return blocks


def _thought(thought: Thought) -> list[dict[str, Any]]:
    if not thought.signature or thought.id:  # others give their blocks an id
        return []
    if thought.redacted:
        return [{"type": "redacted_thinking", "data": thought.signature}]
    return [{"type": "thinking", "thinking": thought.text, "signature": thought.signature}]


def _result(result: CallResult, ids: _Ids) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids.of_turn[result.call_id]}
    if text := result.text or (_FAILED if result.is_error else ""):
        block["content"] = text
    return block | {"is_error": True} if result.is_error else block


class _Ids:
    """The ids of calls as they are taken: others than the provider's own may hold dots, or begin anew in each turn."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}  # and how often each was asked for: a client may give all its calls the same id
        self.of_turn: dict[str, str] = {}

    def begin_turn(self, message: Assistant) -> None:
        self.of_turn = {}
        for call in message.calls:
            fitting = made = NOT_IN_NAMES.sub("_", call.id) or "call"
            while made in self._used:
                self._used[fitting] += 1
                made = f"{fitting}_{self._used[fitting]}"
            self._used[made] = 1
            self.of_turn[call.id] = made
