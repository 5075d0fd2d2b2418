"""Reads and writes Anthropic's messages.

An assistant message is a list of blocks. The results of its calls begin the next user message. User and assistant
messages must alternate, so consecutive messages of one role are joined. Anthropic refuses blank text. If the last
message is the assistant's, its text must not end with white space. Call ids must be unique in the whole history, and
may contain only letters, digits, `_` and `-`. The system prompt, and the container of the code execution tool, are not
part of the messages. They have separate fields in the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.content import Content, data_of, is_plain, string_at, without, write_parts
from streamtools.history.history_reader import HistoryReader, TurnDraft
from streamtools.history.parts import Assistant, CallResult, Message, Origin, Results, System, TextPart, Thought
from streamtools.history.writing import INVALID_IN_NAMES, call_provider_fields, in_order, provider_fields

FORMAT = "anthropic"
_FAILED = "the call failed"  # an error must have text
_SERVER_TOOLS = ("server_tool_use", "mcp_tool_use")
_RESULT_BLOCKS = ("text", "image", "document", "search_result")
_CONTAINER = "container"  # the `type` that this library gives to the item for a container, which is not a block
_MEMBERS = ("cache_control", "transformations", "context", "citations")  # additional fields of an image or a document


def changes_settings(message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a system message changes tools or settings of later messages. Callers keep it unchanged."""
    return "output_config" in message or any(part.get("type") in ("tool_addition", "tool_removal") for part in parts)


def read_block(part: Mapping[str, Any], turn: TurnDraft) -> None:
    """Add a block of an assistant message to `turn`."""
    if part.get("type") != "thinking" or "signature" in part:  # a `thinking` block without a signature may be Cohere's
        turn.format = FORMAT
    match part:
        case {"type": "thinking", "thinking": str() as text}:
            turn.add_thought(text, part.get("signature"), extra=without(part, "type", "thinking", "signature"))
        case {"type": "redacted_thinking", "data": str() as data}:
            turn.add_thought("", data, redacted=True)
        case {"type": "tool_use"}:
            turn.add_call(part, part.get("id"), without(part, "type", "id", "name", "input"))
        case {"type": str()}:
            turn.add_item(part)


def read_result(part: Any, reader: HistoryReader) -> bool:
    """Add a block of a user message if it is a result. Returns False for any other block."""
    if not isinstance(part, Mapping) or part.get("type") != "tool_result":
        return False
    content = part.get("content")
    members = {} if is_plain(content) else {"content": content}
    is_error = part.get("is_error") is True
    rest = without(part, "type", "tool_use_id", "content", *(["is_error"] if is_error else [])) | members
    reader.add_native_result(FORMAT, part.get("tool_use_id"), content, rest, is_error=is_error)
    return True


def container_of(history: Sequence[Message], provider: Origin) -> dict[str, Any]:
    """Return Anthropic's data about the container in which the model last ran code, or {} if there is none."""
    for message in reversed(history):
        for part in message.items if isinstance(message, Assistant) and message.origin.is_same(provider) else ():
            if part.format == FORMAT and part.data.get("type") == _CONTAINER:
                return part.data
    return {}


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a history as Anthropic's messages.

    In the history, each turn must be followed by its results, and results of calls in text must be user messages.
    """
    ids = _Ids()
    messages: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, System):
            messages += [extra] if (extra := provider_fields(message)) else []
        elif isinstance(message, Assistant):
            ids.begin_turn(message)
            _add("assistant", _assistant(message, ids), messages)
        elif isinstance(message, Results):
            _add("user", [_result(result, ids) for result in message.results], messages)
        else:
            _add("user", _parts(message.content), messages)
    messages = _without_open_server_calls(messages)
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        if last.get("type") == "text":
            last["text"] = last["text"].rstrip()
    return messages


def _without_open_server_calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove calls of Anthropic's server tools if they have no result, because their turn was interrupted.

    If the last message is the assistant's, its calls are kept, because the turn may continue. A code execution call is
    also kept if its program made another call and waits for the result.
    """
    blocks = [block for message in messages for block in message["content"]]
    if not any(block.get("type") in _SERVER_TOOLS for block in blocks):
        return messages
    kept_ids = {string_at(block, "tool_use_id") for block in blocks}
    kept_ids |= {string_at(block.get("caller"), "tool_id") for block in blocks}
    for message in messages[: -1 if messages[-1]["role"] == "assistant" else None]:
        message["content"] = [
            block
            for block in message["content"]
            if block.get("type") not in _SERVER_TOOLS or string_at(block, "id") in kept_ids
        ]
    return [message for message in messages if message["content"]]


