"""Server-sent events: every reader finds exactly the events that were written."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import httpx
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from streamtools.outputs.sse import KEEP_ALIVE, encode_json, present, to_json
from streamtools.sources import Frame, SSEDecoder

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
    assert [(frame.data, frame.event) for frame in theirs] == [
        (frame.data, frame.event) for frame in ours if isinstance(frame, Frame)
    ]
    return theirs


def whole(value: Any) -> Any:
    """Return a value with U+FFFD for each lone surrogate."""
    return json.loads(
        json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


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
