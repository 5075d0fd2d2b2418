"""Keys that a model writes in pieces are overwritten in each piece."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools.recording import redaction as deltas
from streamtools.recording.redaction import Scrubber
from tests.support.cases import cases, together
from tests.support.planted import KEYS, core

SECRETS = ["hunter2 and more"]
PARTS = [*KEYS.values(), *SECRETS, " ", "\n", '"', "a word", "sk-learn", "é", "\u2028", "\\", "e", "s"]
SHAPES: dict[str, Callable[[str], Any]] = {
    "chat": lambda text: {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": text}}]},
    "chat, arguments": lambda text: {
        "choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}}]
    },
    "Responses": lambda text: {"type": "response.output_text.delta", "delta": text, "logprobs": []},
    "Anthropic": lambda text: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}},
    "Anthropic, arguments": lambda text: {"delta": {"type": "input_json_delta", "partial_json": text}},
    "Gemini": lambda text: {"candidates": [{"content": {"parts": [{"text": text}], "role": "model"}}]},
    "Ollama": lambda text: {"message": {"role": "assistant", "content": text}, "done": False},
    "AI SDK": lambda text: {"type": "tool-input-delta", "inputTextDelta": text},
}


def stream(shape: Callable[[str], Any], pieces: Iterable[str], *, ascii: bool = True) -> bytes:
    """Return the events of a stream with these pieces."""
    return b"".join(
        b"data: %b\n\n" % json.dumps(shape(piece), ensure_ascii=ascii).encode(errors="surrogatepass")
        for piece in pieces
    )


def texts(data: bytes, shape: Callable[[str], Any]) -> str:
    """Return the text in the events of a stream. Check that the rest equals `shape`."""
    marker = "MARKER"
    before, _, after = json.dumps(shape(marker)).partition(marker)
    values = []
    for frame in data.split(b"\n\n")[:-1]:
        line = frame.removeprefix(b"data: ").decode(errors="surrogatepass")
        assert (before, after) == (line[: len(before)], line[len(line) - len(after) :])
        values.append(json.loads(f'"{line[len(before) : len(line) - len(after)]}"'))
    return "".join(values)


def scrubbed(data: bytes, cuts: Iterable[int] = (), *, complete: bool = True) -> bytes:
    """Return the scrubbed stream, which is cut at these positions."""
    scrubber = Scrubber(SECRETS)
    pieces = [scrubber.feed(data[start:stop]) for start, stop in itertools.pairwise([0, *cuts, len(data)])]
    return b"".join(pieces) + scrubber.close(complete=complete)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.deep)])
@together("shape", SHAPES.values(), ids=SHAPES)
def test_keys_in_pieces_are_overwritten(shape: Callable[[str], Any], stride: int) -> None:
    with cases() as case:
        for name, key in KEYS.items():
            with case(name):
                text = f"The key:\n{key}, I think."
                data = stream(shape, [text[at : at + 3] for at in range(0, len(text), 3)])
                written = scrubbed(data)
                assert len(data) == len(written)
                result = texts(written, shape)
                assert core(key).decode() not in result
                assert ("The key:\n" + key[:2], ", I think.") == (result[:11], result[-10:])
                assert written == scrubbed(data, range(1, len(data), stride)) == scrubbed(written)


@given(
    st.lists(st.sampled_from(PARTS), max_size=8),
    st.lists(st.integers(0, 400), max_size=40),
    st.sampled_from(list(SHAPES.values())),
    st.booleans(),
    st.data(),
)
def test_every_cut_gives_the_same(
    parts: list[str], places: list[int], shape: Callable[[str], Any], ascii: bool, draws: st.DataObject
) -> None:
    text = " ".join(parts)
    cuts = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    data = stream(shape, [text[start:stop] for start, stop in itertools.pairwise(cuts)], ascii=ascii)
    whole = scrubbed(data)
    assert len(data) == len(whole)
    assert whole == scrubbed(data, sorted(draws.draw(st.lists(st.integers(0, len(data)), max_size=20))))
    assert whole == scrubbed(data, range(1, len(data)))
    assert whole == scrubbed(whole)
    result = texts(whole, shape) if ascii else whole.decode()
    assert [] == [key for key in KEYS.values() if f" {key} " in f" {text} " and core(key).decode() in result]
    if ascii:
        assert len(text) == len(result)
        assert all(new in (old, "*") for old, new in zip(text, result, strict=True))


def test_only_events_with_the_beginning_of_a_key_are_buffered() -> None:
    shape = SHAPES["chat"]
    first, second, third = (stream(shape, [text]) for text in ("see s", "ome", " more"))
    scrubber = Scrubber()
    assert first[: first.index(b's"}')] == scrubber.feed(first)
    assert first[first.index(b's"}') :] + second == scrubber.feed(second)
    assert third == scrubber.feed(third)
    assert b"" == scrubber.feed(b'data: {"choices":')
    assert b'data: {"choices":\n' == scrubber.feed(b"\n")


def test_buffering_has_a_limit() -> None:
    shape = SHAPES["chat"]
    beginning = stream(shape, ["sk-abc"])
    other = stream(SHAPES["AI SDK"], ["x" * 100])
    scrubber = Scrubber()
    given = scrubber.feed(beginning)
    fed = len(beginning)
    while len(given) < len(beginning):
        given += scrubber.feed(other)
        fed += len(other)
        assert fed <= deltas.MAX_BUFFERED + 2 * len(other)
    assert given.startswith(beginning)
    assert len(given) == fed


def test_half_a_key_in_pieces_is_overwritten_if_the_stream_is_incomplete() -> None:
    data = stream(SHAPES["chat"], ["see sk-", "abc", "def"])
    assert data.replace(b"abc", b"***").replace(b"def", b"***") == scrubbed(data, complete=False)
    assert data == scrubbed(data)
    unfinished = data + b'data: {"delta":{"content":"ghi"}}'
    expected = scrubbed(unfinished, complete=False)
    assert expected == data.replace(b"abc", b"***").replace(b"def", b"***") + b'data: {"delta":{"content":"***"}}'


def test_fields_of_long_lines_are_not_joined() -> None:
    long = b'data: {"content":"' + b"x " * deltas.MAX_LINE + KEYS["groq"].encode() + b'"}\n\n'
    expected = long.replace(KEYS["groq"].encode()[4:], b"*" * (len(KEYS["groq"]) - 4))
    assert expected == scrubbed(long) == scrubbed(long, range(1, len(long), 1000))
    scrubber = Scrubber()
    assert len(long) - 10_000 < len(scrubber.feed(long[:-5]))


def test_each_field_is_joined_separately() -> None:
    pairs = [("sk-abcd", "efgh"), ("efgh", "ijkl"), ("ijklmnopq", ".")]
    data = stream(lambda text: {"delta": {"content": text, "reasoning": dict(pairs)[text]}}, dict(pairs))
    expected = data.replace(b'"sk-abcd"', b'"sk-****"').replace(b'"content": "efgh"', b'"content": "****"')
    assert expected.replace(b"ijklmnopq", b"*" * 9) == scrubbed(data)
    names = stream(lambda text: {"name": text}, ["sk-abcdefgh", "ijklmnopqrst"])
    assert names == scrubbed(names)


def test_a_long_key_in_pieces_is_overwritten() -> None:
    for key in ("sk-" + "a" * 30_000, "eyJ" + "a" * 30 + ".eyJ" + "b" * 3000 + "." + "c" * 9000):
        pieces = [key[at : at + 7] for at in range(0, len(key), 7)]
        scrubber = Scrubber()
        given = b"".join(scrubber.feed(stream(SHAPES["chat"], [piece])) for piece in pieces)
        assert len(stream(SHAPES["chat"], pieces)) == len(given)
        assert key[:3] + "*" * (len(key) - 3) == texts(given, SHAPES["chat"])
