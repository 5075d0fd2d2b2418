"""All regular expressions of the package, and the parts of them that can take more than linear time.

    python -m tests.security.patterns

prints them as JSON: the patterns that the package compiles while all of it is imported and each dialect is used, with
their modules. `faults` examines one pattern as `re` has parsed it.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

ALPHABET = [*map(chr, range(128)), "é", "ß", "٣", "\u2028", "\uff5c", "漢", "😀"]
"""What sets of characters are compared by: ASCII, and one of each other kind."""


def faults(pattern: str | bytes, flags: int = 0) -> Iterator[str]:
    """Yield the parts of a pattern that may make a match or a search take more than linear time in a hostile text.

    These are an unbounded repetition inside another one without a separator, two consecutive repetitions that share
    characters, and a repetition that a search restarts at each character of its own match. Possessive repetitions are
    not tried again, so only the last case applies to them.
    """
    tree = list(re._parser.parse(pattern, flags))  # type: ignore[attr-defined]
    if not any(_inner(tree, possessive=True)):
        return
    kind = (flags & re.ASCII) if isinstance(pattern, str) else re.ASCII
    yield from _nested(tree, kind)
    yield from _adjacent(tree, kind)
    yield from _restarting(tree, kind)


def _is_repeat(op: Any) -> bool:
    return str(op) in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def _unbounded(op: Any, value: Any) -> bool:
    return _is_repeat(op) and value[1] >= 4096


def _parts(op: Any, value: Any) -> list[Sequence[Any]]:
    """Return the sequences inside a part of a pattern."""
    match str(op):
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return [value[2]]
        case "SUBPATTERN":
            return [value[3]]
        case "BRANCH":
            return list(value[1])
        case "ATOMIC_GROUP":
            return [value]
        case "ASSERT" | "ASSERT_NOT":
            return [value[1]]
        case "GROUPREF_EXISTS":
            return [each for each in value[1:] if each is not None]
    return []


def _characters(op: Any, value: Any, kind: int) -> frozenset[str]:
    """Return the characters that a part of a pattern can match."""
    match str(op):
        case "LITERAL":
            return frozenset([chr(value)])
        case "NOT_LITERAL":
            return frozenset(ALPHABET) - {chr(value)}
        case "ANY":
            return frozenset(ALPHABET)
        case "IN":
            return frozenset(each for each in ALPHABET if _in(value, each, kind)) | {
                chr(one) for what, one in value if str(what) == "LITERAL" and str(value[0][0]) != "NEGATE"
            }
        case "ASSERT" | "ASSERT_NOT" | "AT":
            return frozenset()
    return frozenset().union(*(_characters(each[0], each[1], kind) for part in _parts(op, value) for each in part))


_CLASSES = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}


def _in(members: Sequence[Any], character: str, kind: int) -> bool:
    found = False
    for op, value in members:
        match str(op):
            case "LITERAL":
                found |= ord(character) == value
            case "RANGE":
                found |= value[0] <= ord(character) <= value[1]
            case "CATEGORY":
                name = str(value).removeprefix("CATEGORY_")
                found |= re.fullmatch(_CLASSES[name], character, kind) is not None
    return found is not (str(members[0][0]) == "NEGATE")


def _least(sequence: Sequence[Any]) -> int:
    """Return the length of the shortest text that a sequence matches."""
    return sum(_least_of(*each) for each in sequence)


def _least_of(op: Any, value: Any) -> int:
    if _is_repeat(op):
        return int(value[0]) * _least(value[2])
    if str(op) in ("ASSERT", "ASSERT_NOT", "AT", "GROUPREF"):
        return 0
    parts = _parts(op, value)
    return min(map(_least, parts)) if parts else 1


def _inner(sequence: Sequence[Any], *, possessive: bool = False) -> Iterator[tuple[Any, Any]]:
    """Yield the unbounded repetitions in a sequence: only those that can backtrack, or all."""
    for op, value in sequence:
        if str(op) in ("POSSESSIVE_REPEAT", "ATOMIC_GROUP") and not possessive:
            continue
        if _unbounded(op, value):
            yield op, value
        for part in _parts(op, value):
            yield from _inner(part, possessive=possessive)


def _walk(sequence: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield a sequence and all sequences inside it."""
    yield sequence
    for each in sequence:
        for part in _parts(*each):
            yield from _walk(part)


def _nested(tree: Sequence[Any], kind: int) -> Iterator[str]:
    for sequence in _walk(tree):
        for op, value in sequence:
            if not _unbounded(op, value) or str(op) == "POSSESSIVE_REPEAT":
                continue
            body = list(value[2])
            while len(body) == 1 and str(body[0][0]) == "SUBPATTERN":
                body = list(body[0][1][3])
            head, tail = body[0]
            first = _characters(head, tail, kind) if _least_of(head, tail) else frozenset()
            for inner in _inner(body):
                if not first or first & _characters(*inner, kind):
                    yield f"{_show(inner, kind)} is repeated by another repetition"


