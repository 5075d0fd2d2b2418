"""Events: JSON, pydantic, the published schema, and coalescing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ToolCall, coalesce
from streamtools.errors import Code
from streamtools.events import (
    SOURCE_EVENTS,
    UI_EVENTS,
    ApprovalRequested,
    Call,
    CallDelta,
    CallStart,
    ChainCompleted,
    Done,
    Error,
    Event,
    Executed,
    Executing,
    FollowUp,
    Markup,
    Matched,
    NativeToolCall,
    Partial,
    Progress,
    ProviderCompleted,
    Raw,
    Reasoning,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    SourceWarning,
    Start,
    StepEnd,
    StepStart,
    StepSuperseded,
    Text,
    TextDelta,
    Thinking,
    ToolCallDelta,
    ToolCallStart,
    UIEvent,
    Usage,
    UsageReport,
    Warning,
    json_schema,
    read_source_event,
    read_ui_event,
)
from tests.support.cases import together

MADE = ToolCall(
    id="call_1",
    name="f",
    arguments={"a": [1, None, {"b": "é"}]},
    dialect="d",
    raw="x\n",
    repaired=True,
    provider_id="i",
)
PLAIN = ToolCall(id="call_2", name="g", arguments={}, dialect="d")

UI: list[UIEvent] = [
    Start("run_1", seq=1),
    StepStart(1, seq=2),
    StepEnd(1, "tool_calls", seq=3),
    StepEnd(2, None),
    Text('é😀\u2028 "\n', seq=4),
    Reasoning("hm", seq=5),
    Thinking(True, "call_1", seq=6),
    Thinking(False),
    CallStart("call_1", "f", seq=7),
    CallDelta("call_1", '{"a":', seq=8),
    Call(MADE, seq=9),
    Call(PLAIN),
    ApprovalRequested(MADE, 12.5, seq=10),
    ApprovalRequested(MADE),
    Executing(MADE, seq=11),
    Progress("call_1", {"done": 0.5}, seq=12),
    Executed(MADE, {"message": "ok", "n": [1]}, "ok", 0.25, seq=13),
    Executed(MADE, None, None, 0.0),
    Error(Code.TOOL_FAILED, "no", call_id="call_1", call=MADE, raw="x", status=500, seq=14),
    Error(Code.UPSTREAM_ERROR, "no"),
    Warning(Code.SKIPPED, "much", raw="x", count=7, seq=15),
    Warning(Code.NEAR_MISS, "close"),
    FollowUp([{"role": "user", "content": "x"}], seq=16),
    StepSuperseded(2, seq=17),
    Partial(["rows", 0], {"a": 1}, True, seq=17),
    UsageReport(Usage(input=1, output=2), seq=17, model="m"),
    Raw({"x": [1, "y"]}, seq=18),
    Done("stopped", "max_steps", "stop", [MADE, PLAIN], "conversation", seq=19),
    Done("finished", "stop", None, []),
    Markup("<think>", seq=20),
    Matched("email", "replace", 5, 9, 7, seq=21),
    Matched("citations", "mark", 0, 3, fields={"numbers": [1]}),
]

SOURCE: list[SourceEvent] = [
    TextDelta("é\n"),
    ReasoningDelta("hm", signature="s"),
    ReasoningDelta("hm"),
    ToolCallStart("0", "i", "f"),
    ToolCallStart("0"),
    ToolCallDelta("0", "{"),
    NativeToolCall("f", {"a": 1}, "0", "i", True),
    NativeToolCall(None, key="0"),
    SourceUsage(Usage(total=3, cache_read=1, cache_write=2, reasoning=4)),
    ProviderCompleted("text", [NativeToolCall("f", "{}", "0")], "stop", "end_turn", Usage(input=1), False),
    ProviderCompleted(),
    ChainCompleted("conversation"),
    SourceError("no", Code.STREAM_INTERRUPTED, 503, "socket"),
    SourceError("no"),
    SourceWarning(Code.BAD_FRAME, "what", raw="x", count=1),
    SourceRaw([1, {"a": None}]),
]


def test_every_type_is_sampled() -> None:
    """The samples cover the whole vocabulary, and no two types of a union share a name."""
    for samples, types in ((UI, UI_EVENTS), (SOURCE, SOURCE_EVENTS)):
        assert {type(event) for event in samples} == set(types)
        assert len(types) == len({each.type for each in types})
    assert all("seq" in each.__struct_fields__ for each in UI_EVENTS)


@together("event", UI, ids=repr)
def test_ui_events_survive_json(event: UIEvent) -> None:
    """One line of JSON with a type, which reads back as the same event."""
    line = event.to_json()

    assert "\n" not in line
    assert event.type == json.loads(line)["type"]
    assert event == read_ui_event(line) == read_ui_event(line.encode())
    assert type(event) is type(read_ui_event(line))


@together("event", SOURCE, ids=repr)
def test_source_events_survive_json(event: SourceEvent) -> None:
    """So that they can be recorded."""
    line = event.to_json()

    assert event.type == json.loads(line)["type"]
    assert event == read_source_event(line)


def test_unset_fields_are_not_written() -> None:
    """Events stay small."""
    assert {"type": "text", "text": "a"} == json.loads(Text("a").to_json())
    assert {"type": "text", "text": "a", "seq": 3} == json.loads(Text("a", seq=3).to_json())
    assert {"type": "thinking", "active": False} == json.loads(Thinking(False).to_json())
    assert {"type": "error", "code": "too_deep", "message": "m"} == json.loads(Error(Code.TOO_DEEP, "m").to_json())


@pytest.mark.parametrize(
    "line", ["", "{", "{}", "[]", '{"type":"nothing"}', '{"type":"text"}', '{"type":"text","text":1}']
)
def test_other_json_is_refused(line: str) -> None:
    """Reading raises a ValueError."""
    for read in (read_ui_event, read_source_event):
        with pytest.raises(ValueError):  # noqa: PT011  # the message is msgspec's
            read(line)


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (Text("a\ud83db"), ["text"]),
        (Call(msgspec.structs.replace(PLAIN, raw="a\ud83db")), ["call", "raw"]),
        (Executed(PLAIN, {"x": ["a\ud83db"]}, None, 0), ["result", "x", 0]),
        (Raw({"a\ud83db": {}}), ["data"]),
        (TextDelta("a\ud83db"), ["text"]),
    ],
    ids=["text", "a call", "deep in a result", "a key", "a source event"],
)
def test_lone_surrogates_are_replaced(event: Event, path: Sequence[Any]) -> None:
    """A lone surrogate becomes U+FFFD. Complete pairs stay."""
    found = json.loads(event.to_json())
    for key in path:
        found = found[key]

    assert "a\ufffdb" in found
    assert "😀\ufffd" == json.loads(Text("\ud83d\ude00\ud83d").to_json())["text"]


@pytest.mark.parametrize("union", [UIEvent, SourceEvent], ids=["ui", "source"])
def test_the_schema_of_a_union_is_published(union: Any) -> None:
    """One self-contained schema, with one alternative for each type."""
    schema = json_schema(union)
    types = [each["properties"]["type"]["enum"] for each in schema["anyOf"]]

    assert [[each.type] for each in get_args(union)] == types
    assert "$ref" not in json.dumps(schema)
    assert all("type" in each["required"] for each in schema["anyOf"])
    assert json_schema() == json_schema(UIEvent)


def test_usage_adds_up() -> None:
    """None means that the provider reported nothing."""
    assert Usage(input=3, output=1, cache_read=5) == Usage(input=1, output=1) + Usage(input=2, cache_read=5)
    assert Usage() == Usage() + Usage()


# coalesce


@together(
    ("events", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([Text("a", seq=1), Text("b", seq=2)], [Text("ab")], id="texts"),
        pytest.param([Reasoning("a"), Reasoning("b")], [Reasoning("ab")], id="reasoning"),
        pytest.param([Markup("a"), Markup("b")], [Markup("ab")], id="markup"),
        pytest.param([Text(""), Reasoning(""), Text("")], [], id="empty ones go"),
        pytest.param(
            [Text("a"), Reasoning("b"), Text("c")], [Text("a"), Reasoning("b"), Text("c")], id="not neighbours"
        ),
        pytest.param(
            [CallDelta("x", "a"), CallDelta("x", "b"), CallDelta("y", "c")],
            [CallDelta("call_1", "ab"), CallDelta("call_2", "c")],
            id="pieces of one call",
        ),
        pytest.param(
            [Thinking(True, "z"), CallStart("z", "f"), Thinking(True, "y"), Thinking(False, "z"), Thinking(False)],
            [
                Thinking(True, "call_1"),
                CallStart("call_1", "f"),
                Thinking(True, "call_2"),
                Thinking(False, "call_1"),
                Thinking(False),
            ],
            id="ids by their first appearance",
        ),
        pytest.param([Start("abc", seq=4)], [Start("run_1")], id="the id of a run"),
        pytest.param(
            [Executed(PLAIN, 1, None, 0.7, seq=3), ApprovalRequested(MADE, 99.0)],
            [
                Executed(msgspec.structs.replace(PLAIN, id="call_1"), 1, None, 0),
                ApprovalRequested(msgspec.structs.replace(MADE, id="call_2"), None),
            ],
            id="times",
        ),
        pytest.param(
            [Done("stopped", None, None, [PLAIN, MADE], seq=9)],
            [
                Done(
                    "stopped",
                    None,
                    None,
                    [msgspec.structs.replace(PLAIN, id="call_1"), msgspec.structs.replace(MADE, id="call_2")],
                )
            ],
            id="ids of pending calls",
        ),
    ],
)
def test_coalesce_removes_the_differences_of_two_runs(events: list[UIEvent], expected: list[UIEvent]) -> None:
    """Adjacent events are joined, and differences between two runs of one stream are removed."""
    assert expected == coalesce(events)


def test_events_of_concurrent_tools_are_sorted_by_call() -> None:
    """Two interleavings of two tools are equal. Another order of one tool's events is not."""
    one = [Executing(MADE), Progress("call_1", 1), Progress("call_1", 2), Executed(MADE, 1, None, 0.5)]
    two = [Executing(PLAIN), Error(Code.TOOL_FAILED, "no", call_id="call_2", call=PLAIN)]
    first, second = Text("before"), Text("after")
    interleaved = [one[0], two[0], one[1], two[1], one[2], one[3]]

    assert coalesce([first, *one, *two, second]) == coalesce([first, *interleaved, second])
    assert coalesce([first, *one, *two, second]) != coalesce([first, one[0], one[2], one[1], one[3], *two, second])
    assert coalesce([*one, first, *two]) != coalesce([*one, *two, first])


pieces = st.one_of(
    st.builds(Text, st.sampled_from("ab"), st.integers(0, 9)),
    st.builds(Reasoning, st.sampled_from("ab"), st.integers(0, 9)),
    st.builds(CallDelta, st.sampled_from(["x", "y"]), st.sampled_from("ab"), st.integers(0, 9)),
    st.builds(Thinking, st.booleans(), st.sampled_from(["x", "y", None])),
    st.sampled_from(UI),
)


@given(st.lists(pieces, max_size=12))
def test_coalescing_again_changes_nothing(events: list[UIEvent]) -> None:
    """It is a normal form."""
    assert coalesce(events) == coalesce(coalesce(events))


# seq
