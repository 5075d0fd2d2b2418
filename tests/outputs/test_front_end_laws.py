"""Laws of the front-end encoders: clients can read any run, cut anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import outputs
from streamtools.errors import Code
from streamtools.events import Done, Executing, Progress, Reasoning, UIEvent, Warning
from tests.machine.test_machine_laws import options, rarely, run, sources
from tests.support.front_ends import Part, check_ag_ui, check_ai_sdk, read_body, said, text_of, visible


def read(events: list[UIEvent], protocol: str, **given: Any) -> list[Part]:
    """Check the parts of a run as a client does, and return them."""
    encoder = getattr(outputs, protocol)(**given)
    parts = read_body(b"".join(map(encoder.encode, events)) + encoder.close(), done=protocol == "ai_sdk")
    if protocol == "ai_sdk":
        check_ai_sdk(parts, target=given.get("target", 7))
    else:
        check_ag_ui(parts, current=given["protocol_version"] is not None)
    return parts


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
        elif not isinstance(each, Done):
            events.insert(at + 1, Warning(Code.OWNER_LOST, "another process continues"))
    return events[draw(st.sampled_from([0, 0, 0, 1, 3, 6])) : draw(st.sampled_from([None, None, None, -1, 5]))]


@pytest.mark.parametrize(
    ("protocol", "text", "reasoning"),
    [("ai_sdk", "text-delta", "reasoning-delta"), ("ag_ui", "TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT")],
)
@given(runs(), ai_sdk_options, st.sampled_from([None, "1.0"]))
def test_clients_can_read_each_run(
    protocol: str, text: str, reasoning: str, events: list[UIEvent], options: dict[str, Any], version: str | None
) -> None:
    """Their version knows each part, each start has its end, and the text is that of the run."""
    parts = read(events, protocol, **(options if protocol == "ai_sdk" else {"protocol_version": version}))

    assert visible(text_of(parts, text)) == said(events)
    assert visible(text_of(parts, reasoning)) == said(events, Reasoning)
    notices = [part for part in parts if "reconnecting" in (part.get("name"), part["type"].removeprefix("data-"))]
    assert len(notices) == sum(isinstance(event, Warning) and event.code is Code.OWNER_LOST for event in events)


@pytest.mark.parametrize("name", ["ai_sdk", "ag_ui"])
def test_an_answer_without_events_has_failed(name: str) -> None:
    """The body of a run that never started reports a failure."""
    encoder = outputs.make_encoder(name)

    parts = read_body(encoder.close(), done=name == "ai_sdk")

    assert "The stream ended before the answer did." in (parts[-1].get("message"), parts[-2].get("errorText"))
    assert encoder.close() == b""
