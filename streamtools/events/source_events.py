"""Source events: what adapters make of a provider's stream. One closed union for all providers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec

from streamtools.errors import Code
from streamtools.events.event import Event, Usage

FinishReason: TypeAlias = Literal[
    "stop", "tool_calls", "length", "content_filter", "error", "pause", "cancelled", "other"
]
"""Why a provider's turn ended, in one spelling for all providers; `raw_finish_reason` has the provider's own."""


class TextDelta(Event, frozen=True, gc=False, tag="text-delta"):
    """A piece of the response text."""

    type: ClassVar[Literal["text-delta"]] = "text-delta"
    text: str


class ReasoningDelta(Event, frozen=True, gc=False, tag="reasoning-delta"):
    """A piece of reasoning that the provider sends separately from the text.

    A `signature` ends one block. It is sent back to the provider unchanged, and so is the `id` that some providers give
    the block. `redacted`: the provider hides the text, and there is only the signature. `own` holds the fields in which
    the reasoning of the turn is sent back, by message format; null stands for the text.
    """

    type: ClassVar[Literal["reasoning-delta"]] = "reasoning-delta"
    text: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    own: dict[str, Any] | None = None


class ToolCallStart(Event, frozen=True, gc=False, tag="tool-call-start"):
    """A native call starts, or its id or final name becomes known.

    `key` is unique for each call of a turn, even if the provider repeats its indexes and ids.
    """

    type: ClassVar[Literal["tool-call-start"]] = "tool-call-start"
    key: str
    id: str | None = None
    name: str | None = None


class ToolCallDelta(Event, frozen=True, gc=False, tag="tool-call-delta"):
    """A piece of a native call's arguments, as JSON text."""

    type: ClassVar[Literal["tool-call-delta"]] = "tool-call-delta"
    key: str
    text: str


class NativeToolCall(Event, frozen=True, gc=False, tag="tool-call"):
    """A complete native call, with or without an earlier `tool-call-start`.

    - `arguments` is JSON text or an object. With None, the arguments are those of the deltas.
    - `signature` is sent back to the provider unchanged with the call. `own` holds other members that are sent back, by
      message format; for a call that the provider executed, the whole call.
    - `provider_executed`: the provider runs the tool, and it must not run here.
    - `answerable`: if False, the provider takes no result, so the call is reported and stays pending.
    - `fault`: the provider sent something that is no call.
    - `emulated`: the call comes from an emulation request, so `native_tool_calls` does not apply to it.
    """

    type: ClassVar[Literal["tool-call"]] = "tool-call"
    key: str
    name: str | None = None
    arguments: Any = None
    id: str | None = None
    provider_executed: bool = False
    signature: str | None = None
    answerable: bool = True
    fault: Code | None = None
    emulated: bool = False
    own: dict[str, Any] | None = None


class SourceUsage(Event, frozen=True, gc=False, tag="usage"):
    """The tokens of this turn up to now. The last event of a turn counts."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage


class ProviderCompleted(Event, frozen=True, gc=False, tag="provider-completed"):
    """A provider's turn has ended, and its complete calls count.

    `text` is the whole text, if the provider repeats it. `response_id` and `model` are the provider's names for the
    response and the model. `ends_run` is False in formats whose runs hold several turns and end with `chain-completed`.
    """

    type: ClassVar[Literal["provider-completed"]] = "provider-completed"
    text: str | None = None
    tool_calls: list[NativeToolCall] | None = None
    finish_reason: FinishReason | None = None
    raw_finish_reason: str | None = None
    usage: Usage | None = None
    ends_run: bool = True
    response_id: str | None = None
    model: str | None = None


class ChainCompleted(Event, frozen=True, gc=False, tag="chain-completed"):
    """A run of several provider turns has ended."""

    type: ClassVar[Literal["chain-completed"]] = "chain-completed"
    conversation_id: str | None = None


class SourceError(Event, frozen=True, gc=False, tag="error"):
    """The provider or the transport reports an error.

    `cause` is for the log, never for the interface. `failed_generation` is the complete text of the model, if the
    provider could not parse a call in it. `url` is the host and path of the request, without credentials, for the log.
    """

    type: ClassVar[Literal["error"]] = "error"
    message: str
    code: Code = Code.UPSTREAM_ERROR
    status: int | None = None
    cause: str | None = None
    failed_generation: str | None = None
    url: str | None = None


class SourceWarning(Event, frozen=True, gc=False, tag="warning"):
    """The adapter could not read a part of the stream, and continues."""

    type: ClassVar[Literal["warning"]] = "warning"
    code: Code
    message: str
    raw: str | None = None
    count: int | None = None


class SourceRaw(Event, frozen=True, gc=False, tag="raw"):
    """Provider data that the adapter does not interpret.

    With a message `format` it is part of the turn, and is sent back to that provider in its place. It is an `"item"` of
    its own, or holds members of the `"text"` since the previous part.
    """

    type: ClassVar[Literal["raw"]] = "raw"
    data: Any
    format: str | None = None
    about: Literal["item", "text"] = "item"


SourceEvent: TypeAlias = (
    TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta | NativeToolCall | SourceUsage | ProviderCompleted
    | ChainCompleted | SourceError | SourceWarning | SourceRaw
)  # fmt: skip
SOURCE_EVENTS: tuple[type[Event], ...] = get_args(SourceEvent)
"""The types of the union."""

_decoder = msgspec.json.Decoder(SourceEvent)


def read_source_event(data: str | bytes) -> SourceEvent:
    """Return the source event that `to_json` wrote. Raises `msgspec.ValidationError`, a ValueError, for others."""
    event: SourceEvent = _decoder.decode(data)
    return event
