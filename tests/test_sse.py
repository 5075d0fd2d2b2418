"""Server-sent events, written: whatever stands in an event, every reader finds that event and no other."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from streamtools.outputs.sse import KEEP_ALIVE, comment, encode_event, encode_json, present, to_json
from streamtools.sources import Frame, SSEDecoder
from streamtools.testing.feeding import cut

HOSTILE = [
    *("\n", "\r", "\r\n", "\n\n", "\r\r", "\u2028", "\u2029", "\x85", "\x00", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"),
    *(
        "data: ",
        "event: x\n",
        "id: 1\n\n",
        "retry: 1",
        ": ",
        "[DONE]",
        "\ufeff",
        "\ud83d",
        "\ude00",
        "\\",
        '"',
        "\t",
        " ",
    ),
]
texts = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=3), max_size=8).map("".join)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
names = st.none() | st.from_regex(r"[A-Za-z0-9_.:-]{1,20}", fullmatch=True)


def browser(body: str) -> list[Frame]:
    """Return the events of a body as the standard has it; the bytes have been decoded, whatever they held."""
    frames: list[Frame] = []
    data: list[str] = []
    name = last = ""
    for line in re.split("\r\n|\r|\n", body.removeprefix("\ufeff")):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                frames.append(Frame("\n".join(data).encode(), name or "message", last))
            data, name = [], ""
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id" and "\x00" not in value:
            last = value
    return frames


def careless(body: str) -> list[Frame]:
    """Return the events of a body as a reader has them that takes all that looks like a line end for one."""
    return browser("\n".join(body.splitlines()) + "\n\n")


def read_everywhere(body: bytes) -> Frame:
    """Return the one event that each of the readers finds in a body."""
    decoder = SSEDecoder()
    ours = decoder.feed(body) + decoder.close()
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body)
    theirs = [Frame(each.data.encode(), each.event, each.id) for each in EventSource(response).iter_sse()]
    assert len(ours) == 1
    assert ours == theirs == browser(body.decode()) == careless(body.decode())
    frame = ours[0]
    assert isinstance(frame, Frame)
    return frame


def whole(value: Any) -> Any:
    """Return a value with U+FFFD for each half of a surrogate pair."""
    return json.loads(
        json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


@given(values, names, names | st.integers(0, 2**63))
def test_json_comes_back_as_one_event(value: Any, name: str | None, id: str | int | None) -> None:
    """Every reader finds one event with the name, the id and the value that were written."""
    frame = read_everywhere(encode_event(to_json(value), event=name, id=id))

    assert (name or "message", "" if id is None else str(id)) == (frame.event, frame.id)
    assert whole(value) == json.loads(frame.data)


@given(texts, st.booleans())
def test_any_text_is_one_event(text: str, as_bytes: bool) -> None:
    """Data that is no JSON, which nobody should send, makes no second event either."""
    data: str | bytes = text.encode(errors="surrogatepass") if as_bytes else text

    assert b"\r" not in encode_event(data)
    read_everywhere(encode_event(data, event="x"))


@given(texts, values)
def test_comments_are_no_events(text: str, value: Any) -> None:
    """A comment disturbs nothing, whatever it holds, between two events or before the first."""
    body = comment(text) + KEEP_ALIVE + encode_json(value) + comment(text)

    assert whole(value) == json.loads(read_everywhere(body).data)


@given(values, st.lists(st.integers(0, 200), max_size=4))
def test_cuts_change_nothing(value: Any, places: list[int]) -> None:
    """However the bytes are cut, they are the same event."""
    body = encode_event(to_json(value), event="a", id=1)
    decoder = SSEDecoder()

    pieces = [piece.encode("latin-1") for piece in cut(body.decode("latin-1"), places)]
    frames = [frame for piece in pieces for frame in decoder.feed(piece)]

    assert [read_everywhere(body)] == frames


def test_the_fields_of_an_event() -> None:
    """Name, id and retry stand before the data; lines end in LF."""
    assert b"event: a.b\nid: 7-1\nretry: 50\ndata: {}\n\n" == encode_event("{}", event="a.b", id="7-1", retry=50)
    assert b"data: [1]\n\n" == encode_json([1])
    assert b": hello\n\n" == comment("hello")


def test_raw_line_ends_in_data_are_escaped() -> None:
    """What a reader might take for the end of a line is written as JSON escapes it; a tab is not."""
    data = "a\rb\nc\u2028d\u2029e\x85f\x00g\th"

    assert rb"data: a\rb\nc\u2028d\u2029e\u0085f\u0000g" + b"\th\n\n" == encode_event(data)
    assert encode_event(data) == encode_event(data.encode())
    assert rb'["\u2028\u2029\u0085\u0000"]' == to_json(["\u2028\u2029\x85\x00"])


@pytest.mark.parametrize("bad", ["", "a b", "a\nb", "a\rb", "a\x00b", "é", "a\u2028", "\n", "a\n", "x" * 201])
@pytest.mark.parametrize("field", ["event", "id"])
def test_names_and_ids_are_of_a_fixed_alphabet(field: str, bad: str) -> None:
    """Anything else is refused, and named."""
    fields: dict[str, Any] = {field: bad}
    with pytest.raises(ValueError, match=f"^{field} is up to 200 ASCII letters.*not {re.escape(repr(bad))}"):
        encode_event("{}", **fields)


@pytest.mark.parametrize("bad", [-1, 1.5, "10"])
def test_retry_is_a_natural_number(bad: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match="retry is a number of milliseconds"):
        encode_event("{}", retry=bad)


def test_half_a_surrogate_pair_raises_nothing() -> None:
    """It becomes U+FFFD wherever it stands, and both halves of one pair become a character."""
    value = {"\ud83d": ["\ude00", ("\ud83d\ude00",)]}

    assert {"\ufffd": ["\ufffd", ["😀"]]} == json.loads(to_json(value))
    assert "data: \ufffd\n\n" == encode_event("\ud83d").decode()


def test_what_is_none_is_left_out() -> None:
    """`present` keeps what is false and leaves out what is not there."""
    assert {"b": 0, "c": "", "d": False} == present(a=None, b=0, c="", d=False)
