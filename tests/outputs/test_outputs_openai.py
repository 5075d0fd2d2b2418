"""A run as OpenAI's chunks: the message that a client builds, and the calls that it must not see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ParserOptions, ToolStream, outputs, sources
from streamtools.errors import Code
from streamtools.events import Done, Error, Start, StepEnd, StepStart, Text, Thinking, UIEvent, Usage, UsageReport
from streamtools.testing.laws import cut
from tests.support.gateway import collect
from tests.support.openai_chunks import Message, read_message
from tests.support.sample_runs import RUNS, START, STOP, call, executed, failed, malformed, numbered, written_call

ARGUMENTS = '{"city":"Bern"}'


def read(events: Sequence[UIEvent], **options: Any) -> Message:
    """Return the message that a client builds."""
    encoder = outputs.openai(**options)
    body = b"".join(map(encoder.encode, events)) + encoder.close()
    return read_message([frame.removeprefix("data: ") for frame in body.decode().split("\n\n")[:-1]])


def ending(reason: Any, finish: str | None, *pending: int) -> list[UIEvent]:
    """Return the end of a run with these pending calls."""
    return [StepEnd(1, finish), Done(reason, finish, finish, [call(number) for number in pending])]


def test_a_short_answer_has_these_bytes() -> None:
    """Role, text, reason and end. The schema requires the only null, `finish_reason`."""
    encoder = outputs.openai(model="m", id="chatcmpl-1", created=1785000000)
    head = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1785000000,"model":"m",'
    head += b'"choices":[{"index":0,"delta":'

    assert [encoder.encode(event) for event in numbered(Start("r"), StepStart(1), Text("Hi"), *STOP)] == [
        head + b'{"role":"assistant","content":""},"finish_reason":null}]}\n\n',
        b"",
        head + b'{"content":"Hi"},"finish_reason":null}]}\n\n',
        b"",
        head + b'{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    ]


@pytest.mark.parametrize("deltas", [True, False])
def test_a_pending_call_is_sent_as_a_native_call(deltas: bool) -> None:
    """In any dialect. The client runs it."""
    message = read(RUNS["a call that waits"], call_deltas=deltas)
    arguments = '{"city": "Bern"}' if deltas else ARGUMENTS  # as the model wrote them, or as we read them
    assert Message("So:", "", [("call_1", "weather", arguments)], "tool_calls", None, None) == message


def test_calls_are_sent_while_they_are_written() -> None:
    """The name is sent first, then the pieces of the arguments, and their end with the call."""
    encoder = outputs.openai(call_deltas=True)
    calls = []
    for event in RUNS["a call that waits"]:
        for line in encoder.encode(event).splitlines():
            if line.startswith(b"data: {"):
                delta = json.loads(line.removeprefix(b"data: "))["choices"][0]["delta"]
                calls += [(event.type, each) for each in delta.get("tool_calls", [])]

    start = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    assert calls == [
        ("call-start", start),
        ("call-delta", {"index": 0, "function": {"arguments": '{"city":'}}),
        ("call-delta", {"index": 0, "function": {"arguments": ' "Bern"'}}),
        ("call", {"index": 0, "function": {"arguments": "}"}}),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [*written_call(call(1)), *executed(call(1)), *STOP],
        [*written_call(call(1)), *failed(call(1)), *STOP],
        [*written_call(call(1)), Error(Code.SUPERSEDED, "", call_id="call_1", call=call(1)), *STOP],
        [*written_call(call(1)), Error(Code.TOOL_CHOICE_VIOLATION, "", call_id="call_1", call=call(1)), *STOP],
        [Thinking(True, "call_1"), Error(Code.MISSING_TOOL_NAME, "", call_id="call_1", raw="{}"), *STOP],
        [*malformed(1, code=Code.TOO_MANY_CALLS), *STOP],
        [*malformed(1, raw=""), *STOP],
        [*malformed(1), *written_call(call(2)), *executed(call(2)), *STOP],
        [*malformed(1), *ending("stopped", "tool_stop")],
    ],
)
def test_calls_that_a_client_must_not_run_are_not_sent(events: list[UIEvent]) -> None:
    """What was run here, or superseded, or forbidden, or cannot be called by a name, is not told, and nor is what the
    run answers itself.
    """
    message = read(numbered(*START, Text("So."), *events))
    assert Message("So.", "", [], "stop", None, None) == message


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ('~~~tool_call\n{"toolName":', '~~~tool_call\n{"toolName":'),
        ('{"a": 1, "a": 2}', json.dumps('{"a": 1, "a": 2}')),
        ('\ufeff\n{"city": "Be', json.dumps('\ufeff\n{"city": "Be')),
        ("[1]", '"[1]"'),
        ("Bern", "Bern"),
    ],
)
@pytest.mark.parametrize("deltas", [True, False])
def test_a_malformed_call_is_sent_with_the_text_of_the_model(raw: str, arguments: str, deltas: bool) -> None:
    """Clients answer such calls, and no client takes refused text for an object."""
    message = read(numbered(*START, *malformed(1, raw=raw), *STOP), call_deltas=deltas)
    assert [("call_1", "weather", arguments)] == message.calls
    assert "tool_calls" == message.finish


def test_a_malformed_call_that_was_sent_in_part_is_an_error() -> None:
    """Nothing is added to them."""
    message = read(RUNS["calls side by side"][:-2] + ending("finished", "stop"), call_deltas=True)
    assert [("call_2", "weather", "{}"), ("call_1", "weather", "{")] == message.calls


@pytest.mark.parametrize(
    ("end", "finish"),
    [
        *(
            (ending("finished", finish), "stop")
            for finish in ("stop", "stopped_after_call", "tool_calls", "other", None)
        ),
        *((ending("finished", finish, 1), "tool_calls") for finish in ("stop", "other")),
        (ending("truncated", "length"), "length"),
        (ending("truncated", "length", 1), "length"),
        (ending("truncated", "content_filter"), "content_filter"),
        (ending("truncated", "cancelled"), "length"),
        (ending("stopped", "tool_stop"), "stop"),
        (ending("stopped", "max_steps"), "length"),
        (ending("stopped", "max_steps", 1), "tool_calls"),
        (ending("cancelled", None, 1), None),
    ],
)
def test_the_finish_reason_depends_on_calls_and_truncation(end: list[UIEvent], finish: str | None) -> None:
    """It means that the client runs calls, or that the answer is cut. A cancelled run has none."""
    assert finish == read(numbered(*START, Text("a"), *end)).finish


@pytest.mark.parametrize("name", ["an error in the middle", "an immediate error", "an error while a call is written"])
def test_an_error_ends_the_body(name: str) -> None:
    """Nothing follows it, not even `[DONE]`, and clients raise it."""
    error = {"message": "the provider is overloaded", "type": "server_error", "code": "upstream_error"}
    assert error == read(RUNS[name]).error


def test_a_body_that_breaks_off_ends_with_an_error() -> None:
    """A run without `done` ends with an error, once."""
    error = {"message": "the stream ended before it was complete", "type": "server_error", "code": "stream_interrupted"}
    assert error == read(RUNS["text"][:3]).error
    assert "upstream_error" == (read(RUNS["an error in the middle"][:5]).error or {})["code"]


def test_the_usage_of_all_steps_is_added() -> None:
    """It is sent at the end if requested; unknown counts are omitted."""
    assert read(RUNS["two steps"], include_usage=True).usage == {
        "prompt_tokens": 30,
        "completion_tokens": 9,
        "total_tokens": 39,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert read(RUNS["two steps"]).usage is None
    assert read(RUNS["text"], include_usage=True).usage is None
    only = numbered(*START, UsageReport(Usage(input=3)), *STOP)
    assert {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3} == read(only, include_usage=True).usage


# White space.


def in_text(*items: str | int) -> list[UIEvent]:
    """Return a run of texts and pending calls in text."""
    events: list[UIEvent] = []
    pending = []
    for item in items:
        if isinstance(item, str):
            events.append(Text(item))
        else:
            events += written_call(call(item))
            pending.append(item)
    return numbered(*START, *events, *ending("finished", "stop", *pending))


@pytest.mark.parametrize(
    ("items", "content"),
    [
        (["So:\n\n", 1], "So:"),
        (["\n", 1], ""),
        (["So: ", 1, "\n"], "So:"),
        (["So: ", 1, "\n", 2, "\n\n"], "So:"),
        (["So: ", 1, "\n\nThen"], "So:\n\nThen"),
        (["So: ", 1, "\n\nThen\n"], "So:\n\nThen\n"),
        (["So.\n"], "So.\n"),
        ([" a ", " ", "\tb\r\n", "c "], " a  \tb\r\nc "),
        (["a\u00a0", 1], "a\u00a0"),
        (["a" + " " * 9000, "  ", 1, "b ", 2], "ab"),
    ],
)
def test_white_space_around_calls_in_text_is_dropped(items: list[str | int], content: str) -> None:
    """So is white space at the end after a call."""
    assert content == read(in_text(*items)).content


def test_white_space_before_other_events_is_kept() -> None:
    """It stays before a native call, and before text that is not a call."""
    native = call(1, dialect="native")
    assert "So: " == read(numbered(*START, Text("So: "), *written_call(native), *ending("finished", "stop"))).content
    bad = Error(Code.INVALID_JSON, "", call_id="c", raw="{", dialect="native")
    assert "So: " == read(numbered(*START, Text("So: "), Thinking(True, "c"), bad, *STOP)).content
    assert "~~~" == read(RUNS["a call that is text after all"]).content
    refused = numbered(*START, Text("a "), *RUNS["a call that is text after all"][2:])
    assert "a ~~~" == read(refused).content


def test_a_blank_line_separates_steps() -> None:
    """The separator replaces it."""
    step: list[UIEvent] = [StepEnd(1, "stop"), StepStart(2)]
    events = numbered(*START, Text("a \n"), *step, Text("\n"), Text(" "), Text(" b"), StepEnd(2, "stop"), STOP[1])
    assert "a\n\nb" == read(events).content
    silent = numbered(
        *START, *written_call(call(1)), *executed(call(1)), *step, Text(" b"), StepEnd(2, "stop"), STOP[1]
    )
    assert " b" == read(silent).content


pieces = st.lists(st.sampled_from([" ", "\n", "\r\n", "a", "b c", " " * 1024]), min_size=1, max_size=6).map("".join)


@given(st.lists(pieces | st.integers(1, 9), max_size=6, unique=True), st.lists(st.integers(0, 2500), max_size=8))
def test_the_division_into_deltas_changes_nothing(items: list[str | int], places: list[int]) -> None:
    """A client builds the same message for every cut."""
    pieces = [each for item in items for each in (cut(item, places) if isinstance(item, str) else [item])]
    assert read(in_text(*items)) == read(in_text(*pieces))


async def test_interleaved_native_calls_are_sent_in_order() -> None:
    """Clients take a call as complete when another one starts."""
    functions = [(0, "a", "get_weather", '{"ci'), (1, "b", "get_time", '{"zo'), (0, None, None, 'ty": "Bern"}')]
    functions += [(2, "c", "get_time", "{}"), (1, None, None, 'ne": "UTC"}')]
    told = [
        {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
        for index, id, name, arguments in functions
    ]
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": {"tool_calls": [each]}}]} for each in told]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    body = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in chunks) + b"data: [DONE]\n\n"
    async with ToolStream(
        sources.openai([body]), native_tool_calls=True, parser=ParserOptions(call_deltas=True)
    ) as stream:
        events = [event async for event in stream]
    begins = {
        "openai": (outputs.openai, '"name":"get_'),
        "responses": (outputs.responses, '"type":"response.output_item.added"'),
        "anthropic": (outputs.anthropic, '"type":"content_block_start"'),
    }
    for format, (make, begin) in begins.items():
        encoder = make(call_deltas=True)
        before, *parts = b"".join(map(encoder.encode, events)).decode().split(begin)
        first, second, third = parts
        seen = collect(cast(Any, format), (before + "".join(begin + each for each in parts)).encode())
        assert [each[1:] for each in seen.calls] == [
            ("get_weather", {"city": "Bern"}),
            ("get_time", {"zone": "UTC"}),
            ("get_time", {}),
        ], format
        assert ("Bern" in first, "UTC" in second, "UTC" in third.partition("response.completed")[0]) == (
            True,
            True,
            False,
        )
