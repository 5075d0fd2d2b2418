"""Sample runs as events for encoders: one run for each thing that can happen."""

from __future__ import annotations

from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import (
    ApprovalRequested,
    Call,
    CallDelta,
    CallStart,
    Done,
    DoneReason,
    Error,
    Executed,
    Executing,
    FinishReason,
    FollowUp,
    Progress,
    Raw,
    Reasoning,
    Start,
    StepEnd,
    StepStart,
    Text,
    Thinking,
    UIEvent,
    Usage,
    UsageReport,
    Warning,
)

START: list[UIEvent] = [Start("run_1"), StepStart(1)]


def ended(*pending: ToolCall, reason: DoneReason = "finished", finish: FinishReason | None = "stop") -> list[UIEvent]:
    """Return the events that end a run of one step."""
    return [StepEnd(1, finish), Done(reason, finish, finish, [*pending])]


STOP = ended()


def numbered(*events: UIEvent) -> list[UIEvent]:
    """Return the events with their numbers, from 1."""
    return [replace(event, seq=seq) for seq, event in enumerate(events, 1)]


def call(number: int, name: str = "weather", dialect: str = "tilde_fence") -> ToolCall:
    """Return a call of a tool."""
    return ToolCall(id=f"call_{number}", name=name, arguments={"city": "Bern"}, dialect=dialect, raw="~~~tool_call")


def written_call(tool_call: ToolCall, *, deltas: bool = False) -> list[UIEvent]:
    """Return the events of a call that is written and complete."""
    pieces: list[UIEvent] = [CallDelta(tool_call.id, '{"city":'), CallDelta(tool_call.id, ' "Bern"}')] if deltas else []
    return [
        Thinking(True, tool_call.id),
        CallStart(tool_call.id, tool_call.name),
        *pieces,
        Call(tool_call),
        Thinking(False, tool_call.id),
    ]


def malformed(number: int, raw: str = "~~~tool_call\n{", code: Code = Code.INVALID_JSON) -> list[UIEvent]:
    """Return the events of a malformed call."""
    call_id = f"call_{number}"
    error = Error(code, "not valid JSON", call_id=call_id, raw=raw, dialect="tilde_fence")
    return [Thinking(True, call_id), CallStart(call_id, "weather"), error, Thinking(False, call_id)]


def executed(tool_call: ToolCall) -> list[UIEvent]:
    """Return the events of a call with a result."""
    return [
        Executing(tool_call),
        Progress(tool_call.id, {"done": 0.5}),
        Executed(tool_call, {"celsius": 12.5}, None, 0.1),
    ]


def failed(tool_call: ToolCall) -> list[UIEvent]:
    """Return the events of a call whose tool fails."""
    return [Executing(tool_call), Error(Code.TOOL_FAILED, "the tool failed", call_id=tool_call.id, call=tool_call)]


_FAULT = Error(Code.UPSTREAM_ERROR, "the provider is overloaded", status=529)
_TWO_STEPS: list[UIEvent] = [
    *START,
    Text("Let me look."),
    *written_call(call(1)),
    *executed(call(1)),
    UsageReport(Usage(input=10, output=5)),
    StepEnd(1, "stop"),
    FollowUp([{"role": "user", "content": "12.5 °C"}]),
    StepStart(2),
    Text("It is "),
    Text("mild."),
    UsageReport(Usage(input=20, output=4, total=24, cache_read=8, reasoning=2)),
    StepEnd(2, "stop"),
    Done("finished", "stop", "stop", []),
]

