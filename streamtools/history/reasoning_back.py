"""Reasoning of chat completions on its way back: in which messages, and in the field in which it came.

Servers that think between calls (DeepSeek, Kimi, GLM, MiniMax, Gemini behind OpenRouter) answer 400, or worse, if it is
missing from a turn with calls. A turn is what stands between two of the user's messages. So each turn in which calls
were made keeps its reasoning in all later requests, on each of its messages, and a turn without calls sends none. Once
a server has sent such a field, a message of such a turn that has none carries an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from streamtools.history.content import given
from streamtools.history.messages import sent_by
from streamtools.history.parts import Assistant, Message, ProviderItem, Thought, User

SendReasoning: TypeAlias = Literal["with_calls", "always", "since_user", "never"]
"""Which turns get their reasoning back: those in which calls were made; all; the last one; none."""

FORMAT = "openai"
FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""Where it stands in a message."""

ReasoningField: TypeAlias = Literal["reasoning_content", "reasoning"]
"""Those that hold a text."""


_HOSTS = {
    **dict.fromkeys(("api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn", "api.z.ai"), "reasoning_content"),
    **dict.fromkeys(("open.bigmodel.cn", "api.minimax.io"), "reasoning_content"),
    "openrouter.ai": "reasoning",
}
"""Which field these want, where no turn of the history says so: it came from a client, or from another provider."""


def choose_reasoning(
    history: Sequence[Message], send: SendReasoning, host: str | None = None, field: ReasoningField | None = None
) -> list[Message]:
    """Return a history with the reasoning of chat completions where it is to be sent, and nowhere else.

    It is one for a provider at this `host` already, so that what it holds came from there; `field` is the one that it
    wants, if no turn shows it.
    """
    turns = [0]  # the number of the turn of each message
    for message in history:
        turns.append(turns[-1] + isinstance(message, User))
    del turns[0]
    called = {
        turn
        for turn, message in zip(turns, history, strict=True)
        if isinstance(message, Assistant) and (message.calls or message.in_text)
    }
    last = turns[-1] if turns else 0
    chosen: list[Message] = []
    names = sent_by(host)
    known = (_field(history) or field or _HOSTS.get(host or "")) if names is None else None
    for turn, message in zip(turns, history, strict=True):
        if isinstance(message, Assistant):
            sent = send == "always" or (turn in called if send == "with_calls" else turn == last)
            message = _with(message, known) if sent and send != "never" else _bare(message)
            message = message if names is None else _bare(message, names)
        chosen.append(message)
    return chosen


def _field(history: Sequence[Message]) -> str | None:
    """Return the field that the server has used last, None if it has used none that can be empty."""
    for message in reversed(history):
        for name in reversed(fields_of(message) if isinstance(message, Assistant) else ()):
            if name in FIELDS[:2]:
                return name
    return None


def _with(message: Assistant, field: str | None) -> Assistant:
    if field is None or fields_of(message):
        return message
    origin = message.origin  # a front end tells what was thought, and not in which field
    unknown = origin.format is None or (origin.client and origin.format == FORMAT)
    text = "".join(each.text for each in message.thoughts) if unknown else ""
    return replace(message, parts=(Thought("", own=ProviderItem(FORMAT, {field: text})), *message.parts))


def _bare(message: Assistant, names: tuple[str, ...] = ()) -> Assistant:
    """Return a turn without the fields of its reasoning, but for these."""
    parts = (_only(each, names) if isinstance(each, Thought) else each for each in message.parts)
    return replace(message, parts=tuple(parts))


def _only(thought: Thought, names: tuple[str, ...]) -> Thought:
    held = {name: value for name, value in (thought.own.data if thought.own else {}).items() if name in names}
    return thought._replace(own=ProviderItem(FORMAT, held) if held else None)


def fields_of(message: Assistant) -> dict[str, Any]:
    """Return the fields in which the reasoning of a turn came, as they were."""
    fields: dict[str, Any] = {}
    for each in message.thoughts:
        if each.own is not None and each.own.format == FORMAT:
            for name, value in each.own.data.items():
                if isinstance(value, list) and isinstance(fields.get(name), list):
                    fields[name].extend(value)
                else:
                    fields[name] = [*value] if isinstance(value, list) else value
    return fields


def text_of(fields: Mapping[str, Any]) -> str:
    """Return what the fields say; where there are several, all say the same."""
    for name in FIELDS[:2]:
        if isinstance(fields.get(name), str):
            return str(fields[name])
    details = fields.get("reasoning_details")
    listed = details if isinstance(details, list) else []
    return "".join(given(each, "text") or given(each, "summary") for each in listed)
