"""What flows: the events that sources produce, and the events that an interface consumes.

Two closed unions. `SourceEvent` is what an adapter makes of a provider's bytes, `UIEvent` is what a user of the
library iterates over. Both travel as JSON objects with a `type`; `event.to_json()` writes one, `read_ui_event` and
`read_source_event` read it back, `json_schema` publishes the union for a front end. Each type also works as a field of
a pydantic model and as a response model.

Events are frozen msgspec structs that the garbage collector does not track: tens of nanoseconds each, because every
delta of every answer makes at least one. `seq` is 0 where nobody numbers (a bare parser) and rises from 1 in a run.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from streamtools.calls import ToolCall
from streamtools.errors import Code

FinishReason: TypeAlias = Literal[
    "stop", "tool_calls", "length", "content_filter", "error", "pause", "cancelled", "other"
]
"""Why a provider's turn ended, in one spelling for all providers; the provider's own is kept beside it."""

DoneReason: TypeAlias = Literal["finished", "truncated", "failed", "stopped", "cancelled"]
"""How a run ended: on its own, cut by the provider, by a fault, by one of our limits, or by being left."""

_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="type", omit_defaults=True):
    """What all events share: a `type`, and JSON in both directions."""

    type: ClassVar[str]

    def to_json(self) -> str:
        """Return the event as one line of JSON. Half a surrogate pair, which UTF-8 cannot hold, becomes U+FFFD."""
        try:
            return _encode(self).decode()
        except UnicodeEncodeError:
            return _encode(whole_strings(msgspec.to_builtins(self))).decode()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: Any) -> Any:
            if isinstance(value, cls):
                return value
            try:
                return msgspec.convert(value, type=cls)
            except msgspec.ValidationError as error:
                raise ValueError(str(error)) from None

        return core_schema.no_info_plain_validator_function(
            validate,
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return json_schema(cls)


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one provider turn, or of a run. None means that the provider does not tell.

    `input` includes what was read from a cache, `output` includes reasoning.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: _sum(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__})


# Source events: what adapters make of a provider's stream.


class TextDelta(Event, frozen=True, gc=False, tag="text-delta"):
    """A piece of the answer's text."""

    type: ClassVar[Literal["text-delta"]] = "text-delta"
    text: str


class ReasoningDelta(Event, frozen=True, gc=False, tag="reasoning-delta"):
    """A piece of reasoning that came in a channel of its own.

    A `signature` ends one block of it, and goes back to the provider unchanged with the next request, as does the `id`
    that some providers give the block. `redacted`: the signature is all there is, the provider hides the text.
    """

    type: ClassVar[Literal["reasoning-delta"]] = "reasoning-delta"
    text: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False


class ToolCallStart(Event, frozen=True, gc=False, tag="tool-call-start"):
    """A native call begins, or something more of it is known: its id, or its name, which is certain then.

    `key` is one for each call of a turn, whatever the provider makes of its indexes and ids.
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
    """A native call, complete; one that has not begun begins with it.

    `arguments` is what the provider tells at the end: JSON text, an object, or None, and then what the deltas held
    counts. `signature` goes back to the provider unchanged with the call. `provider_executed`: the provider runs the
    tool itself, and nobody else must. Not `answerable`: nobody can give the provider a result, so the call is told and
    stays pending. `fault`: what the provider tells in the place of a call cannot be one.
    `emulated`: the model was asked for it, so that what is declared of its native calls says nothing here.
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


