"""UI events as parts of the AI SDK's UI message stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
    FollowUp,
    Markup,
    Partial,
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
from tests.support.front_ends import Part, check_ai_sdk, read_body

WEATHER = ToolCall(id="c1", name="weather", arguments={"city": "Rome"}, dialect="native")
TIME = ToolCall(id="c2", name="time", arguments={}, dialect="native")
FINISHED = Done("finished", "stop", "stop", [])


def parts(*events: UIEvent, **options: Any) -> list[Part]:
    """Return the parts between `start-step` and `finish-step`."""
    told = body(Start("r"), StepStart(1), *events, StepEnd(1, "stop"), FINISHED, **options)
    assert [{"type": "start"}, {"type": "start-step"}] == told[:2]
    assert [{"type": "finish-step"}, {"type": "finish", "finishReason": "stop"}] == told[-2:]
    return told[2:-2]


def body(*events: UIEvent, **options: Any) -> list[Part]:
    """Check all parts of a run and return them."""
    encoder = outputs.ai_sdk(**options)
    told = read_body(b"".join(map(encoder.encode, events)) + encoder.close(), done=True)
    check_ai_sdk(told, target=options.get("target", 7))
    return told


def input_error(id: str, name: str, input: str, text: str, **more: Any) -> Part:
    """Return the part of a call that cannot be read, or that was cut off."""
    return {"type": "tool-input-error", "toolCallId": id, "toolName": name, "input": input, "errorText": text, **more}


def test_the_headers_name_the_protocol() -> None:
    encoder = outputs.ai_sdk()
    assert "v1" == encoder.headers["x-vercel-ai-ui-message-stream"]
    assert not encoder.resumable


def test_blocks_of_text_and_reasoning_start_and_end() -> None:
    """Deltas of one channel are one block. Ids are unique, and no block is empty."""
    assert [
        {"type": "reasoning-start", "id": "reasoning-1"},
        {"type": "reasoning-delta", "id": "reasoning-1", "delta": "Hm"},
        {"type": "reasoning-end", "id": "reasoning-1"},
        {"type": "text-start", "id": "text-2"},
        {"type": "text-delta", "id": "text-2", "delta": "He"},
        {"type": "text-delta", "id": "text-2", "delta": "y\u2028\n"},
        {"type": "text-end", "id": "text-2"},
    ] == parts(Text(""), Reasoning("Hm"), Reasoning(""), Text("He"), Text("y\u2028\n"))


def test_white_space_alone_is_no_block() -> None:
    """It waits for a visible character, and is dropped without one."""
    told = parts(
        *(Text("\n"), Call(WEATHER), Text("\n"), Text("\n "), Reasoning(" "), Text("a"), Reasoning("\n"), Text(" ")),
        *(Text("b"), Executed(WEATHER, 1, None, 0), Call(TIME), Text(" "), Executed(TIME, 1, None, 0)),
    )
    assert ["\n\n a", " ", "b"] == [part["delta"] for part in told if part["type"] == "text-delta"]
    assert not [part for part in told if part["type"].startswith("reasoning")]


def test_a_call_has_parts_from_its_name_to_its_result() -> None:
    """The part starts with the name, and the arguments follow as they are written."""
    called = {"toolCallId": "c1", "toolName": "weather", "dynamic": True}
    assert [
        {"type": "tool-input-start", **called},
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '{"city":"Ro'},
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": 'me"}'},
        {"type": "tool-input-available", **called, "input": {"city": "Rome"}},
        {"type": "tool-output-available", "toolCallId": "c1", "output": {"degrees": 31, "rain": None}, "dynamic": True},
    ] == parts(
        *(Thinking(True, "c1"), CallStart("c1", "weather"), CallDelta("c1", '{"city":"Ro'), CallDelta("c1", "")),
        *(CallDelta("c1", 'me"}'), Call(WEATHER), Thinking(False, "c1"), Executing(WEATHER)),
        Executed(WEATHER, {"degrees": 31, "rain": None}, None, 0.1),
    )


@pytest.mark.parametrize(("code", "name"), [(Code.OWNER_LOST, "reconnecting"), (Code.FAILED_OVER, "failed-over")])
def test_another_process_or_model_is_reported_inside_a_text(code: Code, name: str) -> None:
    """The text continues after it."""
    notice = {"type": f"data-{name}", "data": {"message": "lost"}, "transient": True}
    told = parts(Text("It "), Warning(code, "lost"), Text("rains."))
    assert notice == told.pop(2)
    assert ["text-start", "text-delta", "text-delta", "text-end"] == [part["type"] for part in told]


@pytest.mark.parametrize(
    ("dynamic", "told"),
    [
        *((True, [True, True]), (False, [None, None]), (["weather"], [True, None])),
        *(("time", [None, True]), ((), [None, None])),
    ],
)
def test_tools_with_types_get_typed_parts(dynamic: Any, told: list[bool | None]) -> None:
    """`dynamic` names the calls that are `dynamic-tool` parts; others are `tool-NAME`."""
    calls = parts(Call(WEATHER), Executed(WEATHER, 1, None, 0), Call(TIME), Executed(TIME, 1, None, 0), dynamic=dynamic)
    assert told == [part.get("dynamic") for part in calls if part["type"] == "tool-input-available"]


def test_progress_is_a_data_part() -> None:
    """Clients do not keep it in the message."""
    run = Executing(WEATHER), Progress("c1", 50), Executed(WEATHER, 31, None, 0)
    data = {"toolCallId": "c1", "progress": 50}
    assert {"type": "data-tool-progress", "id": "c1", "data": data, "transient": True} == parts(*run)[2]
    assert [] == parts(Progress("c9", 50)), "of a call that nobody knows"


@pytest.mark.parametrize("code", ["unknown_tool", "tool_input", "tool_denied", "tool_cancelled", "superseded"])
def test_a_complete_call_that_does_not_run_is_an_output_error(code: str) -> None:
    """The model reads the same message."""
    told = parts(Call(WEATHER), Error(Code(code), "no, because", "c1", WEATHER))
    assert {"type": "tool-output-error", "toolCallId": "c1", "errorText": "no, because", "dynamic": True} == told[-1]


def test_a_malformed_call_is_an_input_error() -> None:
    """It has its name, if known, and its text."""
    assert [
        {"type": "tool-input-start", "toolCallId": "c1", "toolName": "weather"},
        input_error("c1", "weather", '{"city', "not JSON"),
        input_error("c2", "unknown", "", "no name", dynamic=True),
    ] == parts(
        *(CallStart("c1", "weather"), Error(Code.INVALID_JSON, "not JSON", "c1", raw='{"city')),
        *(Thinking(True, "c2"), Error(Code.MISSING_TOOL_NAME, "no name", "c2")),
        dynamic=False,
    )


def test_events_for_developers_are_not_sent() -> None:
    """A client does not know such parts."""
    assert [] == parts(Warning(Code.NEAR_MISS, "w"), FollowUp([]), Raw({"a": 1}), Markup("<x>"), Thinking(True))


def test_a_growing_value_is_sent_in_pieces() -> None:
    """The growth is for `onData` alone, because the message has the text."""
    added: list[UIEvent] = [Text('{"a'), Partial([], {}), Text('": null'), Partial(["a"], None, True)]
    data = [part for part in parts(*added) if part["type"] == "data-partial"]
    assert [each["data"]["path"] for each in data] == [[], ["a"]]
    grown = {"path": ["a"], "value": None, "complete": True}
    assert data[1] == {"type": "data-partial", "data": grown, "transient": True}


def test_a_call_that_waits_for_approval_is_requested() -> None:
    """The request has the id of its call. Version 5 gets only the call."""
    run = ApprovalRequested(TIME, 9.5), Executed(TIME, 1, None, 0)
    assert {"type": "tool-approval-request", "approvalId": "c2", "toolCallId": "c2"} == parts(*run)[2]
    types = [part["type"] for part in parts(*run, target=5)]
    assert ["tool-input-start", "tool-input-available", "tool-output-available"] == types


def test_a_denied_call_is_sent_as_denied() -> None:
    """It is denied if the version knows that. Version 7 also gets the answer of another client."""
    denied = ApprovalRequested(TIME, 9.5), Error(Code.TOOL_DENIED, "the call was denied: too late", "c2", TIME)
    answer = {"type": "tool-approval-response", "approvalId": "c2", "approved": False, "reason": "too late"}
    assert [answer, {"type": "tool-output-denied", "toolCallId": "c2"}] == parts(*denied)[3:]
    assert [{"type": "tool-output-denied", "toolCallId": "c2"}] == parts(*denied, target=6)[3:]
    assert ["tool-output-error"] == [part["type"] for part in parts(*denied, target=5)[2:]]


@pytest.mark.parametrize(
    ("raw", "kind", "url"),
    [
        ({"inlineData": {"mimeType": "image/webp", "data": "aGk="}}, "image/webp", "data:image/webp;base64,aGk="),
        ({"images": ["/9j/4A=="]}, "image/jpeg", "data:image/jpeg;base64,/9j/4A=="),
        (
            {"choices": [{"delta": {"images": [{"image_url": {"url": "data:image/png;base64,aGk="}}, 5]}}]},
            *("image/png", "data:image/png;base64,aGk="),
        ),
        ({"type": "image_generation_call", "result": "aGk="}, "image/png", "data:image/png;base64,aGk="),
        (
            {"type": "model_output", "content": [{"type": "image", "data": "aGk=", "mime_type": "image/gif"}]},
            *("image/gif", "data:image/gif;base64,aGk="),
        ),
        ({"image": {"format": "png", "source": {"bytes": "aGk="}}}, "image/png", "data:image/png;base64,aGk="),
        ({"type": "file", "url": "https://a.test/b", "mediaType": "a/b"}, "a/b", "https://a.test/b"),
    ],
)
def test_a_generated_file_is_sent(raw: Any, kind: str, url: str) -> None:
    """It is between the texts before and after it, for every provider."""
    told = parts(Text("a"), Raw(raw), Text("b"))
    assert {"type": "file", "url": url, "mediaType": kind} == told[3]
    assert ["text-1", "text-2"] == [part["id"] for part in told if part["type"] == "text-end"]


def test_a_file_with_an_unsafe_url_is_dropped() -> None:
    """A file is data or on a server."""
    scripts = [{"type": "file", "url": "javascript:alert(1)", "mediaType": "image/png"}]
    images = [{"images": [{"image_url": {"url": "http://a.test/b"}}]}, {"type": "image_generation_call", "result": ""}]
    assert [] == parts(*[Raw(each) for each in (*scripts, *images)])


@pytest.mark.parametrize("known", [["c1", "c2"], "c1"])
def test_known_calls_are_not_sent_again(known: Any) -> None:
    """A run that resumes another sends only their ends; unknown calls are sent completely."""
    encoder = outputs.ai_sdk(known_calls=known)
    run = Start("r"), Call(WEATHER), Executing(WEATHER), Executed(WEATHER, 31, None, 0)
    events: list[UIEvent] = [*run, Error(Code.TOOL_DENIED, "no", "c2", TIME), FINISHED]
    told = read_body(b"".join(map(encoder.encode, events)), done=True)

    denied: Part = {"type": "tool-output-denied", "toolCallId": "c2"}
    if "c2" not in known:
        denied |= {"type": "tool-input-error", "toolName": "time", "input": {}, "errorText": "no", "dynamic": True}
    assert [
        {"type": "start"},
        {"type": "tool-output-available", "toolCallId": "c1", "output": 31, "dynamic": True},
        denied,
        {"type": "finish", "finishReason": "stop"},
    ] == told


@pytest.mark.parametrize("known", [["c1"], []])
def test_a_step_of_known_calls_is_not_started(known: list[str]) -> None:
    """It is not a step for the client until something new is sent."""
    encoder = outputs.ai_sdk(known_calls=known)
    events: list[UIEvent] = [
        *(Start("r"), StepStart(1), Call(WEATHER), Executed(WEATHER, 31, None, 0), StepEnd(1, "tool_calls")),
        *(StepStart(2), Text("Warm."), CallStart("c2", "time"), StepEnd(2, "tool_calls")),
        *(StepStart(3), CallStart("c3", "time"), StepEnd(3, "tool_calls")),
        *(StepStart(4), Error(Code.MISSING_TOOL_NAME, "no name", "c4"), StepEnd(4, "tool_calls"), FINISHED),
    ]
    told = [part["type"] for part in read_body(b"".join(map(encoder.encode, events)), done=True)]

    assert ["start-step", "finish-step"] * (3 if known else 4) == [each for each in told if each.endswith("-step")]
    assert told.index("tool-output-available") < told.index("start-step") or not known


def test_a_message_of_several_runs_is_sent_whole() -> None:
    """A client that reconnects to the last run gets the parts of all of them, and the tokens of the last."""
    pending, used = Done("finished", None, None, [WEATHER]), UsageReport(Usage(input=1))
    first: list[UIEvent] = [
        *(Start("r"), StepStart(1), Text("Well."), Call(WEATHER), ApprovalRequested(WEATHER, 9.5), Call(TIME)),
        *(Executing(TIME), Executed(TIME, 1, None, 0), used, StepEnd(1, "tool_calls"), pending),
    ]
    second: list[UIEvent] = [
        *(Start("s"), StepStart(1), Call(WEATHER), Executing(WEATHER), Executed(WEATHER, 31, None, 0)),
        *(StepEnd(1, "tool_calls"), StepStart(2), Text("Warm."), CallStart("c3", "time"), used),
        *(StepEnd(2, "tool_calls"), Done("stopped", "max_steps", None, [])),
    ]
    third: list[UIEvent] = [Start("t"), StepStart(1), Text("So."), used, StepEnd(1, "stop"), FINISHED]

    def write(events: list[UIEvent], **options: Any) -> list[Part]:
        encoder = outputs.ai_sdk(message_id="m", **options)
        return read_body(b"".join(map(encoder.encode, events)), done=True)

    told = [*write(first)[:-1], *write(second, known_calls=["c1", "c2"])[1:-1]]
    told += write(third, known_calls=["c1", "c2", "c3"])[1:]
    whole = write(third, before=[*first, *second])
    check_ai_sdk(whole)
    shown = [part for part in whole if part["type"] != "tool-approval-response"]  # which the client gave itself
    assert [{**part, "id": ""} for part in told] == [{**part, "id": ""} for part in shown]


def test_tokens_are_metadata_of_the_message() -> None:
    """For all steps, in the names of the version."""
    first = Usage(input=10, output=2, total=12, cache_read=4, reasoning=1)
    told = parts(UsageReport(first), UsageReport(Usage(input=1, output=1, total=2)))
    total = {"inputTokens": 11, "outputTokens": 3, "totalTokens": 14}
    details = {"inputTokenDetails": {"cacheReadTokens": 4}, "outputTokenDetails": {"reasoningTokens": 1}}
    assert {"type": "message-metadata", "messageMetadata": {"usage": total | details}} == told[-1]
    (old,) = parts(UsageReport(first), target=5)
    counts = {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12, "cachedInputTokens": 4, "reasoningTokens": 1}
    assert {"usage": counts} == old["messageMetadata"]
    assert {"usage": {"inputTokens": 1}} == parts(UsageReport(Usage(input=1)))[0]["messageMetadata"]


def test_the_start_has_the_id_and_the_metadata_of_the_message() -> None:
    """Without metadata, the field is omitted, because the client refuses null."""
    started = {"type": "start", "messageId": "msg_1"}
    assert started == body(Start("r"), FINISHED, message_id="msg_1")[0]
    told = body(Start("r"), message_id="msg_1", metadata={"model": "m"})
    assert started | {"messageMetadata": {"model": "m"}} == told[0]


@pytest.mark.parametrize(
    ("done", "target", "reason"),
    [
        (Done("finished", "stop", None, []), 7, "stop"),
        (Done("finished", "tool_calls", None, []), 7, "tool-calls"),
        (Done("finished", "stop", None, [WEATHER]), 7, "tool-calls"),
        (Done("truncated", "length", None, []), 7, "length"),
        (Done("truncated", "content_filter", None, []), 6, "content-filter"),
        *((Done("finished", finish, None, []), 7, "other") for finish in ("pause", "other", None, "anything new")),
    ],
)
def test_each_ending_has_its_reason(done: Done, target: int, reason: str) -> None:
    """The reasons of the AI SDK; others are `other`."""
    assert {"type": "finish", "finishReason": reason} == body(Start("r"), done, target=target)[-1]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        *(("truncated", "Not run: the answer was cut off."), ("stopped", "Not run: the run was stopped.")),
        *(("cancelled", "Not run: the run was cancelled."), ("failed", "Not run: the run failed.")),
    ],
)
def test_calls_that_will_not_run_end(reason: Any, words: str) -> None:
    """Providers refuse a history with unanswered calls."""
    told = body(Start("r"), StepStart(1), Call(WEATHER), CallStart("c2", "time"), Done(reason, None, None, [WEATHER]))
    assert [
        {"type": "tool-output-error", "toolCallId": "c1", "errorText": words, "dynamic": True},
        input_error("c2", "time", "", words, dynamic=True),
    ] == [part for part in told if "errorText" in part and part["type"] != "error"]


def test_a_run_that_failed_ends_with_its_error() -> None:
    """Everything ends before it, because clients read no further."""
    told = body(
        Start("r"), StepStart(1), Text("a"), Error(Code.UPSTREAM_ERROR, "The provider is overloaded."),
        StepEnd(1, None), Done("failed", "error", None, []),
    )  # fmt: skip

    assert [
        {"type": "text-end", "id": "text-1"},
        {"type": "finish-step"},
        {"type": "error", "errorText": "The provider is overloaded."},
        {"type": "finish", "finishReason": "error"},
    ] == told[-4:]


def test_a_run_that_was_cancelled_is_aborted() -> None:
    """There is no `finish`."""
    told = body(Start("r"), StepStart(1), Text("a"), StepEnd(1, "cancelled"), Done("cancelled", "cancelled", None, []))
    assert [{"type": "finish-step"}, {"type": "abort", "reason": "cancelled"}] == told[-2:]


@pytest.mark.parametrize("known", [["c1"], []])
@pytest.mark.parametrize("reason", ["cancelled", "stopped", "truncated"])
def test_a_run_that_ended_early_does_not_continue(reason: Any, known: list[str]) -> None:
    """If the last step had only answered calls, `useChat` would send the next request. So the last step is empty."""
    encoder = outputs.ai_sdk(known_calls=known)
    run: list[UIEvent] = [StepStart(1), Call(WEATHER), Executed(WEATHER, 31, None, 0), StepEnd(1, None)]
    sent = b"".join(map(encoder.encode, [*run, Done(reason, None, None, [])]))
    told = [part["type"] for part in read_body(sent, done=True)]
    assert ["start-step", "finish-step"] == told[-3:-1]


def test_a_body_that_breaks_off_ends_its_parts() -> None:
    """Text, calls and the step end before the error."""
    told = body(Start("r"), StepStart(1), Executing(WEATHER), Text("a"))
    unanswered = "The run ended without a result of this call."
    assert [
        {"type": "text-end", "id": "text-1"},
        {"type": "tool-output-error", "toolCallId": "c1", "errorText": unanswered, "dynamic": True},
        {"type": "finish-step"},
        {"type": "error", "errorText": "The stream ended before the answer did."},
        {"type": "finish", "finishReason": "error"},
    ] == told[-5:]


@pytest.mark.parametrize("options", [{"target": 4}, {"target": "7"}])
def test_invalid_options_are_named(options: dict[str, Any]) -> None:
    """They raise when the encoder is made."""
    with pytest.raises(ValueError, match=json.dumps(next(iter(options.values()))).strip('"')):
        outputs.ai_sdk(**options)
