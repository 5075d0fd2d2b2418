"""UI events: what a user of the library iterates over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events.event import ITSELF, LARGE, Event, Kept, Usage, schema_of

_NESTING = (dict, list)
_DIALECT = re.compile(r"\bdialect (\w+)(?=$| in )")  # in the message of a near miss

DoneReason: TypeAlias = Literal["finished", "truncated", "failed", "stopped", "cancelled"]
"""How a run ended: on its own, cut by the provider, by a fault, by one of our limits, or by being left."""


class Start(Event, frozen=True, gc=False, tag="start"):
    """The run begins; comes before the first byte is read."""

    type: ClassVar[Literal["start"]] = "start"
    run_id: str
    seq: int = 0


class StepStart(Event, frozen=True, gc=False, tag="step-start", repr_omit_defaults=True):
    """A provider's turn begins; the first is step 1.

    `format` is that of the messages of its provider, where the source tells: whose signatures those of the turn are.
    """

    type: ClassVar[Literal["step-start"]] = "step-start"
    step: int
    seq: int = 0
    format: str | None = None


class StepEnd(Event, frozen=True, gc=False, tag="step-end", repr_omit_defaults=True):
    """A provider's turn has ended, and so have the executions of its calls.

    `response_id` and `model` are the provider's names for its answer and for the model that gave it, where it tells.
    """

    type: ClassVar[Literal["step-end"]] = "step-end"
    step: int
    finish_reason: str | None
    seq: int = 0
    response_id: str | None = None
    model: str | None = None


class StepSuperseded(Event, frozen=True, gc=False, tag="step-superseded"):
    """The last step broke off and is discarded: another model starts the answer again.

    An interface takes back what it has shown of it; the history leaves it out. No call of it has run.
    """

    type: ClassVar[Literal["step-superseded"]] = "step-superseded"
    step: int
    seq: int = 0


class Text(Event, frozen=True, gc=False, tag="text"):
    """Text for the reader."""

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


class KeptReasoning(Reasoning, Kept, frozen=True, gc=True, dict=True, tag="reasoning", repr_omit_defaults=True):
    """What ends a block of reasoning where rules read it: what the provider has put beside it stays in the process."""


class Partial(Event, frozen=True, gc=False, tag="partial", repr_omit_defaults=True):
    """The typed value of `output` has grown: `value` was added at `path`.

    With a `call_id`, it is the arguments of that call which have (`call_partials`). A string grows by pieces; a number,
    true, false and null come whole; an object or an array begins empty, and its members and items follow with paths of
    their own. `complete`: nothing more comes at `path`, and of an object or an array nothing was added.
    """

    type: ClassVar[Literal["partial"]] = "partial"
    path: list[str | int]
    value: Any
    complete: bool = False
    seq: int = 0
    call_id: str | None = None

    def _weigh(self) -> int:
        value = self.value
        if type(value) in _NESTING and value:  # which nobody here makes
            return Event._weigh(self)
        size: int = ITSELF + value.__sizeof__()  # without its JSON, since there is one for each delta
        for part in self.path:
            size += part.__sizeof__()
        return size

    @property
    def instance(self) -> Any:
        """The whole value, validated, where it is complete with this event and valid; in this process alone."""
        return None


class ValidPartial(Partial, Kept, frozen=True, gc=True, dict=True, tag="partial", repr_omit_defaults=True):
    """The last `partial` of a valid answer, apart from all others because what has a dictionary is made slowly."""

    @property
    def instance(self) -> Any:
        """The validated instance."""
        return self.written


class Thinking(Event, frozen=True, gc=False, tag="thinking"):
    """The model has started (`active` is true) or finished writing a call; an interface can show a spinner
    meanwhile."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    active: bool
    call_id: str | None = None
    seq: int = 0


class CallStart(Event, frozen=True, gc=False, tag="call-start"):
    """The name of the call that is being written is known."""

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


class Call(Kept, frozen=True, gc=True, tag="call"):
    """A call is complete and well formed."""

    type: ClassVar[Literal["call"]] = "call"
    call: ToolCall
    seq: int = 0