def _add(role: str, blocks: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
    """Add blocks to the last message if it has the same role, otherwise add a new message."""
    if blocks and messages and messages[-1]["role"] == role:
        messages[-1]["content"] += blocks
    elif blocks:
        messages.append({"role": role, "content": blocks})


def _image(image: dict[str, Any]) -> dict[str, Any]:
    if found := data_of(image["url"]):
        return {"type": "image", "source": {"type": "base64", "media_type": found[0], "data": found[1]}}
    return {"type": "image", "source": {"type": "url", "url": image["url"]}}


def _file(kind: str, data: str, name: str) -> dict[str, Any]:
    title = {"title": name} if name else {}
    return {"type": "document", "source": {"type": "base64", "media_type": kind, "data": data}, **title}


def _parts(content: Content) -> list[dict[str, Any]]:
    return write_parts(content, lambda part: part if part["text"].strip() else None, _image, _file, _MEMBERS)


def _assistant(message: Assistant, ids: _Ids) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in in_order(message):
        if isinstance(part, TextPart):
            blocks += [{"type": "text", "text": part.text, **provider_fields(part)}] if part.text.strip() else []
        elif isinstance(part, ToolCall):
            block = {"type": "tool_use", "id": ids.of_turn[part.id], "name": part.name, "input": part.arguments}
            blocks.append(block | call_provider_fields(part, FORMAT))
        elif isinstance(part, Thought):
            blocks += _thought(part)
        elif part.data.get("type") != _CONTAINER:
            blocks.append(dict(part.data))
    while blocks and blocks[-1].get("type") in ("thinking", "redacted_thinking"):  # only blank text followed it
        blocks.pop()
    return blocks


def _thought(thought: Thought) -> list[dict[str, Any]]:
    if thought.extra and "reasoningContent" in thought.extra.data:  # reasoning in Converse's format needs no signature
        return [dict(thought.extra.data)]
    if not thought.signature or thought.id:  # the reasoning has no signature, or is from a different provider
        return []
    if thought.redacted:
        return [{"type": "redacted_thinking", "data": thought.signature}]
    return [{"type": "thinking", "thinking": thought.text, "signature": thought.signature, **provider_fields(thought)}]


def _result(result: CallResult, ids: _Ids) -> dict[str, Any]:
    written: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids.of_turn[result.call_id]}
    if content := [block for block in _parts(list(result.parts)) if block.get("type") in _RESULT_BLOCKS]:
        written["content"] = content
    elif text := result.text or (_FAILED if result.is_error else ""):
        written["content"] = text
    return written | ({"is_error": True} if result.is_error else {}) | provider_fields(result)


class _Ids:
    """Assigns valid and unique call ids. Ids of other providers may contain dots, or repeat in each turn.

    `of_turn` maps the ids of the calls of the current turn to the assigned ids.
    """

    def __init__(self) -> None:
        self._used: dict[str, int] = {}  # maps each used id to the last number that was appended to make it unique
        self.of_turn: dict[str, str] = {}

    def begin_turn(self, message: Assistant) -> None:
        self.of_turn = {}
        for call in message.calls:
            valid = unique = INVALID_IN_NAMES.sub("_", call.id) or "call"
            while unique in self._used:
                self._used[valid] += 1
                unique = f"{valid}_{self._used[valid]}"
            self._used[unique] = 1
            self.of_turn[call.id] = unique
