"""The rules of providers for histories. Each function returns the violations as sentences.

The rules follow the documentation and the error messages of the providers. They share no code with the package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

Messages = Sequence[dict[str, Any]]

_name = re.compile(r"[A-Za-z0-9_-]{1,64}")
_id = re.compile(r"[A-Za-z0-9_-]+")


def check_openai(messages: Messages) -> None:
    """Raise AssertionError for messages that OpenAI would refuse.

    A message with `tool_calls` is followed directly by one `tool` message for each id. A user message may be empty.
    """
    open_ids: list[str] = []
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            assert message["tool_call_id"] in open_ids, f"no call for {message}"
            assert isinstance(content, str), message
            open_ids.remove(message["tool_call_id"])
            continue
        assert not open_ids, f"{open_ids} have no answer before {message}"
        calls = message.get("tool_calls")
        assert calls is None or (role == "assistant" and calls), message
        assert calls or (isinstance(content, str) and (content or role == "user")), message
        for call in calls or ():
            assert call["type"] == "function", call
            assert _name.fullmatch(call["function"]["name"]), call
            assert isinstance(json.loads(call["function"]["arguments"]), dict), call
            assert call["id"] not in open_ids, f"{call['id']} comes twice"
            open_ids.append(call["id"])
    assert not open_ids, f"{open_ids} have no answer"


def check_anthropic(messages: Messages) -> None:
    """Raise AssertionError for messages that Anthropic would refuse.

    `tool_use` blocks are answered at the beginning of the next user message, all of them and nothing else. Ids are
    unique in the history. No text is empty.
    """
    asked: list[str] = []
    seen: set[str] = set()
    assert not messages or messages[0]["role"] == "user", "a history begins with the user"
    for message in messages:
        blocks = message["content"]
        kinds = [block["type"] for block in blocks]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(asked), f"{asked} were asked for, and {results} are answered"
        assert kinds[: len(results)] == ["tool_result"] * len(results), f"results stand first: {kinds}"
        assert all(block["text"].strip() for block in blocks if block["type"] == "text"), "a text is empty"
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert len({*asked}) == len(asked), f"ids come twice: {asked}"
        assert not seen & {*asked}, f"ids come again: {asked}"
        assert all(isinstance(block["input"], dict) for block in blocks if block["type"] == "tool_use"), blocks
        seen.update(asked)
    assert not asked, f"{asked} have no answer"


def openai_breaches(messages: Messages) -> list[str]:
    """Each call of an assistant message has one `tool` message, and these follow it directly."""
    parts = [{"content": "parts"} if isinstance(message["content"], list) else {} for message in messages]
    return _complaints(check_openai, [message | each for message, each in zip(messages, parts, strict=True)])


def _complaints(check: Callable[[Messages], None], messages: Messages) -> list[str]:
    try:
        check(messages)
    except AssertionError as error:
        return [str(error)]
    return []


def responses_breaches(items: Messages) -> list[str]:
    """Each call has one output before the next message. Reasoning is followed by another item."""
    found: list[str] = []
    awaited: list[str] = []
    thinking = False
    for item in items:
        kind = item.get("type", "message")
        if kind == "reasoning":
            if not item.get("id") or not isinstance(item["summary"], list):
                found.append("reasoning that is not stored")
        elif kind == "function_call":
            awaited.append(item["call_id"])
            if not isinstance(json.loads(item["arguments"]), dict) or not _name.fullmatch(item["name"]):
                found.append("a call that is none")
        elif kind == "function_call_output":
            if item["call_id"] not in awaited:
                found.append("an output without a call before it")
            else:
                awaited.remove(item["call_id"])
        elif awaited and item.get("role") in ("user", "system"):  # the assistant may write more after a call
            found.append(f"{item['role']} before the outputs of {awaited}")
        if thinking and (kind == "function_call_output" or item.get("role") in ("user", "system")):
            found.append("reasoning that leads to nothing")
        thinking = kind == "reasoning"
    if thinking or awaited:
        found.append("reasoning or calls without what belongs to them at the end")
    return found


def anthropic_breaches(messages: Messages) -> list[str]:
    """Each call has its result at the beginning of the next message. Roles alternate, and no message is empty."""
    found = _complaints(check_anthropic, messages)
    role = None
    for message in messages:
        if message["role"] == role or message["role"] not in ("user", "assistant"):
            found.append(f"{message['role']} after {role}")
        role, blocks = message["role"], message["content"]
        if not blocks:
            found.append("an empty message")
        for block in blocks:
            match block:
                case {"type": "tool_result", "is_error": True}:
                    found += [] if block.get("content") else ["an error without words"]
                case {"type": "tool_use", "id": id, "name": name}:
                    found += [] if _id.fullmatch(id) and _name.fullmatch(name) else [f"the id or name of {block}"]
                case {"type": "thinking", "signature": signature}:
                    found += [] if signature else ["thinking without a signature"]
        if role == "assistant" and blocks and "thinking" in blocks[-1]["type"]:
            found.append("thinking that leads to nothing")
    if role == "assistant" and messages[-1]["content"][-1].get("text", "x")[-1:].isspace():
        found.append("white space at the end")
    return found


def gemini_breaches(contents: Messages) -> list[str]:
    """Each turn with calls is followed by a content with one response for each call, and nothing else."""
    found: list[str] = []
    awaited: list[tuple[str | None, str]] = []
    for content in contents:
        if content["role"] not in ("user", "model") or not content["parts"]:
            found.append("an empty content, or a role that is none")
        responses = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if (responses and len(responses) < len(content["parts"])) or (responses and content["role"] != "user"):
            found.append("responses that do not stand alone")
        if awaited != [(each.get("id"), each["name"]) for each in responses]:
            found.append(f"responses that are not those of {awaited}")
        found += ["a response that is no object" for each in responses if not isinstance(each["response"], dict)]
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        awaited = [(each.get("id"), each["name"]) for each in calls]
        found += ["arguments that are no object" for each in calls if not isinstance(each["args"], dict)]
        for part in content["parts"]:
            if not part or (part.get("text") == "" and not part.get("thoughtSignature")):
                found.append("an empty part")
    return found + (["calls without responses at the end"] if awaited else [])


def ollama_breaches(messages: Messages) -> list[str]:
    """One result for each call follows the calls directly, with the name of its tool."""
    found: list[str] = []
    awaited: list[str] = []
    for message in messages:
        if not isinstance(message["content"], str):
            found.append("a content that is no text")
        if message["role"] == "tool":
            if not awaited or awaited.pop(0) != message["tool_name"]:
                found.append("a result without a call before it")
            continue
        if awaited:
            found.append(f"{message['role']} before the results of {awaited}")
        calls = message.get("tool_calls", [])
        awaited = [call["function"]["name"] for call in calls]
        found += [
            "arguments that are no object" for each in calls if not isinstance(each["function"]["arguments"], dict)
        ]
        if message["role"] == "assistant" and not (message["content"] or calls):
            found.append("an empty message of the assistant's")
    return found + (["calls without results at the end"] if awaited else [])


def bedrock_breaches(messages: Messages) -> list[str]:
    """Roles alternate. Each call has its result in the next message. No text is blank."""
    found: list[str] = []
    role = None
    awaited: list[str] = []
    for message in messages:
        blocks = message["content"]
        if message["role"] == role or message["role"] not in ("user", "assistant") or not blocks:
            found.append(f"{message['role']} after {role}, or an empty message")
        role = message["role"]
        results = [block["toolResult"] for block in blocks if "toolResult" in block]
        if sorted(awaited) != sorted(each["toolUseId"] for each in results):
            found.append(f"results that are not those of {awaited}")
        found += ["a result without words" for each in results if not each["content"]]
        calls = [block["toolUse"] for block in blocks if "toolUse" in block]
        awaited = [each["toolUseId"] for each in calls]
        for call in calls:
            if not isinstance(call["input"], dict) or not _name.fullmatch(call["name"]):
                found.append("a call that is none")
        found += ["a blank text" for block in blocks if "text" in block and not block["text"].strip()]
    return found + (["calls without results at the end"] if awaited else [])


def cohere_breaches(messages: Messages) -> list[str]:
    """The order is that of chat completions. Only a message with calls has a plan."""
    plain = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(part.get("text", "parts") for part in content if part["type"] != "thinking") or None
        plain.append({**message, "content": content})
    found = ["a plan without calls" for each in messages if "tool_plan" in each and not each.get("tool_calls")]
    return found + _complaints(check_openai, plain)


def interactions_breaches(steps: Messages) -> list[str]:
    """Each call has one result, by its id and name, before the next message. A thought is followed by another item."""
    found: list[str] = []
    awaited: dict[str, str] = {}
    last = ""
    for step in steps:
        kind = step["type"]
        if kind == "function_call":
            awaited[step["id"]] = step["name"]
            if not isinstance(step["arguments"], dict) or not _name.fullmatch(step["name"]):
                found.append("a call that is none")
        elif kind == "function_result":
            if awaited.pop(step["call_id"], None) != step["name"]:
                found.append("a result without a call before it")
        elif kind == "user_input" and (awaited or last == "thought"):
            found.append(f"a user message precedes the results of {awaited}, or follows a thought")
        found += ["thinking without a signature"] if kind == "thought" and not step.get("signature") else []
        found += ["an empty output"] if kind == "model_output" and not step["content"] else []
        last = kind
    return found + (["calls or a thought at the end"] if awaited or last == "thought" else [])


def breaches(messages: Messages, format: str) -> list[str]:
    """Return the violations of a provider's rules, and those of messages that no provider accepts."""
    json.dumps(messages, ensure_ascii=False, allow_nan=False).encode()
    return RULES[format](messages)


RULES: dict[str, Callable[[Messages], list[str]]] = {
    "openai": openai_breaches,
    "responses": responses_breaches,
    "anthropic": anthropic_breaches,
    "gemini": gemini_breaches,
    "ollama": ollama_breaches,
    "bedrock": bedrock_breaches,
    "cohere": cohere_breaches,
    "interactions": interactions_breaches,
}
