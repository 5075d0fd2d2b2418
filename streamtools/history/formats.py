"""Reading and writing of messages in any format: which one a message has, and whose rules hold for a request."""

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
from streamtools.history.content import read_content, text_in
from streamtools.history.history_reader import HistoryReader, TurnDraft, keep
from streamtools.history.in_text import answered_by_user, tell_in_text
from streamtools.history.messages import (
    ReasoningField,
    SendReasoning,
    Unanswered,
    choose_reasoning,
    for_provider,
    settle,
    with_names_that_fit,
)
from streamtools.history.parts import Assistant, Message, Origin, ProviderItem, Results, System, User
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
    """Return the history that `messages` are.

    Taken are OpenAI's chat messages, Anthropic's blocks and Converse's, the items of Responses, Gemini's contents, the
    steps of Interactions, the messages of Ollama, Cohere and front ends
    (UIMessages of the AI SDK, AG-UI's), and messages of a history; a list may mix them.
    What is not interpreted is kept as it is, for the provider that it is from. A malformed call is kept as it was
    written, and is answered by what is wrong with it.

    Messages of front ends are a `client`'s, and so is then the whole list; `client=True` says so of messages in any
    form, False of none. What a client sends is read and never obeyed: words of the system's are refused unless
    `system`; approvals decide nothing; of what providers have put into a turn only what they have signed or encrypted
    counts.

    A result stands behind its call, wherever it came; one without a call, and a second one of the same, are left out,
    as providers refuse them.
    Raises ValueError for what is no message, for words of the system's that are refused, and for `Results` of a history
    whose call does not stand in the turn before it. It says which message that is, counted from 0.
    """
    given = list(messages)
    if client is None:
        client = any(isinstance(each, Mapping) and (ui.is_one(each) or ag_ui.is_one(each)) for each in given)
    reader = HistoryReader(client=client, system=system)
    for place, message in enumerate(given):
        reader.place = place
        try:
            _read(message, reader)
        except ValueError as error:
            raise ValueError(f"message {place}: {error}") from None
    return reader.finish()


def _read(message: Mapping[str, Any] | Message, reader: HistoryReader) -> None:
    if isinstance(message, System | User):
        reader.flush().append(message)
    elif isinstance(message, Assistant):
        reader.say(message)
    elif isinstance(message, Results):
        for result in message.results:
            reader.add(result)
    elif not isinstance(message, Mapping):
        raise ValueError(f"a message is an object, not {type(message).__name__}")
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
                reader.shown = reader.shown or chat.FORMAT
                reader.instruct(text_in(read_content(content)), _own(message))
            case "user" if isinstance(content, list | tuple):
                said = (part for part in content if not anthropic.read_result(part, reader))
                parts = [bedrock.as_part(part) for part in said if not bedrock.read_result(part, reader)]
                if parts or not content:
                    reader.hear(User(read_content(parts), _own(message)))
            case "user":
                reader.hear(User(read_content(chat.with_images(message, content)), _own(message)))
            case "assistant":
                _read_assistant(message, reader)
            case "tool" | "function":
                reader.shown = reader.shown or chat.FORMAT
                chat.read_result(message, reader)
            case role:
                raise ValueError(f"the role {role!r} is none of system, developer, user, assistant and tool")


def _own(message: Mapping[str, Any]) -> ProviderItem | None:
    """Return what stands beside the words of the system or a user; of the system's content what is more than text."""
    content = message.get("content")
    parts = [each for each in content if isinstance(each, Mapping)] if isinstance(content, list | tuple) else []
    if anthropic.is_change(message, parts):
        return keep(anthropic.FORMAT, message)
    names = responses.members_of(message, parts)
    own = {name: message[name] for name in names or ("name",) if message.get(name)}
    if message["role"] != "user" and any(len(each) != 2 or "text" not in each for each in parts):
        own["content"] = [dict(each) for each in parts]
    return keep(responses.FORMAT if names else chat.FORMAT, own)


def _read_assistant(message: Mapping[str, Any], reader: HistoryReader) -> None:
    said = TurnDraft(reader.place, reader.budget, client=reader.client)
    content = message.get("content")
    if responses.is_message(message):
        responses.read_message(message, said)
    else:
        chat.read_plan(message, said)
        calls = isinstance(message.get("tool_calls"), list | tuple)
        shown = chat.FORMAT if calls else reader.shown or anthropic.FORMAT  # if a part may be of either
        for part in content if isinstance(content, list | tuple) else [content]:
            if isinstance(part, str):
                said.add_text(part)
            elif isinstance(part, Mapping) and not (
                chat.read_part_of(part, said, shown) or bedrock.read_block(part, said)
            ):
                anthropic.read_block(part, said)
        chat.read_fields(message, said)
    if reader.items is not None and not said.calls:
        reader.items.parts += said.parts
    else:
        reader.say(said.close())


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
    """Return the messages of a request, dicts which share nothing with the history and are typed as SDKs take them.

    `provider` is who is asked, as far as more is known than the format. What a provider has put into a turn (items that
    nobody interprets, signatures, what stands beside texts and calls) goes back to it in its place, and to no other:
    one of another format, or of another host where both are known. `send_reasoning` says in which turns the reasoning
    of chat completions goes back, `reasoning_field` in which field where no turn of the history shows it.

    Answers to calls in text stand in one user message, one block a call, in the form of the call's dialect, which is
    one of `dialects`; there what looks like structure is neutralised, and where there are `dialects` in
    the answers to native calls too. What the user says next follows in the same message.
    `unanswered` says what becomes of calls without an answer; a call in text has one too if a user's message behind it
    holds a result in the form of its dialect. `"anthropic"`, `"bedrock"`, `"gemini"` and
    `"interactions"` want the system's words outside of the messages: see `system_prompt`.

    Raises ValueError for another format, and as `settle` does; and for a part of a user's message that the provider has
    no place for.
    """
    if format not in _WRITERS:
        raise ValueError(f"messages are written for {', '.join(get_args(Format))}, and not for {format!r}")
    asked = (provider or Origin())._replace(format=format)
    settled = for_provider(settle(answered_by_user(history, dialects), unanswered), asked)
    if format == "openai":
        settled = choose_reasoning(settled, send_reasoning, asked.host, reasoning_field)
    messages: list[dict[str, Any]] = writable(_WRITERS[format](with_names_that_fit(tell_in_text(settled, dialects))))
    return messages


def write_behind(
    said: Assistant | Sequence[ToolCall],
    history: Sequence[Message],
    format: Format | str,
    *,
    unanswered: Unanswered = None,
    **how: Any,
) -> list[dict[str, Any]]:
    """Return the messages of a history that goes on behind a turn, or one of these calls: their results, and more.

    The rules, the errors and the other parameters are those of `write_messages`.
    """
    if not isinstance(said, Assistant):
        native = tuple(call for call in said if call.dialect == NATIVE)
        in_text = tuple(call for call in said if call.dialect != NATIVE)
        said = Assistant("".join(call.raw for call in in_text), native, in_text=in_text)
    before = write_messages([said], format, unanswered="leave", **how)
    return write_messages([said, *history], format, unanswered=unanswered, **how)[len(before) :]