class ApprovalRequested(Event, frozen=True, gc=False, tag="approval-requested"):
    """The call needs approval before `expires` (seconds since 1970).

    An approval that brings the `digest` back is one of exactly this call.
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
    """The tool has returned. `message` is the `message` of the result, if it has one; `elapsed` is in seconds."""

    type: ClassVar[Literal["executed"]] = "executed"
    call: ToolCall
    result: Any
    message: str | None
    elapsed: float
    seq: int = 0


class Error(Kept, frozen=True, gc=True, tag="error"):
    """A call failed or does not run (with `call_id`), or the whole stream failed (without).

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
    """A diagnostic for developers, not for readers."""

    type: ClassVar[Literal["warning"]] = "warning"
    code: Code
    message: str
    raw: str | None = None
    count: int | None = None
    seq: int = 0

    @property
    def dialect(self) -> str | None:
        """The dialect that a near miss came near to, as its message names it."""
        named = _DIALECT.search(self.message) if self.code is Code.NEAR_MISS else None
        return named[1] if named else None


class FollowUp(Kept, frozen=True, gc=True, tag="follow-up"):
    """The messages that go to the model next; encoders leave this event out by default.

    Where rules have taken something out of them, `written` are those that the model gets.
    """

    type: ClassVar[Literal["follow-up"]] = "follow-up"
    messages: list[dict[str, Any]]
    seq: int = 0


class UsageReport(Event, frozen=True, gc=False, tag="usage", repr_omit_defaults=True):
    """Token usage of the ending turn; one event for each model, with its name, if several answered."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage
    seq: int = 0
    model: str | None = None


class Raw(Kept, frozen=True, gc=True, tag="raw", repr_omit_defaults=True):
    """Provider data that the adapter does not interpret.

    `format` and `about` are for the next request to the provider, as in `SourceRaw`; `item` is what goes back if that
    is not `data`.
    """

    type: ClassVar[Literal["raw"]] = "raw"
    data: Any
    seq: int = 0
    format: str | None = None
    about: Literal["item", "text"] = "item"
    item: Any = None


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


class Matched(Kept, frozen=True, gc=True, tag="matched", repr_omit_defaults=True):
    """One of the `text_rules` has matched, and the match was taken out of the text.

    `position` counts the characters of the turn's text as the model wrote it, and `length` those of the match; what is
    shown in its place follows, of `shown` characters. `fields` are what the rule tells of it. With
    `where="reasoning"`, all of this is about what the model thinks.
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
        """The match itself; in this process alone: no form of the event holds it."""
        return self.__dict__.get("match")

    def tell(self, match: str, *, written: bool) -> None:
        """Add the match, and whether it is in the history."""
        self.__dict__["match"] = match
        if written:
            self.keep(match)


UIEvent: TypeAlias = (
    Start | StepStart | StepEnd | StepSuperseded | Text | Reasoning | Partial | Thinking | CallStart | CallDelta
    | Call | ApprovalRequested | Executing | Progress | Executed | Error | Warning | FollowUp | UsageReport | Raw
    | Done | Markup | Matched
)  # fmt: skip
UI_EVENTS: tuple[type[Event], ...] = get_args(UIEvent)
"""The types of the union."""

_decoder = msgspec.json.Decoder(UIEvent)


def small_text_of(events: Sequence[UIEvent]) -> str:
    """Return the text of events, if they are all text and hold little; else nothing."""
    texts = [event.text for event in events if type(event) is Text]
    text = "".join(texts) if len(texts) == len(events) else ""
    return text if len(text) <= LARGE else ""


def read_ui_event(data: str | bytes) -> UIEvent:
    """Return the UI event that `to_json` wrote. Raises `msgspec.ValidationError`, a ValueError, for others."""
    event: UIEvent = _decoder.decode(data)
    return event


def json_schema(types: Any = UIEvent) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of one event type or of a union of them, with no references to elsewhere."""
    return schema_of(types)