class SourceUsage(Event, frozen=True, gc=False, tag="usage"):
    """Tokens so far in this turn; the last one of a turn counts."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage


class ProviderCompleted(Event, frozen=True, gc=False, tag="provider-completed"):
    """A provider's turn has ended, and its complete calls are earned.

    `text` is the provider's own idea of the whole text, where it tells. `ends_run` is False in formats whose runs hold
    several turns and end with an event of their own.
    """

    type: ClassVar[Literal["provider-completed"]] = "provider-completed"
    text: str | None = None
    tool_calls: list[NativeToolCall] | None = None
    finish_reason: FinishReason | None = None
    raw_finish_reason: str | None = None
    usage: Usage | None = None
    ends_run: bool = True


class ChainCompleted(Event, frozen=True, gc=False, tag="chain-completed"):
    """A run of several provider turns has ended."""

    type: ClassVar[Literal["chain-completed"]] = "chain-completed"
    conversation_id: str | None = None


class SourceError(Event, frozen=True, gc=False, tag="error"):
    """The provider, or the transport to it, reports an error. `cause` is for the log and never for the interface.

    `failed_generation` is what the model wrote, complete, where the provider refuses to read the call in it. `url` is
    what was asked, as far as it is known: host and path, nothing that may be a credential; it is for the log, too.
    """

    type: ClassVar[Literal["error"]] = "error"
    message: str
    code: Code = Code.UPSTREAM_ERROR
    status: int | None = None
    cause: str | None = None
    failed_generation: str | None = None
    url: str | None = None


class SourceWarning(Event, frozen=True, gc=False, tag="warning"):
    """An adapter could not read a part of the stream, and went on."""

    type: ClassVar[Literal["warning"]] = "warning"
    code: Code
    message: str
    raw: str | None = None
    count: int | None = None


class SourceRaw(Event, frozen=True, gc=False, tag="raw"):
    """What an adapter does not understand, passed on as it came."""

    type: ClassVar[Literal["raw"]] = "raw"
    data: Any


SourceEvent: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallStart
    | ToolCallDelta
    | NativeToolCall
    | SourceUsage
    | ProviderCompleted
    | ChainCompleted
    | SourceError
    | SourceWarning
    | SourceRaw
)
SOURCE_EVENTS: tuple[type[Event], ...] = get_args(SourceEvent)
"""The types of the union."""


# UI events: what a user of the library iterates over.


class Start(Event, frozen=True, gc=False, tag="start"):
    """The run begins; comes before the first byte is read."""

    type: ClassVar[Literal["start"]] = "start"
    run_id: str
    seq: int = 0


class StepStart(Event, frozen=True, gc=False, tag="step-start"):
    """A provider's turn begins; the first is step 1."""

    type: ClassVar[Literal["step-start"]] = "step-start"
    step: int
    seq: int = 0


class StepEnd(Event, frozen=True, gc=False, tag="step-end"):
    """A provider's turn has ended, and so have the executions of its calls."""

    type: ClassVar[Literal["step-end"]] = "step-end"
    step: int
    finish_reason: str | None
    seq: int = 0


class Text(Event, frozen=True, gc=False, tag="text"):
    """Text for the reader."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    seq: int = 0


class Reasoning(Event, frozen=True, gc=False, tag="reasoning", repr_omit_defaults=True):
    """What the model thinks before it answers.

    `signature`, `id` and `redacted` are for the next request to the provider, as in `ReasoningDelta`.
    """

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str
    seq: int = 0
    signature: str | None = None
    id: str | None = None
    redacted: bool = False


class Thinking(Event, frozen=True, gc=False, tag="thinking"):
    """A call is being written (`active`), or no longer: the interface shows that it waits."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    active: bool
    call_id: str | None = None
    seq: int = 0


class CallStart(Event, frozen=True, gc=False, tag="call-start"):
    """The name of the call that is being written is certain."""

    type: ClassVar[Literal["call-start"]] = "call-start"
    call_id: str
    name: str
    seq: int = 0


class CallDelta(Event, frozen=True, gc=False, tag="call-delta"):
    """A piece of the arguments as JSON text; joined, they are what the model wrote."""

    type: ClassVar[Literal["call-delta"]] = "call-delta"
    call_id: str
    text: str
    seq: int = 0


class Call(Event, frozen=True, gc=False, tag="call"):
    """A call is complete and well formed."""

    type: ClassVar[Literal["call"]] = "call"
    call: ToolCall
    seq: int = 0


class ApprovalRequested(Event, frozen=True, gc=False, tag="approval-requested"):
    """Somebody has to allow the call before `expires` (seconds since 1970).

    An approval that brings the `digest` back is one of exactly this call.
    """

    type: ClassVar[Literal["approval-requested"]] = "approval-requested"
    call: ToolCall
    expires: float | None = None
    seq: int = 0
    digest: str = ""


class Executing(Event, frozen=True, gc=False, tag="executing"):
    """A tool has begun to work on the call."""

    type: ClassVar[Literal["executing"]] = "executing"
    call: ToolCall
    seq: int = 0


class Progress(Event, frozen=True, gc=False, tag="progress"):
    """What a tool tells while it works; never sent to the model."""

    type: ClassVar[Literal["progress"]] = "progress"
    call_id: str
    data: Any
    seq: int = 0


