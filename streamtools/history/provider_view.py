"""Adapts a history to the provider that receives it.

This module removes the data of other providers and makes tool names valid. For chat completions, it also selects the
assistant messages whose reasoning is sent back, and the field for the reasoning.

An exchange consists of a user message and all messages up to the next user message. Some servers, whose models reason
between calls, fail if an exchange with calls has no reasoning. These are DeepSeek, Kimi, GLM, MiniMax, and Gemini on
OpenRouter. So by default, later requests contain the reasoning of exchanges with calls, but of no other exchange. If
the reasoning field of the server is known, each assistant message of these exchanges gets the field. It may be empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import check_word
from streamtools.history.content import string_at
from streamtools.history.parts import Assistant, Message, Origin, Part, ProviderItem, Results, TextPart, Thought, User
from streamtools.history.writing import valid_name

_STRICT = {"api.openai.com": (), ".openai.azure.com": (), "api.mistral.ai": ("content",)}
"""Hosts that refuse unknown JSON fields, with the reasoning fields that they accept.

OpenAI's hosts accept no reasoning fields. They accept malformed arguments of calls. Servers that render templates, such
as vLLM, refuse malformed arguments with status 400.
"""


def accepted_reasoning_fields(host: str | None) -> tuple[str, ...] | None:
    """Return the reasoning fields that this host accepts, or None if it may accept any field."""
    return next((names for end, names in _STRICT.items() if (host or "").endswith(end)), None)


_WITHOUT_SIGNATURES = ("openai", "ollama", "cohere")
"""The formats that send reasoning without its signature. Such reasoning is neutralized like other unsigned text."""


def view_for(history: Iterable[Message], provider: Origin) -> list[Message]:
    """Return the history without the data of other providers.

    This data consists of provider items, additional JSON fields, signatures and encrypted reasoning. Two providers
    differ if their known formats differ, or if their known hosts differ.
    """
    return [_message_for(message, provider) for message in history]


def _message_for(message: Message, provider: Origin) -> Message:
    if isinstance(message, Assistant):
        same = message.origin.is_same(provider)
        parts = tuple([part for given in message.parts if (part := _part_for(given, provider, same)) is not None])
        return message if parts == message.parts else replace(message, parts=parts)
    if isinstance(message, Results):
        results = message.results
        if any(one.extra for one in results):
            results = tuple(one._replace(extra=_fields_for(one.extra, provider, result=True)) for one in results)
        return Results(results)
    if message.extra:
        message = replace(message, extra=_fields_for(message.extra, provider))
    if isinstance(message, User) and not isinstance(message.content, str) and _is_strict(provider):
        message = replace(message, content=_without_cache_control(message.content))
    return message


def _is_strict(provider: Origin) -> bool:
    """Return whether a provider refuses unknown JSON fields."""
    return provider.format == "cohere" or (
        provider.format == "openai" and accepted_reasoning_fields(provider.host) is not None
    )


def _fields_for(extra: ProviderItem | None, provider: Origin, *, result: bool = False) -> ProviderItem | None:
    """Return the additional fields of a system message, a user message or a result that `provider` accepts.

    With `result=True`, the fields belong to a result. Mistral accepts the field `name` only on results, and OpenAI
    accepts it only on other messages.
    """
    extra = _matching(extra, provider.format)
    if extra is None or provider.format != "openai" or not _is_strict(provider):
        return extra
    takes_name = result == bool(accepted_reasoning_fields(provider.host))
    data = {name: extra.data[name] for name in extra.data if name != "name" or takes_name}
    return extra._replace(
        data=data | {"content": _without_cache_control(data["content"])} if "content" in data else data
    )


def _without_cache_control(parts: list[Any]) -> list[Any]:
    return [{name: part[name] for name in part if name != "cache_control"} for part in parts if isinstance(part, dict)]


def _part_for(part: Part, provider: Origin, same: bool) -> Part | None:
    """Return a part for `provider`, or None if it must not get the part. `same`: the turn is from this provider."""
    format = provider.format if same else None
    if isinstance(part, ProviderItem):
        return _matching(part, format)
    if isinstance(part, TextPart):
        return part._replace(extra=_matching(part.extra, format)) if part.extra else part
    if isinstance(part, Thought):
        if not same:
            return Thought(part.text)
        part = part._replace(extra=_matching(part.extra, format))
        return part._replace(signature=None, redacted=False) if format in _WITHOUT_SIGNATURES else part
    if part.own is None and part.signature is None and not part.raw:
        return part
    fields = (part.own or {}).get(format) if format else None
    accepts_malformed = provider.host is None or accepted_reasoning_fields(provider.host) == ()
    return msgspec.structs.replace(
        part,
        signature=part.signature if same and accepted_reasoning_fields(provider.host) is None else None,
        own={format: fields} if fields else None,
        raw=part.raw if same and accepts_malformed else "",
    )


def _matching(extra: ProviderItem | None, format: str | None) -> ProviderItem | None:
    return extra if extra is not None and extra.format == format else None


def with_valid_names(history: Sequence[Message]) -> Sequence[Message]:
    """Return the history with valid tool names in native calls and results.

    A model may call a tool that does not exist, with a name that the provider refuses in the next request. A name is
    kept if a call with it has succeeded. Any other name is changed with `valid_name`.
    """
    results = [result for message in history if isinstance(message, Results) for result in message.results]
    valid = {result.name for result in results if result.name.strip() and not result.is_error}
    given = {call.name for message in history if isinstance(message, Assistant) for call in message.calls}
    given |= {result.name for result in results}
    names = {name: new for name in given - valid if (new := valid_name(name) or "unknown") != name}
    if not names:
        return history

    def renamed(part: Part) -> Part:
        if not isinstance(part, ToolCall):
            return part
        return msgspec.structs.replace(part, name=names.get(part.name, part.name))

    named: list[Message] = []
    for message in history:
        if isinstance(message, Results):
            message = Results(tuple(one._replace(name=names.get(one.name, one.name)) for one in message.results))
        elif isinstance(message, Assistant) and message.calls:
            message = replace(message, parts=tuple(map(renamed, message.parts)))
        named.append(message)
    return named


SendReasoning: TypeAlias = Literal["with_calls", "always", "since_user", "never"]
"""Which turns send their reasoning back.

