"""Laws of the front-end encoders: clients can read any run, cut anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import outputs
from streamtools.events import Executing, Progress, Reasoning, Text, UIEvent
from streamtools.json_values import well_formed
from streamtools.outputs import Encoder
from tests.machine.test_machine_laws import options, rarely, run, sources
from tests.support.front_ends import Part, check_ag_ui, check_ai_sdk, read_body, text_of


def write(events: list[UIEvent], encoder: Encoder) -> bytes:
    """Return the whole body."""
    return b"".join(map(encoder.encode, events)) + encoder.close()


def read_ai_sdk(events: list[UIEvent], **given: Any) -> list[Part]:
    """Check the parts of a run and return them."""
    parts = read_body(write(events, outputs.ai_sdk(**given)), done=True)
    check_ai_sdk(parts, target=given.get("target", 7))
    return parts


def read_ag_ui(events: list[UIEvent], version: str | None) -> list[Part]:
    """Check the events of a run and return them."""
    told = read_body(write(events, outputs.ag_ui(protocol_version=version)), done=False)
    check_ag_ui(told, current=version is not None)
    return told


ai_sdk_options: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "target": st.sampled_from([5, 6, 7]),
        "dynamic": st.sampled_from([True, False, "f"]),
        "message_id": st.just("m"),
    },
)


@st.composite
def runs(draw: st.DrawFn) -> list[UIEvent]:
    """A run of a machine, complete or in part, as a late reader or one that left sees it."""
    events = run(draw(sources), cancel=draw(rarely), idle=draw(rarely), **draw(options))
    for at in draw(st.lists(st.integers(0, len(events) - 1), max_size=2)):
        each = events[at]
        if isinstance(each, Executing):
            events.insert(at + 1, Progress(each.call.id, {"half": True}))
    return events[draw(st.sampled_from([0, 0, 0, 1, 3, 6])) : draw(st.sampled_from([None, None, None, -1, 5]))]


@given(runs(), ai_sdk_options)
def test_clients_of_the_ai_sdk_can_read_each_run(events: list[UIEvent], options: dict[str, Any]) -> None:
    """The version knows each part, each start has its end, and the text is that of the run."""
    parts = read_ai_sdk(events, **options)

    assert _visible(text_of(parts, "text-delta")) == _said(events, Text)
    assert _visible(text_of(parts, "reasoning-delta")) == _said(events, Reasoning)


@given(runs(), st.sampled_from([None, "1.0"]))
def test_clients_of_ag_ui_can_read_each_run(events: list[UIEvent], version: str | None) -> None:
    """Nothing is open at the end, ended calls have a result, and the text is that of the run."""
    told = read_ag_ui(events, version)

    assert _visible(text_of(told, "TEXT_MESSAGE_CONTENT")) == _said(events, Text)
    assert _visible(text_of(told, "REASONING_MESSAGE_CONTENT")) == _said(events, Reasoning)


def _visible(text: str) -> str:
    """Return the visible characters, because white space alone is not sent."""
    return "".join(text.split())


def _said(events: list[UIEvent], kind: type[Text | Reasoning]) -> str:
    """Return the visible text, with U+FFFD for each lone surrogate."""
    return _visible("".join(well_formed(each.text) for each in events if isinstance(each, kind)))


@pytest.mark.parametrize("name", ["ai_sdk", "ag_ui"])
def test_an_answer_without_events_has_failed(name: str) -> None:
    """The body of a run that never started reports a failure."""
    encoder = outputs.make_encoder(name)

    parts = read_body(encoder.close(), done=name == "ai_sdk")

    assert "The stream ended before the answer did." in (parts[-1].get("message"), parts[-2].get("errorText"))
    assert encoder.close() == b""
