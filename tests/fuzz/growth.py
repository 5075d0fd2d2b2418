"""Growth: inputs that are made by repetition must take work in proportion to their length.

A *grammar* lists the parts of an input: the messages of a history, the frames of a provider, the parts of a schema. A
*family* uses a few of these productions. Each occurs once or `n` times, with numbers that rise, fall or stay, alone or
in turn with the next production. One of its values may be replaced by an odd value. So a family is four bytes for each
production, chosen by an engine, and its input has any length. The seeds are all productions and all pairs.

Work is counted, not timed, at points of the code (`tests.fuzz.points`). Two counts may each grow only as the input
does: the passes of each point, and the bytes requested after it, which show copies in C. A scan in C that stores
nothing is not seen.

A family is measured with few repetitions. If a count seems to grow, the repetitions are doubled, until it does not
grow, or the input is longer than any look-back of a reader.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tests.fuzz.points import Counts, Place, Points, TooMany, measure
from tests.fuzz.target import Input, Target, seed

NUMBER, NEXT, LONG, MANY = "\xa4", "\xa4+", "\xa7", "\xd7"
"""What stands for the number of a repetition, for the next one, for a text that is as long as there are repetitions,
and, as the first member of a list, for as many of the second; in what is repeated itself, for a few.
"""

_FEWEST = 6  # those of the first look at all families
_FEW = 24  # repetitions to begin with, if four times as many are not too long
_ENOUGH, _LONG_ENOUGH = 256, 16 * 1024  # repetitions and characters at which what still seems to grow does
_LONGEST = 400_000  # characters of an input that is measured
_WHOLE = 300_000  # characters of an input whose work is not counted
_MOST, _MOST_EACH = 50_000, 100  # points that are passed for an input, and for each of its characters
_MORE = 1.25  # times as much as in proportion has grown too much, and for each repetition so many passes, or bytes
_PASSES, _BYTES = 1.5, 20
_WIDTH = 64  # characters of a long text for each repetition
_SHORT = 4  # repetitions in a production that is repeated itself
_STEPS = 3
_ODD: tuple[Any, ...] = (5, "", None, [], {}, True, NUMBER, LONG, [5], {"a": 1}, -1, [MANY, 5])


RISING, SAME, FALLING, ONCE, IN_TURN = 0, 1, 2, 3, 4
"""How a production is repeated: with numbers that rise, stay or fall, or once; or beside that in turn with the next."""

Work: TypeAlias = Callable[[Any], object]


class Measured(NamedTuple):
    """The passes of each point and the bytes that it requests, for a number of repetitions and characters."""

    places: Counts
    repeated: int
    length: int

    @property
    def is_enough(self) -> bool:
        """Whether the input is long enough."""
        return self.repeated >= _ENOUGH and self.length >= _LONG_ENOUGH


class Step(NamedTuple):
    """One production of a family, how it is repeated, and which of its values is replaced by which odd one."""

    production: int
    mode: int = 0
    place: int = 0
    odd: int = 0

    @property
    def alone(self) -> bool:
        """Whether the production is not repeated."""
        return self.mode % 4 == ONCE

    def numbers(self, count: int) -> list[int]:
        """Return the numbers of its repetitions."""
        rising = list(range(count))
        return (rising, [0] * count, rising[::-1], [0])[self.mode % 4]


@dataclass(frozen=True)
class Grammar:
    """What inputs of one kind are made of, what stands around them, and what is done with the parts of one.

    One of the `works` is done at a time, with what is `made` of the parts; how that is made is not measured.
    """

    productions: Sequence[Any]
    works: Sequence[Work]
    first: Sequence[Any] = ()
    last: Sequence[Any] = ()
    made: Callable[[list[Any]], Any] = list

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
    """Return the target that checks linear work for the families of a grammar."""
    kinds, points = range(len(grammar.productions)), Points()

    def check(given: Input) -> Iterator[object]:
        steps = read(given.body)
        if not steps:
            return
        work = given.choose(0, grammar.works)
        hold(grammar, steps, work, given.choose(1, (_FEWEST, _FEW)), points)
        if given.wants(0):
            count = _ENOUGH
            while length(parts := grammar.write(steps, count)) < _WHOLE and count < 10_000:
                count *= 2
            work(grammar.made(parts))
        yield from ((each.production % len(kinds), each.mode % 8, each.place, bool(each.odd)) for each in steps)
        yield tuple(each.production % len(kinds) for each in steps)

    words = [bytes(Step(kind, mode)) for kind in kinds for mode in range(8)]
    return Target(f"growth:{name}", check, lambda: list(_seeds(name, grammar)), words)


def _seeds(name: str, grammar: Grammar) -> Iterator[bytes]:
    """Yield the families of one production, then those of two, each with one work, and then with the others.

    All are looked at with very few repetitions, which shows most of what grows, and then with more.

    Of two, those that most likely grow come first: one in turn with many of another; one that is as long as there are
    repetitions, with many of another, which answer it in either order; then two in turn, and then many of one with many
    of another behind.
    """
    kinds, works = range(len(grammar.productions)), len(grammar.works)
    shown = [str(each) for each in grammar.productions]
    long = [kind for kind in kinds if LONG in shown[kind] or MANY in shown[kind]]
    many = [kind for kind in long if MANY in shown[kind]]
    short = [kind for kind in kinds if kind not in long]
    numbered = [kind for kind in kinds if NUMBER in shown[kind]]
    groups = (
        [[Step(kind, mode)] for kind in kinds for mode in (RISING, SAME, ONCE)],
        [[Step(one, IN_TURN), Step(other)] for one in numbered for other in many if one != other],
        [[Step(one, ONCE), Step(other)] for one in long for other in kinds]
        + [[Step(one, ONCE), Step(other, FALLING)] for one in long for other in numbered],
        [[Step(one, IN_TURN), Step(other)] for one, other in itertools.combinations(kinds, 2)],
        [[Step(one), Step(other)] for one in short for other in kinds if one != other],
        [[Step(one, ONCE), Step(other)] for one in short for other in kinds]
        + [[Step(one), Step(other)] for one in long for other in kinds],
    )
    for more, families in itertools.product((0, 1), groups):
        random.Random(name).shuffle(families)  # what is alike is not tried out in a row
        for turn in range(works):
            for at, steps in enumerate(families):
                yield seed(bytes(itertools.chain(*steps)), _0=(at + turn) % works, _1=more)


def read(body: bytes) -> list[Step]:
    """Return the steps that an input encodes."""
    return [Step(*body[at : at + 4]) for at in range(0, min(len(body), 4 * _STEPS) // 4 * 4, 4)]


def hold(grammar: Grammar, steps: Sequence[Step], work: Work, count: int = _FEW, points: Points | None = None) -> None:
    """Raise AssertionError if what a work does for a family, at any point, grows faster than its input does.

    `points` may be given again as long as no function is put in the place of another.
    """
    points = points or Points()
    few = count < _FEW
    short = grammar.made(grammar.write(steps, _SHORT))
    points.meet(lambda: work(short))  # what is kept for the next time is made, too

    def is_too_long(count: int) -> bool:
        return length(grammar.write(steps, count)) > _LONGEST

    def find(count: int) -> set[Place]:
        first = [_measure(grammar, steps, work, each) for each in (count, 2 * count, 4 * count)]
        for sizes in (False, True):  # passes alone are counted in a tenth of the time
            measured = [*first]
            suspects = _grown(measured, sizes, few)
            while suspects and not measured[-1].is_enough and not is_too_long(2 * measured[-1].repeated):
                measured.append(_measure(grammar, steps, work, 2 * measured[-1].repeated, sizes))
                suspects &= _grown(measured[-3:], sizes, few)
            if suspects:
                return suspects
        return set()

    while is_too_long(4 * count) and count > 1:
        count //= 2
    with points.counting():
        suspects = find(count) and find(max(1, count - 1))  # a second time, when readers of JSON know the short texts
    places = ", ".join(f"{Path(file).name}:{line}" for file, line in sorted(suspects))
    assert not suspects, f"the work grows by a power of the length, at {places}: {_shown(grammar, steps)}"


def _measure(grammar: Grammar, steps: Sequence[Step], work: Work, count: int, sizes: bool = True) -> Measured:
    parts = grammar.write(steps, count)
    size = length(parts)
    made = grammar.made(parts)
    try:
        return Measured(measure(lambda: work(made), _MOST + _MOST_EACH * size, sizes), count, size)
    except TooMany:
        raise AssertionError(f"the work grows beyond all, at {count} repetitions: {_shown(grammar, steps)}") from None


def _grown(measured: Sequence[Measured], sizes: bool, few: bool) -> set[Place]:
    """Return the points whose passes or bytes grow faster than the input.

    Two stretches are compared, because limits distort the total.
    """
    small, middle, large = measured
    factor = _MORE * max(1.5, (large.length - middle.length) / max(1, middle.length - small.length))
    # Below the usual count, what is made once looks like growth.
    count: float = large.repeated if few or large.repeated >= 4 * _FEW else _ENOUGH
    count *= min(1, large.repeated / (4 * _FEW)) if few else 1  # what grows by the square is as much less there
    grown = set()
    for place, last in large.places.items():
        before, first = middle.places.get(place, [0, 0]), small.places.get(place, [0, 0])
        more = (last[sizes] - before[sizes]) - factor * (before[sizes] - first[sizes])
        if more > (_BYTES if sizes else _PASSES) * count:
            grown.add(place)
    return grown


def _shown(grammar: Grammar, steps: Sequence[Step]) -> str:
    texts = (str(grammar.productions[step.production % len(grammar.productions)])[:200] for step in steps)
    return "; ".join(f"{text} {step}" for text, step in zip(texts, steps, strict=True))


def fill(template: Any, number: int, count: int) -> Any:
    """Return a production for the repetition `number`, of this total."""
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
    """Return the number of characters in the parts of an input."""
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
