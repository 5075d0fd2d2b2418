"""Server-sent events: every reader finds exactly the events that were written."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import httpx
import pytest
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from streamtools import outputs
from streamtools.events import Done, FollowUp, Start, Text, read_ui_event
from streamtools.outputs.sse import KEEP_ALIVE, encode_json, present, to_json
from streamtools.sources import Frame, SSEDecoder
from tests.support.sample_runs import RUNS

HOSTILE = [
    *("\n", "\r", "\r\n", "\n\n", "\r\r", "\u2028", "\u2029", "\x85", "\x00", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"),
    *("data: ", "event: x\n", "id: 1\n\n", "retry: 1", ": ", "[DONE]", *'\ufeff\ud83d\ude00\\"\t '),
]
texts = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=3), max_size=8).map("".join)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


class ReadEvent(NamedTuple):
    data: bytes
    event: str
    id: str


def browser(body: str) -> list[ReadEvent]:
    """Read the events of a body as the standard says."""
    frames: list[ReadEvent] = []
    data: list[str] = []
    name = last = ""
    for line in re.split("\r\n|\r|\n", body.removeprefix("\ufeff")):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                frames.append(ReadEvent("\n".join(data).encode(), name or "message", last))
            data, name = [], ""
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id" and "\x00" not in value:
            last = value
    return frames


def careless(body: str) -> list[ReadEvent]:
    """Read the events of a body like a reader that accepts any line separator."""
    return browser("\n".join(body.splitlines()) + "\n\n")


def read_with_all_readers(body: bytes) -> list[ReadEvent]:
    """Return the events in a body. All readers must find the same ones."""
    decoder = SSEDecoder()
    ours = decoder.feed(body) + decoder.close()
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body)
    theirs = [ReadEvent(each.data.encode(), each.event, each.id) for each in EventSource(response).iter_sse()]
    text = body.decode()
    assert theirs == browser(text) == careless(text)
    frames = [(frame.data, frame.event) for frame in ours if isinstance(frame, Frame)]
    assert [(frame.data, frame.event) for frame in theirs] == frames
    return theirs


def whole(value: Any) -> Any:
    """Return a value with U+FFFD for each lone surrogate."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


@given(values)
def test_json_is_one_event(value: Any) -> None:
    """Every reader finds one event with that value, without a name or an id. Keep-alives are no events."""
    for around in (b"", KEEP_ALIVE):
        (frame,) = read_with_all_readers(around + encode_json(value) + around)
        assert ("message", "") == (frame.event, frame.id)
        assert whole(value) == json.loads(frame.data)


def test_raw_line_ends_in_strings_are_escaped() -> None:
    """Every possible line separator is escaped."""
    assert rb'["a\rb\nc\u2028d\u2029e\u0085f\u0000g\th"]' == to_json(["a\rb\nc\u2028d\u2029e\x85f\x00g\th"])


def test_half_a_surrogate_pair_raises_nothing() -> None:
    """It becomes U+FFFD. A complete pair becomes a character."""
    value = {"\ud83d": ["\ude00", ("\ud83d\ude00",)]}
    assert {"\ufffd": ["\ufffd", ["😀"]]} == json.loads(to_json(value))


def test_none_is_omitted() -> None:
    """`present` keeps false values and omits None."""
    assert {"b": 0, "c": "", "d": False} == present(a=None, b=0, c="", d=False)


# The native encoder and the plain-text encoder.


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
