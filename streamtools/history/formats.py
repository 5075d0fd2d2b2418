"""Reads and writes histories in any format: `read_messages`, `write_messages` and `write_continuation`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from streamtools.calls import NATIVE, ToolCall
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
from streamtools.history.pairing import Unanswered, pair_results
from streamtools.history.parts import Assistant, Message, Origin, ProviderItem, Results, System, User
from streamtools.history.provider_view import (
    ReasoningField,
    SendReasoning,
    select_reasoning,
    view_for,
    with_valid_names,
)
from streamtools.json_values import writable
from streamtools.parsing.dialects import Dialect

Format: TypeAlias = Literal["openai", "responses", "anthropic", "gemini", "interactions", "ollama", "bedrock", "cohere"]

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


def read_messages(
    messages: Iterable[Mapping[str, Any] | Message], *, system: bool = False, client: bool | None = None
) -> list[Message]:
    """Read messages of any format into a history.

    The formats are: OpenAI's chat messages, Anthropic's and Converse's blocks, items of Responses, Gemini's contents,
    steps of Interactions, messages of Ollama and Cohere, UIMessages of the AI SDK, AG-UI's messages, and messages of a
    history. A list may mix them. Content that is not interpreted is kept for its provider. A malformed call is kept as
    the model wrote it, and its result is the error message.

    `client` says whether a client sent the list. By default that is so if it contains a message of a front end. A
    client is not trusted: its system messages are refused unless `system` is True, approvals in them decide nothing,
    and provider data counts only if the provider has signed or encrypted it.

    A result is moved after its call. A result without a call, and a second result of a call, are dropped, because
    providers refuse them.

    Raises ValueError for anything that is no message, for a refused system message, and for `Results` whose call is not
    in the turn before them. The error names the index of the message, from 0.
    """
    listed = list(messages)
    if client is None:
        client = any(
            isinstance(message, Mapping) and (ui.is_one(message) or ag_ui.is_one(message)) for message in listed
        )
    reader = HistoryReader(client=client, system=system)
    for index, message in enumerate(listed):
        reader.index = index
        try:
            _read(message, reader)
        except ValueError as error:
            raise ValueError(f"message {index}: {error}") from None
    return reader.finish()


def _read(message: Mapping[str, Any] | Message, reader: HistoryReader) -> None:
    if isinstance(message, System | User):
        reader.flush().append(message)
    elif isinstance(message, Assistant):
        reader.add_turn(message)
    elif isinstance(message, Results):
        for result in message.results:
            reader.add_result(result)
    elif not isinstance(message, Mapping):
        raise ValueError(f"a message must be an object, got {type(message).__name__}")
    elif ui.is_one(message):
        ui.read(message, reader)
    elif ag_ui.is_one(message):
        ag_ui.read(message, reader)
    elif interactions.is_one(message, reader):
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
                reader.add_system(text_in(read_content(content)), _own(message))
            case "user" if isinstance(content, list | tuple):
                rest = (part for part in content if not anthropic.read_result(part, reader))
                parts = [bedrock.as_part(part) for part in rest if not bedrock.read_result(part, reader)]
                if parts or not content:
                    reader.add_message(User(read_content(parts), _own(message)))
            case "user":
                reader.add_message(User(read_content(chat.with_images(message, content)), _own(message)))
            case "assistant":
                _read_assistant(message, reader)
            case "tool" | "function":
                reader.list_format = reader.list_format or chat.FORMAT
                chat.read_result(message, reader)
            case role:
                raise ValueError(f"the role must be system, developer, user, assistant or tool, got {role!r}")


def _own(message: Mapping[str, Any]) -> ProviderItem | None:
    """Return the provider members of a system or user message, with system content that is more than text."""
    content = message.get("content")
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list | tuple) else []
    if anthropic.is_change(message, parts):
        return provider_item(anthropic.FORMAT, message)
    names = responses.members_of(message, parts)
    own = {name: message[name] for name in names or ("name",) if message.get(name)}
    if message["role"] != "user" and any(len(part) != 2 or "text" not in part for part in parts):
        own["content"] = [dict(part) for part in parts]
    return provider_item(responses.FORMAT if names else chat.FORMAT, own)


def _read_assistant(message: Mapping[str, Any], reader: HistoryReader) -> None:
    said = TurnDraft(reader.index, reader.budget, client=reader.client)
    content = message.get("content")
    if responses.is_message(message):
        responses.read_message(message, said)
    else:
        chat.read_plan(message, said)
        calls = isinstance(message.get("tool_calls"), list | tuple)
        default_format = chat.FORMAT if calls else reader.list_format or anthropic.FORMAT  # if ambiguous
        for part in content if isinstance(content, list | tuple) else [content]:
            if isinstance(part, str):
                said.add_text(part)
            elif isinstance(part, Mapping) and not (
                chat.read_part_of(part, said, default_format) or bedrock.read_block(part, said)
            ):
                anthropic.read_block(part, said)
        chat.read_fields(message, said)
    if reader.turn is not None and not said.calls:
        reader.turn.parts += said.parts
    else:
        reader.add_turn(said.finish())


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
    """Write a history as the messages of a request: new dicts, typed as SDKs accept them.

    - `provider` adds the host and the model of the request. The data of a provider (items, signatures, members of
      parts) is sent back to that provider only: same format and, if both are known, same host.
    - `send_reasoning` selects the exchanges whose reasoning chat completions send back, and `reasoning_field` the
      field if the history does not show it.
    - Results of calls in text become one user message, one block per call, in the form of the call's dialect, which
      must be one of `dialects`. Text in them that looks like a call is neutralised. With `dialects`, so are the results
      of native calls. The next user message is appended.
    - `unanswered` handles calls without a result; see `Unanswered`. A call in text also counts as answered if a later
      user message holds a result in the form of its dialect.

    `"anthropic"`, `"bedrock"`, `"gemini"` and `"interactions"` take system messages outside of the messages; use
    `system_prompt`.

    Raises ValueError for an unknown format, for a part of a user message that the provider cannot take, and what
    `pair_results` raises.
    """
    if format not in _WRITERS:
        raise ValueError(f"the format must be one of {', '.join(get_args(Format))}, got {format!r}")
    recipient = (provider or Origin())._replace(format=format)
    paired = view_for(pair_results(close_answered_calls(history, dialects), unanswered), recipient)
    if format == "openai":
        paired = select_reasoning(paired, send_reasoning, recipient.host, reasoning_field)
    messages: list[dict[str, Any]] = writable(_WRITERS[format](with_valid_names(results_as_text(paired, dialects))))
    return messages


def write_continuation(
    said: Assistant | Sequence[ToolCall],
    history: Sequence[Message],
    format: Format | str,
    *,
    unanswered: Unanswered = None,
    **how: Any,
) -> list[dict[str, Any]]:
    """Write the messages that follow a turn, or a turn with these calls: the results, and later messages.

    The other parameters and the errors are those of `write_messages`.
    """
    if not isinstance(said, Assistant):
        native = tuple(call for call in said if call.dialect == NATIVE)
        in_text = tuple(call for call in said if call.dialect != NATIVE)
        said = Assistant("".join(call.raw for call in in_text), native, in_text=in_text)
    before = write_messages([said], format, unanswered="leave", **how)
    return write_messages([said, *history], format, unanswered=unanswered, **how)[len(before) :]
