"""Defines two closed unions of events: `SourceEvent`, which sources produce, and `UIEvent`, which a stream yields.

Each event has a JSON form, which is an object with a `type`. `event.to_json()` returns this form. `read_ui_event` and
`read_source_event` parse it. `json_schema` returns its JSON schema for a front end.

Events are frozen msgspec structs. A stream creates many events. To save time, the garbage collector does not track most
of them (`gc=False`). `seq` is the number of an event in its run, counted from 1. It is 0 if no run has numbered the
event, for example if a `Parser` returned it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar, get_args

import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import CheckedStruct, Code, ListsNames
from streamtools.json_values import write_json
from streamtools.loading import load_later

__all__ = [
    "SOURCE_EVENTS", "UI_EVENTS", "ApprovalRequested", "Call", "CallDelta", "CallStart", "ChainCompleted", "Done",
    "DoneReason", "Error", "Event", "Executed", "Executing", "FinishReason", "FollowUp", "Markup", "Matched",
    "NativeToolCall", "Partial", "Progress", "ProviderCompleted", "Raw", "Reasoning", "ReasoningDelta", "SourceError",
    "SourceEvent", "SourceRaw", "SourceUsage", "SourceWarning", "Start", "StepEnd", "StepStart", "StepSuperseded",
    "Text", "TextDelta", "Thinking", "ToolCallDelta", "ToolCallStart", "UIEvent", "Usage", "UsageReport",
    "ValidPartial", "Warning", "coalesce", "join_deltas", "json_schema", "read_source_event", "read_ui_event",
]  # fmt: skip

load_later(globals())

EMPTY_EVENT = 64
"""The approximate size in bytes of an event without its content."""
LARGE = 4096
"""The size in bytes of recorded events above which a stream collects them immediately."""
BATCH_BYTES = 256 * 1024
"""The approximate maximum size in bytes of a batch of events for a reader. A batch of one event may be larger."""
_UNKNOWN_SIZE = 4096  # the assumed size in bytes of an event that cannot be serialized


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="type", omit_defaults=True, repr_omit_defaults=True):
    """The base class of all events. An event has a `type` and can be serialized as JSON."""

    type: ClassVar[str]

    def to_json(self) -> str:
        """Return the event as one line of JSON. Lone surrogates become U+FFFD, because UTF-8 cannot encode them."""
        return write_json(self).decode()


class RuledEvent(Event, frozen=True, gc=True, dict=True):
    """An event whose content may have been changed by text rules. It can store the original content."""

    @property
    def written(self) -> Any:
        """The original content from the model, for the history. In a `ValidPartial`, this is the validated value.

        None if no rule has changed the content, or if the event was deserialized.
        """
        return self.__dict__.get("written")

    def set_written(self, written: Any) -> None:
        """Store the value of `written`. It is never serialized."""
        self.__dict__["written"] = written


class Usage(ListsNames, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """Token counts of one provider turn or of a run. A value is None if the provider does not report it.

    This is no event: `UsageReport` is the event, and has a `Usage` in its field `usage`.

    `input` includes tokens read from a cache or written to it. `output` includes reasoning. `cost` is the price in the
    currency of the provider. OpenRouter, for example, reports it in US dollars.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cost: float | None = None

    def __add__(self, other: Usage | None) -> Usage:
        if other is None:
            return self
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)
        sums: dict[str, Any] = {name: a if b is None else b if a is None else a + b for name, a, b in pairs}
        if sums["total"] is not None:
            sums["total"] = (self.tokens or 0) + (other.tokens or 0)
        return Usage(**sums)

    @property
    def tokens(self) -> int | None:
        """The total, or else the sum of input and output. None if the provider reports neither."""
        if self.total is None and (self.input is not None or self.output is not None):
            return (self.input or 0) + (self.output or 0)
        return self.total


# Source events, into which adapters convert a provider's stream. All providers share one closed union.

FinishReason: TypeAlias = Literal[
    "stop", "tool_calls", "length", "content_filter", "error", "pause", "cancelled", "other"
]
"""Why a provider's turn ended, normalized for all providers. `raw_finish_reason` holds the provider's own value."""


class TextDelta(Event, frozen=True, gc=False, tag="text-delta"):
    """A piece of the answer's text."""

    type: ClassVar[Literal["text-delta"]] = "text-delta"
    text: str


