"""Messages of chat: those of OpenAI's chat completions, which many servers speak, Ollama's own, and Cohere's.

All have a role in each message and the calls beside the assistant's text. With OpenAI, arguments are JSON text, a
failure is text like any other, and reasoning stands in the field in which the server has sent it; `reasoning` says in
which messages. With Ollama, arguments are objects, results name their tool, and images stand beside the text; it takes
reasoning back as plain text, for templates that show a model what it thought before a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.content import Content, data_of, given, is_text, read_part, without
from streamtools.history.history_reader import HistoryReader, TurnDraft, keep
from streamtools.history.messages import FIELDS, arguments_text, beside, beside_call, fields_of, in_order, text_of
from streamtools.history.parts import Assistant, CallResult, Message, Results, System, TextPart
from streamtools.json_values import compact, writable

FORMAT, COHERE = "openai", "cohere"
_BESIDE = ("audio", "images", "prefix", "name")  # members of a message that go back; others are the client's own
_TEXTS = ("text", "output_text", "refusal")
_CHUNKS = (
    *("reference", "tool_reference", "image_url", "document_url", "input_audio", "file", "resource", "resource_link"),
)
"""Parts of an assistant's content, Mistral's most of them, that are neither text nor reasoning."""
_BEGINNINGS = {"/9j/": "jpeg", "R0lG": "gif", "UklG": "webp"}  # of images in Base64 whose type nobody tells
_USERS = ("text", "image_url", "input_audio", "file")
_BESIDE_PARTS = ("type", "cache_control", "prompt_cache_breakpoint")
_CHATS = {"refusal", "prompt_cache_breakpoint"}  # members of a part which are OpenAI's alone


def read_fields(message: Mapping[str, Any], said: TurnDraft) -> None:
    """Add what stands beside the content of an assistant's message: reasoning before it, a refusal, calls."""
    fields = {name: message[name] for name in FIELDS if message.get(name) is not None}
    thinking = text_of(fields) if fields else given(message, "thinking")
    if fields or thinking:
        said.format = FORMAT if fields else "ollama"
        said.add_thought(thinking, own=fields)
        said.parts.insert(0, said.parts.pop())
    refusal, calls, legacy = given(message, "refusal"), message.get("tool_calls"), message.get("function_call")
    if any(isinstance(each, TextPart) and each.text == refusal for each in said.parts):
        refusal = ""  # it has been read
    calls = calls if isinstance(calls, list | tuple) else ()
    legacy = legacy if given(legacy, "name") else None
    members = {name: message[name] for name in _BESIDE if message.get(name)}
    content = message.get("content")
    chunks = [each for each in content if isinstance(each, Mapping)] if isinstance(content, list | tuple) else []
    if any(each.get("type") in _CHUNKS for each in chunks):
        members["content"] = [dict(each) for each in chunks if each.get("type") != "thinking"]
    if refusal or calls or legacy or members:
        said.format = said.format or FORMAT
    if refusal:
        said.add_text(refusal, {"refusal": refusal})
    for call in calls:
        _read_call(call, said)
    said.add_call(legacy, None)
    if members:
        said.add_item(members)


def _read_call(call: object, said: TurnDraft) -> None:
    if not isinstance(call, Mapping):
        return
    if isinstance(custom := call.get("custom"), Mapping):
        named = {"name": custom.get("name"), "arguments": {"input": given(custom, "input")}}
        said.add_call(named, call.get("id"), {"type": "custom"})
        return
    extra = call.get("extra_content")
    signature = given(extra.get("google"), "thought_signature") if isinstance(extra, Mapping) else ""
    said.add_call(call, call.get("id"), signature=signature or None)


