"""Defines UI events, which a stream yields to the application. They form one closed union."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events.event import Event, RuledEvent, Usage, schema_of

_DIALECT = re.compile(r"\bdialect (\w+)(?=$| in )")  # finds the dialect in the message of a near miss

DoneReason: TypeAlias = Literal["finished", "truncated", "failed", "stopped", "cancelled"]
"""How a run ended: completed, truncated by the provider, failed, stopped by a limit or a tool, or cancelled."""


class Start(Event, frozen=True, gc=False, tag="start"):
    """The run starts. No data has been read from the provider yet."""

    type: ClassVar[Literal["start"]] = "start"
    run_id: str
    seq: int = 0


class StepStart(Event, frozen=True, gc=False, tag="step-start", repr_omit_defaults=True):
    """A step starts. It consists of one turn of the model and the execution of its calls. Steps are counted from 1.

    `format` is the message format of the provider, or None if the source does not know it. Only a request in this
    format may contain the signatures of the turn.
    """

    type: ClassVar[Literal["step-start"]] = "step-start"
    step: int
    seq: int = 0
    format: str | None = None


class StepEnd(Event, frozen=True, gc=False, tag="step-end", repr_omit_defaults=True):
    """A step has ended: the turn of the model is complete, and so is the execution of its calls.

    `response_id` is the provider's id of the response, and `model` its name of the model. Each may be None.
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


class Reasoning(Event, frozen=True, gc=False, tag="reasoning", repr_omit_defaults=True):
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


class RuledReasoning(Reasoning, RuledEvent, frozen=True, gc=True, dict=True, tag="reasoning", repr_omit_defaults=True):
    """Ends a reasoning block whose text the rules may have changed.

    `text` is empty. The event holds the signature, the id and `redacted` of the block, and its original in `written`.
    """


class Partial(Event, frozen=True, gc=False, tag="partial", repr_omit_defaults=True):
    """The typed answer (option `output`) has grown: `value` was added at `path`.

    If `call_id` is set, the arguments of that call have grown instead. Such events need the option `call_partials`.

    A string arrives in pieces. A number, true, false or null arrives complete. An object or an array is first added
    empty. Its members or items follow in later events with longer paths. If `complete` is true, the value at `path` is
    complete. For an object or an array, such an event only reports this and adds no value.
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


class ValidPartial(Partial, RuledEvent, frozen=True, gc=True, dict=True, tag="partial", repr_omit_defaults=True):
    """The last `partial` of a valid value. A separate class, because events with a `__dict__` are slower to create."""

    @property
    def instance(self) -> Any:
        """The validated value."""
        return self.written


class Thinking(Event, frozen=True, gc=False, tag="thinking"):
    """The model has started to write a call (`active` is true) or has finished it. An interface can show a spinner
    until then."""

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
    """The tool has started."""

    type: ClassVar[Literal["executing"]] = "executing"
    call: ToolCall
    seq: int = 0


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
    and `dialect` its dialect.
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
    """A diagnostic message for developers. It should not be shown to users.

    `raw` is the text or data that caused the warning. `count` is a number that belongs to it, such as the length of
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


class UsageReport(Event, frozen=True, gc=False, tag="usage", repr_omit_defaults=True):
    """Token usage of the turn that ends. If several models were used, each has an event with its name in `model`."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage
    seq: int = 0
    model: str | None = None


class Raw(RuledEvent, frozen=True, gc=True, tag="raw", repr_omit_defaults=True):
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
    """The run has ended. This is its last event. `pending` holds the calls that have not run."""

    type: ClassVar[Literal["done"]] = "done"
    reason: DoneReason
    finish_reason: str | None
    raw_finish_reason: str | None
    pending: list[ToolCall]
    conversation_id: str | None = None
    seq: int = 0


class Markup(Event, frozen=True, gc=False, tag="markup"):
    """Tags of a dialect with the white space around them. Only a parser with `keep_markup` returns this event."""

    type: ClassVar[Literal["markup"]] = "markup"
    text: str
    seq: int = 0


class Matched(RuledEvent, frozen=True, gc=True, tag="matched", repr_omit_defaults=True):
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

_decoder = msgspec.json.Decoder(UIEvent)


def read_ui_event(data: str | bytes) -> UIEvent:
    """Parse the JSON of a UI event. Raises `msgspec.ValidationError`, which is a ValueError, for any other JSON."""
    event: UIEvent = _decoder.decode(data)
    return event


def json_schema(types: Any = UIEvent) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of an event type or a union of event types. It contains no references."""
    return schema_of(types)
