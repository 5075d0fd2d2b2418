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
from streamtools import events as kinds
from streamtools.errors import Code
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

UI: list[kinds.UIEvent] = [
    kinds.Start("run_1", seq=1),
    kinds.StepStart(1, seq=2),
    kinds.StepEnd(1, "tool_calls", seq=3),
    kinds.StepEnd(2, None),
    kinds.Text('é😀\u2028 "\n', seq=4),
    kinds.Reasoning("hm", seq=5),
    kinds.Thinking(True, "call_1", seq=6),
    kinds.Thinking(False),
    kinds.CallStart("call_1", "f", seq=7),
    kinds.CallDelta("call_1", '{"a":', seq=8),
    kinds.Call(MADE, seq=9),
    kinds.Call(PLAIN),
    kinds.ApprovalRequested(MADE, 12.5, seq=10),
    kinds.ApprovalRequested(MADE),
    kinds.Executing(MADE, seq=11),
    kinds.Progress("call_1", {"done": 0.5}, seq=12),
    kinds.Executed(MADE, {"message": "ok", "n": [1]}, "ok", 0.25, seq=13),
    kinds.Executed(MADE, None, None, 0.0),
    kinds.Error(Code.TOOL_FAILED, "no", call_id="call_1", call=MADE, raw="x", status=500, seq=14),
    kinds.Error(Code.UPSTREAM_ERROR, "no"),
    kinds.Warning(Code.SKIPPED, "much", raw="x", count=7, seq=15),
    kinds.Warning(Code.NEAR_MISS, "close"),
    kinds.FollowUp([{"role": "user", "content": "x"}], seq=16),
    kinds.StepSuperseded(2, seq=17),
    kinds.Partial(["rows", 0], {"a": 1}, True, seq=17),
    kinds.UsageReport(kinds.Usage(input=1, output=2), seq=17, model="m"),
    kinds.Raw({"x": [1, "y"]}, seq=18),
    kinds.Done("stopped", "max_steps", "stop", [MADE, PLAIN], "conversation", seq=19),
    kinds.Done("finished", "stop", None, []),
    kinds.Markup("<think>", seq=20),
    kinds.Matched("email", "replace", 5, 9, 7, seq=21),
    kinds.Matched("citations", "mark", 0, 3, fields={"numbers": [1]}),
]

SOURCE: list[kinds.SourceEvent] = [
    kinds.TextDelta("é\n"),
    kinds.ReasoningDelta("hm", signature="s"),
    kinds.ReasoningDelta("hm"),
    kinds.ToolCallStart("0", "i", "f"),
    kinds.ToolCallStart("0"),
    kinds.ToolCallDelta("0", "{"),
    kinds.NativeToolCall("f", {"a": 1}, "0", "i", True),
    kinds.NativeToolCall(None, key="0"),
    kinds.SourceUsage(kinds.Usage(total=3, cache_read=1, cache_write=2, reasoning=4)),
    kinds.ProviderCompleted(
        "text", [kinds.NativeToolCall("f", "{}", "0")], "stop", "end_turn", kinds.Usage(input=1), False
    ),
    kinds.ProviderCompleted(),
    kinds.ChainCompleted("conversation"),
    kinds.SourceError("no", Code.STREAM_INTERRUPTED, 503, "socket"),
    kinds.SourceError("no"),
    kinds.SourceWarning(Code.BAD_FRAME, "what", raw="x", count=1),
    kinds.SourceRaw([1, {"a": None}]),
]


def test_every_type_is_sampled() -> None:
    """The samples cover the whole vocabulary, and no two types of a union share a name."""
    for samples, types in ((UI, kinds.UI_EVENTS), (SOURCE, kinds.SOURCE_EVENTS)):
        assert {type(event) for event in samples} == set(types)
        assert len(types) == len({each.type for each in types})
    assert all("seq" in each.__struct_fields__ for each in kinds.UI_EVENTS)


