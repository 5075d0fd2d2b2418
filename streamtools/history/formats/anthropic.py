"""Messages of Anthropic: a turn is a list of blocks, and the results of its calls come first in the one that follows.

User and assistant alternate, so neighbours are joined. Blank text is refused, as is white space at the end of a last
turn of the assistant's. Ids of calls are unique in the whole history and of few characters. The system prompt stands
elsewhere in the request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.formats.turns import Names, in_order
from streamtools.history.messages import Assistant, CallResult, Message, Results, System, Thought
from streamtools.history.parts import anthropic_parts

_FAILED = "the call failed"  # an error without words is refused
_odd = re.compile(r"[^A-Za-z0-9_-]")


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
            _add("user", anthropic_parts(message.content), messages)
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


def _assistant(message: Assistant, names: Names, ids: _Ids) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for each in in_order(message):
        if isinstance(each, str):
            blocks += _text(each)
        elif isinstance(each, ToolCall):
            blocks.append(
                {"type": "tool_use", "id": ids.of(each.id), "name": names.of(each.name), "input": each.arguments}
            )
        else:
            blocks += _thought(each)
    while blocks and "thinking" in blocks[-1]["type"]:  # a blank text stood behind it
        blocks.pop()
    return blocks


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _thought(thought: Thought) -> list[dict[str, Any]]:
    if not thought.signature or thought.id:  # others give their blocks an id
        return []
    if thought.redacted:
        return [{"type": "redacted_thinking", "data": thought.signature}]
    return [{"type": "thinking", "thinking": thought.text, "signature": thought.signature}]


def _result(result: CallResult, ids: _Ids) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids.of(result.call_id)}
    if text := result.text or (_FAILED if result.is_error else ""):
        block["content"] = text
    return block | {"is_error": True} if result.is_error else block


class _Ids:
    """The ids of calls as they are taken: others than the provider's own may hold dots, or begin anew in each turn."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._of_turn: dict[str, str] = {}

    def begin_turn(self, message: Assistant) -> None:
        """Give each call of a turn its id."""
        self._of_turn = {}
        for call in message.calls:
            fitting = made = _odd.sub("_", call.id) or "call"
            twice = 1
            while made in self._used:
                twice += 1
                made = f"{fitting}_{twice}"
            self._used.add(made)
            self._of_turn[call.id] = made

    def of(self, id: str) -> str:
        """Return the id of a call of this turn."""
        return self._of_turn[id]
