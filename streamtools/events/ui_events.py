"""UI events: what a user of the library iterates over. One closed union."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events.event import Event, RuledEvent, Usage, schema_of

_DIALECT = re.compile(r"\bdialect (\w+)(?=$| in )")  # in the message of a near miss

DoneReason: TypeAlias = Literal["finished", "truncated", "failed", "stopped", "cancelled"]
"""How a run ended: complete, truncated by the provider, with an error, at one of our limits, or cancelled."""


class Start(Event, frozen=True, gc=False, tag="start"):
    """The run starts; nothing has been read yet."""

    type: ClassVar[Literal["start"]] = "start"
    run_id: str
    seq: int = 0


class StepStart(Event, frozen=True, gc=False, tag="step-start", repr_omit_defaults=True):
    """A step starts: one turn of the model, and the execution of its calls. The first is step 1.

    `format` is the message format of the provider, if the source knows it. Signatures of the turn belong to it.
    """

    type: ClassVar[Literal["step-start"]] = "step-start"
    step: int
    seq: int = 0
    format: str | None = None


class StepEnd(Event, frozen=True, gc=False, tag="step-end", repr_omit_defaults=True):
    """The turn of the model has ended, and so have the executions of its calls.

    `response_id` and `model` are the provider's names for the response and the model, if it sends them.
    """

    type: ClassVar[Literal["step-end"]] = "step-end"
    step: int
    finish_reason: str | None
    seq: int = 0
    response_id: str | None = None
    model: str | None = None


class StepSuperseded(Event, frozen=True, gc=False, tag="step-superseded"):
    """The last step failed and is discarded, because another model starts the response again.

    An interface removes its content, and the history does not contain it. None of its calls has run.
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

    `signature`, `id`, `redacted` and `own` are for the next request to the provider, as in `ReasoningDelta`.
    """

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str
    seq: int = 0
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    own: dict[str, Any] | None = None


class RuledReasoning(Reasoning, RuledEvent, frozen=True, gc=True, dict=True, tag="reasoning", repr_omit_defaults=True):
    """The end of a reasoning block whose text rules may have changed; the original stays in this process."""


class Partial(Event, frozen=True, gc=False, tag="partial", repr_omit_defaults=True):
    """The typed value of `output` has grown: `value` was added at `path`.

    With a `call_id`, the arguments of that call have grown instead (`call_partials`).
    A string grows by pieces. A number, true, false or null comes complete. An object or an array starts empty, and its
    members and items follow with their own paths. `complete`: nothing follows at `path`; for an object or an array,
    this event then adds nothing.
    """

    type: ClassVar[Literal["partial"]] = "partial"
    path: list[str | int]
    value: Any
    complete: bool = False
    seq: int = 0
    call_id: str | None = None

    @property
    def instance(self) -> Any:
        """The validated value, if this event completes it and it is valid. None in another process."""
        return None


class ValidPartial(Partial, RuledEvent, frozen=True, gc=True, dict=True, tag="partial", repr_omit_defaults=True):
    """The last `partial` of a valid value. A class of its own, because events with a dict are slower to create."""

    @property
    def instance(self) -> Any:
        """The validated value."""
        return self.written


class Thinking(Event, frozen=True, gc=False, tag="thinking"):
    """The model has started (`active` is true) or finished writing a call; an interface can show a spinner
    meanwhile."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    active: bool
    call_id: str | None = None
    seq: int = 0


class CallStart(Event, frozen=True, gc=False, tag="call-start"):
    """The name of the call that the model is writing is known."""

    type: ClassVar[Literal["call-start"]] = "call-start"
    call_id: str
    name: str
    seq: int = 0


class CallDelta(Event, frozen=True, gc=False, tag="call-delta"):
    """A piece of the arguments as JSON text. All pieces together are what the model wrote."""

    type: ClassVar[Literal["call-delta"]] = "call-delta"
    call_id: str
    text: str
    seq: int = 0


class Call(RuledEvent, frozen=True, gc=True, tag="call"):
    """A call is complete and well formed."""

    type: ClassVar[Literal["call"]] = "call"
    call: ToolCall
    seq: int = 0


