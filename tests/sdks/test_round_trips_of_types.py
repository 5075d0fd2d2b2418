"""The types of the SDKs as the list of what there is: an example of each member of each is read, and written as it was.

Each stands in a history that its provider would take: a call before its result, a result after its call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamtools.history import Origin, read_messages, write_messages
from tests.sdks.examples_of_types import examples, examples_of_shape
from tests.sdks.test_requests import JUDGES, bedrock

pytestmark = pytest.mark.sdk

Message = dict[str, Any]
Messages = list[Message]

ASK: Message = {"role": "user", "content": "?"}
BLOCKS: Message = {"role": "user", "content": [{"type": "text", "text": "?"}]}
DONE: Message = {"type": "text", "text": "Done."}


def chat(message: Message) -> Messages | None:
    """Chat completions, Cohere's and Mistral's."""
    match message:
        case {"role": "function"} | {"function_call": _}:
            return None  # which become calls and results of tools
        case {"role": "tool"}:
            id = message.setdefault("tool_call_id", "c")
            call = {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
            return [ASK, {"role": "assistant", "tool_calls": [call]}, message]
        case {"role": "assistant", "tool_calls": [call]}:
            call.setdefault("id", "c")
            return [ASK, message, {"role": "tool", "tool_call_id": call["id"], "content": "r"}]
        case {"role": "assistant", "content": [{"type": "thinking"}, *_]}:
            message["content"].append(DONE)
        case {"role": "assistant", "tool_plan": _}:
            return None  # which leads to nothing
    return [ASK, message]


def chat_as_listed(message: Message) -> Message | None:
    """Return a message of chat in the form in which it is written."""
    role, content = message.get("role"), message.get("content")
    if role == "developer":
        message["role"] = "system"
    if isinstance(content, list) and role != "user" and all(set(each) == {"type", "text"} for each in content):
        message["content"] = "".join(each["text"] for each in content)
    if isinstance(content, list) and [{"type"} | {"refusal"}] == [*map(set, content)]:
        message |= {"content": None, "refusal": content[0]["refusal"]}
    for part in content if isinstance(content, list) and role == "user" else ():
        if isinstance(part.get("image_url"), str):
            part["image_url"] = {"url": part["image_url"]}
    for call in message.get("tool_calls", ()):
        call.pop("index", None)
        call["type"] = call.get("type") if call.get("type") == "custom" else "function"
        function = call.get("function" if call["type"] == "function" else "", {})
        if isinstance(function.get("arguments"), dict):
            function["arguments"] = json.dumps(function["arguments"], separators=(",", ":"))
    if role in ("user", "tool"):
        message.setdefault("content", "")
    return message if role != "assistant" or len(_without_nulls(message)) > 1 else None


def cohere_as_listed(message: Message) -> Message | None:
    """Cohere's, in which texts are a list, and a call that lacks something has a name and arguments."""
    listed = chat_as_listed(message)
    if listed and listed["role"] == "assistant" and isinstance(listed.get("content"), str):
        listed["content"] = [{"type": "text", "text": listed["content"]}]
    for call in (listed or {}).get("tool_calls", ()):
        call["function"] = {"name": "unknown", "arguments": "{}", **call.get("function", {})}
    return listed


def items(message: Message) -> Messages:
    """Responses."""
    kind, id = message.get("type"), message.get("call_id")
    match kind:
        case "function_call_output" if id:
            return [ASK, {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}, message]
        case "custom_tool_call_output":
            return [ASK, {"type": "custom_tool_call", "call_id": id, "name": "f", "input": ""}, message]
        case "function_call" | "custom_tool_call":
            return [ASK, message, {"type": f"{kind}_output", "call_id": id, "output": "r"}]
        case "computer_call" | "local_shell_call" | "shell_call" | "apply_patch_call":
            return [ASK, message, {"type": f"{kind}_output", "call_id": id or message["id"], "output": "r"}]
        case "reasoning":
            return [ASK, message, {"role": "assistant", "content": "Done."}]
    return [ASK, message]


def item_as_listed(message: Message) -> Message:
    """Return an item in the form in which it is written."""
    role, content = message.get("role"), message.get("content")
    if role == "developer" and "tools" not in message:
        message["role"] = "system"
    if role in ("system", "developer") and isinstance(content, list):
        texts = [each["text"] for each in content if {"type": "input_text", "text": each.get("text")} == each]
        message["content"] = "".join(texts) if len(texts) == len(content) else content
    return message


def blocks(message: Message) -> Messages | None:
    """Anthropic's."""
    role, content = message["role"], message.get("content")
    block = content[0] if content and isinstance(content, list) else {}
    kind = block.get("type", "text")
    if role == "system":  # the words stand elsewhere, and what changes tools stays
        return [BLOCKS, message] if kind.startswith("tool_") else None
    users = kind in ("text", "image", "document", "search_result", "tool_result", "container_upload")
    if role == "user" and set(message) != {"role", "content"}:
        return None  # which only the system may have
    if (role == "user") != users and kind not in ("text", "container_upload"):
        return None
    if kind == "tool_use":
        return [BLOCKS, message, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block["id"]}]}]
    if kind == "tool_result":
        call = {"type": "tool_use", "id": block["tool_use_id"], "name": "f", "input": {}}
        return [BLOCKS, {"role": "assistant", "content": [call]}, message]
    if role == "assistant" and isinstance(content, list):
        content.append(DONE)
    return [BLOCKS, message] if role == "assistant" else [message]