An exchange consists of a user message and all messages up to the next user message. `"with_calls"`: all turns of the
exchanges with calls. `"always"`: all turns. `"since_user"`: only the turns of the last exchange. `"never"`: no turn.
"""

_CHAT = "openai"
FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""The fields of a chat message that may hold reasoning."""

ReasoningField: TypeAlias = Literal["reasoning_content", "reasoning"]
"""The fields of a chat message that may hold reasoning as text."""

_FIELD_OF_HOST = {
    **dict.fromkeys(("api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn", "api.z.ai"), "reasoning_content"),
    **dict.fromkeys(("open.bigmodel.cn", "api.minimax.io"), "reasoning_content"),
    "openrouter.ai": "reasoning",
}
"""The reasoning field of each host.

Used if the caller names no field, and no turn of the history has one: all turns came from a client or another provider.
"""


def select_reasoning(
    history: Sequence[Message], send: SendReasoning, host: str | None = None, field: ReasoningField | None = None
) -> list[Message]:
    """Return the history with reasoning fields only on the turns that send their reasoning back.

    `send` selects these turns. `history` is the result of `view_for` for the provider at `host`. `field` is the
    reasoning field to use if no turn of the history has one.
    """
    check_word("send_reasoning", send, get_args(SendReasoning))
    turns = [message for message in history if isinstance(message, Assistant) and fields_of(message)]
    names = accepted_reasoning_fields(host)
    last = (name for turn in reversed(turns) for name in reversed(fields_of(turn)) if name in FIELDS[:2])
    missing_field = (next(last, field) or _FIELD_OF_HOST.get(host or "")) if names is None else None
    if not (turns or missing_field):
        return [*history]
    selected: list[Message] = []
    exchanges = list(accumulate(int(isinstance(message, User)) for message in history))
    with_calls = {
        exchange
        for exchange, message in zip(exchanges, history, strict=True)
        if isinstance(message, Assistant) and (message.calls or message.in_text)
    }
    sending = {"always": {*exchanges}, "with_calls": with_calls, "since_user": {*exchanges[-1:]}}.get(send, set())
    for exchange, message in zip(exchanges, history, strict=True):
        if isinstance(message, Assistant):
            message = _with_field(message, missing_field) if exchange in sending else _only_fields(message, ())
            message = message if names is None else _only_fields(message, names)
        selected.append(message)
    return selected


def _with_field(message: Assistant, field: str | None) -> Assistant:
    """Return the turn with the reasoning field `field`, if it has no reasoning field. None means no field.

    The field holds the reasoning if the provider of the turn is unknown, or if a client sent the turn in the format of
    chat completions. Otherwise the field is empty.
    """
    if field is None or fields_of(message):
        return message
    origin = message.origin  # messages of a front end do not name the field
    unknown = origin.format is None or (origin.client and origin.format == _CHAT)
    text = "".join(thought.text for thought in message.thoughts) if unknown else ""
    return replace(message, parts=(Thought("", extra=ProviderItem(_CHAT, {field: text})), *message.parts))


def _only_fields(message: Assistant, names: tuple[str, ...]) -> Assistant:
    """Return the turn with all reasoning fields removed except `names`."""
    if not any(thought.extra for thought in message.thoughts):
        return message
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Thought) and part.extra:
            fields = {name: value for name, value in part.extra.data.items() if name in names}
            part = part._replace(extra=ProviderItem(_CHAT, fields) if fields else None)
        parts.append(part)
    return replace(message, parts=tuple(parts))


def fields_of(message: Assistant) -> dict[str, Any]:
    """Return the reasoning fields of a turn, with their values as the provider sent them."""
    fields: dict[str, Any] = {}
    for thought in message.parts:
        if isinstance(thought, Thought) and thought.extra is not None and thought.extra.format == _CHAT:
            for name, value in thought.extra.data.items():
                if isinstance(value, list) and isinstance(fields.get(name), list):
                    fields[name].extend(value)
                else:
                    fields[name] = [*value] if isinstance(value, list) else value
    return fields


def text_of(fields: Mapping[str, Any]) -> str:
    """Return the reasoning text. If several fields hold it, only the first field is read."""
    for name in FIELDS[:2]:
        if isinstance(fields.get(name), str):
            return str(fields[name])
    details = fields.get("reasoning_details")
    listed = details if isinstance(details, list) else []
    return "".join(string_at(entry, "text") or string_at(entry, "summary") for entry in listed)
