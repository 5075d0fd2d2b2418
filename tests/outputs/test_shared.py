"""What readers of one run share: each gets the bytes that an encoder of his own writes, from where he begins on."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import outputs
from streamtools.errors import Code
from streamtools.events import Done, Text, UIEvent, Warning
from streamtools.outputs import Encoder, shared
from streamtools.outputs.shared import Sharing, Shelf
from tests.support.runs_told import RUNS, told

ALIKE: dict[str, Callable[[], Encoder]] = {
    **{name: outputs.FORMATS[name] for name in ("native", "ai_sdk", "ag_ui", "text")},
    "lines": lambda: outputs.native(framing="ndjson", exclude=()),
    "ag_ui, options": lambda: outputs.ag_ui(thread_id="t", protocol_version="1.0", known_calls=["call_1"]),
    "ai_sdk, options": lambda: outputs.ai_sdk(6, message_id="m", progress="preliminary", metadata={"n": 1}),
}
"""Those that are shared; the others are answers of a model's API, each with an id of its own."""
MAKE: dict[str, Callable[[], Encoder]] = {
    **ALIKE,
    "text, rendered": lambda: outputs.text(render=outputs.plain_text.UiTexts().render),
}


class Reader:
    """One that is given events as a log gives them, and what an encoder of its own makes of the same."""

    def __init__(self, shelf: Shelf, name: str, after: int) -> None:
        self.name = name
        self.position = after
        self.written = Sharing(shelf, MAKE[name](), after)
        self.body = b""
        self.had: list[UIEvent] = []

    def read(self, events: Sequence[UIEvent]) -> None:
        """Take events that follow."""
        self.had += events
        self.position = events[-1].seq
        self.body += self.written.write(events)

    def own(self, events: Sequence[UIEvent], *, closed: bool = False) -> bytes:
        """Return the bytes of an encoder for one."""
        encoder = MAKE[self.name]()
        return b"".join(map(encoder.encode, events)) + (encoder.close() if closed else b"")


@pytest.mark.parametrize("name", MAKE)
@given(seed=st.integers(0, 2**32), run=st.sampled_from([*RUNS]))
def test_each_reader_gets_his_own_bytes(name: str, seed: int, run: str) -> None:
    """Whoever comes when, reads how much at once, and is behind how far: the bytes are those of a single reader."""
    random = Random(seed)
    events = [*RUNS[run]]
    at = min(2, len(events) - 1)
    events[at:at] = [Text(f"word {number} ") for number in range(random.randrange(60))]
    events = told(*events)
    shelf = Shelf()
    readers: list[Reader] = []
    there = 0  # events of the log
    with patch.object(shared, "TOGETHER", random.choice([100, 1000, 30_000])), patch.object(shared, "ALONE", 200):
        while there < len(events) or any(reader.position < there for reader in readers):
            there = min(len(events), there + random.randrange(4))
            if random.random() < 0.3 and len(readers) < 12:
                after = random.randrange(there + 1) if MAKE[name]().resumable else 0
                readers.append(Reader(shelf, name, after))
            for reader in random.sample(readers, random.randrange(len(readers) + 1)):
                if random.random() < 0.02:
                    reader.written.leave()
                    readers.remove(reader)
                elif some := events[reader.position : min(there, reader.position + random.choice([1, 1, 5, 64]))]:
                    reader.read(some)
    for reader in readers:
        assert reader.own(reader.had) == reader.body
        assert b"" == reader.written.close()


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("ahead", [0, 1, 7])
def test_a_reader_that_is_left_behind(name: str, ahead: int) -> None:
    """Where the log has dropped what is next, he gets what others wrote of it, and the rest as if he had read it."""
    events = told(*RUNS["text"][:2], *(Text(f"word {number} ") for number in range(20)), *RUNS["text"][-2:])
    for dropped in range(6, 18):
        shelf = Shelf()
        slow, fast = (Reader(shelf, name, 0) for _ in range(2))
        for reader in (slow, fast):
            reader.read(events[:5])
        if ahead:
            fast.read(events[5 : 5 + ahead])
        slow.read([Warning(Code.RESYNC, "dropped", seq=dropped), *events[dropped : dropped + 3]])
        slow.read(events[dropped + 3 :])
        ways = []
        for had in {5, 5 + ahead}:
            gap = [Warning(Code.RESYNC, "dropped", seq=dropped)] if had < dropped or had == 5 else []
            ways.append(slow.own([*events[:had], *gap, *events[max(had, dropped) if had > 5 else dropped :]]))
        assert slow.body in ways
        fast.read(events[5 + ahead :])
        assert fast.own(events) == fast.body


