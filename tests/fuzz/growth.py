"""Growth: inputs made by repetition, held to work in proportion to their length.

A *grammar* names what an input is made of: the messages of a history, the frames of a provider, the parts of a schema.
A *family* takes a few of its productions and says of each whether it stands once or `n` times, with numbers that rise,
fall or stay, alone or in turn with the next, and what in it is replaced by something odd. So a family is four bytes for
each production, which an engine chooses, and an input of any length; the seeds are all productions, and all pairs.

Work is counted and not timed: how often each line of the package runs, and how many bytes are asked for while it does,
which tell of a copy that is made in C. Each may grow as the input does. What neither sees is a scan in C that keeps
nothing.
"""

from __future__ import annotations

import gc
import itertools
import json
import math
import os
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeAlias

from tests.fuzz.target import Input, Target, seed

NUMBER, NEXT, LONG, MANY = "\xa4", "\xa4+", "\xa7", "\xd7"
"""What stands for the number of a repetition, for the next one, for a text that is as long as there are repetitions,
and, as the first member of a list, for as many of the second; in what is repeated itself, for a few.
"""

_FEW, _SOME, _MANY = (6, 13), (24, 48, 96), (64, 128, 256)
_EXPLODES = 4.0  # the exponent of what is worse than any power that is worth to be measured
_MORE = 1.5  # times as much as in proportion, and so many lines and bytes, has grown too much
_LINES, _BYTES = 300, 4 * 1024
_WIDTH = 64  # characters of a long text for each repetition
_WHOLE = 300_000  # characters of an input whose work is not counted
_SHORT = 4  # repetitions in a production that is repeated itself
_STEPS = 3
_COUNTED = tuple(str(Path(__file__).parents[2] / each) + os.sep for each in ("streamtools", "tests"))
_ODD: tuple[Any, ...] = (5, "", None, [], {}, True, NUMBER, LONG, [5], {"a": 1}, -1, [MANY, 5])


RISING, SAME, FALLING, ONCE, IN_TURN = 0, 1, 2, 3, 4
"""How a production is repeated: with numbers that rise, stay or fall, or once; or beside that in turn with the next."""

Place: TypeAlias = tuple[str, int]


class Work(NamedTuple):
    """How often each line ran, with the bytes that were asked for, and how many characters the input has."""

    places: dict[Place, list[int]]
    length: int

    @property
    def total(self) -> int:
        """How many lines ran."""
        return 1 + sum(lines for lines, _ in self.places.values())


class Step(NamedTuple):
    """One production of a family, how it is repeated, and which of its values is replaced by which odd one."""

    production: int
    mode: int = 0
    place: int = 0
    odd: int = 0

    @property
    def alone(self) -> bool:
        """Whether it stands once."""
        return self.mode % 4 == ONCE

    def numbers(self, count: int) -> list[int]:
        """Return the numbers of its repetitions."""
        rising = list(range(count))
        return (rising, [0] * count, rising[::-1], [0])[self.mode % 4]


@dataclass(frozen=True)
class Grammar:
    """What inputs of one kind are made of, what stands around them, and what is done with the parts of one."""

    productions: Sequence[Any]
    work: Callable[[list[Any]], object]
    first: Sequence[Any] = ()
    last: Sequence[Any] = ()

    def write(self, steps: Sequence[Step], count: int) -> list[Any]:
        """Return the parts of an input."""
        parts = [fill(each, 0, count) for each in self.first]
        runs = [
            [fill(self._odd(step), number, count if step.alone else _SHORT) for number in step.numbers(count)]
            for step in (step._replace(production=step.production % len(self.productions)) for step in steps)
        ]
        at = 0
        while at < len(runs):
            if steps[at].mode & IN_TURN and at + 1 < len(runs):
                pairs = itertools.zip_longest(runs[at], runs[at + 1])
                parts += [each for pair in pairs for each in pair if each is not None]
                at += 1
            else:
                parts += runs[at]
            at += 1
        return parts + [fill(each, 0, count) for each in self.last]

    def _odd(self, step: Step) -> Any:
        production = self.productions[step.production]
        if not step.odd or isinstance(production, str):
            return production
        places = list(_places(production))
        return _put(production, places[step.place % len(places)], _ODD[step.odd % len(_ODD)])


def target(name: str, grammar: Grammar) -> Target:
    """Return the target that holds the families of a grammar to linear work."""
    kinds = range(len(grammar.productions))
    families = [[Step(kind, mode)] for kind in kinds for mode in (RISING, SAME, ONCE)]
    families += [[Step(one, mode), Step(other)] for mode in (RISING, ONCE) for one in kinds for other in kinds]
    random.Random(name).shuffle(families)  # what is alike is not tried out in a row

    def check(given: Input) -> Iterator[object]:
        steps = read(given.body)
        if not steps:
            return
        hold(grammar, steps)
        if given.wants(0):
            count = 1000
            while length(parts := grammar.write(steps, count)) < _WHOLE and count < 10_000:
                count *= 2
            grammar.work(parts)
        yield from ((each.production % len(kinds), each.mode % 8, each.place, bool(each.odd)) for each in steps)
        yield tuple(each.production % len(kinds) for each in steps)

    def seeds() -> list[bytes]:
        return [seed(bytes(itertools.chain(*steps))) for steps in families]

    words = [bytes(Step(kind, mode)) for kind in kinds for mode in range(8)]
    return Target(f"growth:{name}", check, seeds, words)


