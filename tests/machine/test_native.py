"""Native calls: the events that a machine makes from the pieces of an adapter, as stories."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import Limits, ToolCall
from streamtools.errors import Code
from streamtools.events import (
    Call,
    Error,
    NativeToolCall,
    ProviderCompleted,
    SourceError,
    SourceEvent,
    SourceWarning,
    ToolCallDelta,
    ToolCallStart,
    Warning,
)
from streamtools.machine.native_calls import is_cut
from tests.machine.test_machine import driven, story
from tests.support.cases import together

CUT = ProviderCompleted(finish_reason="length")
ASKED = ProviderCompleted(finish_reason="tool_calls")
START = ToolCallStart("0", "x", "add")
WHOLE = NativeToolCall("add", {"a": 1}, "0", "x")

GOOD = ["thinking x", "x is add", "call x", "not thinking x"]
RUN = ["run x", "step 1 ends: tool_calls", "done finished: tool_calls (None)"]


def pieces(*texts: str, key: str = "0") -> list[SourceEvent]:
    return [ToolCallDelta(key, text) for text in texts]


def calls(*events: SourceEvent, **options: Any) -> list[ToolCall]:
    """Return the calls of a run."""
    return [event.call for event in driven(*events, **options).events if isinstance(event, Call)]


def error(*events: SourceEvent, **options: Any) -> Error:
    """Return the only error of a call in a run."""
    (found,) = [event for event in driven(*events, **options).events if isinstance(event, Error) and event.call_id]
    return found


# Events.


def test_a_call_in_pieces_runs_when_its_turn_is_complete() -> None:
    """Its name is reported immediately, and its arguments with `call_deltas`."""
    events = [START, *pieces('{"a"', ":1}"), NativeToolCall(key="0"), ASKED]

    assert ["step 1", "thinking x", "x is add", 'x has {"a"', "x has :1}", "call x", "not thinking x", *RUN] == story(
        *events, call_deltas=True
    )
    assert ["step 1", *GOOD, *RUN] == story(*events)
    assert [ToolCall(id="x", name="add", arguments={"a": 1}, dialect="native", provider_id="x")] == calls(*events)


def test_call_ids_are_unique_in_the_run() -> None:
    """Some providers number the calls of each turn from 1. The provider's id is kept too."""
    end = ProviderCompleted(finish_reason="tool_calls", ends_run=False)
    turn: list[SourceEvent] = [WHOLE, NativeToolCall("add", key="1", id="x"), end]

    assert [("x", "x"), ("x_2", "x"), ("x_3", "x"), ("x_4", "x")] == [
        (call.id, call.provider_id) for call in calls(*turn, *turn)
    ]


@pytest.mark.parametrize("id", [None, "", "i" * 201], ids=["none", "an empty one", "one of 201 characters"])
def test_a_call_without_a_usable_id_gets_one(id: str | None) -> None:
    assert ["c1"] == [call.id for call in calls(NativeToolCall("add", key="0", id=id), ASKED)]


# Arguments.

ARGUMENTS: dict[str, tuple[list[str], Any, dict[str, Any]]] = {
    "nothing at all": ([], None, {}),
    "an empty text": ([""], "", {}),
    "only in pieces": (['{"a":', "1}"], None, {"a": 1}),
    "only at the end, as text": ([], '{"a":1}', {"a": 1}),
    "only at the end, as an object": ([], {"a": 1}, {"a": 1}),
    "in both, alike": (['{"a":1}'], '{"a":1}', {"a": 1}),
    "in both, with other white space": (['{"a":1}'], '{"a": 1}', {"a": 1}),
    "in pieces, and empty at the end": (['{"a":1}'], "", {"a": 1}),
    "in pieces, and an object at the end": (['{"a":1}'], {"a": 1}, {"a": 1}),
}


