"""What was said so far: read from wherever a caller has it, and written as each provider wants it; sans-IO.

`read_messages` makes one canonical history of it, and `write_messages` the messages of one provider's request. In
between there is one form (`messages`), so that a conversation may go on with another provider. Each format is a module,
which both reads and writes it; `turns` holds what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from streamtools.calls import NATIVE, ToolCall
from streamtools.history import anthropic_messages as anthropic
from streamtools.history import chat_messages as chat
from streamtools.history import gemini_contents as gemini
from streamtools.history import responses_items as responses
from streamtools.history.messages import (
    Assistant,
    CallResult,
    Message,
    Results,
    Step,
    System,
    Thought,
    Unanswered,
    User,
    answered_by_user,
    calls_as_text,
    settle,
    steps_to_history,
    system_prompt,
    tell_in_text,
    without_reasoning,
)
from streamtools.history.turns import Draft, Reader, list_of, read_part, text_of
from streamtools.json_values import writable
from streamtools.parsing.dialects import Dialect

__all__ = [
    "Assistant",
    "CallResult",
    "Format",
    "Message",
    "Results",
    "Step",
    "System",
    "Thought",
    "Unanswered",
    "User",
    "answered_by_user",
    "calls_as_text",
    "read_messages",
    "settle",
    "steps_to_history",
    "system_prompt",
    "without_reasoning",
    "write_behind",
    "write_messages",
]

Format: TypeAlias = Literal["openai", "responses", "anthropic", "gemini", "ollama"]

_WRITERS: dict[str, Callable[[Sequence[Message]], list[dict[str, Any]]]] = {
    "openai": chat.write_openai,
    "responses": responses.write,
    "anthropic": anthropic.write,
    "gemini": gemini.write,
    "ollama": chat.write_ollama,
}


def read_messages(messages: Iterable[Mapping[str, Any] | Message]) -> list[Message]:
    """Return the history that `messages` are.

    Taken are OpenAI's chat messages, Anthropic's blocks, the items of Responses, Ollama's messages, and messages of a
    history; a list may mix them. Gemini's contents are written and not read. Raises ValueError for what is no message,
    and for a result whose call does not stand in the turn before it, which a provider would refuse in the middle of a
    run; it says which message that is, counted from 0.
    """
    reader = Reader()
    for place, message in enumerate(messages):
        reader.place = place
        try:
            _read(message, reader)
        except ValueError as error:
            raise ValueError(f"message {place}: {error}") from None
    return reader.close()


def _read(message: Mapping[str, Any] | Message, reader: Reader) -> None:
    if isinstance(message, System | User):
        reader.hear(message)
    elif isinstance(message, Assistant):
        reader.say(message)
    elif isinstance(message, Results):
        for result in message.results:
            reader.add(result)
    elif not isinstance(message, Mapping):
        raise ValueError(f"a message is an object, not {type(message).__name__}")
    elif "parts" in message and "content" not in message:
        raise ValueError("messages with `parts` (Gemini's, the AI SDK's) are not read: give their texts as `content`")
    elif "role" not in message:
        responses.read_item(message, reader)
    else:
        content = message.get("content")
        match message["role"]:
            case "system" | "developer":
                reader.hear(System(text_of(content)))
            case "user" if isinstance(content, str):
                reader.hear(User(content))
            case "user":
                parts = [read_part(part) for part in list_of(content) if not anthropic.read_result(part, reader)]
                if parts:
                    reader.hear(User(parts))
            case "assistant":
                _read_assistant(message, reader)
            case "tool":
                reader.answer(message.get("tool_call_id") or chat.find_call(message, reader), content)
            case role:
                raise ValueError(f"the role {role!r} is none of system, developer, user, assistant and tool")


def _read_assistant(message: Mapping[str, Any], reader: Reader) -> None:
    content, said = message.get("content"), Draft(reader.place)
    for part in [content] if isinstance(content, str) else list_of(content or []):
        if isinstance(part, str):
            said.texts.append(part)
        elif not (anthropic.read_block(part, said) or responses.read_block(part, said)):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise ValueError(f"a part of type {kind!r} of the assistant's cannot be read")
    chat.read_fields(message, said)
    text = "".join(said.texts)
    if reader.items is not None and not said.calls:
        reader.items.texts.append(text)
    else:
        reader.say(Assistant(text, tuple(said.calls), tuple(said.thoughts)))


def write_messages(
    history: Sequence[Message], format: Format | str, *, dialects: Sequence[Dialect] = (), unanswered: Unanswered = None
) -> list[dict[str, Any]]:
    """Return the messages of a request, which share nothing with the history.

    Answers to calls in text stand in one user message, one block a call, in the form of the call's dialect, which is
    one of `dialects`; there what looks like structure is disarmed, and where there are `dialects` in
    the answers to native calls too. What the user says next follows in the same message.
    `unanswered` says what becomes of calls without an answer; a call in text has one too if a user's message behind it
    holds a result in the form of its dialect. `"anthropic"` and `"gemini"` want the system's words outside of the
    messages: see `system_prompt`.

    Raises ValueError for another format, and as `settle` does; and for a part of a user's message that the provider has
    no place for.
    """
    if format not in _WRITERS:
        raise ValueError(f"messages are written for {', '.join(get_args(Format))}, and not for {format!r}")
    settled = tell_in_text(settle(answered_by_user(history, dialects), unanswered), dialects)
    messages: list[dict[str, Any]] = writable(_WRITERS[format](settled))
    return messages


def write_behind(
    calls: Sequence[ToolCall],
    history: Sequence[Message],
    format: Format | str,
    *,
    dialects: Sequence[Dialect] = (),
    unanswered: Unanswered = None,
) -> list[dict[str, Any]]:
    """Return the messages of a history that goes on behind a turn with these calls, and begins with what came of them.

    The rules and the errors are those of `write_messages`.
    """
    native = tuple(call for call in calls if call.dialect == NATIVE)
    in_text = tuple(call for call in calls if call.dialect != NATIVE)
    turn = Assistant("".join(call.raw for call in in_text), native, in_text=in_text)
    before = write_messages([turn], format, dialects=dialects, unanswered="leave")
    return write_messages([turn, *history], format, dialects=dialects, unanswered=unanswered)[len(before) :]
