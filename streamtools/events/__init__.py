"""The events: `SourceEvent`, which sources produce, and `UIEvent`, which a user of the library iterates over.

Both are closed unions. An event travels as a JSON object with a `type`. `event.to_json()` writes it, `read_ui_event`
and `read_source_event` read it, and `json_schema` describes it for a front end. Each type also works as a field of a
pydantic model and as a response model.

Events are frozen msgspec structs that the garbage collector does not track, because every delta creates at least one.
`seq` rises from 1 in a run. It is 0 if events are not numbered, as those of a bare parser.
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