class ReasoningDelta(Event, frozen=True, gc=False, tag="reasoning-delta"):
    """A piece of reasoning that the provider sends separately from the text.

    A `signature` ends one block of reasoning. Some providers also send an `id` of the block. The next request must
    contain both unchanged. If `redacted` is true, the provider hides the text, and the event has only a signature.
    `own` maps a message format to the fields in which the next request repeats the reasoning. In `own`, null is a
    placeholder for the text.
    """

    type: ClassVar[Literal["reasoning-delta"]] = "reasoning-delta"
    text: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    own: dict[str, Any] | None = None


class ToolCallStart(Event, frozen=True, gc=False, tag="tool-call-start"):
    """A native call starts. The event is repeated when the id or the final name of the call becomes known.

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


class NativeToolCall(Event, CheckedStruct, frozen=True, gc=False, tag="tool-call"):
    """A complete native call. Tests write `NativeToolCall("get_weather", {"city": "Paris"})`.

    - `arguments` is JSON text or an object. If it is None, the deltas of the call contain the arguments.
    - `key` joins the call to its `tool-call-start` and its deltas. A call without these needs no key.
    - `id` is the provider's id of the call.
    - `signature` must be in the next request, unchanged and with the call. `own` maps a message format to other fields
      of the call that the next request must contain. If the provider has run the call, `own` holds the whole call.
    - If `provider_executed` is true, the provider runs the tool, and streamtools must not run it.
    - If `answerable` is false, the provider accepts no result of this call. The call is reported and remains pending.
    - `fault` says why the data from the provider is not a valid call. It is None for a valid call.
    - If `emulated` is true, the model named the call in its answer to a separate request, because it cannot make native
      calls. The option `native_tool_calls` does not apply to such a call.
    """

    type: ClassVar[Literal["tool-call"]] = "tool-call"
    name: str | None = None
    arguments: Any = None
    key: str = ""
    id: str | None = None
    provider_executed: bool = False
    signature: str | None = None
    answerable: bool = True
    fault: Code | None = None
    emulated: bool = False
    own: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        is_json = isinstance(self.arguments, dict | list | str | int | float | None)
        if not (is_json and isinstance(self.name, str | None) and isinstance(self.key, str)):
            raise TypeError(f'NativeToolCall takes name, arguments, such as NativeToolCall("pay", {{}}), got {self!r}')


class SourceUsage(Event, frozen=True, gc=False, tag="usage"):
    """The token usage of the turn up to now. It replaces the usage in earlier events of the turn."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage


class ProviderCompleted(Event, frozen=True, gc=False, tag="provider-completed"):
    """A provider's turn has ended, and its complete calls may run.

    `text` is the whole text of the turn, if the provider repeats it at the end. `tool_calls` holds calls that only the
    end of the turn contains. `response_id` and `model` are the provider's id of the response and its name for the
    model. `ends_run` is False in formats that send several turns in one stream. `chain-completed` then ends the run.
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
    """The adapter could not read a part of the stream. It continues with the next part.

    `raw` and `count` have the same meaning as in `Warning`.
    """

    type: ClassVar[Literal["warning"]] = "warning"
    code: Code
    message: str
    raw: str | None = None
    count: int | None = None


class SourceRaw(Event, frozen=True, gc=False, tag="raw"):
    """Provider data that the adapter does not interpret.

    If `format` is set, the data is part of the turn. The next request must contain it at the same position of the turn.
    `format` is the message format of the provider. `about` is `"item"` if the data is a separate item, and `"text"` if
    the data holds additional fields of the text before it.
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

_decode_source_event = msgspec.json.Decoder(SourceEvent).decode


def read_source_event(data: str | bytes) -> SourceEvent:
    """Parse the JSON of a source event. Raises `msgspec.ValidationError`, which is a ValueError, for any other JSON."""
    event: SourceEvent = _decode_source_event(data)
    return event


# UI events, which a stream yields to the application.

_DIALECT = re.compile(r"\bdialect (\w+)(?=$| in )")  # "… a call of the dialect NAME" or "… NAME in code …"

DoneReason: TypeAlias = Literal["finished", "waiting", "truncated", "failed", "stopped", "cancelled"]
"""How a run ended.

- `finished`: the last answer is complete.
- `waiting`: calls wait for decisions or results.
- `truncated`: the provider cut the answer.
- `failed`: an error ended the run.
- `stopped`: a limit or a tool ended the run.
- `cancelled`: the run was cancelled.
"""

COMPLETE: Final = ("finished", "waiting")
"""The reasons of a run whose last answer is complete, so that its pending calls may still run."""


