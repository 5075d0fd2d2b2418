"""Reads and writes chat messages of OpenAI's chat completions, compatible servers, Ollama and Cohere.

Each message has a role. An assistant message has separate fields for its text and its calls.

- OpenAI: arguments are JSON text. The result of a failed call has no mark. The reasoning is in a field whose name
  depends on the server.
- Ollama: arguments are objects. A result contains the name of its tool. Images are in a separate field. The reasoning
  is in the field `thinking`.
- Cohere (version 2): like OpenAI, except for the reasoning, citations, and documents in results. In a message with
  calls, the reasoning is in the field `tool_plan`. In any other message, it is a part of the content. Reasoning of
  other providers is not sent to Cohere.

The functions that write messages expect a history in which each turn is followed by its results, and in which the
results of calls in text are user messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.content import Content, data_of, is_plain, read_part, string_at, without
from streamtools.history.history_reader import HistoryReader, TurnDraft
from streamtools.history.parts import Assistant, CallResult, Message, Results, System, TextPart
from streamtools.history.provider_view import FIELDS, fields_of, text_of
from streamtools.history.writing import arguments_text, call_provider_fields, in_order, provider_fields
from streamtools.json_values import ARRAY, OBJECT, json_text

FORMAT, COHERE = "openai", "cohere"
# Additional fields of assistant messages that are sent back. Other fields may have been added by a client.
_MEMBERS = ("audio", "images", "prefix", "name")
_TEXTS = ("text", "output_text", "refusal")  # types of parts that hold text
_CHUNKS = (
    "reference", "tool_reference", "image_url", "document_url", "input_audio", "file", "resource", "resource_link",
)  # fmt: skip
"""In assistant content, the types of parts that are neither text nor reasoning. Mistral uses most of them."""
_IMAGE_PREFIXES = {"/9j/": "jpeg", "R0lG": "gif", "UklG": "webp"}  # start of the Base64 data of each image type
_USER_PARTS = ("text", "image_url", "input_audio", "file")
_PART_MEMBERS = ("type", "cache_control", "prompt_cache_breakpoint")  # fields of a user part that are sent
_OPENAI_MEMBERS = {"refusal", "prompt_cache_breakpoint"}  # fields of a part that only OpenAI uses


def read_fields(message: Mapping[str, Any], turn: TurnDraft) -> None:
    """Add the fields of an assistant message to `turn`: reasoning, a refusal, calls, and content that is not text."""
    fields = {name: value for name in FIELDS if (value := message.get(name)) is not None}
    thinking = text_of(fields) if fields else string_at(message, "thinking")
    if fields or thinking:
        turn.format = FORMAT if fields else "ollama"
        turn.add_thought(thinking, extra=fields)
        turn.parts.insert(0, turn.parts.pop())  # the reasoning precedes the content
    refusal, calls, legacy = string_at(message, "refusal"), message.get("tool_calls"), message.get("function_call")
    if refusal and any(isinstance(part, TextPart) and part.text == refusal for part in turn.parts):
        refusal = ""  # the content already contains it
    calls = calls if isinstance(calls, ARRAY) else ()
    legacy = legacy if string_at(legacy, "name") else None
    members = {name: value for name in _MEMBERS if (value := message.get(name))}
    content = message.get("content")
    chunks = [chunk for chunk in content if isinstance(chunk, OBJECT)] if isinstance(content, ARRAY) else []
    if any(chunk.get("type") in _CHUNKS for chunk in chunks):
        members["content"] = [dict(chunk) for chunk in chunks if chunk.get("type") != "thinking"]
    if refusal or calls or legacy or members:
        turn.format = turn.format or FORMAT
    if refusal:
        turn.add_text(refusal, {"refusal": refusal})
    for call in calls:
        _read_call(call, turn)
    turn.add_call(legacy, None)
    if members:
        turn.add_item(members)


def _read_call(call: object, turn: TurnDraft) -> None:
    if not isinstance(call, OBJECT):
        return
    kind = {"type": "custom"} if call.get("type") == "custom" else None
    extra = call.get("extra_content")
    signature = string_at(extra.get("google"), "thought_signature") if extra and isinstance(extra, OBJECT) else ""
    turn.add_call(call, call.get("id"), kind, signature or None)


def read_content_part(part: Mapping[str, Any], turn: TurnDraft, default_format: str) -> bool:
    """Add a part of assistant content if it has a type that chat messages use. Returns False for any other part.

    If the format of the turn is unknown, a text (except `output_text`) with additional fields sets it: to "openai" if
    one of the fields is known only to OpenAI, else to `default_format`.
    """
    kind = part.get("type")
    if kind == "thinking" and isinstance(part.get("thinking"), list):
        turn.format = FORMAT
        turn.add_thought(
            "".join(string_at(chunk, "text") for chunk in part["thinking"]), extra={"content": [dict(part)]}
        )
        return True
    if kind in _CHUNKS:  # `read_fields` adds these parts
        return True
    if kind not in _TEXTS:
        return False
    rest = without(part, "type", "text")  # for example `cache_control` and `citations`
    if kind != "output_text" and any(value is not None for value in rest.values()):
        turn.format = turn.format or (FORMAT if rest.keys() & _OPENAI_MEMBERS else default_format)
        turn.add_text(string_at(part, "text") or string_at(part, "refusal"), rest)
    else:
        turn.add_text(string_at(part, "text"))
    return True


def read_result(message: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add the result in a tool message.

    A result of an older version of Ollama has no call id, only the name of its tool. Such a result belongs to the first
    unanswered call of that tool. Raises ValueError for a result that names neither a call nor a tool, if no call waits.
    """
    content = message.get("content")
    tool = message.get("tool_name") or message.get("name")
    id = message.get("tool_call_id") or reader.find_open_call(tool)
    if not (id or tool):
        raise ValueError("a tool message needs the key 'tool_call_id', with the id of the call")
    parts = content if isinstance(content, list) else [content]
    format = COHERE if any(string_at(part, "type") == "document" for part in parts) else FORMAT
    name = {"name": message["name"]} if message.get("role") == "tool" and string_at(message, "name") else {}
    documents = [_document(part) for part in parts] if format == COHERE else content
    rest = name | ({} if is_plain(content) else {"content": content})
    reader.add_native_result(format, id, with_images(message, documents), rest)


