"""Sample runs as events for encoders: one run for each thing that can happen."""

from __future__ import annotations

from msgspec.structs import replace

from streamtools import events as ui
from streamtools.calls import ToolCall
from streamtools.errors import Code

START: list[ui.UIEvent] = [ui.Start("run_1"), ui.StepStart(1)]


def ended(
    *pending: ToolCall, reason: ui.DoneReason = "finished", finish: ui.FinishReason | None = "stop"
) -> list[ui.UIEvent]:
    """Return the events that end a run of one step."""
    return [ui.StepEnd(1, finish), ui.Done(reason, finish, finish, [*pending])]


STOP = ended()


def numbered(*events: ui.UIEvent) -> list[ui.UIEvent]:
    """Return the events with their numbers, from 1."""
    return [replace(event, seq=seq) for seq, event in enumerate(events, 1)]


def call(number: int, name: str = "weather", dialect: str = "tilde_fence") -> ToolCall:
    """Return a call of a tool."""
    return ToolCall(id=f"call_{number}", name=name, arguments={"city": "Bern"}, dialect=dialect, raw="~~~tool_call")


def written_call(tool_call: ToolCall, *, deltas: bool = False) -> list[ui.UIEvent]:
    """Return the events of a call that is written and complete."""
    pieces: list[ui.UIEvent] = (
        [ui.CallDelta(tool_call.id, '{"city":'), ui.CallDelta(tool_call.id, ' "Bern"}')] if deltas else []
    )
    return [
        ui.Thinking(True, tool_call.id),
        ui.CallStart(tool_call.id, tool_call.name),
        *pieces,
        ui.Call(tool_call),
        ui.Thinking(False, tool_call.id),
    ]


def malformed(number: int, raw: str = "~~~tool_call\n{", code: Code = Code.INVALID_JSON) -> list[ui.UIEvent]:
    """Return the events of a malformed call."""
    call_id = f"call_{number}"
    error = ui.Error(code, "not valid JSON", call_id=call_id, raw=raw, dialect="tilde_fence")
    return [ui.Thinking(True, call_id), ui.CallStart(call_id, "weather"), error, ui.Thinking(False, call_id)]


def executed(tool_call: ToolCall) -> list[ui.UIEvent]:
    """Return the events of a call with a result."""
    return [
        ui.Executing(tool_call),
        ui.Progress(tool_call.id, {"done": 0.5}),
        ui.Executed(tool_call, {"celsius": 12.5}, None, 0.1),
    ]


def failed(tool_call: ToolCall) -> list[ui.UIEvent]:
    """Return the events of a call whose tool fails."""
    return [
        ui.Executing(tool_call),
        ui.Error(Code.TOOL_FAILED, "the tool failed", call_id=tool_call.id, call=tool_call),
    ]


_FAULT = ui.Error(Code.UPSTREAM_ERROR, "the provider is overloaded", status=529)
_TWO_STEPS: list[ui.UIEvent] = [
    *START,
    ui.Text("Let me look."),
    *written_call(call(1)),
    *executed(call(1)),
    ui.UsageReport(ui.Usage(input=10, output=5)),
    ui.StepEnd(1, "stop"),
    ui.FollowUp([{"role": "user", "content": "12.5 °C"}]),
    ui.StepStart(2),
    ui.Text("It is "),
    ui.Text("mild."),
    ui.UsageReport(ui.Usage(input=20, output=4, total=24, cache_read=8, reasoning=2)),
    ui.StepEnd(2, "stop"),
    ui.Done("finished", "stop", "stop", []),
]

