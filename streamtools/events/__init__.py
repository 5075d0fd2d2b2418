"""Defines two closed unions of events: `SourceEvent`, which sources produce, and `UIEvent`, which a stream yields.

Each event has a JSON form, which is an object with a `type`. `event.to_json()` returns this form. `read_ui_event` and
`read_source_event` parse it. `json_schema` returns its JSON schema for a front end. Each event type can also be a field
of a pydantic model, or the response model of an endpoint.

Events are frozen msgspec structs. The garbage collector does not track most of them, because every delta of a stream
creates at least one. `seq` is the number of an event in its run, counted from 1. It is 0 if no run has numbered the
event, for example if a `Parser` returned it.
"""

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events.event import Event, Usage
from streamtools.events.source_events import (
    SOURCE_EVENTS,
    ChainCompleted,
    FinishReason,
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    SourceWarning,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    read_source_event,
)
from streamtools.events.ui_events import (
    UI_EVENTS,
    ApprovalRequested,
    Call,
    CallDelta,
    CallStart,
    Done,
    DoneReason,
    Error,
    Executed,
    Executing,
    FollowUp,
    Markup,
    Matched,
    Partial,
    Progress,
    Raw,
    Reasoning,
    Start,
    StepEnd,
    StepStart,
    StepSuperseded,
    Text,
    Thinking,
    UIEvent,
    UsageReport,
    Warning,
    json_schema,
    read_ui_event,
)

__all__ = [
    "SOURCE_EVENTS", "UI_EVENTS", "ApprovalRequested", "Call", "CallDelta", "CallStart", "ChainCompleted", "Code",
    "Done", "DoneReason", "Error", "Event", "Executed", "Executing", "FinishReason", "FollowUp", "Markup", "Matched",
    "NativeToolCall", "Partial", "Progress", "ProviderCompleted", "Raw", "Reasoning", "ReasoningDelta", "SourceError",
    "SourceEvent", "SourceRaw", "SourceUsage", "SourceWarning", "Start", "StepEnd", "StepStart", "StepSuperseded",
    "Text", "TextDelta", "Thinking", "ToolCall", "ToolCallDelta", "ToolCallStart", "UIEvent", "Usage", "UsageReport",
    "Warning", "json_schema", "read_source_event", "read_ui_event",
]  # fmt: skip
