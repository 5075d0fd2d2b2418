"""Messages of chat: those of OpenAI's chat completions, which many servers speak, and those of Ollama's own.

Both have a role in each message and the calls beside the assistant's text. With OpenAI, arguments are JSON text, and a
failure is text like any other; reasoning is not written, because some of the servers refuse a field for it. With
Ollama, arguments are objects, results name their tool, and images stand beside the text; it takes reasoning back as
plain text, for templates that show a model what it thought before a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.messages import Assistant, CallResult, Message, Results, System, Thought
from streamtools.history.turns import Content, Draft, Names, Reader, arguments_text, data_of, list_of, read_part


def read_fields(message: Mapping[str, Any], said: Draft) -> None:
    """Add what stands beside the content of an assistant's message: reasoning, calls, a refusal in place of a text."""
    if isinstance(thinking := message.get("thinking"), str) and thinking:
        said.thoughts.append(Thought(thinking))
    for call in list_of(message.get("tool_calls") or []):
        said.add_call(call, call.get("id") if isinstance(call, Mapping) else None)
    if not said.texts and isinstance(refusal := message.get("refusal"), str):
        said.texts.append(refusal)


def find_call(message: Mapping[str, Any], reader: Reader) -> str | None:
    """Return the id of the call that a result answers which names its tool alone, as those of older Ollamas do."""
    return reader.find(message.get("tool_name") or message.get("name"))


def write_openai(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return OpenAI's messages of a settled history, in which answers to calls in text are the user's."""

    def assistant(message: Assistant, names: Names) -> dict[str, Any]:
        written: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        calls = [_call(call, names) for call in message.calls]
        return written | {"tool_calls": calls} if calls else written

    def result(result: CallResult, names: Names) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": result.call_id, "content": result.text}

    return _write(history, assistant, result, lambda content: {"content": content})


def _call(call: ToolCall, names: Names) -> dict[str, Any]:
    function = {"name": names.of(call.name), "arguments": arguments_text(call)}
    written = {"id": call.id, "type": "function", "function": function}
    if call.signature is not None:  # Google's, which its service of this format wants back
        written["extra_content"] = {"google": {"thought_signature": call.signature}}
    return written


def write_ollama(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return Ollama's messages of a settled history, in which answers to calls in text are the user's.

    Raises ValueError for what is neither text nor the data of an image.
    """

    def assistant(message: Assistant, names: Names) -> dict[str, Any]:
        written: dict[str, Any] = {"role": "assistant", "content": message.text}
        if thought := "\n".join(each.text for each in message.thoughts if each.text):
            written["thinking"] = thought
        functions = [{"name": names.of(call.name), "arguments": call.arguments} for call in message.calls]
        pairs = zip(message.calls, functions, strict=True)
        calls = [{"id": call.id, "function": function} for call, function in pairs]
        return written | {"tool_calls": calls} if calls else written

    def result(result: CallResult, names: Names) -> dict[str, Any]:
        named = {"role": "tool", "tool_name": names.of(result.name), "tool_call_id": result.call_id}
        return {**named, "content": result.text}

    return _write(history, assistant, result, _text_and_images)


def _text_and_images(content: Content) -> dict[str, Any]:
    texts: list[str] = []
    images: list[str] = []
    for part in map(read_part, [content] if isinstance(content, str) else content):
        kind = part.get("type")
        if kind == "text":
            texts.append(part["text"])
        elif kind == "image_url" and (found := data_of(part["image_url"]["url"])):
            images.append(found[1])
        else:
            raise ValueError(f"Ollama takes text and the data of images, no part of type {kind!r} as it stands")
    fields: dict[str, Any] = {"content": "\n".join(texts)}
    return fields | {"images": images} if images else fields


def _write(
    history: Sequence[Message],
    assistant: Callable[[Assistant, Names], dict[str, Any]],
    result: Callable[[CallResult, Names], dict[str, Any]],
    user: Callable[[Content], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return the messages of a history, of which these three write what the providers have each in its own way."""
    names = Names(history)
    messages: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, System):
            messages.append({"role": "system", "content": message.text})
        elif isinstance(message, Results):
            messages += (result(each, names) for each in message.results)
        elif not isinstance(message, Assistant):
            messages.append({"role": "user", **user(message.content)})
        elif message.text or message.calls:
            messages.append(assistant(message, names))
    return messages