RUNS: dict[str, list[ui.UIEvent]] = {
    "text": numbered(*START, ui.Text("Good "), ui.Text("morning."), *STOP),
    "nothing": numbered(*START, *STOP),
    "no step": numbered(START[0], ui.Done("finished", None, None, [])),
    "reasoning": numbered(
        *START,
        ui.Reasoning("Well"),
        ui.Reasoning(""),
        ui.Reasoning("."),
        ui.Reasoning("", signature="x"),
        ui.Text("Yes."),
        *STOP,
    ),
    "a call that is run": numbered(*START, ui.Text("So: "), *written_call(call(1)), *executed(call(1)), *STOP),
    "a call as it is written": numbered(*START, *written_call(call(1), deltas=True), *executed(call(1)), *STOP),
    "a call that waits": numbered(*START, ui.Text("So:\n\n"), *written_call(call(1), deltas=True), *ended(call(1))),
    "a call that waits for approval": numbered(
        *START,
        *written_call(call(1)),
        *written_call(call(2)),
        ui.ApprovalRequested(call(1), 100.0),
        *executed(call(2)),
        *ended(call(1)),
    ),
    "calls of an earlier run": numbered(
        *START,
        ui.Call(call(1)),
        ui.Call(call(2)),
        ui.Call(call(3)),
        *executed(call(1)),
        ui.Error(Code.TOOL_DENIED, "no", call_id="call_2", call=call(2)),
        ui.ApprovalRequested(call(3), 100.0),
        ui.StepEnd(1, "tool_calls"),
        ui.Done("finished", "tool_calls", None, [call(3)]),
    ),
    "a run that continues": numbered(
        *START,
        ui.Call(call(1)),
        *executed(call(1)),
        ui.StepEnd(1, "tool_calls"),
        ui.FollowUp([{"role": "user", "content": "12.5 °C"}]),
        ui.StepStart(2),
        ui.Text("It is mild."),
        *written_call(call(2)),
        *executed(call(2)),
        ui.StepEnd(2, "stop"),
        ui.Done("finished", "stop", "stop", []),
    ),
    "three calls": numbered(
        *START,
        *written_call(call(1)),
        *written_call(call(2)),
        *malformed(3),
        *written_call(call(4)),
        ui.Executing(call(1)),
        ui.Executing(call(2)),
        *executed(call(4)),
        ui.Progress("call_1", 1),
        ui.Progress("call_1", 2),
        ui.Error(Code.TOOL_TIMEOUT, "it took too long", call_id="call_2", call=call(2)),
        ui.Executed(call(1), None, "All is well", 0.2),
        *STOP,
    ),
    "calls side by side": numbered(
        *START,
        ui.Thinking(True, "call_1"),
        ui.Thinking(True, "call_2"),
        ui.CallStart("call_2", "weather"),
        ui.CallStart("call_1", "weather"),
        ui.CallDelta("call_1", "{"),
        ui.Text("Meanwhile"),
        ui.CallDelta("call_2", "{}"),
        ui.Call(call(2, dialect="native")),
        ui.Thinking(False, "call_2"),
        ui.Error(Code.TRUNCATED, "the call was cut off", call_id="call_1", raw="{", dialect="native"),
        ui.Thinking(False, "call_1"),
        ui.Error(Code.SUPERSEDED, "others count", call_id="call_2", call=call(2, dialect="native")),
        *STOP,
    ),
    "a call without a name": numbered(
        *START,
        ui.Thinking(True, "call_1"),
        ui.Error(Code.MISSING_TOOL_NAME, "it names no tool", call_id="call_1", raw="~~~", dialect="tilde_fence"),
        ui.Thinking(False, "call_1"),
        *STOP,
    ),
    "a call that is text after all": numbered(
        *START,
        ui.Thinking(True, "call_1"),
        ui.Thinking(False, "call_1"),
        ui.Warning(Code.INVALID_JSON, "no JSON", "~~~"),
        ui.Text("~~~"),
        *STOP,
    ),
    "a call that needs a yes": numbered(
        *START,
        *written_call(call(1)),
        ui.ApprovalRequested(call(1), 1.8e9),
        ui.Error(Code.TOOL_DENIED, "no", call_id="call_1", call=call(1)),
        *STOP,
    ),
    "two steps": numbered(*_TWO_STEPS),
    "an emulated decision": numbered(
        START[0], ui.Thinking(True), ui.Thinking(False), ui.Warning(Code.EMULATED, "asked"), *_TWO_STEPS[1:]
    ),
    "an error in the middle": numbered(
        *START,
        ui.Reasoning("Hm"),
        ui.Text("I was"),
        _FAULT,
        ui.UsageReport(ui.Usage(input=3)),
        *ended(reason="failed", finish=None),
    ),
    "an immediate error": numbered(START[0], _FAULT, ui.Done("failed", None, None, [])),
    "an error while a call is written": numbered(
        *START,
        ui.Thinking(True, "call_1"),
        ui.CallStart("call_1", "weather"),
        ui.CallDelta("call_1", "{"),
        ui.Error(
            Code.TRUNCATED, "the call was cut off", call_id="call_1", raw="~~~tool_call\n{", dialect="tilde_fence"
        ),
        ui.Thinking(False, "call_1"),
        _FAULT,
        *ended(reason="failed", finish=None),
    ),
    "cancelled in a text": numbered(*START, ui.Text("I was"), *ended(reason="cancelled", finish=None)),
    "cancelled at work": numbered(
        *START,
        *written_call(call(1)),
        ui.Executing(call(1)),
        ui.Error(Code.TOOL_CANCELLED, "cancelled", call_id="call_1", call=call(1)),
        *ended(reason="cancelled"),
    ),
    "cut by the provider": numbered(
        *START,
        ui.Text("and so"),
        *written_call(call(1)),
        ui.StepEnd(1, "length"),
        ui.Done("truncated", "length", "max_tokens", [call(1)]),
    ),
    "stopped by a limit": numbered(
        *START, *written_call(call(1)), ui.StepEnd(1, "stop"), ui.Done("stopped", "max_steps", "stop", [call(1)])
    ),
    "what front ends need not know": numbered(
        *START, ui.Warning(Code.BAD_FRAME, "odd"), ui.Raw({"odd": None}), ui.Text(""), ui.Text("ok"), *STOP
    ),
}
"""The runs by their names."""
