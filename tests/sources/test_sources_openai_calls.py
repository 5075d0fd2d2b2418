"""Native calls in chat completion chunks: each row of the table of `chat_calls.py`, and each shape met in the wild.

A row is what `delta.tool_calls` holds in one chunk after the other, and the events up to the finish reason.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import events as kinds
from streamtools.limits import Limits
from streamtools.sources.wire_formats.chat_calls import ChatCalls
from tests.sources.adapters import forwarded, started
from tests.support.cases import together
from tests.support.chat_chunks import DONE, chunk, read, sse, stop
from tests.support.cuts import usual_cuts

Start, Delta, End = kinds.ToolCallStart, kinds.ToolCallDelta, kinds.NativeToolCall
A, B = '{"a":1}', '{"b":2}'


def piece(name: Any = None, arguments: Any = None, id: Any = None, *, index: Any = None, **more: Any) -> dict[str, Any]:
    """Return an entry of `tool_calls` without the fields that are None."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fields = {"index": index, "id": id, "function": function or None} | more
    return {key: value for key, value in fields.items() if value is not None}


def stream(lists: list[Any], finish: str | None = "tool_calls") -> bytes:
    """Return a chunk for each list of calls, and then the end."""
    return b"".join(chunk({"tool_calls": calls}) for calls in lists) + (chunk(finish=finish) if finish else b"") + DONE