@together("event", UI, ids=repr)
def test_ui_events_survive_json(event: kinds.UIEvent) -> None:
    """One line of JSON with a type, which reads back as the same event."""
    line = event.to_json()

    assert "\n" not in line
    assert event.type == json.loads(line)["type"]
    assert event == kinds.read_ui_event(line) == kinds.read_ui_event(line.encode())
    assert type(event) is type(kinds.read_ui_event(line))


@together("event", SOURCE, ids=repr)
def test_source_events_survive_json(event: kinds.SourceEvent) -> None:
    """So that they can be recorded."""
    line = event.to_json()

    assert event.type == json.loads(line)["type"]
    assert event == kinds.read_source_event(line)


def test_unset_fields_are_not_written() -> None:
    """Events stay small."""
    assert {"type": "text", "text": "a"} == json.loads(kinds.Text("a").to_json())
    assert {"type": "text", "text": "a", "seq": 3} == json.loads(kinds.Text("a", seq=3).to_json())
    assert {"type": "thinking", "active": False} == json.loads(kinds.Thinking(False).to_json())
    assert {"type": "error", "code": "too_deep", "message": "m"} == json.loads(
        kinds.Error(Code.TOO_DEEP, "m").to_json()
    )


@pytest.mark.parametrize(
    "line", ["", "{", "{}", "[]", '{"type":"nothing"}', '{"type":"text"}', '{"type":"text","text":1}']
)
def test_other_json_is_refused(line: str) -> None:
    """Reading raises a ValueError."""
    for read in (kinds.read_ui_event, kinds.read_source_event):
        with pytest.raises(ValueError):  # noqa: PT011  # the message is msgspec's
            read(line)


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (kinds.Text("a\ud83db"), ["text"]),
        (kinds.Call(msgspec.structs.replace(PLAIN, raw="a\ud83db")), ["call", "raw"]),
        (kinds.Executed(PLAIN, {"x": ["a\ud83db"]}, None, 0), ["result", "x", 0]),
        (kinds.Raw({"a\ud83db": {}}), ["data"]),
        (kinds.TextDelta("a\ud83db"), ["text"]),
    ],
    ids=["text", "a call", "deep in a result", "a key", "a source event"],
)
def test_lone_surrogates_are_replaced(event: kinds.Event, path: Sequence[Any]) -> None:
    """A lone surrogate becomes U+FFFD. Complete pairs stay."""
    found = json.loads(event.to_json())
    for key in path:
        found = found[key]

    assert "a\ufffdb" in found
    assert "😀\ufffd" == json.loads(kinds.Text("\ud83d\ude00\ud83d").to_json())["text"]


@pytest.mark.parametrize("union", [kinds.UIEvent, kinds.SourceEvent], ids=["ui", "source"])
def test_the_schema_of_a_union_is_published(union: Any) -> None:
    """One self-contained schema, with one alternative for each type."""
    schema = kinds.json_schema(union)
    types = [each["properties"]["type"]["enum"] for each in schema["anyOf"]]

    assert [[each.type] for each in get_args(union)] == types
    assert "$ref" not in json.dumps(schema)
    assert all("type" in each["required"] for each in schema["anyOf"])
    assert kinds.json_schema() == kinds.json_schema(kinds.UIEvent)


def test_usage_adds_up() -> None:
    """None means that the provider reported nothing."""
    assert kinds.Usage(input=3, output=1, cache_read=5) == kinds.Usage(input=1, output=1) + kinds.Usage(
        input=2, cache_read=5
    )
    assert kinds.Usage() == kinds.Usage() + kinds.Usage()


# coalesce


