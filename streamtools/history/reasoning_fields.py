"""Reasoning of chat completions: in which messages it is sent back, and in which field.

Servers whose models reason between calls (DeepSeek, Kimi, GLM, MiniMax, Gemini on OpenRouter) fail if reasoning is
missing from an exchange with calls. An exchange is everything between two user messages. So each exchange with calls
keeps its reasoning in all later requests, on each of its messages, and other exchanges send none. Once a server has
sent such a field, a message of such an exchange without reasoning gets an empty field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Literal, TypeAlias, get_args

from streamtools.errors import check_word
from streamtools.history.content import given
from streamtools.history.parts import Assistant, Message, ProviderItem, Thought, User
from streamtools.history.provider_view import sent_by

SendReasoning: TypeAlias = Literal["with_calls", "always", "since_user", "never"]
"""Which exchanges send their reasoning back: those with calls, all, the last one, or none."""

_CHAT = "openai"
FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""The reasoning fields of a message."""

ReasoningField: TypeAlias = Literal["reasoning_content", "reasoning"]
"""The reasoning fields that hold text."""

_HOSTS = {
    **dict.fromkeys(("api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn", "api.z.ai"), "reasoning_content"),
    **dict.fromkeys(("open.bigmodel.cn", "api.minimax.io"), "reasoning_content"),
    "openrouter.ai": "reasoning",
}
"""The fields of hosts, used if no turn of the history shows one: it came from a client or another provider."""


def select_reasoning(
    history: Sequence[Message], send: SendReasoning, host: str | None = None, field: ReasoningField | None = None
) -> list[Message]:
    """Return a history that holds reasoning fields exactly where they are to be sent.

    The history has already been adapted to the provider at `host`. `field` is used if no turn shows which one the
    server uses.
    """
    exchanges = list(accumulate(int(isinstance(message, User)) for message in history))
    with_calls = {
        exchange
        for exchange, message in zip(exchanges, history, strict=True)
        if isinstance(message, Assistant) and (message.calls or message.in_text)
    }
    check_word("send_reasoning", send, get_args(SendReasoning))
    sending = {"always": {*exchanges}, "with_calls": with_calls, "since_user": {*exchanges[-1:]}, "never": set[int]()}[
        send
    ]
    selected: list[Message] = []
    names = sent_by(host)
    used = (_last_field(history) or field or _HOSTS.get(host or "")) if names is None else None
    for exchange, message in zip(exchanges, history, strict=True):
        if isinstance(message, Assistant):
            message = _with_field(message, used) if exchange in sending else _only_fields(message, ())
            message = message if names is None else _only_fields(message, names)
        selected.append(message)
    return selected


def _last_field(history: Sequence[Message]) -> str | None:
    """Return the text field that the server used last, or None."""
    for message in reversed(history):
        for name in reversed(fields_of(message) if isinstance(message, Assistant) else ()):
            if name in FIELDS[:2]:
                return name
    return None


def _with_field(message: Assistant, field: str | None) -> Assistant:
    if field is None or fields_of(message):
        return message
    origin = message.origin  # a front end does not tell the field
    unknown = origin.format is None or (origin.client and origin.format == _CHAT)
    text = "".join(thought.text for thought in message.thoughts) if unknown else ""
    return replace(message, parts=(Thought("", own=ProviderItem(_CHAT, {field: text})), *message.parts))


def _only_fields(message: Assistant, names: tuple[str, ...]) -> Assistant:
    """Return a turn with only these reasoning fields."""
    parts = (_only_members(part, names) if isinstance(part, Thought) else part for part in message.parts)
    return replace(message, parts=tuple(parts))


def _only_members(thought: Thought, names: tuple[str, ...]) -> Thought:
    held = {name: value for name, value in (thought.own.data if thought.own else {}).items() if name in names}
    return thought._replace(own=ProviderItem(_CHAT, held) if held else None)


def fields_of(message: Assistant) -> dict[str, Any]:
    """Return the reasoning fields of a turn, as they were received."""
    fields: dict[str, Any] = {}
    for thought in message.thoughts:
        if thought.own is not None and thought.own.format == _CHAT:
            for name, value in thought.own.data.items():
                if isinstance(value, list) and isinstance(fields.get(name), list):
                    fields[name].extend(value)
                else:
                    fields[name] = [*value] if isinstance(value, list) else value
    return fields


def text_of(fields: Mapping[str, Any]) -> str:
    """Return the text of the reasoning fields; several fields hold the same text."""
    for name in FIELDS[:2]:
        if isinstance(fields.get(name), str):
            return str(fields[name])
    details = fields.get("reasoning_details")
    listed = details if isinstance(details, list) else []
    return "".join(given(entry, "text") or given(entry, "summary") for entry in listed)
