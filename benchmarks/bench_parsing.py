"""Measures the parser for each delta, relative to a bound method that only appends the delta to a list.

    python benchmarks/bench_parsing.py

A time includes creating a parser, feeding it and closing it. Comparisons within streamtools are in separate sections:
several dialects with one dialect, and the machine with the parser.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import texts
from benchmarks.answers import BODIES, TOOLS, Answer, call_in_prose, has_json, many_calls, one_call, plain
from benchmarks.measure import Case, Comparison, Result, Work, main
from streamtools import Limits, Parser, StreamMachine, rules
from streamtools.events import ProviderCompleted, Text, TextDelta
from streamtools.parsing import DIALECTS
from streamtools.parsing.dialects import TAUGHT_DIALECTS
from streamtools.rules import Rule

PROSE = 6.0
MARKDOWN = 24.0
JSON_BODY = 13.0
CONVERTED_BODY = 40.0
SHORT_BODY = 35.0
SMALL_CALLS = 60.0
SEVERAL = 1.3
MACHINE = 2.0
RULES = 2.5
FLAT = 4096  # bytes: what an interpreter may allocate while a million deltas pass
TEXT_ONCE = 2.5  # bytes a character: two for text with a character beyond Latin-1 in it, and what waits to be joined

LITERAL = [
    rules.replace(each, "…")
    for each in (
        "Project Falcon", "ACME Corp", "Blue Harvest", "John Doe", "Jane Roe", "NDA", "Confidential", "<|im_end|>",
        "<|eot_id|>", "\nUser:", "\nHuman:", "Observation:", "【", "password", "internal only", "unreleased", "embargo",
        "Quarterly Numbers", "Zürich office", "guarantee",
    )
]  # fmt: skip
"""Names, words that are not to be said, and stop sequences. Each that begins with a common letter costs more."""
_SYLLABLES = "al an con dis er est in ing ment per pre re ter tion ver".split()  # noqa: SIM905  # a list of words
BLOCK_LIST = [rules.replace(["".join(word) for word in islice(product(_SYLLABLES, repeat=4), 50_000)], "…")]
"""50,000 words that begin as English words do."""
READY_MADE = [
    rules.email(), rules.phone(), rules.iban(), rules.credit_card(), rules.keys(), rules.urls(allow=["example.com"]),
]  # fmt: skip

LIMITS = Limits(calls=1000)
Make = Callable[[], Parser]


class Floor:
    """The reference for all rows."""

    def __init__(self) -> None:
        self.deltas: list[str] = []

    def feed(self, delta: str) -> None:
        self.deltas.append(delta)


def floor(deltas: list[str]) -> Work:
    """Return the work of storing `deltas`."""
    lives = _lives(deltas)

    def run() -> float:
        kept = []  # so that no measured time is spent on taking lists apart
        started = process_time()
        for _ in range(lives):
            kept.append(Floor())
            feed = kept[-1].feed
            for delta in deltas:
                feed(delta)
        return (process_time() - started) / lives

    return run


def parsing(deltas: list[str], make: Make = Parser) -> Work:
    """Return the work of parsing `deltas`."""
    lives = _lives(deltas)

    def run() -> float:
        started = process_time()
        for _ in range(lives):
            parser = make()
            feed = parser.feed
            for delta in deltas:
                feed(delta)
            parser.close()
        return (process_time() - started) / lives

    return run


def ruled(rules: list[Rule]) -> Make:
    """Return a function that creates a parser with rules."""
    return partial(Parser, text_rules=rules)


def machine(deltas: list[str]) -> Work:
    """Return the work of parsing `deltas` in a machine. The source events are created before."""
    events = [TextDelta(delta) for delta in deltas]
    lives = _lives(deltas)

    def run() -> float:
        started = process_time()
        for _ in range(lives):
            run = StreamMachine()
            feed = run.feed
            for event in events:
                feed(event)
            feed(ProviderCompleted(finish_reason="stop", raw_finish_reason="stop"))
            run.close()
        return (process_time() - started) / lives

    return run


def _lives(deltas: list[str]) -> int:
    """Return how often to repeat the work between two readings of the clock, each of which takes a microsecond."""
    return max(1, 40_000 // sum(map(len, deltas)))


def beside_floor(
    section: str,
    name: str,
    answer: Answer,
    target: float | None,
    make: Make = Parser,
    cut: Callable[[str], list[str]] = texts.cut,
) -> Comparison:
    """Return a row that compares parsing an answer with storing its deltas."""
    deltas = cut(answer.text)
    return Comparison(
        section, name, len(deltas), parsing(deltas, make), floor(deltas), partial(check, answer, deltas, make), target
    )


def check(answer: Answer, deltas: list[str], *makes: Make) -> None:
    """Raise AssertionError unless each parser finds the expected text and calls."""
    for make in makes:
        parser = make()
        events = [event for delta in deltas for event in parser.feed(delta)] + parser.close()
        answer.check(events, parser)


def check_machine(text: str) -> None:
    """Raise AssertionError unless a machine shows `text` unchanged and once."""
    run = StreamMachine()
    events = [event for delta in texts.cut(text) for event in run.feed(TextDelta(delta))]
    events += run.feed(ProviderCompleted(finish_reason="stop")) + run.close()
    assert text == "".join(event.text for event in events if isinstance(event, Text))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@dataclass(frozen=True)
class Memory:
    """The memory that is allocated while deltas are fed, after the first tenth of them."""

    section: str
    name: str
    count: int
    make: Callable[[], Callable[[str], object]]
    unit: str
    target: float
    per_character: bool = False

    def check(self) -> None:
        """Do nothing, because other rows check the same texts."""

    def subject(self) -> float:
        """Feed all deltas. Returns bytes instead of seconds."""
        pieces = cycle(range(0, 100_000, texts.DELTA))
        text = texts.prose(101_000)
        feed = self.make()
        tracemalloc.start()
        try:
            for at in (next(pieces) for _ in range(self.count // 10)):
                feed(text[at : at + texts.DELTA])  # each delta is a string of its own, as in life
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            for at in (next(pieces) for _ in range(self.count - self.count // 10)):
                feed(text[at : at + texts.DELTA])
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()

    def measure(self, repeats: int) -> Result:
        grown = self.subject()
        fed = self.count - self.count // 10
        value = grown / (fed * texts.DELTA) if self.per_character else grown
        return Result(self.section, self.name, value, self.unit, self.target, {"deltas": fed, "bytes": grown})


def machine_feed() -> Callable[[str], object]:
    """Return a function that feeds a machine with a delta."""
    feed = StreamMachine().feed
    return lambda delta: feed(TextDelta(delta))


def cases(smoke: bool) -> Iterator[Case]:
    """Yield all rows."""
    size = 2_000 if smoke else 100_000
    prose, markdown, near = plain(texts.prose(size)), plain(texts.markdown(size)), plain(texts.near_markers(size))
    hash_marker = DIALECTS["hash_marker"]

    section = "prose"
    yield beside_floor(section, "plain prose", prose, PROSE)
    yield beside_floor(section, "plain prose, deltas of 1 to 7 characters", prose, None, cut=texts.cut_unevenly)
    yield beside_floor(section, "Markdown on every line", markdown, MARKDOWN)
    for shape in (texts.headings, texts.tables, texts.code_spans, texts.short_paragraphs):
        target = 7.4 if shape is texts.short_paragraphs else 22.1  # 1.3 times what the two rows are at: 5.7 and 17
        yield beside_floor(section, shape.__name__.replace("_", " "), plain(shape(size)), target)
    yield beside_floor(section, "near-markers", near, None)
    yield beside_floor(section, "one call in 10 KB of prose", call_in_prose(hash_marker, 10_000), None)

    section = "calls, call_deltas on"
    tells = partial(Parser, call_deltas=True, limits=LIMITS)
    yield beside_floor(section, "100 small calls", many_calls(hash_marker, 100), SMALL_CALLS, tells)
    for kilobytes in (1, 2) if smoke else (1, 10, 100, 1000):
        answer = one_call(hash_marker, texts.arguments(kilobytes * 1000))
        target = SHORT_BODY if kilobytes == 1 else JSON_BODY
        yield beside_floor(section, f"arguments of {kilobytes:,} KB", answer, target, tells)
    answer = one_call(hash_marker, texts.arguments(size))
    name = f"arguments of {size // 1000} KB, deltas of 1 to 7"
    yield beside_floor(section, name, answer, None, tells, cut=texts.cut_unevenly)

    for id in ("hash_marker", "hermes_json"):  # the second holds line feeds back, which may belong to a marker
        alone = partial(Parser, dialects=id)
        yield beside_floor(f"{id} alone", "plain prose", prose, PROSE, alone)
        yield beside_floor(f"{id} alone", "Markdown on every line", markdown, MARKDOWN, alone)

    for id, kind in BODIES.items():
        dialect = DIALECTS[id]
        alone = partial(Parser, dialects=id, tools=TOOLS, call_deltas=True, limits=LIMITS)
        section = f"{kind} ({id})"
        small = SMALL_CALLS if has_json(dialect) else None
        yield beside_floor(section, "100 small calls", many_calls(dialect, 100), small, alone)
        answer = one_call(dialect, texts.arguments(size))
        target = JSON_BODY if has_json(dialect) else CONVERTED_BODY
        yield beside_floor(section, f"arguments of {size // 1000} KB", answer, target, alone)

    one = partial(Parser, dialects="hash_marker")
    for kind, answer in (("plain prose", prose), ("Markdown", markdown), ("near-markers", near)):
        deltas = texts.cut(answer.text)
        for name, make in (("two", partial(Parser, dialects=TAUGHT_DIALECTS)), ("auto", Parser)):
            yield Comparison(
                "several dialects enabled",
                f"{kind}: {name}",
                len(deltas),
                parsing(deltas, make),
                parsing(deltas, one),
                partial(check, answer, deltas, make, one),
                SEVERAL if kind != "near-markers" else None,  # text that looks like more dialects is more work
                "× one",
            )

    for name, cut in (("deltas of 4", texts.cut), ("deltas of 1 to 7", texts.cut_unevenly)):
        deltas = cut(prose.text)
        for kind, made in (
            ("20 literal rules", LITERAL),
            ("50,000 words", BLOCK_LIST),
            ("those that are ready made", READY_MADE),
        ):
            yield Comparison(
                "rules on the text",
                f"{kind}, {name}",
                len(deltas),
                parsing(deltas, ruled(made)),
                parsing(deltas),
                partial(check, prose, deltas, ruled(made)),
                RULES if made is LITERAL and cut is texts.cut else None,
                "× parser",
            )

    deltas = texts.cut(prose.text)
    yield Comparison(
        "machine and UI events on top of the parser",
        "plain prose",
        len(deltas),
        machine(deltas),
        parsing(deltas),
        partial(check_machine, prose.text),
        MACHINE,
        "× parser",
    )

    section, count = "memory, prose", 10_000 if smoke else 1_000_000
    yield Memory(section, "parser", count, lambda: Parser().feed, "bytes more", FLAT)
    yield Memory(section, "machine", count, machine_feed, "bytes/char", TEXT_ONCE, per_character=True)


if __name__ == "__main__":
    main("parsing", cases)