def read_part_of(part: Mapping[str, Any], said: TurnDraft, shown: str) -> bool:
    """Add a part of an assistant's content, if it is one of chat: a text, or what Mistral's models think.

    A text with more beside it is of the format that the list has `shown` to be, if its message shows none.
    """
    kind = part.get("type")
    if kind == "thinking" and isinstance(part.get("thinking"), list):
        said.format = FORMAT
        said.add_thought("".join(given(each, "text") for each in part["thinking"]), own={"content": [dict(part)]})
        return True
    if kind in _CHUNKS:  # `read_fields` keeps them
        return True
    if kind not in _TEXTS:
        return False
    rest = without(part, "type", "text")  # how it is cached, and what it cites
    if kind != "output_text" and any(value is not None for value in rest.values()):
        said.format = said.format or (FORMAT if rest.keys() & _CHATS else shown)
        said.add_text(given(part, "text") or given(part, "refusal"), rest)
    else:
        said.add_text(given(part, "text"))
    return True


def read_result(message: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add the result that a message is; one that names its tool alone, as those of older Ollamas do, finds its call."""
    content = message.get("content")
    id = message.get("tool_call_id") or reader.find(message.get("tool_name") or message.get("name"))
    parts = content if isinstance(content, list) else [content]
    kinds = {given(each, "type") for each in parts}
    format = COHERE if "document" in kinds else FORMAT
    plain = not isinstance(content, list) or all(
        isinstance(each, Mapping) and is_text(each) and len(each) == 2 for each in content
    )
    named = {"name": message["name"]} if message.get("role") == "tool" and given(message, "name") else {}
    own = keep(format, named | ({} if plain else {"content": content}))
    documents = [_document(each) for each in parts] if format == COHERE else content
    reader.answer(id, with_images(message, documents), own=own)


def _document(part: Any) -> Any:
    """Return a document of Cohere's as the text of what it holds, and another part as it is."""
    held = part.get("document") if isinstance(part, Mapping) else None
    return {"type": "text", "text": compact(writable(held.get("data")))} if isinstance(held, Mapping) else part


def with_images(message: Mapping[str, Any], content: Any) -> Any:
    """Return a content with the images that stand beside it in a message of Ollama's."""
    listed = message.get("images")
    images = [each for each in listed if isinstance(each, str)] if isinstance(listed, list | tuple) else []
    parts = [content] if isinstance(content, str) and content else content if isinstance(content, list) else []
    return [*parts, *map(_image, images)] if images else content


def _image(data: str) -> dict[str, Any]:
    kind = next((kind for begin, kind in _BEGINNINGS.items() if data.startswith(begin)), "png")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}


def write_openai(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return OpenAI's messages of a settled history, in which answers to calls in text are the user's."""

    def assistant(message: Assistant) -> dict[str, Any]:
        texts = [each for each in message.parts if isinstance(each, TextPart)]
        refused = [each.text for each in texts if each.own and "refusal" in each.own.data]
        texts = [each for each in texts if not (each.own and "refusal" in each.own.data)]
        text = "".join(each.text for each in texts) if refused else message.text
        said: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        written: dict[str, Any] = {"role": "assistant", "content": text or None}
        if any(each.own for each in texts):
            said = [{"type": "text", "text": each.text, **beside(each)} for each in texts]
            written["content"] = said
        written |= {"refusal": "".join(refused)} if refused else {}
        fields = fields_of(message)
        if chunks := fields.pop("content", None):  # Mistral's, before the text
            if isinstance(chunks, str):
                chunks = [{"type": "thinking", "thinking": [{"type": "text", "text": chunks}]}]
            fields["content"] = [*chunks, *said]
        calls = [_call(call) for call in message.calls]
        written |= {**({"tool_calls": calls} if calls else {}), **fields}
        for item in message.items:
            content = {"content": [*(chunks or ()), *item.data["content"]]} if "content" in item.data else {}
            written |= item.data | content
        return written

    def result(result: CallResult) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": result.call_id, "content": result.text, **beside(result)}

    return _write(history, assistant, result, lambda content: {"content": _user(content)})


def _user(content: Content) -> Content:
    """Return what a user says without what other formats have beside an image or a file."""
    return content if isinstance(content, str) else [_user_part(each) for each in content]


def _user_part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    known = kind in _USERS and kind in part  # a file of Mistral's has its id beside the type
    return {name: part[name] for name in (*_BESIDE_PARTS, kind) if name in part} if known else part


def _call(call: ToolCall) -> dict[str, Any]:
    if beside_call(call, FORMAT).get("type") == "custom":
        custom = {"name": call.name, "input": given(call.arguments, "input")}
        return {"id": call.id, "type": "custom", "custom": custom}
    function = {"name": call.name, "arguments": arguments_text(call)}
    written = {"id": call.id, "type": "function", "function": function}
    if call.signature is not None:  # Google's, which its service of this format wants back
        written["extra_content"] = {"google": {"thought_signature": call.signature}}
    return written


def write_ollama(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return Ollama's messages of a settled history, in which answers to calls in text are the user's.

    Raises ValueError for what is neither text nor the data of an image.
    """

    def assistant(message: Assistant) -> dict[str, Any]:
        written: dict[str, Any] = {"role": "assistant", "content": message.text}
        if thought := "\n".join(each.text for each in message.thoughts if each.text):
            written["thinking"] = thought
        calls = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}} for call in message.calls
        ]
        return written | {"tool_calls": calls} if calls else written

    def result(result: CallResult) -> dict[str, Any]:
        named = {"role": "tool", "tool_name": result.name, "tool_call_id": result.call_id}
        images = [found[1] for each in result.parts if (found := data_of(given(each.get("image_url"), "url")))]
        return {**named, "content": result.text, **({"images": images} if images else {})}

    return _write(history, assistant, result, _text_and_images)


