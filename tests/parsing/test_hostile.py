"""Tests of hostile streams: no exception leaves the pipeline, it ends with one `done`, and memory is bounded.

The bounds are generous multiples of the limits. Without a limit, each stream would exceed them by far. Streams are
created while they are read, so that only the memory of the pipeline is measured.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import anyio
import anyio.lowlevel
import pytest

from streamtools import Guards, ToolStream, TurnResult, sources
from streamtools.errors import Code
from streamtools.events import Call, Done, Error, SourceEvent, Text, TextDelta, UIEvent, Warning
from streamtools.limits import Limits
from tests.support.bounds import peak
from tests.support.options import grouped

pytestmark = pytest.mark.deep

KIB, MIB = 1024, 1024 * 1024


def add(a: float = 0, b: float = 0) -> float:
    return a + b


class RunEvents:
    """The events of a run. They are not kept, as in a consumer."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.codes: list[Code] = []
        self.shown = 0
        self.done: Done | None = None
        self.calls: list[Call] = []
        self.last_seq = 0

    def take(self, event: UIEvent) -> None:
        assert self.done is None, "nothing follows done"
        assert event.seq == self.last_seq + 1
        self.last_seq = event.seq
        self.kinds[event.type] = self.kinds.get(event.type, 0) + 1
        match event:
            case Text(text):
                self.shown += len(text)
                return
            case Error(code) | Warning(code):
                self.codes.append(code)
            case Call():
                self.calls.append(event)
            case Done():
                self.done = event
        assert event.to_json()


def run(
    chunks: Iterable[Any], make: Callable[[Any], Any] = sources.openai, **options: Any
) -> tuple[RunEvents, TurnResult]:
    """Return the events and the result of the whole pipeline for a stream."""
    seen = RunEvents()

    async def consume() -> TurnResult:
        async with ToolStream(make(iter(chunks)), tools=[add], **grouped(**options)) as events:
            async for event in events:
                seen.take(event)
        return events.result

    return seen, anyio.run(consume)


class Batches:
    """A source of many text deltas, which arrive in batches as from a fast network."""

    def __init__(self, deltas: Iterator[str], size: int = 500) -> None:
        self._deltas = deltas
        self._size = size

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[SourceEvent]:
        await anyio.lowlevel.checkpoint()
        batch: list[SourceEvent] = [TextDelta(delta) for delta in itertools.islice(self._deltas, self._size)]
        if not batch:
            raise StopAsyncIteration
        return batch

    async def aclose(self) -> None:
        """There is nothing to close."""


def delta(text: str) -> bytes:
    """Return a frame with one piece of text."""
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def words(count: int) -> Iterator[str]:
    """Yield deltas. No two of them are the same object."""
    return (f"{number} " for number in range(count))


