"""Compares a result with the expected result of its stream. No parser defines the expected result.

White space is not counted: templates put line feeds around their tags, and whether these belong to the tag or to the
text is no mistake. A call is right if its name and its arguments, parsed as JSON, are the written ones. If a parser
reports no complete call, its pieces are joined.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Any, TypeAlias

from benchmarks.peers.streams import Stream

Told: TypeAlias = "Sequence[Any]"
"""[number of the delta, "text", text], […, "call", key, name], […, "args", key, text], […, "whole", key, name, JSON] or
[…, "fail", key]; the number of what comes at the end is the number of all deltas."""

_STEP = 12  # characters that have to agree before two texts are taken to go on together


@dataclass(frozen=True)
class Verdict:
    """The differences between a result and the expected result."""

    lost: int  # visible characters that were not shown
    leaked: int  # shown characters that were not visible text
    wrong: int  # calls that are missing, differ, or were never written
    calls: int  # that were written
    result: str  # the answer itself, to be compared with that of another cutting

    @property
    def right(self) -> bool:
        return not (self.lost or self.leaked or self.wrong)


def judge(stream: Stream, told: Sequence[Told], *, tells_text: bool = True) -> Verdict:
    """Return the differences for `stream`. The text of a parser that returns none is not compared."""
    shown = _bare("".join(each[2] for each in told if each[1] == "text"))
    lost, leaked = differences(_bare(stream.shown), shown) if tells_text else (0, 0)
    expected = [_canonical(name, arguments) for name, arguments in stream.calls]
    got = calls_of(told)
    same = sum(block.size for block in SequenceMatcher(None, expected, got, autojunk=False).get_matching_blocks())
    return Verdict(lost, leaked, max(len(expected), len(got)) - same, len(expected), json.dumps([shown, got]))


def calls_of(told: Sequence[Told]) -> list[str]:
    """Return the calls of a result in the order of their beginning, with arguments as canonical JSON."""
    begun: list[_Begun] = []
    by_key: dict[str, _Begun] = {}
    for _, kind, key, *rest in told:
        if kind == "text":
            continue
        if kind == "call" or key not in by_key:  # an index that is used again begins another call
            by_key[key] = _Begun()
            begun.append(by_key[key])
        call = by_key[key]
        match kind:
            case "call":
                call.name = rest[0]
            case "args":
                call.arguments += rest[0]
            case "whole":
                call.whole = (rest[0], rest[1])
            case "fail":
                begun.remove(by_key.pop(key))
    return [_canonical_text(*(call.whole or (call.name, call.arguments or "{}"))) for call in begun]


@dataclass(eq=False)
class _Begun:
    name: str | None = None
    arguments: str = ""
    whole: tuple[str, str] | None = None


def _canonical_text(name: str | None, text: str) -> str:
    try:
        return _canonical(name, json.loads(text))
    except ValueError:
        return f"{name} unreadable: {text}"


def _canonical(name: str | None, arguments: object) -> str:
    return json.dumps([name, _like_everywhere(arguments)], sort_keys=True)


def _like_everywhere(value: Any) -> Any:
    """Return the value with 1 in place of 1.0, because some languages do not distinguish them."""
    match value:
        case dict():
            return {key: _like_everywhere(each) for key, each in value.items()}
        case list():
            return [_like_everywhere(each) for each in value]
        case float() if value.is_integer():
            return int(value)
    return value


def _bare(text: str) -> str:
    return "".join(text.split())


def differences(expected: str, got: str) -> tuple[int, int]:
    """Return how many characters of `expected` are missing in `got`, and how many of `got` are not in `expected`.

    Both are upper bounds: where nothing of six characters is left together, what is left is not found.

    >>> differences("one two three", "one three"), differences("one two", "one <b>two")
    ((4, 0), (0, 3))
    """
    lost = leaked = i = j = 0
    while i < len(expected) and j < len(got):
        if expected[i] == got[j]:
            same = _agreeing(expected, i, got, j)
            i, j = i + same, j + same
            continue
        here, there = _meeting(expected, i, got, j)
        if here >= 0 and (there < 0 or here - i <= there - j):
            lost, i = lost + here - i, here
        elif there >= 0:
            leaked, j = leaked + there - j, there
        elif len(expected) - i > len(got) - j:
            lost, i = lost + 1, i + 1
        else:
            leaked, j = leaked + 1, j + 1
    return lost + len(expected) - i, leaked + len(got) - j


def _meeting(expected: str, i: int, got: str, j: int) -> tuple[int, int]:
    """Return the index in `expected` at which `got` continues, and the reverse. -1 if there is none."""
    for size, reach in ((_STEP, max(len(expected), len(got))), (_STEP // 2, 40 * _STEP)):
        here = expected.find(got[j : j + size], i, i + reach)
        there = got.find(expected[i : i + size], j, j + reach)
        if here >= 0 or there >= 0:
            break
    return here, there


def _agreeing(one: str, i: int, other: str, j: int) -> int:
    size, limit = 1, min(len(one) - i, len(other) - j)
    while size < limit and one[i + size : i + 2 * size] == other[j + size : j + 2 * size]:
        size *= 2
    while size < limit and one[i + size] == other[j + size]:
        size += 1
    return min(size, limit)


@dataclass(frozen=True)
class Promptness:
    """How early text and calls were returned."""

    held: int | None  # most visible characters that were kept though no marker could begin with them; in prose only
    named: int | None  # deltas from the one that ended the name to the one that told it
    argued: int | None  # the same for the first character of the first argument
    steps: int  # pieces in which the first call's arguments came


def promptness(stream: Stream, sizes: Sequence[int], told: Sequence[Told], markers: Sequence[str]) -> Promptness:
    """Return the promptness of a result. A possible beginning of one of `markers` may be pending."""
    shown = [0] * (len(sizes) + 1)
    for number, kind, text, *_ in told:
        if kind == "text":
            shown[number] += len(text)
    held = at = total = 0
    for number, size in enumerate(sizes):
        at += size
        total += shown[number]
        if at - total > held:
            held = max(held, at - total - _may_become(stream.text[max(0, at - 40) : at], markers))
    named, argued = (_delay(stream, sizes, told, which) for which in (0, 1))
    steps = {each[0] for each in told if each[1] == "args" and each[-1]}
    return Promptness(None if stream.calls else held, named, argued, len(steps))


def _may_become(tail: str, markers: Sequence[str]) -> int:
    ends = range(len(tail), 0, -1)
    return next((size for size in ends if any(marker.startswith(tail[-size:]) for marker in markers)), 0)


def _delay(stream: Stream, sizes: Sequence[int], told: Sequence[Told], which: int) -> int | None:
    certain = stream.certain_at()
    kinds = ("call", "whole") if which == 0 else ("args", "whole")
    due_kinds = (each for each in told if each[1] in kinds and (which == 0 or each[-1].strip("{ ")))
    first: int | None = next((each[0] for each in due_kinds), None)
    if certain is None or first is None:
        return None
    due = next(number for number, end in enumerate(accumulate(sizes)) if end > certain[which])
    return max(0, first - due)
