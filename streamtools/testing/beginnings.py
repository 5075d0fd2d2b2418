"""What may be held back: whether a text is the beginning of a marker of a dialect, found by walking along the marker.

The parser compiles markers to regular expressions; this is written apart from it, slowly, so that the two can be
compared.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from streamtools.parsing.dialects import Dialect, Opener
from streamtools.parsing.markers import LineEnd, Maybe, OneOf, Part

Parts: TypeAlias = tuple[Part, ...]

_LINE_ENDS = OneOf(("\n", "\r\n"))


def may_become(text: str, parts: Parts) -> bool:
    """Tell whether `text` is not all of a marker, but the beginning of one."""
    if not parts:
        return False
    if not text:
        return True
    first, rest = parts[0], parts[1:]
    match first:
        case str():
            if len(text) < len(first):
                return first.startswith(text)
            return text.startswith(first) and may_become(text[len(first) :], rest)
        case LineEnd():
            return may_become(text, (_LINE_ENDS, *rest))
        case OneOf(words):
            return any(may_become(text, (word, *rest) if word else rest) for word in words)
        case Maybe(inner):
            return may_become(text, (*inner, *rest)) or may_become(text, rest)
    run = re.compile(f"[{first.characters}]{{0,{first.most}}}").match(text)
    assert run is not None
    length = run.end()
    return length == len(text) or any(may_become(text[count:], rest) for count in range(first.least, length + 1))


def examples(parts: Parts) -> Iterator[str]:
    """Yield short texts that are the marker."""
    return map("".join, itertools.product(*map(_examples, parts)))


def _examples(part: Part) -> Sequence[str]:
    match part:
        case str():
            return (part,)
        case LineEnd():
            return _LINE_ENDS.words
        case OneOf(words):
            return words
        case Maybe(inner):
            return ["", *examples(inner)]
    character = next(each for each in map(chr, range(9, 0x3000)) if re.fullmatch(f"[{part.characters}]", each))
    return [character * count for count in range(part.least, min(part.most, part.least + 1) + 1)]


def openers(dialect: Dialect, tools: dict[str, tuple[str, ...]]) -> list[Opener]:
    """Return the openers of a dialect where `tools` are declared: parameters by the names of tools."""
    found = list(dialect.openers)
    if dialect.openers_for is not None:
        found += dialect.openers_for(tuple(tools))
    if dialect.openers_of is not None:
        found += [opener for name, parameters in tools.items() for opener in dialect.openers_of(name, parameters)]
    return found


def markers(dialect: Dialect, tools: dict[str, tuple[str, ...]]) -> list[Parts]:
    """Return all that may be held back as the beginning of something: markers with what is ahead of them, tags."""
    found: list[Parts] = []
    for opener in openers(dialect, tools):
        whole = (*opener.parts, *opener.ahead)
        found += [whole if not count else ("\n" * count, *whole) for count in range(opener.line_feeds + 1)]
    for tag in dialect.tags:
        found += [tag.parts, *((closing,) for closing in (*tag.closings, *tag.before))]
    return found