def _text_and_images(content: Content) -> dict[str, Any]:
    texts: list[str] = []
    images: list[str] = []
    for part in map(read_part, [content] if isinstance(content, str) else content):
        kind = part.get("type")
        if kind == "text":
            texts.append(part["text"])
        elif kind == "image_url" and (found := data_of(given(part.get("image_url"), "url"))):
            images.append(found[1])
        else:
            raise ValueError(f"Ollama takes text and the data of images, no part of type {kind!r} as it stands")
    fields: dict[str, Any] = {"content": "\n".join(texts)}
    return fields | {"images": images} if images else fields


def _write(
    history: Sequence[Message],
    assistant: Callable[[Assistant], dict[str, Any]],
    result: Callable[[CallResult], dict[str, Any]],
    user: Callable[[Content], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return the messages of a history, of which these three write what the providers have each in its own way."""
    messages: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, System):
            messages.append({"role": "system", "content": message.text, **beside(message)})
        elif isinstance(message, Results):
            messages += (result(each) for each in message.results)
        elif not isinstance(message, Assistant):
            messages.append({"role": "user", **user(message.content), **beside(message)})
        elif message.text or message.calls or message.items:
            messages.append(assistant(message))
    return messages


# Cohere's chat, version 2: OpenAI's, but for what a model thought.
#
# Before its calls that is a plan, which has a field of its own; before its words, parts of its content. Both go back
# only to Cohere.


def read_plan(message: Mapping[str, Any], said: TurnDraft) -> None:
    """Add the plan that a message of the assistant's begins with, if it has one."""
    citations = message.get("citations")
    if citations or given(message, "tool_plan"):
        said.format = COHERE
    if plan := given(message, "tool_plan"):
        said.add_thought(plan)
    if citations:
        said.add_item({"citations": citations})


def write_cohere(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a settled history, in which answers to calls in text are the user's."""
    written = write_openai(history)
    turns = [each for each in history if isinstance(each, Assistant) and (each.text or each.calls or each.items)]
    said = [message for message in written if message["role"] == "assistant"]
    for turn, message in zip(turns, said, strict=True):
        message.pop("content")
        for call in message.get("tool_calls", ()):
            call.pop("extra_content", None)  # of Google's
        of_cohere = turn.origin.format in (None, COHERE)
        thoughts = "".join(each.text for each in turn.thoughts) if of_cohere and any(in_order(turn)) else ""
        parts = [{"type": "text", "text": turn.text}] if turn.text else []
        if turn.calls and thoughts:
            message["tool_plan"] = thoughts
        elif thoughts:
            parts.insert(0, {"type": "thinking", "thinking": thoughts})
        if parts:
            message["content"] = parts
    return written