class Start(Event, frozen=True, gc=False, tag="start"):
    """The run starts. No data has been read from the provider yet."""

    type: ClassVar[Literal["start"]] = "start"
    run_id: str
    seq: int = 0


class StepStart(Event, frozen=True, gc=False, tag="step-start"):
    """A step starts. It consists of one turn of the model and the execution of its calls. Steps are counted from 1.

    `format` is the message format of the provider, or None if the source does not know it. Only a request in this
    format may contain the signatures of the turn.
    """

    type: ClassVar[Literal["step-start"]] = "step-start"
    step: int
    seq: int = 0
    format: str | None = None


class StepEnd(Event, frozen=True, gc=False, tag="step-end"):
    """A step has ended: the turn of the model is complete, and so is the execution of its calls.

    `response_id` and `model` are the provider's id of the response and its name for the model. Each may be None.
    """

    type: ClassVar[Literal["step-end"]] = "step-end"
    step: int
    finish_reason: str | None
    seq: int = 0
    response_id: str | None = None
    model: str | None = None


class StepSuperseded(Event, frozen=True, gc=False, tag="step-superseded"):
    """The last step failed and is discarded. Another model generates the response from the beginning.

    An interface must remove the content of the step. The history does not contain it. None of its calls has run.
    """

    type: ClassVar[Literal["step-superseded"]] = "step-superseded"
    step: int
    seq: int = 0


class Text(Event, frozen=True, gc=False, tag="text"):
    """A piece of the visible text."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    seq: int = 0


class Reasoning(Event, frozen=True, gc=False, tag="reasoning"):
    """A piece of the model's reasoning.

    `signature`, `id`, `redacted` and `own` are for the next request to the provider. `ReasoningDelta` explains them.
    """

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str
    seq: int = 0
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    own: dict[str, Any] | None = None


class RuledReasoning(Reasoning, RuledEvent, frozen=True, gc=True, dict=True, tag="reasoning"):
    """Ends a reasoning block whose text the rules may have changed.

    `text` is empty. The event holds the signature, the id and `redacted` of the block, and its original in `written`.
    """


class Partial(Event, frozen=True, gc=False, tag="partial"):
    """The typed answer (option `output`) has grown: `value` was added at `path`.

    If `call_id` is set, the arguments of that call have grown instead. Such events need the option `call_partials`.

    A string arrives in pieces. A number, true, false or null arrives complete. An object or an array is first added
    empty. Its members or items follow in later events with longer paths. If `complete` is true, the value at `path` is
    complete. The event that completes an object or an array adds nothing to the value.
    """

    type: ClassVar[Literal["partial"]] = "partial"
    path: list[str | int]
    value: Any
    complete: bool = False
    seq: int = 0
    call_id: str | None = None

    @property
    def instance(self) -> Any:
        """The validated value, if this event completes a valid value. None otherwise, and in a deserialized event."""
        return None


class ValidPartial(Partial, RuledEvent, frozen=True, gc=True, dict=True, tag="partial"):
    """The last `partial` of a valid value. Events of this class have a `__dict__`, so they are slower to create."""

    @property
    def instance(self) -> Any:
        """The validated value."""
        return self.written


class Thinking(Event, frozen=True, gc=False, tag="thinking"):
    """The model has started to write a call (`active` is true) or has finished it.

    An interface can show a spinner while the model writes a call.
    """

    type: ClassVar[Literal["thinking"]] = "thinking"
    active: bool
    call_id: str | None = None
    seq: int = 0


class CallStart(Event, frozen=True, gc=False, tag="call-start"):
    """The name of a call is known. The model is still writing the call."""

    type: ClassVar[Literal["call-start"]] = "call-start"
    call_id: str
    name: str
    seq: int = 0


class CallDelta(Event, frozen=True, gc=False, tag="call-delta"):
    """A piece of the arguments of a call, as JSON text. All pieces together are the text that the model wrote."""

    type: ClassVar[Literal["call-delta"]] = "call-delta"
    call_id: str
    text: str
    seq: int = 0


class Call(RuledEvent, frozen=True, gc=True, tag="call"):
    """A call is complete and well-formed."""

    type: ClassVar[Literal["call"]] = "call"
    call: ToolCall
    seq: int = 0


class ApprovalRequested(Event, frozen=True, gc=False, tag="approval-requested"):
    """The call needs approval before `expires` (seconds since 1970).

    `digest` identifies the name and the arguments of the call. An approval with this digest applies only to this call.
    """

    type: ClassVar[Literal["approval-requested"]] = "approval-requested"
    call: ToolCall
    expires: float | None = None
    seq: int = 0
    digest: str = ""


class Executing(Event, frozen=True, gc=False, tag="executing"):
    """The call has started. If its arguments are invalid or its tool is unknown, an `error` follows.

    If `client` is true, the front end must now execute the call, and send its result.
    """

    type: ClassVar[Literal["executing"]] = "executing"
    call: ToolCall
    seq: int = 0
    client: bool = False


class Progress(Event, frozen=True, gc=False, tag="progress"):
    """Progress data from a running tool. It is not sent to the model."""

    type: ClassVar[Literal["progress"]] = "progress"
    call_id: str
    data: Any
    seq: int = 0


class Executed(Event, frozen=True, gc=False, tag="executed"):
    """The tool has returned. `message` is the `message` field of the result, or None. `elapsed` is in seconds."""

    type: ClassVar[Literal["executed"]] = "executed"
    call: ToolCall
    result: Any
    message: str | None
    elapsed: float
    seq: int = 0


class Error(RuledEvent, frozen=True, gc=True, tag="error"):
    """A call failed or does not run, or the whole stream failed. `call_id` is None if the stream failed.

    `message` may be shown to users. `call` is the call, if it is well-formed. `raw` is the text of a malformed call,
    and `dialect` its dialect. `status` is the HTTP status of a failed request to the provider.
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
    """A diagnosis for developers. Its `message` should not be shown to users.

    `raw` is the text or data that caused the warning. `count` is a number for the message, such as the length of
    skipped data.
    """

    type: ClassVar[Literal["warning"]] = "warning"
    code: Code
    message: str
    raw: str | None = None
    count: int | None = None
    seq: int = 0

    @property
    def dialect(self) -> str | None:
        """The dialect that the text of a near miss resembles. None for any other warning."""
        match = _DIALECT.search(self.message) if self.code is Code.NEAR_MISS else None
        return match[1] if match else None