@together(("told", "end", "expected"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_arrive_whole_or_in_pieces(told: list[str], end: Any, expected: dict[str, Any]) -> None:
    """There is no warning if both agree."""
    run = driven(START, *pieces(*told), NativeToolCall(key="0", arguments=end), ASKED)

    assert [expected] == [event.call.arguments for event in run.events if isinstance(event, Call)]
    assert not any(isinstance(event, Warning) for event in run.events)


def test_arguments_at_the_end_replace_different_pieces() -> None:
    """With a warning. An addition to the pieces is reported as a delta."""
    more = story(START, *pieces('{"a":'), NativeToolCall(key="0", arguments='{"a":1}'), ASKED, call_deltas=True)
    other = [START, *pieces('{"a":1}'), NativeToolCall(key="0", arguments={"a": 2}), ASKED]

    assert ['x has {"a":', "warning arguments_mismatch", "x has 1}", "call x"] == more[3:7]
    assert "warning arguments_mismatch" in story(*other)
    assert [{"a": 2}] == [call.arguments for call in calls(*other)]


DEEP: Any = []
for _ in range(5000):
    DEEP = [DEEP]

BAD: dict[str, tuple[list[SourceEvent], Code]] = {
    "no name": ([NativeToolCall(None, {}, "0")], Code.MISSING_TOOL_NAME),
    "a blank name": ([NativeToolCall(" ", {}, "0")], Code.MISSING_TOOL_NAME),
    "two names": ([START, NativeToolCall("sub", key="0")], Code.CONFLICTING_FIELDS),
    "a list": ([NativeToolCall("add", [1], "0")], Code.INVALID_ARGUMENTS),
    "a number": ([NativeToolCall("add", 0, "0")], Code.INVALID_ARGUMENTS),
    "an object written as text twice": ([NativeToolCall("add", '"{\\"a\\":1}"', "0")], Code.INVALID_ARGUMENTS),
    "no JSON": ([START, *pieces("{a}"), NativeToolCall(key="0")], Code.INVALID_ARGUMENTS),
    "a string left open": ([START, *pieces('{"a":"b'), NativeToolCall(key="0")], Code.TRUNCATED),
    "an object left open": ([START, *pieces('{"a":{}'), NativeToolCall(key="0")], Code.TRUNCATED),
    "not a number": ([NativeToolCall("add", {"a": float("nan")}, "0")], Code.NOT_A_NUMBER),
    "a key twice": ([NativeToolCall("add", '{"a":1,"a":2}', "0")], Code.DUPLICATE_KEY),
    "deep": ([NativeToolCall("add", '{"a":' + "[" * 70 + "]" * 70 + "}", "0")], Code.TOO_DEEP),
    "deeper than Python writes": ([NativeToolCall("add", {"a": DEEP}, "0")], Code.TOO_DEEP),
}


@together(("events", "code"), BAD.values(), ids=BAD)
def test_a_malformed_native_call_is_one_error(events: list[SourceEvent], code: Code) -> None:
    """Valid calls beside it are kept, and the run continues."""
    good = NativeToolCall("add", {"a": 1}, "good", "g")

    assert code == error(*events, good, ASKED).code
    assert ["g"] == [call.id for call in calls(*events, good, ASKED)]
    assert "run g" in story(*events, good, ASKED)


# Endings.

ENDS: dict[str, SourceEvent | None] = {
    "length": CUT,
    "a filter": ProviderCompleted(finish_reason="content_filter"),
    "an error": SourceError("no"),
    "none": None,
    "asked for tools": ASKED,
}


@together("end", ENDS.values(), ids=ENDS)
@together("text", ["", " ", "{", '{"a":', '{"a":"}', '{"a":1'])
def test_a_cut_call_is_truncated_and_does_not_run(text: str, end: SourceEvent | None) -> None:
    """However the turn ends."""
    events = [START, *pieces(text), *([end] if end else [])]

    assert Code.TRUNCATED == error(*events).code
    assert not any(line.startswith("run") for line in story(*events))


def test_a_call_around_a_lost_frame_does_not_run() -> None:
    hole = SourceWarning(Code.BAD_FRAME, "odd")

    assert Code.TRUNCATED == error(START, *pieces('{"a":'), hole, *pieces("1}"), NativeToolCall(key="0"), ASKED).code
    assert ["x"] == [call.id for call in calls(WHOLE, hole, ASKED)]


# Data after the end of a call, and calls that the provider runs.


def test_a_call_before_or_after_a_lost_frame_is_whole() -> None:
    """Its JSON object is closed, so no piece of it can be missing."""
    hole = SourceWarning(Code.BAD_FRAME, "?")
    behind = [ToolCallStart("1", "y", "add"), *pieces('{"a": 2}', key="1")]
    held = calls(START, *pieces('{"a": 1}'), hole, *behind, ASKED)

    assert [("x", {"a": 1}), ("y", {"a": 2})] == [(call.id, call.arguments) for call in held]
    for open_text in ('{"a": 1', '{"a": "}', "1", "", " "):
        assert Code.TRUNCATED == error(START, *pieces(open_text), hole, ASKED).code


def test_data_after_the_end_of_a_call_is_passed_on() -> None:
    events = [WHOLE, START, *pieces("{}"), WHOLE, ASKED]

    assert 3 == sum(line.startswith("raw ") for line in story(*events))
    assert [{"a": 1}] == [call.arguments for call in calls(*events)]


def test_a_call_that_the_provider_runs_is_passed_on() -> None:
    """A call that has begun ends as superseded. It does not run here."""
    own = NativeToolCall("search", {"q": 1}, "0", "s", provider_executed=True)

    assert not calls(own, ASKED)
    assert Code.SUPERSEDED == error(ToolCallStart("0", "s", "search"), own, ASKED).code


def test_a_call_without_an_answer_stays_pending() -> None:
    """It is reported, however the turn ends."""
    for execute in ("completed", "eager", "never"):
        told = story(NativeToolCall("add", key="0", id="x", answerable=False), ASKED, execute=execute)
        assert "call x" in told
        assert not any(line.startswith("run") for line in told)
        assert told[-1].endswith(", pending x")


def test_calls_without_a_key_are_complete_and_separate() -> None:
    events = [START, *pieces('{"a"'), *[NativeToolCall("f", {"b": 2}, id=id) for id in "yy"], *pieces(":1}")]

    assert [("y", {"b": 2}), ("y_2", {"b": 2}), ("x", {"a": 1})] == [
        (call.id, call.arguments) for call in calls(*events, NativeToolCall(key="0"), ASKED)
    ]


# The completed turn.

REPEATED: dict[str, tuple[list[SourceEvent], list[NativeToolCall], list[str]]] = {
    "by id": ([WHOLE], [NativeToolCall("add", {"a": 1}, "9", "x")], ["x"]),
    "by id, with other arguments": ([WHOLE], [NativeToolCall("add", {"a": 2}, "9", "x")], ["x"]),
    "by what it says": ([NativeToolCall("add", '{"a": 1}', "0")], [NativeToolCall("add", {"a": 1}, "0", "x")], ["c1"]),
    "by what it says, without an id": ([WHOLE], [NativeToolCall("add", '{"a":1}', "0")], ["x"]),
    "twice, and twice": (
        [NativeToolCall("f", key="0"), NativeToolCall("f", key="1")],
        [NativeToolCall("f", key="0")] * 2,
        ["c1", "c2"],
    ),
    "once, and twice": (
        [NativeToolCall("f", key="0")],
        [NativeToolCall("f", key="0"), NativeToolCall("f", key="1")],
        ["c1", "c2"],
    ),
    "only here": ([], [WHOLE], ["x"]),
    "open until here": ([START, *pieces('{"a":1}')], [WHOLE], ["x"]),
    "open, and another": ([ToolCallStart("0", "y", "add"), *pieces("{}")], [WHOLE], ["x", "y"]),
    "bad already": ([NativeToolCall("add", [], "0", "x")], [NativeToolCall("add", [], "0", "x")], []),
    "what is no JSON, by what it says": ([NativeToolCall("f", "{a", "0")], [NativeToolCall("f", "{a", "1")], []),
}


@together(("streamed", "told", "expected"), REPEATED.values(), ids=REPEATED)
def test_calls_of_the_completed_turn_are_matched(
    streamed: list[SourceEvent], told: list[NativeToolCall], expected: list[str]
) -> None:
    end = ProviderCompleted(finish_reason="tool_calls", tool_calls=told)

    assert expected == [call.id for call in calls(*streamed, end)]


# Limits.


def test_a_call_over_the_limit_is_reported_immediately() -> None:
    """The rest is counted and dropped."""
    events = [START, *pieces("123", "4567", "89"), NativeToolCall(key="0", arguments="123456789"), ASKED]
    driver = driven(*events, limits=Limits(call=5))

    assert ["thinking x", "x is add", "error x too_large", "not thinking x", "warning skipped"] == driver.story[2:7]
    assert [4] == [event.count for event in driver.events if isinstance(event, Warning)]
    assert "123" == error(*events, limits=Limits(call=5)).raw


def test_a_rejected_call_is_not_announced_again() -> None:
    events = [*pieces("123456"), START, ASKED]

    assert ["thinking c1", "error c1 too_large", "not thinking c1", "warning skipped"] == story(
        *events, limits=Limits(call=5)
    )[1:5]


def test_each_call_over_the_limit_is_an_error() -> None:
    events = [NativeToolCall("f", key=str(n), id=f"i{n}") for n in range(3)]
    told = story(*events, ASKED, limits=Limits(calls=1))

    assert "call i0" in told
    assert ["error i1 too_many_calls", "error i2 too_many_calls"] == [line for line in told if "error" in line]


# Incomplete JSON.


@together(
    ("text", "expected"),
    [
        *(("{}", False), ("", False), ("{", True), ('{"a":"}', True), ('{"a":"\\', True), ('{"a":"\\"}', True)),
        *(('{"a":"{["}', False), ("[{}", True), ("]", False)),
    ],
)
def test_open_brackets_and_strings_show_a_cut(text: str, expected: bool) -> None:
    """Brackets in strings do not count."""
    assert expected == is_cut(text)