@together(
    ("events", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([kinds.Text("a", seq=1), kinds.Text("b", seq=2)], [kinds.Text("ab")], id="texts"),
        pytest.param([kinds.Reasoning("a"), kinds.Reasoning("b")], [kinds.Reasoning("ab")], id="reasoning"),
        pytest.param([kinds.Markup("a"), kinds.Markup("b")], [kinds.Markup("ab")], id="markup"),
        pytest.param([kinds.Text(""), kinds.Reasoning(""), kinds.Text("")], [], id="empty ones go"),
        pytest.param(
            [kinds.Text("a"), kinds.Reasoning("b"), kinds.Text("c")],
            [kinds.Text("a"), kinds.Reasoning("b"), kinds.Text("c")],
            id="not neighbours",
        ),
        pytest.param(
            [kinds.CallDelta("x", "a"), kinds.CallDelta("x", "b"), kinds.CallDelta("y", "c")],
            [kinds.CallDelta("call_1", "ab"), kinds.CallDelta("call_2", "c")],
            id="pieces of one call",
        ),
        pytest.param(
            [
                *(kinds.Thinking(True, "z"), kinds.CallStart("z", "f"), kinds.Thinking(True, "y")),
                *(kinds.Thinking(False, "z"), kinds.Thinking(False)),
            ],
            [
                *(kinds.Thinking(True, "call_1"), kinds.CallStart("call_1", "f"), kinds.Thinking(True, "call_2")),
                *(kinds.Thinking(False, "call_1"), kinds.Thinking(False)),
            ],
            id="ids by their first appearance",
        ),
        pytest.param([kinds.Start("abc", seq=4)], [kinds.Start("run_1")], id="the id of a run"),
        pytest.param(
            [kinds.Executed(PLAIN, 1, None, 0.7, seq=3), kinds.ApprovalRequested(MADE, 99.0)],
            [
                kinds.Executed(msgspec.structs.replace(PLAIN, id="call_1"), 1, None, 0),
                kinds.ApprovalRequested(msgspec.structs.replace(MADE, id="call_2"), None),
            ],
            id="times",
        ),
        pytest.param(
            [kinds.Done("stopped", None, None, [PLAIN, MADE], seq=9)],
            [
                kinds.Done(
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
def test_coalesce_removes_the_differences_of_two_runs(
    events: list[kinds.UIEvent], expected: list[kinds.UIEvent]
) -> None:
    """Adjacent events are joined, and differences between two runs of one stream are removed."""
    assert expected == coalesce(events)


def test_events_of_concurrent_tools_are_sorted_by_call() -> None:
    """Two interleavings of two tools are equal. Another order of one tool's events is not."""
    one = [
        kinds.Executing(MADE),
        kinds.Progress("call_1", 1),
        kinds.Progress("call_1", 2),
        kinds.Executed(MADE, 1, None, 0.5),
    ]
    two = [kinds.Executing(PLAIN), kinds.Error(Code.TOOL_FAILED, "no", call_id="call_2", call=PLAIN)]
    first, second = kinds.Text("before"), kinds.Text("after")
    interleaved = [one[0], two[0], one[1], two[1], one[2], one[3]]

    assert coalesce([first, *one, *two, second]) == coalesce([first, *interleaved, second])
    assert coalesce([first, *one, *two, second]) != coalesce([first, one[0], one[2], one[1], one[3], *two, second])
    assert coalesce([*one, first, *two]) != coalesce([*one, *two, first])


pieces = st.one_of(
    st.builds(kinds.Text, st.sampled_from("ab"), st.integers(0, 9)),
    st.builds(kinds.Reasoning, st.sampled_from("ab"), st.integers(0, 9)),
    st.builds(kinds.CallDelta, st.sampled_from(["x", "y"]), st.sampled_from("ab"), st.integers(0, 9)),
    st.builds(kinds.Thinking, st.booleans(), st.sampled_from(["x", "y", None])),
    st.sampled_from(UI),
)


@given(st.lists(pieces, max_size=12))
def test_coalescing_again_changes_nothing(events: list[kinds.UIEvent]) -> None:
    """It is a normal form."""
    assert coalesce(events) == coalesce(coalesce(events))


# seq
