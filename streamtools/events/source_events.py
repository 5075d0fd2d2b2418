"""Defines source events, into which adapters convert a provider's stream. All providers share one closed union."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec

from streamtools.errors import Code
from streamtools.events.event import Event, Usage

FinishReason: TypeAlias = Literal[
    "stop", "tool_calls", "length", "content_filter", "error", "pause", "cancelled", "other"
]
"""Why a provider's turn ended, normalized for all providers. `raw_finish_reason` holds the value that it sent."""


class TextDelta(Event, frozen=True, gc=False, tag="text-delta"):
    """A piece of the answer's text."""

    type: ClassVar[Literal["text-delta"]] = "text-delta"
    text: str


class ReasoningDelta(Event, frozen=True, gc=False, tag="reasoning-delta"):
    """A piece of reasoning that the provider sends separately from the text.

    A `signature` ends one block of reasoning. The next request must contain it unchanged. The same applies to the `id`,
    which some providers send for the block. If `redacted` is true, the provider hides the text, and the event has only
    a signature. `own` maps a message format to the fields in which the next request repeats the reasoning. In `own`,
    null is a placeholder for the text.
    """

    type: ClassVar[Literal["reasoning-delta"]] = "reasoning-delta"
    text: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    own: dict[str, Any] | None = None


class ToolCallStart(Event, frozen=True, gc=False, tag="tool-call-start"):
    """A native call starts. Sent again when its id or final name becomes known.

    `key` identifies the call in its turn. It is unique, even if the provider uses an index or id twice.
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
    """A complete native call. A `tool-call-start` may have preceded it.

    - `arguments` is JSON text or an object. If it is None, the deltas of the call contain the arguments.
    - `signature` must be in the next request, unchanged and with the call. `own` maps a message format to other fields
      of the call that the next request must contain. If the provider has run the call, `own` holds the whole call.
    - If `provider_executed` is true, the provider runs the tool, and streamtools must not run it.
    - If `answerable` is false, the provider accepts no result. The call is reported and remains pending.
    - `fault` says why the data from the provider is not a valid call. It is None for a valid call.
    - If `emulated` is true, the call comes from an emulation request. `native_tool_calls` does not apply to it.
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
    """The token usage of this turn up to now. A later event of the same turn replaces it."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage


class ProviderCompleted(Event, frozen=True, gc=False, tag="provider-completed"):
    """A provider's turn has ended, and its complete calls may run.

    `text` is the whole text of the turn, if the provider repeats it at the end. `tool_calls` holds calls that only the
    end of the turn contains. `response_id` is the provider's id of the response, and `model` its name of the model.
    `ends_run` is False in formats that send several turns in one stream. `chain-completed` then ends the run.
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

    `message` may be shown to users. `cause` is only for the log. `failed_generation` is the complete text of the model,
    if the provider could not parse a call in it. `url` is the host and path of the request, only for the log. It holds
    no credentials.
    """

    type: ClassVar[Literal["error"]] = "error"
    message: str
    code: Code = Code.UPSTREAM_ERROR
    status: int | None = None
    cause: str | None = None
    failed_generation: str | None = None
    url: str | None = None


class SourceWarning(Event, frozen=True, gc=False, tag="warning"):
    """The adapter could not read a part of the stream. It continues with the next part."""

    type: ClassVar[Literal["warning"]] = "warning"
    code: Code
    message: str
    raw: str | None = None
    count: int | None = None


class SourceRaw(Event, frozen=True, gc=False, tag="raw"):
    """Provider data that the adapter does not interpret.

    If `format` is set, the data is part of the turn. The next request must contain it at the same position of the turn.
    `format` is the message format of the provider. `about` is `"item"` if the data is a separate item. It is `"text"`
    if the data holds additional fields of the text since the previous part.
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
"""The event types of the union."""

_decoder = msgspec.json.Decoder(SourceEvent)


def read_source_event(data: str | bytes) -> SourceEvent:
    """Parse the JSON of a source event. Raises `msgspec.ValidationError`, which is a ValueError, for any other JSON."""
    event: SourceEvent = _decoder.decode(data)
    return event
