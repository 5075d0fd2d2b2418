"""The functions `assert_events` and `read_events`."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from streamtools import ToolCall, coalesce, events, outputs
from streamtools import events as ui
from streamtools.calls import new_call_id
from streamtools.errors import Code
from streamtools.recording import shipped
from streamtools.recording.event_replay import replay
from streamtools.testing import assert_events, read_events
from streamtools.testing.expectations import Expected
from tests.support.cases import together

CALL = ToolCall(id="call_x", name="add", arguments={"a": 1, "b": [1, 2]}, dialect="hash_marker", raw="###:{…}")

RUN: list[ui.UIEvent] = [
    ui.Start("run_x", seq=1),
    ui.StepStart(1, seq=2),
    *(ui.Text(each, seq=3) for each in "Hello"),
    ui.Call(CALL, seq=4),
    ui.Executed(CALL, 3, None, 0.25, seq=5),
    ui.Done("finished", "stop", None, [], seq=6),
]


@together(
    "expected",
    [
        [ui.Start, ui.StepStart, ui.Text, ui.Call, ui.Executed, ui.Done],
        [ui.Start, ui.StepStart, ui.Text | ui.Reasoning, ..., ui.Done],
        [...],
        [..., ..., ui.Text, ...],
        [ui.Start("run_1"), ui.StepStart(1), ui.Text("Hello"), ..., ui.Done("finished", "stop", None, [])],
        [..., ui.Call(ToolCall(id=ANY, name="add", arguments={"a": 1, "b": ANY}, dialect=ANY)), ...],
        [..., {"type": "call", "call": {"name": "add", "arguments": {"a": 1, "b": [1, ANY]}}}, ...],
        [..., ui.Executed(ANY, 3, ANY, ANY), ...],
        [{"type": "start"}, ..., {"type": "done", "pending": [], "conversation_id": None}],
        [ui.Start, ANY, ui.Text(ANY), ..., ui.Done],
        coalesce(RUN),
    ],
)
def test_only_stated_fields_are_compared(expected: list[Expected]) -> None:
    assert_events(RUN, expected)


def test_events_can_be_compared_without_coalescing() -> None:
    """Each delta is an event, and ids are those of the run."""
    assert_events(RUN, [ui.Start("run_x"), {"seq": 2}, *[ui.Text] * 5, ..., ui.Done], coalesced=False)
    with pytest.raises(AssertionError):
        assert_events(RUN, [ui.Start("run_x"), ..., ui.Text("Hello"), ...], coalesced=False)


def message_of(came: list[ui.UIEvent], expected: list[Expected]) -> str:
    """Return the lines of the error message after the first line."""
    with pytest.raises(AssertionError) as caught:
        assert_events(came, expected)
    first, _, rest = str(caught.value).partition("\n")
    assert first == "the events are not as expected: - expected, + actual"
    return rest


def test_a_difference_is_shown_line_by_line() -> None:
    """For two events of the same type, the first difference is shown."""
    short = [*RUN[:-3], ui.StepEnd(1, "stop"), RUN[-1]]

    assert message_of(
        short, [ui.Start, ui.StepStart, ui.Text("Help"), ui.StepEnd, {"type": "done", "reason": "failed"}]
    ) == (
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
def test_the_path_of_a_difference_is_shown(call: dict[str, object], where: str) -> None:
    assert where in message_of(RUN, [..., {"type": "call", "call": call}, ...])


def test_the_events_of_a_gap_are_counted() -> None:
    assert message_of(RUN, [ui.Start, ..., ui.Warning]) == (
        "  Start(run_id='run_1')\n  ... [step-start, text, call, executed]\n- Warning\n"
        "+ Done(reason='finished', finish_reason='stop', raw_finish_reason=None, pending=[])"
    )
    assert message_of([], [..., ui.Text("a")]) == "  ... [nothing]\n- Text(text='a')"


def test_unexpected_and_missing_events_are_marked() -> None:
    assert "+ StepStart(step=1)" in message_of(RUN, [ui.Start, ui.Text, ui.Call, ui.Executed, ui.Done]).splitlines()
    assert (
        "- Reasoning"
        in message_of(RUN, [ui.Start, ui.StepStart, ui.Reasoning, ui.Text, ui.Call, ui.Executed, ui.Done]).splitlines()
    )


EVENTS: list[ui.Event] = [
    *RUN,
    ui.Error(Code.TRUNCATED, 'it\'s "cut"\n', call_id="1", raw="\x00\ud83d"),
    ui.UsageReport(ui.Usage(input=1, output=None)),
    ui.CallStart(new_call_id(), "a"),
    ui.Reasoning("…", signature="s"),
]


@together("event", EVENTS, ids=lambda event: event.type)
def test_the_repr_of_an_event_is_python(event: ui.Event) -> None:
    """The repr can be evaluated, so snapshots can contain it."""
    assert event == eval(repr(event), vars(events).copy())


@pytest.mark.trio_deep
@pytest.mark.parametrize("name", shipped())
async def test_the_repr_of_every_shipped_run_is_python(name: str) -> None:
    came = coalesce(await replay(shipped()[name]))
    assert came == eval(repr(came), vars(events).copy())
    assert {type(event) for event in came} <= set(ui.UI_EVENTS)


@pytest.mark.parametrize("framing", ["sse", "ndjson"])
@pytest.mark.parametrize("as_text", [True, False])
def test_read_events_reads_both_native_formats(framing: str, as_text: bool) -> None:
    encoder = outputs.native(framing=framing)  # type: ignore[arg-type]  # one of the two
    body = b"".join(map(encoder.encode, RUN)) + encoder.close()
    assert_events(read_events(body.decode() if as_text else body), coalesce(RUN))


@together(
    ("body", "message_of"),
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
def test_read_events_refuses_other_data(body: str | bytes, message_of: str) -> None:
    """The message contains the beginning of the data."""
    with pytest.raises(ValueError, match=message_of):
        read_events(body)


def test_the_errors_in_a_gap_are_shown() -> None:
    """They may explain why other events are missing."""
    faults = [ui.Error(Code.UPSTREAM_ERROR, "Not Found", status=404), ui.Error(Code.TRUNCATED, "it broke off")]
    message = message_of([RUN[0], *faults], [..., ui.Text("Hello")])
    assert message.startswith("  ... [start, error(upstream_error: Not Found, 404)]\n- Text(text='Hello')\n+ Error(")
    assert "it broke off" in message
