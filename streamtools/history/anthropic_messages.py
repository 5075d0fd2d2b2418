"""Messages of Anthropic: a turn is a list of blocks, and the results of its calls come first in the one that follows.

User and assistant alternate, so neighbours are joined. Blank text is refused, as is white space at the end of a last
turn of the assistant's. Ids of calls are unique in the whole history and of few characters. The system prompt stands
elsewhere in the request, and so does the container in which code is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.content import Content, data_of, given, is_text, without, write_parts
from streamtools.history.history_reader import HistoryReader, TurnDraft, keep
from streamtools.history.messages import NOT_IN_NAMES, beside, beside_call, in_order
from streamtools.history.parts import Assistant, CallResult, Message, Origin, Results, System, TextPart, Thought

FORMAT = "anthropic"
_FAILED = "the call failed"  # an error without words is refused
_SERVER_TOOLS = ("server_tool_use", "mcp_tool_use")
_IN_RESULTS = ("text", "image", "document", "search_result")
_CONTAINER = "container"  # of an item that is no block
_BESIDE = ("cache_control", "transformations", "context", "citations")  # an image or a document


def is_change(message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a message of the system's changes tools or settings from here on: it says nothing, and stays."""
    return "output_config" in message or any(each.get("type") in ("tool_addition", "tool_removal") for each in parts)


def read_block(part: Mapping[str, Any], said: TurnDraft) -> None:
    """Add a block of an assistant's message."""
    if part.get("type") != "thinking" or "signature" in part:  # without one it may be Cohere's
        said.format = FORMAT
    match part:
        case {"type": "thinking", "thinking": str() as text}:
            said.add_thought(text, part.get("signature"), own=without(part, "type", "thinking", "signature"))
        case {"type": "redacted_thinking", "data": str() as data}:
            said.add_thought("", data, redacted=True)
        case {"type": "tool_use"}:
            said.add_call(part, part.get("id"), without(part, "type", "id", "name", "input"))
        case {"type": str()}:
            said.add_item(part)


def read_result(part: Any, reader: HistoryReader) -> bool:
    """Add a block of a user's message, if it is a result."""
    if not isinstance(part, Mapping) or part.get("type") != "tool_result":
        return False
    content = part.get("content")
    held = {} if content is None or isinstance(content, str) or _are_plain(content) else {"content": content}
    is_error = part.get("is_error") is True
    own = keep(FORMAT, without(part, "type", "tool_use_id", "content", *(["is_error"] if is_error else [])) | held)
    reader.answer(part.get("tool_use_id"), content, is_error=is_error, own=own)
    return True


def _are_plain(content: object) -> bool:
    """Return whether a content is one text, written as a list."""
    block = content[0] if isinstance(content, list) and len(content) == 1 else None
    return isinstance(block, Mapping) and is_text(block) and len(block) == 2


def container_of(history: Sequence[Message], provider: Origin) -> dict[str, Any]:
    """Return the container in which the model last ran code, as Anthropic told it; empty if there is none."""
    for message in reversed(history):
        for part in message.items if isinstance(message, Assistant) and message.origin.is_same(provider) else ():
            if part.format == FORMAT and part.data.get("type") == _CONTAINER:
                return part.data
    return {}


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a settled history, in which answers to calls in text are the user's."""
    ids = _Ids()
    messages: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, System):
            messages += [own] if (own := beside(message)) else []
        elif isinstance(message, Assistant):
            ids.begin_turn(message)
            _add("assistant", _assistant(message, ids), messages)
        elif isinstance(message, Results):
            _add("user", [_result(result, ids) for result in message.results], messages)
        else:
            _add("user", _parts(message.content), messages)
    messages = _without_open_tools(messages)
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        if last.get("type") == "text":
            last["text"] = last["text"].rstrip()
    return messages


def _without_open_tools(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without calls of Anthropic's own tools whose turn broke off before their result, and went on.

    One at the end is gone on with, and one that waits for a call which its program has made.
    """
    blocks = [block for message in messages for block in message["content"]]
    if not any(block.get("type") in _SERVER_TOOLS for block in blocks):
        return messages
    known = {given(block, "tool_use_id") for block in blocks}
    known |= {given(block.get("caller"), "tool_id") for block in blocks}
    for message in messages[: -1 if messages[-1]["role"] == "assistant" else None]:
        message["content"] = [
            block
            for block in message["content"]
            if block.get("type") not in _SERVER_TOOLS or given(block, "id") in known
        ]
    return [message for message in messages if message["content"]]


def _add(role: str, blocks: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
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
    return write_parts(content, lambda part: part if part["text"].strip() else None, _image, _file, _BESIDE)


def _assistant(message: Assistant, ids: _Ids) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for each in in_order(message):
        if isinstance(each, TextPart):
            blocks += [{"type": "text", "text": each.text, **beside(each)}] if each.text.strip() else []
        elif isinstance(each, ToolCall):
            block = {"type": "tool_use", "id": ids.of_turn[each.id], "name": each.name, "input": each.arguments}
            blocks.append(block | beside_call(each, FORMAT))
        elif isinstance(each, Thought):
            blocks += _thought(each)
        elif each.data.get("type") != _CONTAINER:
            blocks.append(dict(each.data))
    while blocks and blocks[-1].get("type") in ("thinking", "redacted_thinking"):  # a blank text stood behind it
        blocks.pop()
    return blocks


def _thought(thought: Thought) -> list[dict[str, Any]]:
    if thought.own and "reasoningContent" in thought.own.data:  # of Converse, where it need not be signed
        return [dict(thought.own.data)]
    if not thought.signature or thought.id:  # others give their blocks an id
        return []
    if thought.redacted:
        return [{"type": "redacted_thinking", "data": thought.signature}]
    return [{"type": "thinking", "thinking": thought.text, "signature": thought.signature, **beside(thought)}]


def _result(result: CallResult, ids: _Ids) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids.of_turn[result.call_id]}
    if content := [each for each in _parts(list(result.parts)) if each.get("type") in _IN_RESULTS]:
        block["content"] = content
    elif text := result.text or (_FAILED if result.is_error else ""):
        block["content"] = text
    return block | ({"is_error": True} if result.is_error else {}) | beside(result)


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