def _paths(sequence: Sequence[Any], *, possessive: bool = False) -> list[list[Any]]:
    """Return the paths through a sequence: with and without optional parts, and by each branch that repeats."""
    ways: list[list[Any]] = [[]]
    for op, value in sequence:
        parts = _parts(op, value)
        if str(op) in ("ASSERT", "ASSERT_NOT", "POSSESSIVE_REPEAT", "ATOMIC_GROUP") or not any(
            any(_inner(part, possessive=possessive)) for part in parts
        ):
            inside: list[list[Any]] = [[(op, value)]]
        elif str(op) in ("SUBPATTERN", "BRANCH") or (_is_repeat(op) and value[1] == 1):
            inside = [way for part in parts for way in _paths(part, possessive=possessive)]
            inside += [[]] if _is_repeat(op) and not value[0] else []
        else:
            inside = [[(op, value)]]
        ways = [[*way, *more] for way in ways for more in inside]
    return ways


def _adjacent(tree: Sequence[Any], kind: int) -> Iterator[str]:
    for sequence in _walk(tree):
        for way in _paths(sequence):
            for at, one in enumerate(way):
                if _unbounded(*one) and str(one[0]) != "POSSESSIVE_REPEAT":
                    yield from _shared_with_next(one, way[at + 1 :], kind)


def _shared_with_next(one: tuple[Any, Any], following: Sequence[Any], kind: int) -> Iterator[str]:
    """Yield the following parts of a path that can match the same characters as a repetition."""
    own = _characters(*one, kind)
    between: frozenset[str] = frozenset()
    for op, value in following:
        if _unbounded(op, value):
            others = _characters(op, value, kind)
            head, tail = value[2][0]
            begin = _characters(head, tail, kind) if _least_of(head, tail) else others
            if own & begin and (not between or (between <= own and between & others)):
                yield f"{_show(one, kind)} and {_show((op, value), kind)} stand side by side"
        elif _least_of(op, value):
            between |= _characters(op, value, kind)
        if between and not between <= own:
            return


def _restarting(tree: Sequence[Any], kind: int) -> Iterator[str]:
    if tree and str(tree[0][1]) == "AT_BEGINNING_STRING":
        return
    for way in _paths(tree, possessive=True):
        before: frozenset[str] = frozenset()
        for at, (op, value) in enumerate(way):
            own = _characters(op, value, kind)
            if _unbounded(op, value):
                if before <= own and _least(way[at + 1 :]) and not _starts_at_an_edge(way[:at], own, kind):
                    yield f"a search restarts {_show((op, value), kind)} within its own match"
                break
            before |= own


def _starts_at_an_edge(before: Sequence[Any], own: frozenset[str], kind: int) -> bool:
    """Return whether a search can start only where no character of the repetition precedes it."""
    for op, value in before:
        if str(op) == "ASSERT_NOT" and value[0] < 0:
            return own <= _characters("SUBPATTERN", (None, 0, 0, value[1]), kind)
    return False


def _show(each: tuple[Any, Any], kind: int) -> str:
    characters = sorted(_characters(*each, kind))
    return f"a repetition of {len(characters)} characters ({''.join(characters)[:20]!r})"


def collect() -> list[tuple[str | bytes, int, list[str]]]:
    """Return each pattern that a module of the package compiles, its flags, and these modules."""
    seen: dict[tuple[str | bytes, int], set[str]] = {}
    compile_ = re._compile  # type: ignore[attr-defined]

    def noting(pattern: Any, flags: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "re":
            frame = frame.f_back
        module = frame.f_globals.get("__name__", "")
        made = compile_(pattern, flags)
        if module.startswith("streamtools"):
            seen.setdefault((made.pattern, made.flags), set()).add(module)
        return made

    re._compile = noting  # type: ignore[attr-defined]
    import streamtools

    for found in pkgutil.walk_packages(streamtools.__path__, "streamtools."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    from streamtools.parsing.dialects.neutralizing import neutralize
    from tests.support.variants import KNOWN

    @streamtools.tool
    def get_weather(city: str, days: int = 1) -> None:
        raise NotImplementedError

    for dialect in KNOWN.values():
        call = dialect.write_call("get_weather", {"city": "a", "days": 2})
        for text in (call, [*call], call[:-3]):
            streamtools.parse(text, dialects=[dialect], tools=[get_weather])
        neutralize(call, [dialect])
    streamtools.parse("", dialects="auto", tools=[get_weather])
    return [(pattern, flags, sorted(modules)) for (pattern, flags), modules in seen.items()]


if __name__ == "__main__":
    rows = [
        [isinstance(pattern, bytes), pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern, *rest]
        for pattern, *rest in collect()
    ]
    print(json.dumps(rows))