def around(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield an answer: these frames, then a regular end."""
    yield from frames
    yield END


@pytest.mark.parametrize("make", [sources.openai, sources.latitude])
def test_random_bytes_end_as_an_interrupted_stream(make: Callable[[Any], Any]) -> None:
    for seed in range(60):
        generator = random.Random(seed)
        pieces = [b"data: ", b"event: error", b"\n\n", b"\r\n", b"{", b'"', b"\xef\xbb\xbf", b"\xff", b"[DONE", b":"]
        noise = [generator.choice(pieces) if seed % 2 else generator.randbytes(40) for _ in range(200)]
        seen, _ = run(noise, make)
        assert seen.done is not None
        assert "failed" == seen.done.reason


def test_good_frames_between_random_bytes_are_read() -> None:
    """A bad frame costs itself, and at most one more frame whose beginning it holds."""
    generator = random.Random(7)
    frames = [delta(f"{at} ") if at % 2 else b"data: " + generator.randbytes(30) + b"\n\n" for at in range(400)]
    seen, result = run(around(frames))
    assert (seen.done and seen.done.reason) == "finished"
    assert result.text.count(" ") > 180
    assert Code.BAD_FRAME in seen.codes


def test_a_line_of_50_megabytes_is_skipped_without_being_stored() -> None:

    def line() -> Iterator[bytes]:
        yield delta("before ")
        yield b'data: {"choices":[{"delta":{"content":"'
        for _ in range(800):
            yield b"x" * (64 * KIB)
        yield b'"}}]}\n\n'
        yield delta("after")
        yield END

    outcome: list[tuple[RunEvents, TurnResult]] = []
    held = peak(lambda: outcome.append(run(line())))
    ((seen, result),) = outcome
    assert (result.text, seen.codes) == ("before after", [Code.SKIPPED])
    assert held < 3 * Limits().frame


def test_an_endless_text_is_stored_once() -> None:
    """Neither the result nor the machine holds all the pieces, which take more memory."""
    count = 100_000
    size = sum(map(len, words(count)))
    outcome: list[tuple[RunEvents, TurnResult]] = []
    held = peak(lambda: outcome.append(run(words(count), Batches)))
    ((seen, result),) = outcome
    assert size == seen.shown == len(result.text)
    assert held < 45 * count  # the pieces alone take 63


CALLS = ("###:", '###:{"', "~~~tool_call\n", "~~~tool_call\n{", "###result a: {")
OPENERS = [*CALLS, "<think>", *"#~`\\", "```\n", "\n> "]


@pytest.mark.parametrize("opener", OPENERS, ids=ascii)
def test_a_megabyte_of_openers_is_read_to_the_end(opener: str) -> None:
    """The memory for calls is bounded."""

    def read(size: int) -> tuple[RunEvents, TurnResult]:
        text = opener * (size // len(opener))
        deltas = (text[at : at + 1000] for at in range(0, len(text), 1000))
        return run(itertools.chain(deltas, ["\n"]), Batches, limits=Limits(calls=4))

    seen, result = read(MIB)
    assert (seen.done and seen.done.reason) == "failed"  # it has no terminator
    assert len(seen.calls) <= 4
    assert len(result.errors) <= 6
    assert len(result.warnings) <= 1000
    assert len(result.text) <= MIB + 1
    held = peak(lambda: read(MIB // 32))
    assert held < 2 * MIB


CHARACTERS = ["\ud83d", "\udc00", "\0", "\ufeff", "\u2028", "\u202e", "\x1b[2J", "\x7f", "\U0010ffff", "a\u0300" * 50]


@pytest.mark.parametrize("character", CHARACTERS, ids=ascii)
def test_odd_characters_are_text_arguments_or_an_error(character: str) -> None:
    """Lone surrogates, NULs and similar characters."""
    written = f'a{character}b\n###:{{"name":"add","note":"{character}"}}\n~~~tool_call\n{{"name":"{character}"}}\n~~~\n'
    for make, chunks in (
        (sources.text, list(written)),
        (sources.text, [written]),
        (sources.openai, around(map(delta, written))),
        (Batches, iter(written)),
    ):
        seen, result = run(chunks, make)
        assert seen.done is not None
        assert len(seen.calls) + len(result.errors) >= 2
        assert json.dumps(result.messages(), ensure_ascii=False).encode()


def test_calls_over_the_limit_are_errors_and_do_not_run() -> None:
    call = '###:{"name":"add","arguments":{"a":1}}\n'
    seen, result = run(around(delta(call) for _ in range(10_000)), guards=Guards(repeated_calls=None))
    limit = Limits().calls
    assert limit == len(seen.calls) == len(result.outcomes) == seen.kinds["executed"]
    assert seen.codes.count(Code.TOO_MANY_CALLS) == 10_000 - limit
    assert [Code.TOO_MANY_CALLS] == [error.code for error in result.errors]
    assert result.messages()[1]["content"].count("###result") == limit + 1
    assert (seen.done and seen.done.reason) == "finished"
