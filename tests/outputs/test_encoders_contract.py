"""The contract of every encoder, for a table of encoders, a table of runs, and random runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import outputs
from streamtools.errors import ClosedError, Code
from streamtools.events import Done, Executing, Progress, Reasoning, Text, UIEvent, Warning, read_ui_event
from streamtools.machine.event_order import validate
from streamtools.outputs import Encoder, make_encoder
from streamtools.outputs.sse import KEEP_ALIVE
from tests.machine.test_machine_laws import options, rarely, run, sources
from tests.support.answer_events import check_message, check_responses
from tests.support.cases import cases
from tests.support.front_ends import check_ag_ui, check_ai_sdk, said, text_of, visible
from tests.support.openai_chunks import read_message
from tests.support.sample_runs import RUNS

Check = Callable[[Sequence[str]], object]


class Row(NamedTuple):
    """An encoder, and a check of a whole body by its protocol: the data of its events."""

    make: Callable[[], Encoder]
    check: Check
    sse: bool = True


def read_native(data: Sequence[str]) -> list[UIEvent]:
    """Read the events back. The body may continue in another response."""
    return [read_ui_event(each) for each in data]


def without_done(check: Callable[[list[dict[str, Any]]], None]) -> Check:
    """Return a check of the parts before `[DONE]`, which is required."""

    def read(data: Sequence[str]) -> None:
        assert [each for each in data if each == "[DONE]"] == list(data[-1:])
        check([json.loads(each) for each in data[:-1]])

    return read


def ag_ui(data: Sequence[str]) -> None:
    """Check AG-UI events for a client without a declared version."""
    check_ag_ui([json.loads(each) for each in data], current=False)


def ag_ui_current(data: Sequence[str]) -> None:
    """Check AG-UI events for a client of version 1.0."""
    check_ag_ui([json.loads(each) for each in data], current=True)


ENCODERS: dict[str, Row] = {
    "native": Row(outputs.native, read_native),
    "native, as lines": Row(lambda: outputs.native(framing="ndjson"), read_native, sse=False),
    "native, with all": Row(lambda: outputs.native(exclude=()), read_native),
    "native, with less": Row(lambda: outputs.native(exclude=["thinking", "raw"]), read_native),
    "ai_sdk 5": Row(lambda: outputs.ai_sdk(5), without_done(lambda parts: check_ai_sdk(parts, target=5))),
    "ai_sdk 6": Row(lambda: outputs.ai_sdk(6), without_done(lambda parts: check_ai_sdk(parts, target=6))),
    "ai_sdk 7": Row(outputs.ai_sdk, without_done(lambda parts: check_ai_sdk(parts, target=7))),
    "ag_ui": Row(outputs.ag_ui, ag_ui),
    "ag_ui 1.0": Row(lambda: outputs.ag_ui(protocol_version="1.0"), ag_ui_current),
    "openai": Row(outputs.openai, read_message),
    "openai, with usage": Row(lambda: outputs.openai(include_usage=True), read_message),
    "openai, calls as written": Row(lambda: outputs.openai(call_deltas=True), read_message),
    "responses": Row(outputs.responses, check_responses),
    "responses, calls as written": Row(lambda: outputs.responses(call_deltas=True), check_responses),
    "anthropic": Row(outputs.anthropic, check_message),
    "anthropic, calls as written": Row(lambda: outputs.anthropic(call_deltas=True), check_message),
    "custom": Row(lambda: outputs.custom(msgspec.to_builtins), lambda data: [json.loads(each) for each in data]),
    "custom, as lines": Row(
        lambda: outputs.custom(msgspec.to_builtins, framing="ndjson"),
        lambda data: [json.loads(each) for each in data],
        sse=False,
    ),
    "text": Row(outputs.text, lambda data: None, sse=False),
}

STRUCTURED = {name: row for name, row in ENCODERS.items() if name != "text"}
"""The encoders whose bodies have a structure, which could be broken."""

BY_OTHERS = {
    name: row
    for name, row in ENCODERS.items()
    if row.sse and name != "custom" and row.check not in (read_native, check_responses, check_message)
}
"""The encoders whose protocol is not ours, and has nothing null."""

each_encoder = pytest.mark.parametrize("row", ENCODERS.values(), ids=list(ENCODERS))


def body_of(encoder: Encoder, events: Sequence[UIEvent]) -> list[bytes]:
    """Return the bytes for each event and for the end."""
    return [*map(encoder.encode, events), encoder.close()]


def data_of(row: Row, body: bytes) -> list[str]:
    """Return the data of the events in a body, with a check of the framing."""
    if not row.sse:
        return body.decode().removesuffix("\n").split("\n") if body else []
    assert b"\r" not in body
    assert not body or body.endswith(b"\n\n")
    data = []
    for frame in body.decode().split("\n\n")[:-1]:
        *fields, last = frame.split("\n")
        assert [field for field in fields if not re.fullmatch(r"(event|id): [\w.:-]+", field)] == [], frame
        assert last.startswith("data: "), frame
        data.append(last.removeprefix("data: "))
    assert body.decode().splitlines() == body.decode().split("\n")[:-1], "something else looks like the end of a line"
    return data


def check(row: Row, events: Sequence[UIEvent]) -> list[str]:
    """Encode the events, raise AssertionError if a client would fail, and return the data."""
    pieces = body_of(row.make(), events)
    if row.sse:
        assert [piece for piece in pieces if piece and not piece.endswith(b"\n\n")] == [], "events go out whole"
    data = data_of(row, b"".join(pieces))
    row.check(data)
    return data


def test_the_sample_runs_are_valid() -> None:
    """The runs of these tests keep the order of events."""
    with cases() as case:
        for name, events in RUNS.items():
            with case(name):
                validate(events)


@each_encoder
def test_clients_can_read_each_sample_run(row: Row) -> None:
    """A client can read the body of each run, to its end; and so it can, in the way of the protocol, wherever events
    stop coming, and from any event on, for a reader that comes late.
    """
    with cases() as case:
        for name, events in RUNS.items():
            for at in range(len(events)):
                with case(name, "up to", at):
                    check(row, events[:at])
                with case(name, "from", at):
                    check(row, events[at:])


@st.composite
def runs(draw: st.DrawFn) -> list[UIEvent]:
    """A run of a machine, complete or in part, as a late reader or one that left sees it."""
    events = run(draw(sources), cancel=draw(rarely), idle=draw(rarely), **draw(options))
    for at in draw(st.lists(st.integers(0, len(events) - 1), max_size=2)):
        each = events[at]
        if isinstance(each, Executing):
            events.insert(at + 1, Progress(each.call.id, {"half": True}))
        elif not isinstance(each, Done):
            events.insert(at + 1, Warning(draw(st.sampled_from([*NOTICES])), "another continues"))
    return events[draw(st.sampled_from([0, 0, 0, 1, 3, 6])) : draw(st.none() | st.integers(-1, 30))]


NOTICES = {Code.OWNER_LOST: "reconnecting", Code.FAILED_OVER: "failed-over"}
DELTAS = {"ai_sdk": ("text-delta", "reasoning-delta"), "ag_ui": ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT")}


@given(runs())
def test_clients_can_read_any_run(events: list[UIEvent]) -> None:
    """A client can read the body, and a front end shows the text, the reasoning and the notices of the run."""
    for name, row in ENCODERS.items():
        data = check(row, events)
        if text_and_reasoning := DELTAS.get(name.split()[0]):
            parts = [json.loads(each) for each in data if each != "[DONE]"]
            shown = [visible(text_of(parts, kind)) for kind in text_and_reasoning]
            assert shown == [said(events), said(events, Reasoning)]
            notices = [part.get("name") or part["type"].removeprefix("data-") for part in parts]
            warnings = [NOTICES.get(event.code) for event in events if isinstance(event, Warning)]
            assert [name for name in notices if name in NOTICES.values()] == [name for name in warnings if name]


@pytest.mark.parametrize("row", BY_OTHERS.values(), ids=list(BY_OTHERS))
def test_no_member_is_null_and_no_delta_is_empty(row: Row) -> None:
    """What is absent is left out; null is only what a tool, a model or a provider has said, or OpenAI's schema asks for
    (`finish_reason`). A piece of a text or of arguments is never empty.
    """
    may_be_null = {"finish_reason", "output", "value", "content"}
    with cases() as case:
        for name, events in RUNS.items():
            for each in data_of(row, b"".join(body_of(row.make(), events))):
                if each != "[DONE]":
                    with case(name, each):
                        part = json.loads(each)
                        assert [] == [null for null in _nulls(part) if null not in may_be_null]
                        assert part.get("delta") != ""
                        assert part.get("inputTextDelta") != ""


def _nulls(value: Any, name: str = "") -> list[str]:
    if isinstance(value, dict):
        return [each for key, inner in value.items() for each in _nulls(inner, key)]
    if isinstance(value, list):
        return [each for inner in value for each in _nulls(inner, name)]
    return [name] if value is None else []


@each_encoder
def test_an_encoder_is_for_one_response(row: Row) -> None:
    """After `done` or `close` it encodes nothing more, and another `close` adds nothing."""
    for events in (RUNS["text"], RUNS["text"][:3], RUNS["cancelled in a text"], RUNS["an immediate error"], []):
        encoder = row.make()
        for event in events:
            encoder.encode(event)
        closed = encoder.close()
        assert not (closed and events and isinstance(events[-1], Done))
        assert b"" == encoder.close()
        with pytest.raises(ClosedError, match="Make a new encoder for another response"):
            encoder.encode(Text("more"))

    encoder = row.make()
    for event in RUNS["text"]:
        encoder.encode(event)
    with pytest.raises(ClosedError):
        encoder.encode(Text("more"))


@each_encoder
def test_encoders_have_the_attributes_of_the_protocol(row: Row) -> None:
    """Content type, headers and keep-alive match the framing."""
    encoder = row.make()
    assert row.sse == (encoder.content_type == "text/event-stream")
    assert encoder.headers["cache-control"] == "no-cache"
    assert encoder.headers["x-accel-buffering"] == "no"
    assert "content-type" not in encoder.headers
    assert encoder.keep_alive == (KEEP_ALIVE if row.sse else b"")


def test_a_resumable_body_continues_after_any_event() -> None:
    """Each event has its number, and its bytes do not depend on other events."""
    with cases() as case:
        for encoder, row in ENCODERS.items():
            if not row.make().resumable:
                continue
            for name, events in RUNS.items():
                whole = row.make()
                for event in events:
                    with case(encoder, name, event):
                        written = whole.encode(event)
                        assert written == row.make().encode(event)
                        if row.sse and written:
                            assert f"id: {event.seq}" in written.decode().split("\n")


@pytest.mark.parametrize("name", ["ai_sdk", "ag_ui"])
def test_an_answer_without_events_has_failed(name: str) -> None:
    """The body of a run that never started reports a failure."""
    assert b'"The stream ended before the answer did."' in make_encoder(name).close()


def test_an_unknown_format_is_refused() -> None:
    """The error names the formats."""
    with pytest.raises(ValueError, match=r"format must be one of 'native', 'ai_sdk', .*, 'text', got 'xml'"):
        make_encoder("xml")
