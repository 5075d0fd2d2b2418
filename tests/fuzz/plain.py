"""The fuzz engine: it mutates inputs, and keeps each input with a new kind of outcome. It is deterministic."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from tests.fuzz.running import LONGEST, Finding, Report, grew_too_much, peak, try_out
from tests.fuzz.target import HEAD, Target

_KEPT = 3000  # inputs; over that, one in the place of another

Mutation = Callable[[random.Random, bytes, Sequence[bytes], Sequence[bytes]], bytes]


def _place(chance: random.Random, body: bytes) -> int:
    return chance.randrange(len(body) + 1)


def _stretch(chance: random.Random, body: bytes, longest: int = 64) -> tuple[int, int]:
    begin = _place(chance, body)
    return begin, min(len(body), begin + chance.randrange(1, longest))


def _insert_word(chance: random.Random, body: bytes, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    at = _place(chance, body)
    return body[:at] + chance.choice(words) + body[at:]


def _overwrite_with_word(chance: random.Random, body: bytes, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    at, word = _place(chance, body), chance.choice(words)
    return body[:at] + word + body[at + len(word) :]


def _change_byte(chance: random.Random, body: bytes, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    at = _place(chance, body)
    return body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]


def _leave_out(chance: random.Random, body: bytes, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    begin, end = _stretch(chance, body, 24)
    return body[:begin] + body[end:]


def _repeat(chance: random.Random, body: bytes, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    begin, end = _stretch(chance, body)
    return body[:end] + body[begin:end] * chance.choice((1, 1, 2, 9)) + body[end:]


def _move(chance: random.Random, body: bytes, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    begin, end = _stretch(chance, body)
    rest = body[:begin] + body[end:]
    at = _place(chance, rest)
    return rest[:at] + body[begin:end] + rest[at:]


def _splice(chance: random.Random, body: bytes, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    other = chance.choice(others)[HEAD:]
    return body[: _place(chance, body)] + other[_place(chance, other) :]


def _cut_off(chance: random.Random, body: bytes, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    return body[: _place(chance, body)]


MUTATIONS: Sequence[Mutation] = (
    *(_insert_word, _insert_word, _insert_word, _overwrite_with_word, _change_byte),
    *(_leave_out, _leave_out, _repeat, _move, _splice, _splice, _cut_off),
)


def mutate(chance: random.Random, data: bytes, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """Return a mutation of `data`."""
    head, body = bytearray(data[:HEAD].ljust(HEAD, b"\0")), data[HEAD:]
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        body = chance.choice(MUTATIONS)(chance, body, words, others)
    while chance.random() < 0.4:
        head[chance.randrange(HEAD)] = chance.choice((0, 1, 2, 3, 4, 8, 16, chance.randrange(256)))
    return bytes(head) + body[: LONGEST - HEAD]


def inputs(target: Target, seed: int, first: Sequence[bytes], corpus: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the inputs `first`, then endlessly mutations of the current `corpus`."""
    chance = random.Random(f"{seed} {target.name}")
    yield from first
    while True:
        known = corpus or first
        parent = known[-1 - int(len(known) * chance.random() ** 2)]  # rather a new one
        yield mutate(chance, parent, target.words, known)


def run(
    target: Target,
    *,
    seed: int,
    seconds: float | None = None,
    runs: int | None = None,
    known: Iterable[bytes] = (),
    keep: Callable[[bytes], object] = lambda data: None,
) -> tuple[Report, Finding | None]:
    """Fuzz a target until it breaks, or so many `seconds` of processor time have gone, or `runs` inputs.

    `known` are inputs to begin with beside the seeds, and `keep` gets each that is worth keeping.
    """
    report = Report(target.name)
    corpus: list[bytes] = []
    seen: set[object] = set()
    beginning = time.process_time()
    chance = random.Random(seed)
    first = [*target.seeds(), *known]
    before = peak()
    finding = None
    for data in inputs(target, seed, first, corpus):
        report.executions += 1
        kinds, finding = try_out(target, data)
        if finding is not None:
            break
        if report.executions <= len(first):
            before = peak()
        if not kinds <= seen:
            seen |= kinds
            keep(data)
            if len(corpus) < _KEPT:
                corpus.append(data)
            else:
                corpus[chance.randrange(_KEPT)] = data
        report.seconds = time.process_time() - beginning
        if (seconds is not None and report.seconds >= seconds) or report.executions == runs:
            break
    report.corpus = len(corpus)
    report.peak = peak()
    report.growth = report.peak - before
    return report, finding or grew_too_much(target, report.growth)