def one(*pieces: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return a list for each piece."""
    return [[each] for each in pieces]


WHOLE: list[kinds.SourceEvent] = [*started("0", "x", "f", A), End("f", key="0", id="x")]
ENDS: list[kinds.SourceEvent] = [End("f", key="0", id="x"), End("g", key="1", id="y")]
BOTH: list[kinds.SourceEvent] = [*started("0", "x", "f", A), *started("1", "y", "g", B), *ENDS]
NAMELESS = started("0", None, None, A)

ROWS: dict[str, tuple[list[Any], list[kinds.SourceEvent]]] = {
    # OpenAI: id, type and name come first, and then the arguments by index alone.
    "as OpenAI has it": (
        one(
            piece("f", "", "x", index=0, type="function"),
            piece(None, '{"a"', index=0),
            piece(None, ":1}", index=0),
            piece("g", "", "y", index=1, type="function"),
            piece(None, B, index=1),
        ),
        [*started("0", "x", "f", '{"a"', ":1}"), *started("1", "y", "g", B), *ENDS],
    ),
    # xAI: a whole call in one delta.
    "whole": (one(piece("f", A, "x", index=0)), WHOLE),
    "several in one chunk": ([[piece("f", A, "x", index=0), piece("g", B, "y", index=1)]], BOTH),
    # The six shapes of parallel calls that melt into one in other clients.
    "same index, new id": (one(piece("f", A, "x", index=0), piece("g", B, "y", index=0)), BOTH),
    "id with the first piece only": (
        one(piece(None, None, "x", index=0), piece("f", "", index=0), piece(None, A, index=0)),
        [Start("0", "x"), *WHOLE],
    ),
    # Google's endpoint sends no index.
    "index missing": (one(piece("f", A, "x"), piece("g", B, "y")), BOTH),
    "index null or no integer": (
        [[{"index": None} | piece("f", A, "x"), piece("g", B, "y", index="1"), piece("h", "{}", "z", index=True)]],
        [*BOTH[:4], *started("2", "z", "h", "{}"), *ENDS, End("h", key="2", id="z")],
    ),
    "interleaved": (
        one(
            piece("f", "", "x", index=0),
            piece("g", "", "y", index=1),
            piece(None, "{", index=1),
            piece(None, "{", index=0),
            piece(None, "}", index=1),
            piece(None, "}", index=0),
        ),
        [Start("0", "x", "f"), *started("1", "y", "g", "{"), Delta("0", "{"), Delta("1", "}"), Delta("0", "}"), *ENDS],
    ),
    "announced once more": (
        one(piece("f", "", "x", index=0), piece("f", "{", "x", index=0), piece("f", "}", "x", index=0)),
        [*started("0", "x", "f", "{", "}"), End("f", key="0", id="x")],
    ),
    "all at index 0": (
        one(
            piece("f", "", "x", index=0), piece(None, A, index=0), piece("g", "", "y", index=0), piece(None, B, index=0)
        ),
        [*started("0", "x", "f", A), *started("1", "y", "g", B), *ENDS],
    ),
    # The slot.
    "a negative index is 0": (one(piece("f", "", "x", index=-1), piece(None, A, index=0)), WHOLE),
    "a known id without an index": (
        one(piece("f", "{", "x", index=3), piece("g", B, "y", index=4), piece(None, "}", "x")),
        [*started("0", "x", "f", "{"), *started("1", "y", "g", B), Delta("0", "}"), *ENDS],
    ),
    "an index with the first piece only": (one(piece("f", "", "x", index=0), piece(None, A)), WHOLE),
    "one id in two slots": (
        one(piece("f", A, "x", index=0), piece("f", A, "x", index=1)),
        [*WHOLE[:2], *started("1", "x", "f", A), WHOLE[2], End("f", key="1", id="x")],
    ),
    # An id.
    "a known id goes back to its call": (
        one(piece("f", "{", "x", index=0), piece("g", B, "y", index=0), piece(None, "}", "x", index=0)),
        [*started("0", "x", "f", "{"), *started("1", "y", "g", B), Delta("0", "}"), *ENDS],
    ),
    "a late id": (
        one(piece("f", "{", index=0), piece(None, "}", "x", index=0)),
        [*started("0", None, "f", "{"), *started("0", "x", "f", "}"), End("f", key="0", id="x")],
    ),
    "a late id with the name once more": (
        one(piece("f", "{", index=0), piece("f", "}", "x", index=0)),
        [*started("0", None, "f", "{"), *started("0", "x", "f", "}"), End("f", key="0", id="x")],
    ),
    "a late id for closed arguments": (
        one(piece("f", A, index=0), piece(None, None, "x", index=0)),
        [*started("0", None, "f", A), Start("0", "x", "f"), End("f", key="0", id="x")],
    ),
    "an id that names a tool after closed arguments": (
        one(piece("f", A, index=0), piece("g", B, "y", index=0)),
        [*started("0", None, "f", A), *started("1", "y", "g", B), End("f", key="0"), End("g", key="1", id="y")],
    ),
    "id and name after the arguments": (
        one(piece(None, A, index=0), piece("f", "", "x", index=0)),
        [*NAMELESS, Start("0", "x", "f"), End("f", key="0", id="x")],
    ),
    "no id at all": (
        one(piece("f", A, index=0), piece("g", B, index=1)),
        [*started("0", None, "f", A), *started("1", None, "g", B), End("f", key="0"), End("g", key="1")],
    ),
    "an id that is empty or no string": (
        one(piece("f", "", "", index=0), piece(None, A, 5, index=0)),
        [*started("0", None, "f", A), End("f", key="0")],
    ),
    # Neither an id nor a name.
    "arguments alone wait for a name": (one(piece(None, A, index=0)), [*NAMELESS, End(key="0")]),
    "a name after its arguments": (
        one(piece(None, "{", index=0), piece(None, "}", index=0), piece("f", index=0)),
        [*started("0", None, None, "{", "}"), Start("0", None, "f"), End("f", key="0")],
    ),
    # A name and no id.
    "the same name once more, with more of the arguments": (
        one(piece("f", "{", index=0), piece("f", "}", index=0), piece("f", "\n", index=0), piece("f", index=0)),
        [*started("0", None, "f", "{", "}", "\n"), End("f", key="0")],
    ),
    "the same name with other arguments": (
        one(piece("f", A), piece("f", B)),
        [*started("0", None, "f", A), *started("1", None, "f", B), End("f", key="0"), End("f", key="1")],
    ),
    "the same call once more at its end": (
        one(piece("f", '{"a"'), piece(None, ":1}"), piece("f", A), piece(None, A)),
        [*started("0", None, "f", '{"a"', ":1}"), End("f", key="0")],
    ),
    "the same call once more by its id": (one(*[piece("f", A, "x", index=0)] * 3), WHOLE),
    "two equal calls in one list": (
        [[piece("f", A), piece("f", A)]],
        [*started("0", None, "f", A), *started("1", None, "f", A), End("f", key="0"), End("f", key="1")],
    ),
    "another name after closed arguments": (
        one(piece("f", A, index=0), piece("g", "", index=0), piece(None, B, index=0)),
        [*started("0", None, "f", A), *started("1", None, "g", B), End("f", key="0"), End("g", key="1")],
    ),
    "another name while the arguments are open": (
        one(piece("f", "{", index=0), piece("g", "}", index=0)),
        [*started("0", None, "f", "{"), *started("0", None, "g", "}"), End("f", key="0")],
    ),
    "another name by a known id": (
        one(piece("f", A, "x", index=0), piece("g", "", "x", index=0)),
        [*WHOLE[:2], Start("0", None, "g"), WHOLE[2]],
    ),
    # GLM through Mistral's API: the second delta has an empty name.
    "an empty name": (one(piece("f", "", "x", index=0), piece("", A, index=0)), WHOLE),
    # Nothing known.
    "empty slots": (
        [[piece(index=0), {"index": 1, "function": {}}, piece("", "", "", index=2, type="function")], []],
        [],
    ),
    "calls that are none": (
        ["calls", [5, None], {"index": 0, "function": "f"}, [piece(5, index=0)]],
        [
            *(*forwarded("calls", 5, None, {"index": 0, "function": "f"}),),
            kinds.SourceRaw({"index": 0, "function": {"name": 5}}),
        ],
    ),
    "a call without its list": ([piece("f", A, "x", index=0)], WHOLE),
    # Types.
    "a type that is missing, empty or another, beside a function": (
        one(piece("f", "", "x", index=0, type=""), piece(None, A, index=0, type="tool")),
        WHOLE,
    ),
    "a custom tool, whose input is no JSON": (
        one(
            {"index": 0, "id": "x", "type": "custom", "custom": {"name": "sql", "input": ""}},
            {"index": 0, "custom": {"input": "select 1"}},
        ),
        [
            *forwarded(
                {"index": 0, "id": "x", "type": "custom", "custom": {"name": "sql", "input": ""}},
                {"index": 0, "custom": {"input": "select 1"}},
            )
        ],
    ),
    "a tool of the server": (
        one({"index": 0, "type": "web_search", "web_search": {"query": "x"}}),
        [kinds.SourceRaw({"index": 0, "type": "web_search", "web_search": {"query": "x"}})],
    ),
    "without an envelope": (one({"id": "x", "name": "f", "arguments": A}), WHOLE),
    # Arguments that are no text.
    "arguments as an object": (
        one(piece("f", {"a": 1}, "x", index=0), piece("f", {"a": 1}, "x", index=0)),
        [Start("0", "x", "f"), End("f", {"a": 1}, "0", "x")],
    ),
    "arguments as an empty object": (one(piece("f", {}, "x")), [Start("0", "x", "f"), End("f", {}, "0", "x")]),
    "arguments as something else": (one(piece("f", [1], "x")), [Start("0", "x", "f"), End("f", [1], "0", "x")]),
    "arguments as an object after their text": (
        one(piece("f", A, "x", index=0), piece(None, {"a": 2}, index=0)),
        [*WHOLE[:2], End("f", {"a": 2}, "0", "x")],
    ),
    "two objects for one call": (
        one(piece("f", {"a": 1}, "x", index=0), piece(None, {"a": 2}, index=0), piece("f", {"a": 3}, index=0)),
        [
            Start("0", "x", "f"),
            kinds.SourceRaw(piece(None, {"a": 2}, index=0)),
            Start("1", None, "f"),
            End("f", {"a": 1}, "0", "x"),
            End("f", {"a": 3}, "1"),
        ],
    ),
    "arguments that are null": (
        [[{"index": 0, "id": "x", "function": {"name": "f", "arguments": None}}]],
        [*started("0", "x", "f"), End("f", key="0", id="x")],
    ),
    "a string that holds JSON is closed by its quote": (
        one(piece("f", '"{\\"a\\":'), piece(None, ' \\"\\\\'), piece(None, '\\""'), piece("g", "{}")),
        [
            *started("0", None, "f", '"{\\"a\\":', ' \\"\\\\', '\\""'),
            *started("1", None, "g", "{}"),
            End("f", key="0"),
            End("g", key="1"),
        ],
    ),
    "brackets and quotes inside of strings close nothing, wherever they are cut": (
        one(
            piece("f", '{"a}'), piece(None, "\\"), piece(None, '"}'), piece("f", '"'), piece("f", "}"), piece("g", "{}")
        ),
        [
            *started("0", None, "f", '{"a}', "\\", '"}', '"', "}"),
            *started("1", None, "g", "{}"),
            End("f", key="0"),
            End("g", key="1"),
        ],
    ),
    "brackets that close nothing": (
        one(piece("f", "]}"), piece("g", "{}")),
        [*started("0", None, "f", "]}"), *started("0", None, "g", "{}"), End("f", key="0")],
    ),
    # Gemini 3 wants its signature back with the call; Vertex has another name for it.
    "a signature": (
        one(
            piece("f", A, "x", extra_content={"google": {"thought_signature": "s"}}),
            piece("g", B, "y", extra_content={"vertex": {"thought_signature": "t"}}),
            piece(extra_content={"google": {"thought_signature": "u"}}),
            piece("g", id="y", extra_content={"google": {"thought_signature": 5}, "other": 1}),
        ),
        [*BOTH[:4], End("f", key="0", id="x", signature="s"), End("g", key="1", id="y", signature="t")],
    ),
    "a signature after its call, and one without": (
        one(piece(extra_content={"google": {"thought_signature": "t"}}), piece("f", A, "x"))
        + one(piece(extra_content={"google": {"thought_signature": "s"}})),
        [
            kinds.SourceRaw({"extra_content": {"google": {"thought_signature": "t"}}}),
            *started("0", "x", "f", A),
            End("f", key="0", id="x", signature="s"),
        ],
    ),
}


@together(("lists", "expected"), ROWS.values(), ids=ROWS)
def test_rows_of_the_table(lists: list[Any], expected: list[kinds.SourceEvent]) -> None:
    """Each row gives its events however the bytes are cut, and each event survives JSON."""
    data = stream(lists)
    assert [*expected, stop("tool_calls")] == read(data)
    if len(data) < 2000:
        for chunks in usual_cuts(data):
            assert [*expected, stop("tool_calls")] == read(*chunks)
    for event in expected:
        assert event == kinds.read_source_event(event.to_json())


def test_function_call_is_read() -> None:
    """OpenAI before it had tools: one call in a turn, which has no id."""
    data = (
        chunk({"function_call": {"name": "f", "arguments": ""}})
        + chunk({"function_call": {"arguments": A}})
        + chunk({"function_call": {}})
        + chunk({"function_call": "f"})
        + chunk(finish="function_call")
        + DONE
    )
    assert [
        *started("0", None, "f", A),
        kinds.SourceRaw("f"),
        End("f", key="0"),
        kinds.ProviderCompleted(finish_reason="tool_calls", raw_finish_reason="function_call"),
    ] == read(data)


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "end_turn", "whatever"])
def test_a_finish_reason_completes_calls(finish: str) -> None:
    """Some servers say `stop` though there are calls; without [DONE] the end of the transport is as good."""
    data = stream(one(piece("f", A, "x", index=0)), finish)
    for each in (data, data.removesuffix(DONE)):
        *events, end = read(each)
        assert events == WHOLE
        assert isinstance(end, kinds.ProviderCompleted)


@pytest.mark.parametrize("finish", ["length", "content_filter", "error", "abort", None])
def test_a_truncated_turn_completes_no_call(finish: str | None) -> None:
    """No event ends the call, but its name is reported."""
    events = read(stream(one(piece("f", A, "x", index=0), piece("g", id="y", index=1)), finish))
    assert events[:-1] == [*WHOLE[:2], *started("1", "y", "g")]
    assert isinstance(events[-1], kinds.ProviderCompleted)


def test_an_error_completes_no_call() -> None:
    """This also holds after a finish reason. Buffered names precede the error."""
    data = chunk({"tool_calls": [piece("f", id="x")]}, "tool_calls") + sse({"error": "no"}) + DONE
    assert [*started("0", "x", "f"), kinds.SourceError("no")] == read(data)


def test_calls_may_follow_text_and_reasoning() -> None:
    """One chunk may hold all three."""
    data = chunk({"content": "a", "reasoning": "b", "tool_calls": [piece("f", A, "x")]}, "tool_calls") + DONE
    assert [
        kinds.ReasoningDelta("b", own={"openai": {"reasoning": None}}),
        kinds.TextDelta("a"),
        *WHOLE,
        stop("tool_calls"),
    ] == read(data)


def test_only_calls_of_the_first_choice_are_read() -> None:
    """Those of another pass with it."""
    data = chunk({"tool_calls": [piece("f", A, "x")]}, index=1) + chunk(finish="stop") + DONE
    raw, end = read(data)
    assert isinstance(raw, kinds.SourceRaw)
    assert end == stop()


def test_surrogate_pairs_that_were_cut_in_arguments_are_joined() -> None:
    """The half waits for its other half, each call's own; one that stays alone is replaced."""
    half, other = r'{"choices":[{"delta":{"tool_calls":[{"index":%d,"function":{"arguments":"%s"}}]}}]}', "\\ude00"
    events = read(
        sse(half % (0, "\\ud83d")) + sse(half % (1, "\\ud83d")) + sse(half % (0, other)) + chunk(finish="stop") + DONE
    )
    expected = [Start("0"), Start("1"), Delta("0", "😀"), Delta("1", "\ufffd"), End(key="0"), End(key="1"), stop()]
    assert expected == events


def test_a_repetition_longer_than_a_frame_is_not_searched_for() -> None:
    """So that no more is kept of the arguments than a frame may be long."""
    calls = ChatCalls(Limits(frame=8))
    events: list[kinds.SourceEvent] = []
    for each in (piece("f", '{"a"', "x"), piece(None, ":1234}"), *[piece(None, '{"a":1234}')] * 2):
        assert calls.take([each], events) == []
    assert [each.text for each in events if isinstance(each, Delta)] == ['{"a"', ":1234}", *['{"a":1234}'] * 2]


_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from(["", "x", "y", "f", "g", "{", "}", A, B, '"', "\\", "\ud83d", "\ude00", "function", "custom"]),
    st.lists(st.integers(), max_size=1),
    st.dictionaries(st.sampled_from(["google", "thought_signature"]), st.just({"thought_signature": "s"}), max_size=1),
)
_functions = st.one_of(_values, st.dictionaries(st.sampled_from(["name", "arguments", "more"]), _values))
_entries = st.one_of(
    _values,
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("index", "id", "type", "custom", "extra_content", "name", "arguments"), _values),
            "function": _functions,
        },
    ),
)


@given(st.lists(st.one_of(_values, st.lists(_entries, max_size=3)), max_size=6), st.sampled_from(["stop", "length"]))
def test_events_of_any_pieces_are_in_order(lists: list[Any], finish: str) -> None:
    """A call begins before its pieces and ends at most once. All events can be serialized.

    After the finish reason `length`, only calls with a fault end.
    """
    data = b"".join(sse(_escaped({"choices": [{"delta": {"tool_calls": each}}]})) for each in lists)
    begun: set[str] = set()
    ended: list[str] = []
    for event in read(data + chunk(finish=finish) + DONE):
        assert event.to_json()
        if isinstance(event, kinds.ToolCallStart):
            begun.add(event.key)
        elif isinstance(event, kinds.ToolCallDelta):
            assert event.text
            assert event.key in begun
        elif isinstance(event, kinds.NativeToolCall):
            ended.append(event.key)
            assert finish == "stop" or event.fault is not None
    assert ended == sorted(set(ended) if finish == "length" else begun, key=int)


def _escaped(value: Any) -> str:
    """Return JSON in which half of a pair is an escape."""
    return json.dumps(value)