def blocks_as_listed(message: Message) -> Message:
    """Return a message of Anthropic's in the form in which it is written: no error is without words."""
    if isinstance(message.get("content"), str):
        message["content"] = [{"type": "text", "text": message["content"]}]
    for block in message.get("content", ()):
        if block.get("type") == "tool_result" and block.get("is_error") and "content" not in block:
            block["content"] = "the call failed"
        match block.get("content") if block.get("type") == "tool_result" else None:
            case [{"type": "text", "text": text, **rest}] if not rest:
                block["content"] = text
    return message


def contents(message: Message) -> Messages | None:
    """Gemini's."""
    part = (message.get("parts") or [{}])[0]
    ask = {"role": "user", "parts": [{"text": "?"}]}
    message["role"] = "model"
    if "functionResponse" in part:
        named = {name: part["functionResponse"][name] for name in ("id", "name") if name in part["functionResponse"]}
        part["functionResponse"] = {"name": "f", "response": {}} | part["functionResponse"]
        call = {"functionCall": {"name": "f", "args": {}} | named}
        return [ask, {"role": "model", "parts": [call]}, message | {"role": "user"}]
    if "functionCall" in part:
        call = part["functionCall"] = {"name": "f", "args": {}} | part["functionCall"]
        answer = {name: call[name] for name in ("id", "name") if name in call} | {"response": {"a": 1}}
        return [ask, message, {"role": "user", "parts": [{"functionResponse": answer}]}]
    return [ask, message] if part else None


def steps(message: Message) -> Messages | None:
    """Interactions."""
    ask = {"type": "user_input", "content": [{"type": "text", "text": "?"}]}
    match message:
        case {"type": "function_result"}:
            call = {"type": "function_call", "id": message["call_id"], "arguments": {}}
            return [ask, call | {"name": message.setdefault("name", "f")}, message]
        case {"type": "function_call", "id": id, "name": name}:
            return [ask, message, {"type": "function_result", "call_id": id, "name": name, "result": "r"}]
        case {"type": "user_input"}:
            return [message] if "content" in message else None
        case {"type": "thought"}:
            return [ask, message, {"type": "model_output", "content": [DONE]}]
    return [ask, message]


def converse(message: Message) -> Messages | None:
    """Bedrock's."""
    block = (message.get("content") or [{}])[0]
    ask = {"role": "user", "content": [{"text": "?"}]}
    match block:
        case {"toolUse": {"type": _}} | {"toolResult": {"type": _}}:  # of the server's
            return [ask, {"role": "assistant", "content": [block, {"text": "Done."}]}]
        case {"toolResult": {"toolUseId": id}}:
            call = {"toolUse": {"toolUseId": id, "name": "f", "input": {}}}
            return [ask, {"role": "assistant", "content": [call]}, message | {"role": "user"}]
        case {"toolUse": {"toolUseId": id}}:
            result = {"toolResult": {"toolUseId": id, "content": [{"text": "r"}]}}
            return [ask, message | {"role": "assistant"}, {"role": "user", "content": [result]}]
        case {"reasoningContent": _} | {"citationsContent": _}:
            return [ask, {"role": "assistant", "content": [block, {"text": "Done."}]}]
    return None if message["role"] == "system" else [message] if message["role"] == "user" else [ask, message]


def as_it_is(message: Message) -> Message:
    return message


WAYS: dict[str, tuple[Callable[[Message], Messages | None], Callable[[Message], Message | None]]] = {
    "openai": (chat, chat_as_listed),
    "mistral": (chat, chat_as_listed),
    "cohere": (chat, cohere_as_listed),
    "responses": (items, item_as_listed),
    "anthropic": (blocks, blocks_as_listed),
    "anthropic, beta": (blocks, blocks_as_listed),
    "gemini": (contents, as_it_is),
    "interactions": (steps, as_it_is),
    "bedrock": (converse, as_it_is),
}
"""How an example becomes a history, and what a message of it is by the listed normalisations."""


def _histories(name: str) -> Iterator[Messages]:
    kind = JUDGES[name].types()[0]
    for example in examples_of_shape(kind) if JUDGES[name].types is bedrock else examples(kind):
        if history := WAYS[name][0](json.loads(json.dumps(example))):
            yield history


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [*map(_without_nulls, value)] if isinstance(value, list) else value


@pytest.mark.parametrize("name", WAYS)
def test_an_example_of_each_type(name: str) -> None:
    """It is the same JSON, but for what is listed."""
    judge, as_listed = JUDGES[name], WAYS[name][1]
    count = 0
    for history in _histories(name):
        count += 1
        read = read_messages(json.loads(json.dumps(history)), client=False)
        written = write_messages(read, judge.format, provider=Origin(host=judge.host), send_reasoning="always")
        expected = [each for each in map(as_listed, history) if each is not None]
        assert _without_nulls(expected) == _without_nulls(written)
    assert count >= 50