class FollowUp(RuledEvent, frozen=True, gc=True, tag="follow-up"):
    """The messages that are sent to the model next. Encoders leave this event out by default.

    If text rules have changed the messages, `written` holds the original messages, which the model receives.
    """

    type: ClassVar[Literal["follow-up"]] = "follow-up"
    messages: list[dict[str, Any]]
    seq: int = 0


class UsageReport(Event, frozen=True, gc=False, tag="usage"):
    """Token usage of the turn that ends. If several models were used, each has an event with its name in `model`."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage
    seq: int = 0
    model: str | None = None


class Raw(RuledEvent, frozen=True, gc=True, tag="raw"):
    """Provider data that the adapter does not interpret.

    `format` and `about` are for the next request to the provider. `SourceRaw` explains them. If `item` is set, the next
    request contains it instead of `data`.
    """

    type: ClassVar[Literal["raw"]] = "raw"
    data: Any
    seq: int = 0
    format: str | None = None
    about: Literal["item", "text"] = "item"
    item: Any = None


class Done(Event, frozen=True, gc=False, tag="done"):
    """The run has ended. This is its last event. `pending` holds the calls that have not run.

    `client` has the ids of the pending calls that the front end must now execute. Only a run with the reason `waiting`
    has any. Its other calls wait for an approval, or a limit has stopped them.
    """

    type: ClassVar[Literal["done"]] = "done"
    reason: DoneReason
    finish_reason: str | None
    raw_finish_reason: str | None
    pending: list[ToolCall]
    conversation_id: str | None = None
    seq: int = 0
    client: list[str] = []


class Markup(Event, frozen=True, gc=False, tag="markup"):
    """Tags of a dialect with the white space around them. Only a parser with `keep_markup` returns this event."""

    type: ClassVar[Literal["markup"]] = "markup"
    text: str
    seq: int = 0


class Matched(RuledEvent, frozen=True, gc=True, tag="matched"):
    """A text rule has matched, and the match was removed from the text or the reasoning (`where`).

    `position` is the start of the match in the original text or reasoning of the turn. `length` is the length of the
    match. Both are in characters. The replacement follows as a text of `shown` characters. `fields` holds the data that
    the rule reports about the match.
    """

    type: ClassVar[Literal["matched"]] = "matched"
    rule: str
    action: Literal["replace", "remove", "mark", "stop", "fail"]
    position: int
    length: int
    shown: int = 0
    fields: dict[str, Any] | None = None
    seq: int = 0
    where: Literal["text", "reasoning"] = "text"

    @property
    def match(self) -> str | None:
        """The matched text. It is never serialized, so it is None in a deserialized event."""
        return self.__dict__.get("match")

    def set_match(self, match: str, *, written: bool) -> None:
        """Store the matched text. With `written=True`, it is also the original content, which the history contains."""
        self.__dict__["match"] = match
        if written:
            self.set_written(match)


UIEvent: TypeAlias = (
    Start | StepStart | StepEnd | StepSuperseded | Text | Reasoning | Partial | Thinking | CallStart | CallDelta
    | Call | ApprovalRequested | Executing | Progress | Executed | Error | Warning | FollowUp | UsageReport | Raw
    | Done | Markup | Matched
)  # fmt: skip
UI_EVENTS: tuple[type[Event], ...] = get_args(UIEvent)
"""The event types of the union."""

_decode_ui_event = msgspec.json.Decoder(UIEvent).decode


def read_ui_event(data: str | bytes) -> UIEvent:
    """Parse the JSON of a UI event. Raises `msgspec.ValidationError`, which is a ValueError, for any other JSON."""
    event: UIEvent = _decode_ui_event(data)
    return event


def json_schema(types: Any = UIEvent) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of an event type or a union of event types. It contains no references."""
    (schema,), definitions = msgspec.json.schema_components([types], ref_template="#/{name}")

    def inline(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return inline(definitions[node["$ref"].removeprefix("#/")])
            return {key: inline(value) for key, value in node.items() if key != "discriminator"}
        return [inline(item) for item in node] if isinstance(node, list) else node

    inlined: dict[str, Any] = inline(schema)
    return inlined


def explain_attribute(error: object) -> None:
    """If `error` is the AttributeError for an attribute that an event lacks, add a note that says what to write."""
    if isinstance(error, AttributeError) and isinstance(error.obj, Event):
        field = {"content": "text", "delta": "text"}.get(str(error.name), error.name)
        kinds = [kind.type for kind in UI_EVENTS if field in kind.__struct_fields__]
        advice = f'write `if event.type == "{kinds[0]}":` first, and read `event.{field}`; ' if kinds else ""
        if hasattr(getattr(error.obj, "call", None), str(error.name)):
            advice = f"write `event.call.{error.name}`; "
        error.add_note(f"{advice}this event has {', '.join(error.obj.__struct_fields__)}")


# The sizes of events in memory.


def weigh(event: Event) -> int:
    """Return the approximate size of an event in bytes, from its text, or from its JSON if it has no text."""
    text = getattr(event, "text", None)
    try:
        content = text if type(text) is str else event.to_json()
    except Exception:  # it contains data of a tool or an SDK that cannot be serialized
        return _UNKNOWN_SIZE
    size = len(content) if content.isascii() else content.__sizeof__()  # other characters need up to four bytes
    return EMPTY_EVENT + size + len(getattr(event, "signature", None) or "")


def batch_length(events: Iterable[Event]) -> int:
    """Return how many of the first events fit into one batch. The first event always fits."""
    count, remaining = 0, BATCH_BYTES
    for event in events:
        remaining -= weigh(event)
        if remaining < 0 and count:
            break
        count += 1
    return count


# Two runs over the same stream may differ in the number of events, because the stream arrives in different chunks.
# Ids, times, and the order of events from concurrent tools also differ. `coalesce` removes these differences for tests.

EventT = TypeVar("EventT", bound=Event)
DELTAS = (Text, Reasoning, CallDelta, Markup, Partial)
"""The types of events that are pieces of something longer. `coalesce` joins adjacent events of one of these types."""
# The fields that differ between equal runs, and the values that `coalesce` gives them.
_CONSTANT_FIELDS: dict[str, Any] = {"seq": 0, "elapsed": 0, "expires": None}
_REPORTS = (ApprovalRequested, Executing, Progress, Executed)  # events about the execution of a call


def coalesce(events: Iterable[EventT]) -> list[EventT]:
    """Return events in a normalized form, which is equal for all runs over the same stream.

    Adjacent texts are joined. So are argument pieces of one call, and reasoning up to a signature. `seq` and times are
    removed. Run and call ids are replaced with names such as `run_1` and `call_2`, in the order of their first event.
    Events of concurrent tools are sorted by call.

    >>> coalesce([Text("a", seq=1), Text("b", seq=2)])
    [Text(text='ab')]
    """
    names: dict[str, str] = {}

    def rename(kind: str, name: str | None) -> str | None:
        return None if name is None else names.setdefault(kind + name, f"{kind}_{len(names) + 1}")

    signed = 0  # the number of reasoning blocks that a signature has ended

    def identity(event: Event) -> tuple[type[Event], Any]:
        """Return the key of an event. Adjacent deltas with equal keys are joined."""
        nonlocal signed
        match event:
            case CallDelta(call_id):
                return CallDelta, call_id
            case Partial(path, value):
                return (Partial, (event.call_id, path)) if isinstance(value, str) else (Partial, id(event))
            case Reasoning(signature=signature):
                block = signed
                signed += signature is not None
                return Reasoning, block
        return type(event), None

    merged: list[EventT] = []
    for (kind, _), group in itertools.groupby(_in_call_order(events), identity):
        members = list(group)
        field = "value" if kind is Partial else "text"
        pieces: list[Any] = [getattr(member, field, None) for member in members]
        if kind not in DELTAS or not isinstance(pieces[0], str):  # only strings arrive in pieces
            merged += members
            continue
        last, changes = members[-1], dict[str, Any]({field: "".join(pieces)})
        is_empty = kind in (Text, Markup) and not changes["text"]
        if isinstance(last, Reasoning):
            changes["own"] = next((own for member in reversed(members) if (own := getattr(member, "own", None))), None)
            is_empty = not (last.signature or last.id or any(changes.values()))
        if not is_empty:
            merged.append(msgspec.structs.replace(last, **changes))
    return [_normalized(event, rename) for event in merged]


def join_deltas(events: Iterable[UIEvent]) -> list[UIEvent]:
    """Join adjacent texts, reasoning, and argument pieces of one call. A joined event has the `seq` of its last piece.

    Reasoning with data for the next request is not joined.
    """

    def identity(event: UIEvent) -> object:
        match event:
            case Text():
                return Text
            case CallDelta(call_id):
                return call_id
            case Reasoning(signature=None, id=None, redacted=False, own=None):
                return Reasoning
        return id(event)

    joined: list[UIEvent] = []
    for _, group in itertools.groupby(events, identity):
        pieces: Any = [*group]
        last = pieces[-1]
        if len(pieces) > 1:
            last = msgspec.structs.replace(last, text="".join(piece.text for piece in pieces))
        joined.append(last)
    return joined


def _in_call_order(events: Iterable[EventT]) -> Iterable[EventT]:
    """Yield events, with adjacent events of tools sorted by call. The events of one call keep their order."""
    order: dict[str | None, int] = {}
    for is_report, group in itertools.groupby(events, lambda event: isinstance(event, _REPORTS) or _is_of_call(event)):
        members = list(group)
        if not is_report:  # move `partial` events after the texts around them: their position depends on the chunks
            runs = itertools.groupby(members, lambda event: isinstance(event, Text | CallDelta) or _is_of_output(event))
            members = [event for grow, part in runs for event in (sorted(part, key=_is_of_output) if grow else part)]
        for event in members:
            order.setdefault(call_id_of(event), len(order))
        yield from sorted(members, key=lambda event: order[call_id_of(event)]) if is_report else members


def _is_of_output(event: Event) -> bool:
    return isinstance(event, Partial) or (isinstance(event, Warning) and event.code is Code.INVALID_OUTPUT)


def _is_of_call(event: Event) -> bool:  # errors of the stream and of malformed calls have no `call`
    return isinstance(event, Error) and event.call is not None


def call_id_of(event: Event) -> str | None:
    """Return the id of the call that the event is about, or None."""
    call = getattr(event, "call", None)
    return call.id if isinstance(call, ToolCall) else getattr(event, "call_id", None)


def _normalized(event: EventT, rename: Callable[[str, str | None], str | None]) -> EventT:
    changes = {name: value for name, value in _CONSTANT_FIELDS.items() if hasattr(event, name)}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name == "run_id":
            changes[name] = rename("run", value)
        elif name == "call_id":
            changes[name] = rename("call", value)
        elif isinstance(event, Done) and name == "client":
            changes[name] = [rename("call", call_id) for call_id in value]
        elif isinstance(value, ToolCall):
            changes[name] = msgspec.structs.replace(value, id=rename("call", value.id))
        elif name == "pending":
            changes[name] = [msgspec.structs.replace(call, id=rename("call", call.id)) for call in value]
    return msgspec.structs.replace(event, **changes)
