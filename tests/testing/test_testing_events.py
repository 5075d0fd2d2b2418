"""`assert_events` and `read_events`: which events match, and what a failure shows."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from streamtools import ToolCall, coalesce, events, outputs
from streamtools.calls import new_call_id
from streamtools.errors import Code
from streamtools.events import (
    UI_EVENTS,
    Call,
    CallStart,
    Done,
    Error,
    Event,
    Executed,
    Reasoning,
    Start,
    StepEnd,
    StepStart,
    Text,
    UIEvent,
    Usage,
    UsageReport,
    Warning,
)
from streamtools.recording import shipped
from streamtools.recording.event_replay import replay
from streamtools.testing import assert_events, read_events
from streamtools.testing.expectations import Expected
from tests.support.cases import together
from tests.support.loops import other_loop_deep

__all__ = ["other_loop_deep"]  # a fixture

CALL = ToolCall(id="call_x", name="add", arguments={"a": 1, "b": [1, 2]}, dialect="hash_marker", raw="###:{…}")

RUN: list[UIEvent] = [
    Start("run_x", seq=1),
    StepStart(1, seq=2),
    *(Text(each, seq=3) for each in "Hello"),
    Call(CALL, seq=4),
    Executed(CALL, 3, None, 0.25, seq=5),
    Done("finished", "stop", None, [], seq=6),
]


@together(
    "expected",
    [
        [Start, StepStart, Text, Call, Executed, Done],
        [Start, StepStart, Text | Reasoning, ..., Done],
        [...],
        [..., ..., Text, ...],
        [Start("run_1"), StepStart(1), Text("Hello"), ..., Done("finished", "stop", None, [])],
        [..., Call(ToolCall(id=ANY, name="add", arguments={"a": 1, "b": ANY}, dialect=ANY)), ...],
        [..., {"type": "call", "call": {"name": "add", "arguments": {"a": 1, "b": [1, ANY]}}}, ...],
        [..., Executed(ANY, 3, ANY, ANY), ...],
        [{"type": "start"}, ..., {"type": "done", "pending": [], "conversation_id": None}],
        [Start, ANY, Text(ANY), ..., Done],
        coalesce(RUN),
    ],
)
def test_what_is_said_counts_and_what_is_left_out_does_not(expected: list[Expected]) -> None:
    """Classes, events with fields left out, dicts, anything that is equal, and any number of events."""
    assert_events(RUN, expected)


def test_events_can_be_compared_as_they_came() -> None:
    """Without joining, each delta is an event and ids are those of the run."""
    assert_events(RUN, [Start("run_x"), {"seq": 2}, *[Text] * 5, ..., Done], coalesced=False)
    with pytest.raises(AssertionError):
        assert_events(RUN, [Start("run_x"), ..., Text("Hello"), ...], coalesced=False)


def told(came: list[UIEvent], expected: list[Expected]) -> str:
    """Return what a failure says below its first line."""
    with pytest.raises(AssertionError) as caught:
        assert_events(came, expected)
    first, _, rest = str(caught.value).partition("\n")
    assert first == "the events are not as expected: - expected, + actual"
    return rest


def test_a_difference_is_shown_line_by_line() -> None:
    """What is as expected stands unmarked, and two events of one kind say where they part."""
    short = [*RUN[:-3], StepEnd(1, "stop"), RUN[-1]]

    assert told(short, [Start, StepStart, Text("Help"), StepEnd, {"type": "done", "reason": "failed"}]) == (
        "  Start(run_id='run_1')\n"
        "  StepStart(step=1)\n"
        "- Text(text='Help')\n"
        "+ Text(text='Hello')\n"
        "    text: expected 'Help', actual 'Hello'\n"
        "  StepEnd(step=1, finish_reason='stop')\n"
        "- {'type': 'done', 'reason': 'failed'}\n"
        "+ Done(reason='finished', finish_reason='stop', raw_finish_reason=None, pending=[])\n"
        "    reason: expected 'failed', actual 'finished'"
    )


@pytest.mark.parametrize(
    ("call", "where"),
    [
        ({"name": "sub"}, "call.name: expected 'sub', actual 'add'"),
        ({"arguments": {"a": 1}}, "call.arguments.b: expected nothing, actual [1, 2]"),
        ({"arguments": {"a": 1, "b": [1], "c": 1}}, "call.arguments.b[1]: expected nothing, actual 2"),
        ({"arguments": {"a": 1, "b": [1, 3]}}, "call.arguments.b[1]: expected 3, actual 2"),
        ({"arguments": {"a": 1, "b": [1, 2, 3]}}, "call.arguments.b[2]: expected 3, actual nothing"),
        ({"arguments": {"a": 1, "b": [1, 2], "c": 1}}, "call.arguments.c: expected 1, actual nothing"),
        ({"colour": "red"}, "call.colour: expected 'red', actual nothing"),
    ],
)
def test_the_place_of_a_difference_is_named(call: dict[str, object], where: str) -> None:
    """However deep in an event it is."""
    assert where in told(RUN, [..., {"type": "call", "call": call}, ...])


def test_what_a_wildcard_stands_for_is_counted() -> None:
    """So that one sees where what was looked for might be."""
    assert told(RUN, [Start, ..., Warning]) == (
        "  Start(run_id='run_1')\n  ... [step-start, text, call, executed, done]\n- Warning"
    )
    assert told([], [..., Text("a")]) == "  ... [nothing]\n- Text(text='a')"


def test_events_that_are_too_many_and_too_few_are_marked() -> None:
    """An unexpected event is an addition, a missing one a removal."""
    assert "+ StepStart(step=1)" in told(RUN, [Start, Text, Call, Executed, Done]).splitlines()
    assert "- Reasoning" in told(RUN, [Start, StepStart, Reasoning, Text, Call, Executed, Done]).splitlines()


EVENTS: list[Event] = [
    *RUN,
    Error(Code.TRUNCATED, 'it\'s "cut"\n', call_id="1", raw="\x00\ud83d"),
    UsageReport(Usage(input=1, output=None)),
    CallStart(new_call_id(), "a"),
    Reasoning("…", signature="s"),
]


@together("event", EVENTS, ids=lambda event: event.type)
def test_the_repr_of_an_event_is_python(event: Event) -> None:
    """Evaluated where everything of `streamtools.events` is known, it is the event again: so snapshots can hold it."""
    assert event == eval(repr(event), vars(events).copy())


@pytest.mark.anyio
@pytest.mark.parametrize("name", shipped())
async def test_the_repr_of_every_shipped_run_is_python(name: str) -> None:
    """Of each event that a recording becomes."""
    came = coalesce(await replay(shipped()[name]))

    assert came == eval(repr(came), vars(events).copy())
    assert {type(event) for event in came} <= set(UI_EVENTS)


@pytest.mark.parametrize("framing", ["sse", "ndjson"])
@pytest.mark.parametrize("as_text", [True, False])
def test_the_native_forms_are_read_back(framing: str, as_text: bool) -> None:
    """What a backend sends in its own form, over either framing, becomes events again."""
    encoder = outputs.native(framing=framing)  # type: ignore[arg-type]  # one of the two
    body = b"".join(map(encoder.encode, RUN)) + encoder.close()

    assert_events(read_events(body.decode() if as_text else body), coalesce(RUN))


@together(
    ("body", "told"),
    [
        ('data: {"type":"red"}\n\n', """^not an event in the native format: {"type":"red"} \\(.*'red'"""),
        ('{"detail":[{"type":"missing"}]}', """native format: {"detail":\\[{"type":"missing"}\\]} \\("""),
        ('{"detail":"' + "x" * 300 + '"}', '^not an event in the native format: {"detail":"x{189}… \\('),
        ("data: [DONE]\n\n", r"^not an event in the native format: \[DONE\] \("),
        ("Internal Server Error", "^not an event in the native format: Internal Server Error$"),
        ("<html>" + "x" * 300, "^not an event in the native format: <html>x{194}…$"),
        (b"\xff", "^not an event in the native format: \ufffd \\("),
        ("[]", r"^not an event in the native format: \[\]$"),
    ],
)
def test_what_is_no_event_is_refused(body: str | bytes, told: str) -> None:
    """A body of something else is no empty list: its beginning is told, which says what went wrong."""
    with pytest.raises(ValueError, match=told):
        read_events(body)


def test_errors_that_a_wildcard_stands_for_are_told() -> None:
    """They are why what is expected is missing."""
    faults = [Error(Code.UPSTREAM_ERROR, "Not Found", status=404), Error(Code.TRUNCATED, "it broke off")]

    assert "... [start, error(upstream_error: Not Found, 404), error(truncated: it broke off)]" in told(
        [RUN[0], *faults], [..., Text("Hello")]
    )
