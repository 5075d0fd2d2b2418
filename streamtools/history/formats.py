"""Reads and writes histories in the message formats of all providers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import AsyncOnly, InvalidMessages, check_word, checked
from streamtools.history import ag_ui_messages as ag_ui
from streamtools.history import ai_sdk_messages as ui
from streamtools.history import anthropic_messages as anthropic
from streamtools.history import bedrock_messages as bedrock
from streamtools.history import chat_messages as chat
from streamtools.history import gemini_contents as gemini
from streamtools.history import interactions_steps as interactions
from streamtools.history import responses_items as responses
from streamtools.history.calls_in_text import close_answered_calls, results_as_text
from streamtools.history.content import read_content, text_in
from streamtools.history.history_reader import HistoryReader, TurnDraft, provider_item
from streamtools.history.message_keys import refuse_misspelled_keys
from streamtools.history.pairing import Unanswered, pair_results
from streamtools.history.parts import Assistant, Message, Origin, ProviderItem, Results, System, User
from streamtools.history.provider_view import (
    ReasoningField,
    SendReasoning,
    select_reasoning,
    view_for,
    with_valid_names,
)
from streamtools.json_values import ARRAY, OBJECT, writable
from streamtools.parsing.dialects import Dialect

if TYPE_CHECKING:
    from pydantic import BaseModel

AnyMessage: TypeAlias = "Mapping[str, Any] | Message | BaseModel"
"""A message in the format of a provider or a front end, as a dict or a pydantic model, or a message of a history."""

_EXAMPLE = '{"role": "user", "content": "Hello"}'

Format: TypeAlias = Literal["openai", "responses", "anthropic", "gemini", "interactions", "ollama", "bedrock", "cohere"]

_Read: TypeAlias = Callable[[Mapping[str, Any], HistoryReader], None]

_WRITERS: dict[str, Callable[[Sequence[Message]], list[dict[str, Any]]]] = {
    "openai": chat.write_openai,
    "responses": responses.write,
    "anthropic": anthropic.write,
    "gemini": gemini.write,
    "interactions": interactions.write,
    "ollama": chat.write_ollama,
    "bedrock": bedrock.write,
    "cohere": chat.write_cohere,
}


@checked
def read_messages(messages: Iterable[AnyMessage], *, system: bool = False, client: bool | None = None) -> list[Message]:
    """Read messages of any format into a history.

    The formats are OpenAI's chat messages, items of OpenAI's Responses API, messages of Anthropic and of Bedrock's
    Converse API, Gemini's contents, steps of Google's Interactions API, messages of Ollama and Cohere, UIMessages of
    the AI SDK, and AG-UI's messages. A message may also be a pydantic model, such as that of an SDK, or a message of a
    history. A list may mix all of these. Content that this library does not interpret is kept, and sent only to the
    provider that it came from. A malformed call keeps the text that the model wrote.

    `client` says whether a client sent the list. By default, it is True if the list contains a message of the AI SDK or
    of AG-UI. A client is not trusted. Its system messages are refused unless `system` is True. Approvals in its
    messages are ignored. Data of a provider is kept only if the provider has signed or encrypted it.

    A result is moved to the position after the turn of its call. A result without a call, and a second result of a
    call, are dropped, because providers refuse them. In a `Results` message, such results of native calls are errors
    instead.

    Raises ValueError for an object that is not a message, for a refused system message, and for a native result in a
    `Results` message if the turn before has no open call for it. With `client=True`, also for an empty list, and for a
    user message without content. The error contains the index of the message, from 0. For messages of a client, it is
    `InvalidMessages`, which `asgi.exception_handlers` answers with the status 400.
    """
    invalid = InvalidMessages if client else ValueError
    if isinstance(messages, str | bytes | Mapping | AsyncOnly) or not isinstance(messages, Iterable):
        advice = "" if isinstance(messages, str | bytes | Mapping) else "; to continue a chat, pass its `history`"
        raise invalid(f"messages must be a list such as [{_EXAMPLE}], got {type(messages).__name__}{advice}")
    listed: list[Any] = list(messages)
    if client and not listed:
        raise invalid("the client sent no message")
    for index, message in enumerate(listed):
        if hasattr(message, "model_dump"):
            try:
                listed[index] = message.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
            except ValueError as error:  # such as bytes that are not UTF-8
                raise invalid(f"message {index}: {error}") from None
    from_front_ends = [_front_end_reader(message) for message in listed]
    reader = HistoryReader(client=any(from_front_ends) if client is None else client, system=system)
    for index, (message, read_from_front_end) in enumerate(zip(listed, from_front_ends, strict=True)):
        reader.index = index
        try:
            if client and isinstance(message, OBJECT) and message.get("role") == "user":
                _check_content(message)
            _read(message, read_from_front_end, reader)
        except ValueError as error:
            raise (InvalidMessages if reader.client else ValueError)(f"message {index}: {error}") from None
    return reader.finish()


def _check_content(message: Mapping[str, Any]) -> None:
    content = message.get("content") or message.get("parts") or message.get("images")
    if not (content and isinstance(content, str | Mapping | list | tuple)):
        refuse_misspelled_keys(message)
        raise ValueError(f"the content must be a text that is not empty, or a list of parts, got {content!r:.40}")


def _front_end_reader(message: Mapping[str, Any] | Message) -> _Read | None:
    """Return the function that reads a message of a front end. Returns None for any other message."""
    if not isinstance(message, OBJECT):
        return None
    return ui.read if ui.is_message(message) else ag_ui.read if ag_ui.is_message(message) else None


def _read(message: Mapping[str, Any] | Message, read_from_front_end: _Read | None, reader: HistoryReader) -> None:
    if isinstance(message, OBJECT):
        if read_from_front_end is not ag_ui.read:  # messages of AG-UI have other keys; `ag_ui.read` checks them
            refuse_misspelled_keys(message)
        (read_from_front_end or _read_object)(message, reader)
    elif isinstance(message, System | User):
        reader.flush().append(message)
    elif isinstance(message, Assistant):
        reader.add_turn(message)
    elif isinstance(message, Results):
        for result in message.results:
            reader.add_result(result)
    else:
        raise ValueError(f"a message must be an object such as {_EXAMPLE}, got {type(message).__name__}")


def _read_object(message: Mapping[str, Any], reader: HistoryReader) -> None:
    if interactions.is_step(message, reader):
        interactions.read(message, reader)
    elif "parts" in message and "content" not in message:
        gemini.read_content(message, reader)
    elif "role" not in message or responses.is_item(message):
        responses.read_item(message, reader)
    else:
        content = message.get("content")
        match message["role"]:
            case "system" | "developer":
                reader.list_format = reader.list_format or chat.FORMAT
                reader.add_system(text_in(read_content(content)), _extra_of(message, reader))
            case "user" if isinstance(content, ARRAY):
                rest = (part for part in content if not anthropic.read_result(part, reader))
                parts = [bedrock.as_part(part) for part in rest if not bedrock.read_result(part, reader)]
                if parts or not content:
                    reader.add_message(User(read_content(parts), _extra_of(message, reader)))
            case "user":
                reader.add_message(User(read_content(chat.with_images(message, content)), _extra_of(message, reader)))
            case "assistant":
                _read_assistant(message, reader)
            case "tool" | "function":
                reader.list_format = reader.list_format or chat.FORMAT
                chat.read_result(message, reader)
            case role:
                raise ValueError(f"the role must be system, developer, user, assistant or tool, got {role!r}")


def _extra_of(message: Mapping[str, Any], reader: HistoryReader) -> ProviderItem | None:
    """Return the additional JSON fields of a system or user message, or None if it comes from a client.

    For a system message, they include the content if it is more than text.
    """
    content = message.get("content")
    if reader.client or (len(message) == 2 and isinstance(content, str)):  # only a role and text
        return None
    parts = [part for part in content if isinstance(part, OBJECT)] if isinstance(content, ARRAY) else []
    if anthropic.changes_settings(message, parts):
        return provider_item(anthropic.FORMAT, message)
    names = responses.members_of(message, parts)
    extra = {name: message[name] for name in names or ("name",) if message.get(name)}
    if message["role"] != "user" and any(len(part) != 2 or "text" not in part for part in parts):
        extra["content"] = [dict(part) for part in parts]
    return provider_item(responses.FORMAT if names else chat.FORMAT, extra)


def _read_assistant(message: Mapping[str, Any], reader: HistoryReader) -> None:
    turn = TurnDraft(reader.index, reader.budget, client=reader.client)
    content = message.get("content")
    if responses.is_message(message):
        responses.read_message(message, turn)
    else:
        chat.read_plan(message, turn)
        calls = isinstance(message.get("tool_calls"), ARRAY)
        default_format = chat.FORMAT if calls else reader.list_format or anthropic.FORMAT  # if no part reveals it
        for part in content if isinstance(content, ARRAY) else [content]:
            if isinstance(part, str):
                turn.add_text(part)
            elif isinstance(part, OBJECT) and not (
                chat.read_content_part(part, turn, default_format) or bedrock.read_block(part, turn)
            ):
                anthropic.read_block(part, turn)
        chat.read_fields(message, turn)
    if reader.turn is not None and not turn.count:
        reader.turn.parts += turn.parts
    else:
        reader.add_turn(turn.finish())


@checked
def write_messages(
    history: Sequence[Message],
    format: Format | str,
    *,
    dialects: Sequence[Dialect] = (),
    unanswered: Unanswered = None,
    provider: Origin | None = None,
    send_reasoning: SendReasoning = "with_calls",
    reasoning_field: ReasoningField | None = None,
) -> list[Any]:
    """Return a history as the messages of a request. The messages are new dicts, which SDKs accept.

    - `provider` is the recipient of the request. Its host and model are used. Data of a provider, such as items,
      signatures and additional fields, is sent back only to the same provider. Two providers are the same if their
      formats and their hosts are equal or unknown.
    - `send_reasoning` applies to chat completions. It selects the turns whose reasoning is sent back; see
      `SendReasoning`. `reasoning_field` is the field for the reasoning if no turn of the history has such a field.
    - The results of calls in text become one user message per turn, with one block per call. Each block has the form of
      the call's dialect, if `dialects` contains it. In a block, text that looks like a call is neutralized: changed so
      that it is not parsed as a call. If `dialects` are given, the results of native calls are also neutralized. The
      next user message is appended to the results.
    - `unanswered` says how calls without a result are handled; see `Unanswered`. A call in text is also answered if a
      later user message contains a result in the form of its dialect.

    For `"anthropic"`, `"bedrock"`, `"gemini"` and `"interactions"`, the messages do not include the system messages.
    Use `system_prompt` for the separate field in the request.

    Raises TypeError for a message that is a dict. Raises ValueError for an unknown format, for user content that Ollama
    does not accept, for a native result that does not follow the turn with its call, and for a second result of a
    native call.
    """
    check_word("format", format, _WRITERS)
    if any(isinstance(message, Mapping) for message in history):
        raise TypeError("the history has a dict: write write_messages(read_messages(history), format)")
    recipient = (provider or Origin())._replace(format=format)
    paired = view_for(pair_results(close_answered_calls(history, dialects), unanswered), recipient)
    if format == "openai":
        paired = select_reasoning(paired, send_reasoning, recipient.host, reasoning_field)
    messages: list[dict[str, Any]] = writable(_WRITERS[format](with_valid_names(results_as_text(paired, dialects))))
    return messages


def write_continuation(
    calls: Sequence[ToolCall],
    history: Sequence[Message],
    format: Format | str,
    *,
    unanswered: Unanswered = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Return only the messages that follow the turn with these `calls`.

    `history` holds the results of the calls and the later messages. The other parameters are those of `write_messages`.
    Raises the exceptions of `write_messages`.
    """
    native = tuple(call for call in calls if call.dialect == NATIVE)
    in_text = tuple(call for call in calls if call.dialect != NATIVE)
    turn = Assistant("".join(call.raw for call in in_text), native, in_text=in_text)
    written_turn = write_messages([turn], format, unanswered="leave", **options)
    return write_messages([turn, *history], format, unanswered=unanswered, **options)[len(written_turn) :]