class ApprovalRequested(Event, frozen=True, gc=False, tag="approval-requested"):
    """The call needs approval before `expires` (seconds since 1970).

    An approval with this `digest` applies to exactly this call.
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
    """Progress data from a running tool; the model never gets it."""

    type: ClassVar[Literal["progress"]] = "progress"
    call_id: str
    data: Any
    seq: int = 0


class Executed(Event, frozen=True, gc=False, tag="executed"):
    """The tool has returned. `message` is the `message` of the result, if it has one. `elapsed` is in seconds."""

    type: ClassVar[Literal["executed"]] = "executed"
    call: ToolCall
    result: Any
    message: str | None
    elapsed: float
    seq: int = 0


class Error(RuledEvent, frozen=True, gc=True, tag="error"):
    """A call failed or does not run (with `call_id`), or the whole stream failed (without).

    `message` may be shown. `call` is the call, if it is well formed. `raw` is the text of a malformed call, and
    `dialect` its dialect.
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
    """A diagnostic for developers, not for readers."""

    type: ClassVar[Literal["warning"]] = "warning"
    code: Code
    message: str
    raw: str | None = None
    count: int | None = None
    seq: int = 0

    @property
    def dialect(self) -> str | None:
        """The dialect that the text of a near miss resembles."""
        match = _DIALECT.search(self.message) if self.code is Code.NEAR_MISS else None
        return match[1] if match else None


class FollowUp(RuledEvent, frozen=True, gc=True, tag="follow-up"):
    """The messages that are sent to the model next. Encoders leave this event out by default.

    If rules have changed them, `written` holds the messages that the model gets.
    """

    type: ClassVar[Literal["follow-up"]] = "follow-up"
    messages: list[dict[str, Any]]
    seq: int = 0


class UsageReport(Event, frozen=True, gc=False, tag="usage", repr_omit_defaults=True):
    """Token usage of the turn that ends. If several models answered, one event for each, with its name."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage
    seq: int = 0
    model: str | None = None


class Raw(RuledEvent, frozen=True, gc=True, tag="raw", repr_omit_defaults=True):
    """Provider data that the adapter does not interpret.

    `format` and `about` are for the next request to the provider, as in `SourceRaw`. `item` is sent back instead of
    `data`, if it is set.
    """

    type: ClassVar[Literal["raw"]] = "raw"
    data: Any
    seq: int = 0
    format: str | None = None
    about: Literal["item", "text"] = "item"
    item: Any = None


class Done(Event, frozen=True, gc=False, tag="done"):
    """The run has ended; no event follows. `pending` holds the calls that have not run."""

    type: ClassVar[Literal["done"]] = "done"
    reason: DoneReason
    finish_reason: str | None
    raw_finish_reason: str | None
    pending: list[ToolCall]
    conversation_id: str | None = None
    seq: int = 0


class Markup(Event, frozen=True, gc=False, tag="markup"):
    """Tags of a dialect, and the white space around them. Only the parser sends it, with `keep_markup`."""

    type: ClassVar[Literal["markup"]] = "markup"
    text: str
    seq: int = 0


class Matched(RuledEvent, frozen=True, gc=True, tag="matched", repr_omit_defaults=True):
    """A text rule has matched, and the match was removed from the text or the reasoning (`where`).

    `position` and `length` count characters of the turn's text, or reasoning, as the model wrote it. The replacement
    follows as text of `shown` characters. `fields` is what the rule reports about the match.
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
        """The matched text. Only in this process: it is never serialized."""
        return self.__dict__.get("match")

    def set_match(self, match: str, *, written: bool) -> None:
        """Store the matched text. `written`: the history contains it."""
        self.__dict__["match"] = match
        if written:
            self.set_written(match)


UIEvent: TypeAlias = (
    Start | StepStart | StepEnd | StepSuperseded | Text | Reasoning | Partial | Thinking | CallStart | CallDelta
    | Call | ApprovalRequested | Executing | Progress | Executed | Error | Warning | FollowUp | UsageReport | Raw
    | Done | Markup | Matched
)  # fmt: skip
UI_EVENTS: tuple[type[Event], ...] = get_args(UIEvent)
"""The types of the union."""

_decoder = msgspec.json.Decoder(UIEvent)


def read_ui_event(data: str | bytes) -> UIEvent:
    """Return the UI event that `to_json` wrote. Raises `msgspec.ValidationError`, a ValueError, for others."""
    event: UIEvent = _decoder.decode(data)
    return event


def json_schema(types: Any = UIEvent) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of an event type or a union of them, without references."""
    return schema_of(types)
