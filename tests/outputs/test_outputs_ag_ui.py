"""UI events as AG-UI events."""

from __future__ import annotations

from typing import Any

from streamtools import outputs
from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import (
    ApprovalRequested,
    Call,
    CallDelta,
    CallStart,
    Done,
    Error,
    Executed,
    Executing,
    Partial,
    Progress,
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
from tests.support.cases import together
from tests.support.front_ends import Part, check_ag_ui, read_body

WEATHER = ToolCall(id="c1", name="weather", arguments={"city": "Rome"}, dialect="native")
TIME = ToolCall(id="c2", name="time", arguments={}, dialect="native")
FINISHED = Done("finished", "stop", "stop", [])


def body(*events: UIEvent, version: str | None = "1.0", **ids: Any) -> list[Part]:
    """Check all events of a run and return them."""
    encoder = outputs.ag_ui(protocol_version=version, **ids)
    told = read_body(b"".join(map(encoder.encode, events)) + encoder.close(), done=False)
    check_ag_ui(told, current=version is not None)
    return told


def inside(*events: UIEvent, **given: Any) -> list[Part]:
    """Return the events between STEP_STARTED and STEP_FINISHED."""
    told = body(Start("r"), StepStart(1), *events, StepEnd(1, "stop"), FINISHED, **given)
    assert {"type": "STEP_STARTED", "stepName": "step-1"} == told[1]
    assert {"type": "STEP_FINISHED", "stepName": "step-1"} == told[-2]
    return told[2:-2]


def test_a_run_has_the_ids_of_its_request() -> None:
    """Otherwise it has its own. It always declares its version."""
    asked = body(Start("r"), FINISHED, thread_id="t-1", run_id="r-1")
    started: Part = {"type": "RUN_STARTED", "threadId": "t-1", "runId": "r-1", "protocolVersion": "1.0"}
    assert started == asked[0]
    assert ("t-1", "r-1") == (asked[-1]["threadId"], asked[-1]["runId"])
    assert started | {"threadId": "r", "runId": "r"} == body(Start("r"), FINISHED)[0]
    assert "run" == body(Text("late"), FINISHED)[0]["runId"]


def test_a_continued_run_has_other_messages() -> None:
    """CopilotKit reuses the run id after an approval, but message ids differ."""
    said = [each for run in ("a", "b") for each in body(Start(run), StepStart(1), Text("Hi"), FINISHED, run_id="r-1")]
    ids = {each["messageId"] for each in said if each["type"] == "TEXT_MESSAGE_START"}
    assert {"a-1", "b-1"} == ids


def test_text_and_reasoning_are_messages() -> None:
    """Each block is a message whose id starts with the run id. No empty one is sent."""
    assert [
        {"type": "REASONING_START", "messageId": "r-1"},
        {"type": "REASONING_MESSAGE_START", "messageId": "r-1", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r-1", "delta": "Hm"},
        {"type": "REASONING_MESSAGE_END", "messageId": "r-1"},
        {"type": "REASONING_END", "messageId": "r-1"},
        {"type": "TEXT_MESSAGE_START", "messageId": "r-2", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "r-2", "delta": "He"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "r-2", "delta": "y"},
        {"type": "TEXT_MESSAGE_END", "messageId": "r-2"},
    ] == inside(Reasoning("Hm", signature="s"), Text(""), Text("He"), Text("y"))


@together(("code", "name"), [(Code.OWNER_LOST, "reconnecting"), (Code.FAILED_OVER, "failed-over")])
def test_another_process_or_model_is_reported_inside_a_text(code: Code, name: str) -> None:
    """The text continues after it."""
    notice = {"type": "CUSTOM", "name": name, "value": {"message": "lost"}}
    told = inside(Text("It "), Warning(code, "lost"), Text("rains."))
    assert notice == told.pop(2)
    assert inside(Text("It "), Text("rains.")) == told


def test_a_call_has_parts_from_its_name_to_its_result() -> None:
    """The text before it ends, and is the parent message of the call."""
    result = '{"degrees":31}'
    assert [
        {"type": "TEXT_MESSAGE_START", "messageId": "r-1", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "r-1", "delta": "Let me see."},
        {"type": "TEXT_MESSAGE_END", "messageId": "r-1"},
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "weather", "parentMessageId": "r-1"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"city":'},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '"Rome"}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {"type": "CUSTOM", "name": "tool-progress", "value": {"toolCallId": "c1", "progress": 50}},
        {"type": "TOOL_CALL_RESULT", "messageId": "r-2", "toolCallId": "c1", "content": result, "role": "tool"},
    ] == inside(
        *(Text("Let me see."), Thinking(True, "c1"), CallStart("c1", "weather"), CallDelta("c1", '{"city":')),
        *(CallDelta("c1", '"Rome"}'), Call(WEATHER), Executing(WEATHER), Progress("c1", 50)),
        Executed(WEATHER, {"degrees": 31}, None, 0.1),
    )


def test_the_calls_of_one_turn_belong_to_one_message() -> None:
    """Also without text before them. The next step has its own message."""
    told = body(
        *(Start("r"), StepStart(1), Call(WEATHER), Call(TIME), Text("and"), StepEnd(1, "tool_calls")),
        *(StepStart(2), CallStart("c3", "weather"), Error(Code.INVALID_JSON, "no", "c3"), StepEnd(2, "stop")),
        Done("finished", "tool_calls", None, [WEATHER, TIME]),
    )
    first, second, third = (each["parentMessageId"] for each in told if each["type"] == "TOOL_CALL_START")
    assert first == second
    assert third not in (first, *(each["messageId"] for each in told if each["type"] == "TEXT_MESSAGE_START"))


def test_an_error_of_a_call_is_its_result() -> None:
    """The protocol has no error. A malformed call has its text as arguments."""
    assert [
        {"type": "TOOL_CALL_START", "toolCallId": "c9", "toolCallName": "unknown", "parentMessageId": "r-1"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c9", "delta": '{"$malformed":"{"}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c9"},
        {"type": "TOOL_CALL_RESULT", "messageId": "r-2", "toolCallId": "c9", "content": "not JSON", "role": "tool"},
    ] == inside(Error(Code.INVALID_JSON, "not JSON", "c9", raw="{"))
    assert "{}" == inside(CallStart("c1", "weather"), Error(Code.INVALID_JSON, "not JSON", "c1"))[1]["delta"]
    types = [each["type"] for each in inside(Error(Code.SUPERSEDED, "no", "c1", WEATHER))]
    assert ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"] == types
    assert "no" == inside(Call(WEATHER), Error(Code.TOOL_FAILED, "no", "c1", WEATHER))[-1]["content"]


def test_calls_for_the_front_end_are_listed() -> None:
    """A reader of 1.0 gets their names; an earlier one finds calls without results."""
    done = Done("finished", "tool_calls", None, [WEATHER])
    run = Start("r"), StepStart(1), Call(WEATHER), StepEnd(1, "tool_calls"), done
    assert {"type": "success", "pendingToolCallIds": ["c1"]} == body(*run)[-1]["outcome"]
    result = {"reason": "finished", "finishReason": "tool_calls"}
    expected = {"type": "RUN_FINISHED", "threadId": "r", "runId": "r", "result": result}
    assert expected == body(*run, version=None)[-1]


def test_calls_that_wait_for_approval_interrupt_the_run() -> None:
    """The outcome has the id of the call in all versions."""
    done = Done("waiting", "tool_calls", None, [WEATHER, TIME], client=["c1"])
    asked = ApprovalRequested(WEATHER), ApprovalRequested(TIME)  # the first was approved in an earlier run
    run = Start("r"), StepStart(1), Call(WEATHER), *asked, StepEnd(1, "tool_calls"), done
    interrupts = [{"id": "c2", "reason": "tool_approval", "toolCallId": "c2"}]
    for version in ("1.0", None):
        assert {"type": "interrupt", "interrupts": interrupts} == body(*run, version=version)[-1]["outcome"]


def test_calls_in_the_messages_are_not_sent_again() -> None:
    """A run that resumes another sends only their results."""
    encoder = outputs.ag_ui(known_calls=["c1"])
    events: list[UIEvent] = [Start("r"), Call(WEATHER), Executing(WEATHER), Executed(WEATHER, 31, None, 0), FINISHED]
    told = read_body(b"".join(map(encoder.encode, events)), done=False)
    assert ["RUN_STARTED", "TOOL_CALL_RESULT", "RUN_FINISHED"] == [each["type"] for each in told]


def test_tokens_are_sent_at_the_end() -> None:
    """For all steps, to readers of 1.0, also with an error."""
    steps = UsageReport(Usage(input=10, output=2, cache_read=4)), UsageReport(Usage(input=1, output=1, reasoning=1))
    failed = Error(Code.UPSTREAM_ERROR, "no"), Done("failed", "error", None, [])
    total = [{"inputTokens": 11, "outputTokens": 3, "cachedInputTokens": 4, "reasoningTokens": 1}]
    assert total == body(Start("r"), *steps, FINISHED)[-1]["usage"]
    assert total == body(Start("r"), *steps, *failed)[-1]["usage"]
    assert "usage" not in body(Start("r"), *steps, FINISHED, version=None)[-1]
    assert "usage" not in body(Start("r"), UsageReport(Usage()), FINISHED)[-1]


def test_a_run_that_failed_ends_with_its_error_alone() -> None:
    """Everything is closed before it, and nothing follows."""
    told = body(
        *(Start("r"), StepStart(1), Text("a"), Error(Code.UPSTREAM_ERROR, "The provider is overloaded.")),
        *(StepEnd(1, None), Done("failed", "error", None, [])),
    )
    assert [
        {"type": "TEXT_MESSAGE_END", "messageId": "r-1"},
        {"type": "STEP_FINISHED", "stepName": "step-1"},
        {"type": "RUN_ERROR", "message": "The provider is overloaded.", "code": "upstream_error"},
    ] == told[-3:]


def test_a_growing_value_is_sent_in_custom_events() -> None:
    """The parts of a call's arguments have the id of the call."""
    custom = [part["value"] for part in inside(Partial(["a"], None, True), Partial([], {}, call_id="c"))[-2:]]
    assert custom == [
        {"path": ["a"], "value": None, "complete": True},
        {"toolCallId": "c", "path": [], "value": {}, "complete": False},
    ]


def test_a_body_that_breaks_off_is_an_error() -> None:
    """Otherwise the client would take it for complete."""
    told = body(Start("r"), StepStart(1), Executing(WEATHER), Text("a"), Warning(Code.NEAR_MISS, "w"))
    types = [each["type"] for each in told[-4:]]
    assert ["TEXT_MESSAGE_END", "TOOL_CALL_RESULT", "STEP_FINISHED", "RUN_ERROR"] == types
    assert "stream_interrupted" == told[-1]["code"]