@pytest.mark.parametrize("name", ALIKE)
def test_a_body_that_ends_before_its_done(name: str) -> None:
    """It ends in truth about what was sent; others go on."""
    events = told(*RUNS["text"])
    for cut in range(len(events)):
        shelf = Shelf()
        one, other = (Reader(shelf, name, 0) for _ in range(2))
        if cut:
            one.read(events[:cut])
            other.read(events[:cut])
        assert one.own(events[:cut], closed=True) == one.body + one.written.close()
        other.read(events[cut:])
        assert other.own(events) == other.body


@pytest.mark.parametrize("name", ALIKE)
def test_five_hundred_readers_cost_one_encoding(name: str) -> None:
    """Each event is written once; and where a hundred come back to the beginning, once more for all of them."""
    events = told(*RUNS["text"][:2], *(Text(f"word {number} ") for number in range(400)), *RUNS["text"][-2:])
    shelf = Shelf()
    readers = [Reader(shelf, name, 0) for _ in range(500)]
    kind: Any = type(MAKE[name]())
    encode, seen = kind.encode, list[UIEvent]()

    def counted(encoder: Encoder, event: UIEvent) -> bytes:
        seen.append(event)
        written: bytes = encode(encoder, event)
        return written

    with patch.object(kind, "encode", counted):
        for start in range(0, 300, 3):
            for reader in readers:
                reader.read(events[start : start + 3])
        assert events[:300] == seen
        again = [Reader(shelf, name, 0) for _ in range(100)]
        for start in range(0, 300, 64):
            for reader in again:
                reader.read(events[start : min(start + 64, 300)])
        assert 600 >= len(seen)
        seen.clear()
        for reader in [*again, *readers]:
            reader.read(events[300:])
        assert events[300:] == seen
    assert {readers[0].own(events)} == {reader.body for reader in [*readers, *again]}


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_kept_is_bounded(name: str) -> None:
    """For a reader alone, next to nothing; beside one that stands still, what he has not had, up to a bound."""
    events = told(*RUNS["text"][:2], *(Text(f"word {number} ") for number in range(5000)), *RUNS["text"][-2:])
    shelf = Shelf()
    fast = Reader(shelf, name, 0)

    def kept() -> int:
        return sum(written.size for each in shelf._written if (written := each()) is not None)

    for event in events[:1000]:
        fast.read([event])
        assert kept() <= shared.ALONE + 300
    slow = Reader(shelf, name, 0)
    slow.read(events[:10])
    for event in events[1000:-1]:
        fast.read([event])
        assert kept() <= 2 * (shared.TOGETHER + 300)
    for start in range(10, len(events) - 1, 64):
        slow.read(events[start : min(start + 64, len(events) - 1)])
    for reader in (slow, fast):
        reader.read(events[-1:])
        assert isinstance(reader.had[-1], Done)
        assert reader.own(events) == reader.body
        reader.written.leave()
    assert 0 == kept()


def test_who_writes_for_one_reader() -> None:
    """The answers of a model's API, and what somebody else has made."""

    class Own(outputs.native):
        pass

    for make in (outputs.openai, outputs.responses, outputs.anthropic, Own, MAKE["text, rendered"]):
        shelf = Shelf()
        writing = [Sharing(shelf, make(), 0) for _ in range(2)]
        assert len(writing[0].write(RUNS["text"])) == len(writing[1].write(RUNS["text"]))
        assert shelf._written == []


def test_long_options_are_not_kept() -> None:
    """They come from clients, and readers are told apart without them when they have gone."""
    tracemalloc.start()
    try:
        for number in range(20):
            Sharing(Shelf(), outputs.ag_ui(thread_id=f"{number}\ud800" + "x" * 100_000), 0)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 500_000


def test_options_are_told_apart() -> None:
    """What is equal to Python, and written otherwise, is another option."""
    shelf = Shelf()
    events = told(*RUNS["text"])
    for metadata in ({"n": 1}, {"n": True}, {"n": 1.0}, {"n": object()}, None):
        encoder, own = (outputs.ai_sdk(metadata=metadata) for _ in range(2))
        if metadata is not None and type(metadata["n"]) is object:
            with pytest.raises(TypeError):
                Sharing(shelf, encoder, 0).write(events)
            continue
        assert b"".join(map(own.encode, events)) == Sharing(shelf, encoder, 0).write(events)