def _document(part: Any) -> Any:
    """Return a document in Cohere's format as a text part. Other parts are returned unchanged."""
    document = part.get("document") if isinstance(part, OBJECT) else None
    return {"type": "text", "text": json_text(document.get("data"))} if isinstance(document, OBJECT) else part


def with_images(message: Mapping[str, Any], content: Any) -> Any:
    """Return the content, with a part for each image in the field `images` of a message of Ollama."""
    listed = message.get("images")
    images = [_image(image) for image in listed if isinstance(image, str)] if isinstance(listed, ARRAY) else []
    if not images:
        return content
    parts = [content] if isinstance(content, str) and content else content if isinstance(content, list) else []
    return [*parts, *images]


def _image(data: str) -> dict[str, Any]:
    kind = next((kind for prefix, kind in _IMAGE_PREFIXES.items() if data.startswith(prefix)), "png")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}


def write_openai(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a history as OpenAI's chat messages."""

    def assistant(message: Assistant) -> dict[str, Any]:
        texts = [part for part in message.parts if isinstance(part, TextPart)]
        extended = [part for part in texts if part.extra]
        refused = [part for part in extended if "refusal" in provider_fields(part)]
        text = "".join(part.text for part in texts if part not in refused) if refused else message.text
        parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        written: dict[str, Any] = {"role": "assistant", "content": text or None}
        if len(extended) > len(refused):
            texts = [part for part in texts if part not in refused]
            parts = [{"type": "text", "text": part.text, **provider_fields(part)} for part in texts]
            written["content"] = parts
        if refused:
            written["refusal"] = "".join(part.text for part in refused)
        fields = fields_of(message)
        if chunks := fields.pop("content", None):  # Mistral's reasoning, which is sent before the text
            if isinstance(chunks, str):
                chunks = [{"type": "thinking", "thinking": [{"type": "text", "text": chunks}]}]
            fields["content"] = [*chunks, *parts]
        calls = [_call(call) for call in message.calls]
        written |= {"tool_calls": calls, **fields} if calls else fields
        for item in message.items:
            content = {"content": [*(chunks or ()), *item.data["content"]]} if "content" in item.data else {}
            written |= item.data | content
        return written

    def result(result: CallResult) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": result.call_id, "content": result.text, **provider_fields(result)}

    return _write(history, assistant, result, lambda content: {"content": _user(content)})


def _user(content: Content) -> Content:
    """Return user content without the fields that only other formats use."""
    return content if isinstance(content, str) else [_user_part(part) for part in content]


def _user_part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    known = kind in _USER_PARTS and kind in part  # a file in Mistral's format has no field `file`
    return {name: part[name] for name in (*_PART_MEMBERS, kind) if name in part} if known else part


def _call(call: ToolCall) -> dict[str, Any]:
    if call_provider_fields(call, FORMAT).get("type") == "custom":
        custom = {"name": call.name, "input": string_at(call.arguments, "input")}
        return {"id": call.id, "type": "custom", "custom": custom}
    function = {"name": call.name, "arguments": arguments_text(call)}
    written = {"id": call.id, "type": "function", "function": function}
    if call.signature is not None:  # Google's signature, which its endpoint requires
        written["extra_content"] = {"google": {"thought_signature": call.signature}}
    return written


def write_ollama(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a history as Ollama's messages.

    Raises ValueError for user content other than text and image data.
    """

    def assistant(message: Assistant) -> dict[str, Any]:
        written: dict[str, Any] = {"role": "assistant", "content": message.text}
        if thought := "\n".join(thought.text for thought in message.thoughts if thought.text):
            written["thinking"] = thought
        calls = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}} for call in message.calls
        ]
        return written | {"tool_calls": calls} if calls else written

    def result(result: CallResult) -> dict[str, Any]:
        head = {"role": "tool", "tool_name": result.name, "tool_call_id": result.call_id}
        images = [found[1] for part in result.parts if (found := data_of(string_at(part.get("image_url"), "url")))]
        return {**head, "content": result.text, **({"images": images} if images else {})}

    return _write(history, assistant, result, _text_and_images)


def _text_and_images(content: Content) -> dict[str, Any]:
    texts: list[str] = []
    images: list[str] = []
    for part in map(read_part, [content] if isinstance(content, str) else content):
        kind = part.get("type")
        if kind == "text":
            texts.append(part["text"])
        elif kind == "image_url" and (found := data_of(string_at(part.get("image_url"), "url"))):
            images.append(found[1])
        else:
            raise ValueError(f"Ollama accepts only text and image data, got {kind!r}; send the data")
    fields: dict[str, Any] = {"content": "\n".join(texts)}
    return fields | {"images": images} if images else fields


def _write(
    history: Sequence[Message],
    assistant: Callable[[Assistant], dict[str, Any]],
    result: Callable[[CallResult], dict[str, Any]],
    user: Callable[[Content], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return a history as messages. The functions convert assistant messages, results and user content."""
    messages: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, System):
            messages.append({"role": "system", "content": message.text, **provider_fields(message)})
        elif isinstance(message, Results):
            messages += (result(each) for each in message.results)
        elif not isinstance(message, Assistant):
            messages.append({"role": "user", **user(message.content), **provider_fields(message)})
        elif message.text or message.calls or message.items:
            messages.append(assistant(message))
    return messages


def read_plan(message: Mapping[str, Any], turn: TurnDraft) -> None:
    """Add the `tool_plan` and the citations of a message in Cohere's format to `turn`."""
    citations, plan = message.get("citations"), string_at(message, "tool_plan")
    if citations or plan:
        turn.format = COHERE
    if plan:
        turn.add_thought(plan)
    if citations:
        turn.add_item({"citations": citations})


def write_cohere(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a history as Cohere's messages."""
    written = write_openai(history)
    turns = [turn for turn in history if isinstance(turn, Assistant) and (turn.text or turn.calls or turn.items)]
    assistant = [message for message in written if message["role"] == "assistant"]
    for turn, message in zip(turns, assistant, strict=True):
        message.pop("content")
        for call in message.get("tool_calls", ()):
            call.pop("extra_content", None)  # holds Google's signature
        is_from_cohere = turn.origin.format in (None, COHERE)
        thoughts = "".join(thought.text for thought in turn.thoughts) if is_from_cohere and any(in_order(turn)) else ""
        parts = [{"type": "text", "text": turn.text}] if turn.text else []
        if turn.calls and thoughts:
            message["tool_plan"] = thoughts
        elif thoughts:
            parts.insert(0, {"type": "thinking", "thinking": thoughts})
        if parts:
            message["content"] = parts
    return written
