"""The native encoder and the plain-text encoder."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import outputs
from streamtools.events import Done, FollowUp, Start, Text, read_ui_event
from streamtools.sources import Frame, SSEDecoder
from tests.support.sample_runs import RUNS


def test_each_event_is_named_and_numbered() -> None:
    """Its name is the type, its id the seq, and its data the JSON."""
    encoder = outputs.native()
    assert b'event: text\nid: 7\ndata: {"type":"text","text":"a","seq":7}\n\n' == encoder.encode(Text("a", seq=7))
    assert b'event: start\ndata: {"type":"start","run_id":"r"}\n\n' == encoder.encode(Start("r"))


def test_events_may_be_lines() -> None:
    """With `framing="ndjson"`, each event is one line."""
    encoder = outputs.native(framing="ndjson")
    assert b'{"type":"text","text":"a\\n","seq":7}\n' == encoder.encode(Text("a\n", seq=7))
    assert "application/x-ndjson" == encoder.content_type
    assert b"" == encoder.keep_alive


@pytest.mark.parametrize("name", RUNS)
def test_events_survive_encoding(name: str) -> None:
    """A client reads the same events."""
    encoder, decoder = outputs.native(exclude=()), SSEDecoder()
    written = [encoder.encode(event) for event in RUNS[name]]
    frames = [frame for body in written for frame in decoder.feed(body)]
    assert RUNS[name] == [read_ui_event(frame.data) for frame in frames if isinstance(frame, Frame)]
    assert [event.type for event in RUNS[name]] == [frame.event for frame in frames if isinstance(frame, Frame)]
    assert all(b"\nid: %d\n" % event.seq in body for event, body in zip(RUNS[name], written, strict=True))


def test_event_types_can_be_excluded() -> None:
    """`done` cannot be excluded, because it ends the body."""
    encoder = outputs.native(exclude={"text"})
    assert b"" == encoder.encode(Text("a"))
    assert encoder.encode(Done("finished", None, None, [])).startswith(b"event: done\n")
    assert b"" == outputs.native(exclude="raw").encode(RUNS["what front ends need not know"][3])


@pytest.mark.parametrize("framing", ["sse", "ndjson"])
def test_messages_for_the_model_are_excluded(framing: Any) -> None:
    """Unless `exclude` says otherwise."""
    told = FollowUp([{"role": "user", "content": "the price that we pay is 5"}], seq=9)
    assert b"" == outputs.native(framing=framing).encode(told)
    assert b"the price that we pay" in outputs.native(framing=framing, exclude=()).encode(told)
    assert b"the price that we pay" in outputs.native(framing=framing, exclude="raw").encode(told)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"exclude": ["done"]}, r"`exclude` must name event types other than 'done', got \['done'\]"),
        ({"exclude": ["raw", "texts"]}, r"got \['texts'\]"),
        ({"exclude": "markups"}, r"got \['markups'\]"),
        ({"framing": "xml"}, r"framing must be one of 'sse', 'ndjson', got 'xml'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=complaint):
        outputs.native(**options)


def text_of(name: str) -> str:
    """Return a run as plain text."""
    encoder = outputs.text()
    return (b"".join(map(encoder.encode, RUNS[name])) + encoder.close()).decode()


def test_plain_text_contains_only_the_answer() -> None:
    """Only the text; texts of two steps are separated."""
    assert "Good morning." == text_of("text")
    assert "Let me look.\n\nIt is mild." == text_of("two steps")
    assert "So:\n\n" == text_of("a call that waits")
    assert "" == text_of("an immediate error")
    assert "a\ufffd" == outputs.text().encode(Text("a\ud83d")).decode()