class Executed(Event, frozen=True, gc=False, tag="executed"):
    """A tool has answered. `message` is the result's own `message`, if it has one; `elapsed` is in seconds."""

    type: ClassVar[Literal["executed"]] = "executed"
    call: ToolCall
    result: Any
    message: str | None
    elapsed: float
    seq: int = 0


class Error(Event, frozen=True, gc=False, tag="error"):
    """A call that is not or was not run well (`call_id`), or a fault of the whole stream (no `call_id`).

    `message` may be shown. `raw` is the text of a malformed call and `dialect` its way of writing; `call` is the call
    where it was well formed.
    """

    type: ClassVar[Literal["error"]] = "error"
    code: Code
    message: str
    call_id: str | None = None
    call: ToolCall | None = None
    raw: str | None = None
    status: int | None = None
    dialect: str | None = None
    seq: int = 0


class Warning(Event, frozen=True, gc=False, tag="warning"):
    """Something that a developer wants to know and a reader need not."""

    type: ClassVar[Literal["warning"]] = "warning"
    code: Code
    message: str
    raw: str | None = None
    count: int | None = None
    seq: int = 0


class FollowUp(Event, frozen=True, gc=False, tag="follow-up"):
    """The messages that go to the model next; front ends are not sent them unless somebody says so."""

    type: ClassVar[Literal["follow-up"]] = "follow-up"
    messages: list[dict[str, Any]]
    seq: int = 0


class UsageReport(Event, frozen=True, gc=False, tag="usage"):
    """Tokens of the turn that ends."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage
    seq: int = 0


class Raw(Event, frozen=True, gc=False, tag="raw"):
    """What the provider sent and no adapter understands."""

    type: ClassVar[Literal["raw"]] = "raw"
    data: Any
    seq: int = 0


class Done(Event, frozen=True, gc=False, tag="done"):
    """The run has ended; nothing follows. `pending` holds the calls that nobody has run."""

    type: ClassVar[Literal["done"]] = "done"
    reason: DoneReason
    finish_reason: str | None
    raw_finish_reason: str | None
    pending: list[ToolCall]
    conversation_id: str | None = None
    seq: int = 0


class Markup(Event, frozen=True, gc=False, tag="markup"):
    """A dialect's own tags and the white space around them; only with `keep_markup`, and only from the parser."""

    type: ClassVar[Literal["markup"]] = "markup"
    text: str
    seq: int = 0


UIEvent: TypeAlias = (
    Start
    | StepStart
    | StepEnd
    | Text
    | Reasoning
    | Thinking
    | CallStart
    | CallDelta
    | Call
    | ApprovalRequested
    | Executing
    | Progress
    | Executed
    | Error
    | Warning
    | FollowUp
    | UsageReport
    | Raw
    | Done
    | Markup
)
UI_EVENTS: tuple[type[Event], ...] = get_args(UIEvent)
"""The types of the union."""

_ui_decoder = msgspec.json.Decoder(UIEvent)
_source_decoder = msgspec.json.Decoder(SourceEvent)


def read_ui_event(data: str | bytes) -> UIEvent:
    """Return the UI event that `to_json` wrote. Raises `msgspec.ValidationError`, a ValueError, for others."""
    event: UIEvent = _ui_decoder.decode(data)
    return event


def read_source_event(data: str | bytes) -> SourceEvent:
    """Return the source event that `to_json` wrote. Raises `msgspec.ValidationError`, a ValueError, for others."""
    event: SourceEvent = _source_decoder.decode(data)
    return event


def json_schema(types: Any = UIEvent) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of one event type or of a union of them, with no references to elsewhere."""
    (schema,), definitions = msgspec.json.schema_components([types], ref_template="#/{name}")

    def inline(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return inline(definitions[node["$ref"].removeprefix("#/")])
            return {key: inline(value) for key, value in node.items() if key != "discriminator"}
        return [inline(each) for each in node] if isinstance(node, list) else node

    inlined: dict[str, Any] = inline(schema)
    return inlined


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


def whole(text: str) -> str:
    """Return `text` with the halves of each surrogate pair joined, and U+FFFD for a half that stands alone.

    Providers cut pairs, and models write halves; UTF-8 can hold neither.
    """
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def whole_strings(value: Any) -> Any:
    """Return builtin values with `whole` texts in all places."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, dict):
        return {whole_strings(key): whole_strings(each) for key, each in value.items()}
    return [whole_strings(each) for each in value] if isinstance(value, list | tuple) else value