RUNS: dict[str, list[UIEvent]] = {
    "text": numbered(*START, Text("Good "), Text("morning."), *STOP),
    "nothing": numbered(*START, *STOP),
    "no step": numbered(START[0], Done("finished", None, None, [])),
    "reasoning": numbered(
        *START, Reasoning("Well"), Reasoning(""), Reasoning("."), Reasoning("", signature="x"), Text("Yes."), *STOP
    ),
    "a call that is run": numbered(*START, Text("So: "), *written_call(call(1)), *executed(call(1)), *STOP),
    "a call as it is written": numbered(*START, *written_call(call(1), deltas=True), *executed(call(1)), *STOP),
    "a call that waits": numbered(*START, Text("So:\n\n"), *written_call(call(1), deltas=True), *ended(call(1))),
    "a call that waits for approval": numbered(
        *START,
        *written_call(call(1)),
        *written_call(call(2)),
        ApprovalRequested(call(1), 100.0),
        *executed(call(2)),
        *ended(call(1)),
    ),
    "calls of an earlier run": numbered(
        *START,
        Call(call(1)),
        Call(call(2)),
        Call(call(3)),
        *executed(call(1)),
        Error(Code.TOOL_DENIED, "no", call_id="call_2", call=call(2)),
        ApprovalRequested(call(3), 100.0),
        StepEnd(1, "tool_calls"),
        Done("finished", "tool_calls", None, [call(3)]),
    ),
    "a run that continues": numbered(
        *START,
        Call(call(1)),
        *executed(call(1)),
        StepEnd(1, "tool_calls"),
        FollowUp([{"role": "user", "content": "12.5 °C"}]),
        StepStart(2),
        Text("It is mild."),
        *written_call(call(2)),
        *executed(call(2)),
        StepEnd(2, "stop"),
        Done("finished", "stop", "stop", []),
    ),
    "three calls": numbered(
        *START,
        *written_call(call(1)),
        *written_call(call(2)),
        *malformed(3),
        *written_call(call(4)),
        Executing(call(1)),
        Executing(call(2)),
        *executed(call(4)),
        Progress("call_1", 1),
        Progress("call_1", 2),
        Error(Code.TOOL_TIMEOUT, "it took too long", call_id="call_2", call=call(2)),
        Executed(call(1), None, "All is well", 0.2),
        *STOP,
    ),
    "calls side by side": numbered(
        *START,
        Thinking(True, "call_1"),
        Thinking(True, "call_2"),
        CallStart("call_2", "weather"),
        CallStart("call_1", "weather"),
        CallDelta("call_1", "{"),
        Text("Meanwhile"),
        CallDelta("call_2", "{}"),
        Call(call(2, dialect="native")),
        Thinking(False, "call_2"),
        Error(Code.TRUNCATED, "the call was cut off", call_id="call_1", raw="{", dialect="native"),
        Thinking(False, "call_1"),
        Error(Code.SUPERSEDED, "others count", call_id="call_2", call=call(2, dialect="native")),
        *STOP,
    ),
    "a call without a name": numbered(
        *START,
        Thinking(True, "call_1"),
        Error(Code.MISSING_TOOL_NAME, "it names no tool", call_id="call_1", raw="~~~", dialect="tilde_fence"),
        Thinking(False, "call_1"),
        *STOP,
    ),
    "a call that is text after all": numbered(
        *START,
        Thinking(True, "call_1"),
        Thinking(False, "call_1"),
        Warning(Code.INVALID_JSON, "no JSON", "~~~"),
        Text("~~~"),
        *STOP,
    ),
    "a call that needs a yes": numbered(
        *START,
        *written_call(call(1)),
        ApprovalRequested(call(1), 1.8e9),
        Error(Code.TOOL_DENIED, "no", call_id="call_1", call=call(1)),
        *STOP,
    ),
    "two steps": numbered(*_TWO_STEPS),
    "an emulated decision": numbered(
        START[0], Thinking(True), Thinking(False), Warning(Code.EMULATED, "asked"), *_TWO_STEPS[1:]
    ),
    "an error in the middle": numbered(
        *START,
        Reasoning("Hm"),
        Text("I was"),
        _FAULT,
        UsageReport(Usage(input=3)),
        *ended(reason="failed", finish=None),
    ),
    "an immediate error": numbered(START[0], _FAULT, Done("failed", None, None, [])),
    "an error while a call is written": numbered(
        *START,
        Thinking(True, "call_1"),
        CallStart("call_1", "weather"),
        CallDelta("call_1", "{"),
        Error(Code.TRUNCATED, "the call was cut off", call_id="call_1", raw="~~~tool_call\n{", dialect="tilde_fence"),
        Thinking(False, "call_1"),
        _FAULT,
        *ended(reason="failed", finish=None),
    ),
    "cancelled in a text": numbered(*START, Text("I was"), *ended(reason="cancelled", finish=None)),
    "cancelled at work": numbered(
        *START,
        *written_call(call(1)),
        Executing(call(1)),
        Error(Code.TOOL_CANCELLED, "cancelled", call_id="call_1", call=call(1)),
        *ended(reason="cancelled"),
    ),
    "cut by the provider": numbered(
        *START,
        Text("and so"),
        *written_call(call(1)),
        StepEnd(1, "length"),
        Done("truncated", "length", "max_tokens", [call(1)]),
    ),
    "stopped by a limit": numbered(
        *START, *written_call(call(1)), StepEnd(1, "stop"), Done("stopped", "max_steps", "stop", [call(1)])
    ),
    "what front ends need not know": numbered(
        *START, Warning(Code.BAD_FRAME, "odd"), Raw({"odd": None}), Text(""), Text("ok"), *STOP
    ),
}
"""The runs by their names."""
