"""A slow, independent implementation of the rules for pending text, which is compared with the parser.

It shares no code with the package. Markers are matched recursively instead of compiled. The Markdown around a position
is read from the whole lines before it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.families.base import Either, Free, Part

TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<reasoning>": "</reasoning>",
    "[THINK]": "[/THINK]",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
}
"""Maps reasoning tags to their closing tags."""


def may_become(text: str, parts: tuple[Part, ...]) -> bool:
    """Return True if `text` is the beginning of a marker, but not the whole marker."""
    if not parts:
        return False
    first, rest = parts[0], parts[1:]
    if not text:
        return True
    if isinstance(first, Either):
        return any(may_become(text, (word, *rest)) for word in first.words)
    if isinstance(first, str):
        if len(text) < len(first):
            return first.startswith(text)
        return text.startswith(first) and may_become(text[len(first) :], rest)
    if isinstance(first, Free):
        ends = list(_ends(first, text))
        return ends[-1] == len(text) or any(may_become(text[end:], rest) for end in ends) or _ends_in(first, text, ends)
    length = 0
    while length < min(first.most, len(text)) and text[length] in first:
        length += 1
    if length == len(text):
        return True
    return any(may_become(text[count:], rest) for count in range(first.least, length + 1))


def _ends(part: Free, text: str) -> Iterator[int]:
    """Yield each index at which the free text may end."""
    at, without = 0, re.compile(part.without)
    yield at
    for _ in range(part.most):
        token = next((each for each in part.tokens if text.startswith(each, at)), "")
        if without.match(text, at) or at == len(text) or not (token or text[at] not in part.others):
            return
        at += len(token) or 1
        yield at


def _ends_in(part: Free, text: str, ends: list[int]) -> bool:
    """Return True if the text ends inside one of the tokens."""
    return any(token.startswith(text[ends[-1] :]) for token in part.tokens)


def begins_with(text: str, parts: tuple[Part, ...]) -> bool:
    """Return True if `text` begins with a whole marker."""
    return _compiled(parts).match(text) is not None


def is_whole(text: str, parts: tuple[Part, ...]) -> bool:
    """Return True if `text` is a marker, and nothing else."""
    return _compiled(parts).fullmatch(text) is not None


@cache
def _compiled(parts: tuple[Part, ...]) -> re.Pattern[str]:
    return re.compile("".join(map(_pattern, parts)))


def _pattern(part: Part) -> str:
    if isinstance(part, str):
        return re.escape(part)
    if isinstance(part, Either):
        return "(?:" + "|".join(map(re.escape, part.words)) + ")"
    if isinstance(part, Free):
        units = "|".join([f"[^{re.escape(part.others)}]", *map(re.escape, part.tokens)])
        return f"(?:(?!{part.without})(?:{units})){{0,{part.most}}}"
    return f"[{'^' * part.others}{re.escape(part.characters)}]{{{part.least},{part.most}}}"


def examples(parts: tuple[Part, ...]) -> Iterator[str]:
    """Yield short texts that match the marker."""
    return map("".join, itertools.product(*map(_examples, parts)))


def _examples(part: Part) -> tuple[str, ...]:
    if isinstance(part, str):
        return (part,)
    if isinstance(part, Either):
        return part.words
    if isinstance(part, Free):
        return ("", " x")
    character = next(each for each in part.characters + "x-!" if each in part)
    return tuple(character * count for count in range(part.least, min(part.most, part.least + 1) + 1))


class Place(NamedTuple):
    """The Markdown state at a position."""

    in_code: bool
    line_start: bool
    after: str


class Fence(NamedTuple):
    """An open code fence."""

    character: str
    length: int
    column: int


def place_after(text: str) -> Place:
    """Return the Markdown state after `text`."""
    *lines, last = text.split("\n")
    fence: Fence | None = None
    for line in lines:
        fence = _fence_after(line.removesuffix("\r"), fence)
    _, body = _block(last)
    in_code = bool(fence) or body.startswith((">", "~~~")) or _in_span(body)
    return Place(in_code, line_start=not last.strip(" \t"), after=text[-1:])


def _fence_after(line: str, fence: Fence | None) -> Fence | None:
    """Return the fence that is open after a line."""
    if fence is not None:
        closing = re.fullmatch(rf"([ \t]*)({re.escape(fence.character)}+)[ \t]*", line)
        closes = closing and len(closing[2]) >= fence.length and _width(closing[1]) <= fence.column + 3
        return None if closes else fence
    prefix, body = _block(line)
    opening = re.match(r"(`{3,})[^`]*$|(~{3,})", body)
    return Fence(body[0], len(opening[1] or opening[2]), _width(prefix)) if opening else None


def _block(line: str) -> tuple[str, str]:
    """Return the indentation and list markers of a line, and the rest of the line."""
    found = re.match(r"(?:[ \t]*(?:[-*+]|[0-9]{1,9}[.)])(?=[ \t]|$))*[ \t]*", line)
    assert found is not None
    return found[0], line[found.end() :]


def _width(prefix: str) -> int:
    return len(prefix.expandtabs(4))


def _in_span(body: str) -> bool:
    """Return True if a code span is open at the end of `body`."""
    length = 0
    for slashes, ticks in re.findall(r"(\\*)(`+)", body):
        if length:
            length = 0 if len(ticks) == length else length
        elif len(slashes) % 2 == 0:
            length = len(ticks)
    return length > 0