def read(body: bytes) -> list[Step]:
    """Return the steps that the bytes of an input are."""
    return [Step(*body[at : at + 4]) for at in range(0, min(len(body), 4 * _STEPS) // 4 * 4, 4)]


def hold(grammar: Grammar, steps: Sequence[Step]) -> None:
    """Raise AssertionError if the work of a family, on any line, grows faster than its input does."""
    small, large = (_measure(grammar, steps, count) for count in _FEW)
    longer = math.log(max(1.5, large.length / small.length))
    power = math.log(large.total / small.total) / longer
    assert power < _EXPLODES, (
        f"from {_FEW[0]} to {_FEW[1]} repetitions, lines grow by the power {power:.1f}: " + _shown(grammar, steps)
    )
    suspects = _grown(*(_measure(grammar, steps, count) for count in _SOME))
    if suspects:
        grown = _grown(*(_measure(grammar, steps, count) for count in _MANY)) & suspects
        places = ", ".join(f"{Path(file).name}:{line}" for file, line in sorted(grown))
        assert not grown, f"the work grows by a power of the length, at {places}: " + _shown(grammar, steps)


def _grown(small: Work, middle: Work, large: Work) -> set[Place]:
    """Return the lines whose work grows by more, and half as much again, with the second stretch of the input.

    Two stretches are compared, because what begins at a limit is in no proportion to the whole.
    """
    factor = _MORE * max(1.5, (large.length - middle.length) / max(1, middle.length - small.length))
    grown = set()
    for place, last in large.places.items():
        before, first = middle.places.get(place, [0, 0]), small.places.get(place, [0, 0])
        more = [(last[at] - before[at]) - factor * (before[at] - first[at]) for at in (0, 1)]
        if more[0] > _LINES or more[1] > _BYTES:
            grown.add(place)
    return grown


def _measure(grammar: Grammar, steps: Sequence[Step], count: int) -> Work:
    parts = grammar.write(steps, count)
    return Work(measure(lambda: grammar.work(parts)), length(parts))


def _shown(grammar: Grammar, steps: Sequence[Step]) -> str:
    texts = (str(grammar.productions[step.production % len(grammar.productions)])[:200] for step in steps)
    return "; ".join(f"{text} {step}" for text, step in zip(texts, steps, strict=True))


def measure(work: Callable[[], object]) -> dict[Place, list[int]]:
    """Return for each line of the package how often it runs in `work`, and how many bytes are asked for meanwhile."""
    places: dict[Place, list[int]] = {}
    known: dict[CodeType, bool] = {}
    running, last = [0, 0], 0
    traced, reset = tracemalloc.get_traced_memory, tracemalloc.reset_peak

    def enter(frame: FrameType, what: str, _: object) -> Any:
        code = frame.f_code
        if code not in known:
            known[code] = code.co_filename.startswith(_COUNTED)
        return count if known[code] else None

    def count(frame: FrameType, what: str, _: object) -> Any:
        nonlocal running, last
        peak = traced()[1]
        if peak > last:
            running[1] += peak - last
        place = frame.f_code.co_filename, frame.f_lineno
        found = places.get(place)
        if found is None:
            found = places[place] = [0, 0]
        running = found
        running[0] += 1
        reset()
        last = traced()[0]
        return count

    before = sys.gettrace()
    collects = gc.isenabled()
    gc.disable()
    tracemalloc.start()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
        tracemalloc.stop()
        if collects:
            gc.enable()
    return places


def fill(template: Any, number: int, count: int) -> Any:
    """Return a production as its repetition of this `number` is, of so many."""
    if isinstance(template, str):
        if template in (NUMBER, NEXT):
            return number + (template == NEXT)
        if NUMBER in template:
            template = template.replace(NEXT, str(number + 1)).replace(NUMBER, str(number))
        return template.replace(LONG, "x" * (_WIDTH * count)) if LONG in template else template
    if isinstance(template, dict):
        return {str(fill(key, number, count)): fill(each, number, count) for key, each in template.items()}
    if isinstance(template, list):
        if template[:1] == [MANY]:
            return [fill(template[1], each, count) for each in range(count)]
        return [fill(each, number, count) for each in template]
    return template


def length(parts: Sequence[Any]) -> int:
    """Return how many characters the parts of an input have."""
    return sum(len(each) if isinstance(each, str) else len(json.dumps(each)) for each in parts) or 1


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in members:
        yield from _places(each, (*path, key))


def _put(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = _put(changed[path[0]], path[1:], other)
    return changed
