"""What a marker looks like, all of it, or the beginning of one at the end of the text.

A marker is written down once, as a sequence of literals and bounded repetitions, and compiled to a regular expression
in which every place may also be the end of the text: `ab` becomes `a(?:\\Z|b())`. One match then answers in three ways:
the marker stands here, it may yet stand here, it does not. Every repetition has a bound, so what is held back while a
marker may yet stand is bounded too, and no text makes the expression backtrack further than that bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Some:
    """Between `least` and `most` characters out of a class, which is written as inside `[...]` of a pattern."""

    characters: str
    least: int
    most: int


@dataclass(frozen=True)
class LineEnd:
    """LF or CR LF; the end of the stream ends a line too."""


@dataclass(frozen=True)
class OneOf:
    """One of several literals, of which the longest that fits counts; one of them may be empty."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Maybe:
    """Some parts, or nothing."""

    parts: tuple[str | Some | OneOf, ...]


BLANKS = Some(r" \t", 0, 32)
SPACES = Some(r" \t\r\n", 0, 32)
LINE_END = LineEnd()

Part: TypeAlias = str | Some | LineEnd | OneOf | Maybe
Where: TypeAlias = Literal["anywhere", "line_start", "start", "behind_call"]

_HEAD = 4  # characters of a marker by which it is told from others before all of it is looked for
MARK = "()"
"""An empty group of a pattern: the match has come this far."""
_NEVER = "(?!)"  # matches nothing
_LATIN = "".join(map(chr, range(256)))
_FEW = re.compile(r"\A\[(?:[^\\^]|(?!\^)(?:[^\\\u0100-\U0010ffff]|\\[^\w]|\\[fnrtv])+)\]").fullmatch
"""Matches a class of one character, or of some that are all among the first 256 of Unicode."""


@dataclass(frozen=True)
class Marker:
    """What commits the text to a span of its own, where it counts.

    `ahead` belongs to the commit point but is not read with the marker. `where` says whether the marker counts
    anywhere, only behind the indentation of a line, or only behind white space at the start of a message or behind a
    call; `not_after` is a pattern of the single characters that it must not follow.
    Raises ValueError for a marker that does not begin with a literal, or does not end with one or with a line end.
    """

    parts: tuple[Part, ...]
    ahead: tuple[Part, ...] = ()
    where: Where = "anywhere"
    not_after: str = ""
    first: str = field(init=False)
    """The character with which it begins."""
    head: str = field(init=False)
    """The first characters of it, up to the first of them that is not fixed."""
    last: str = field(init=False)
    """The characters with one of which it is committed to."""

    def __post_init__(self) -> None:
        if not self.parts or not isinstance(self.parts[0], str) or not self.parts[0]:
            raise ValueError(f"a marker begins with at least one fixed character, and this one is {self.parts!r}")
        *before, last = self.parts + self.ahead
        lasts = [word or before[-1] for word in last.words] if isinstance(last, OneOf) else [last]
        for each in lasts:
            if not isinstance(each, str | LineEnd):
                raise ValueError(f"a marker ends with a fixed character or a line end, and this one ends with {each!r}")
        object.__setattr__(self, "first", self.parts[0][0])
        object.__setattr__(self, "head", self._fixed()[:_HEAD])
        object.__setattr__(self, "last", "".join(each[-1] if isinstance(each, str) else "\n" for each in lasts))

    def _fixed(self) -> str:
        """Return what the marker begins with in any case."""
        fixed = ""
        for part in self.parts + self.ahead:
            if not isinstance(part, str):
                break
            fixed += part
        return fixed

    def search_pattern(self) -> str:
        """Return a pattern, without groups, that finds the whole marker, and ends before what is ahead."""
        before = "(?:^[ \\t]{0,32})" if self.where == "line_start" else ""
        parts, ahead = ("".join(map(complete_line, each)) for each in (self.parts, self.ahead))
        return before + self.behind + parts + (f"(?={ahead})" if ahead else "")

    def begun_pattern(self) -> str:
        """Return a pattern, without groups, that finds every beginning of the marker at the end of the text."""
        pattern = _NEVER
        for part in reversed(self.parts + self.ahead):
            pattern = followed(part, pattern)
        return self.behind + pattern

    @property
    def behind(self) -> str:
        """A pattern for what may stand before it."""
        return f"(?<!{self.not_after})" if self.not_after else ""


class Pattern:
    """A sequence of parts that can be looked for in text that goes on."""

    def __init__(self, *parts: Part) -> None:
        going = MARK  # put together from the last part to the first
        for part in reversed(parts):
            going = followed(part, going)
        self._going = re.compile(going).match
        self._ended = re.compile("".join(map(complete, parts)) + MARK).match

    def match(self, text: str, at: int, ended: bool) -> int | Literal[False] | None:
        """Return where the parts end, None if they may yet match, or False if they cannot."""
        match = self._ended if ended else self._going
        found = match(text, at)
        if found is None:
            return None if at == len(text) and not ended else False
        return found.end() if found.lastindex else None


def followed(part: Part, rest: str, *, goes_back: bool = True) -> str:
    """Return a pattern for `part` and then `rest`, with the end of the text allowed everywhere in between.

    Without `goes_back`, a repetition takes all that it can and keeps it.
    """
    if isinstance(part, LineEnd):
        return rf"(?:\r?\Z|\r?\n{_or_end(rest)})"
    if isinstance(part, Maybe):
        inner = ""
        for each in reversed(part.parts):
            inner = followed(each, inner)
        return f"(?:{inner})?{_or_end(rest)}"
    if isinstance(part, OneOf):
        short = "".join(f"{beginning(word)}\\Z|" for word in part.words if len(word) > 1)
        return f"(?:{short}{complete(part)}{_or_end(rest)})"
    if isinstance(part, Some):
        short = f"[{part.characters}]{{0,{part.least - 1}}}\\Z|" if part.least else ""
        keeps = "" if goes_back else "+"
        return f"(?:{short}[{part.characters}]{{{part.least},{part.most}}}{keeps}{_or_end(rest)})"
    if len(part) < 2:
        return re.escape(part) + _or_end(rest) if part else rest
    # All of it at once, since most text goes on, and else how far it goes where the text ends.
    first, others = re.escape(part[0]), re.escape(part[1:])
    begun = f"(?:{beginning(part[1:])})?" if len(part) > 2 else ""
    return f"{first}(?:{others}{_or_end(rest)}|(?!{others}){begun}\\Z)"


def _or_end(rest: str) -> str:
    return rest if rest in (MARK, MARK + MARK, _NEVER) else f"(?:\\Z|{rest})"


def whole(marker: Marker, pattern: Callable[[Part], str]) -> str:
    """Return a pattern for all of a marker, of the patterns of its parts; a group ends what is read with it."""
    return "".join(map(pattern, marker.parts)) + MARK + "".join(map(pattern, marker.ahead)) + MARK


def complete_line(part: Part) -> str:
    """Return a pattern for all of `part`, where the end of the stream is not in sight."""
    if isinstance(part, OneOf):  # not while a longer word may yet come
        longer = "|".join(beginning(word) for word in part.words if len(word) > 1)
        return f"(?!(?:{longer}){'?' * ('' in part.words)}\\Z){complete(part)}" if longer else complete(part)
    return r"\r?\n" if isinstance(part, LineEnd) else complete(part)


def complete(part: Part) -> str:
    """Return a pattern for all of `part`, where the text does not go on."""
    if isinstance(part, LineEnd):
        return r"\r?(?:\n|\Z)"
    if isinstance(part, Some):
        return f"[{part.characters}]{{{part.least},{part.most}}}"
    if isinstance(part, Maybe):
        return "(?:" + "".join(map(complete, part.parts)) + ")?"
    if isinstance(part, OneOf):
        return "(?:" + "|".join(map(re.escape, sorted(part.words, key=len, reverse=True))) + ")"
    return re.escape(part)


def firsts(parts: Iterable[Part | None]) -> Iterator[Part]:
    """Yield what `parts` may begin with: a literal, or a class of characters; None among them is nothing."""
    for part in parts:
        if isinstance(part, Maybe):
            yield from firsts(part.parts)
        elif isinstance(part, OneOf):
            yield from filter(None, part.words)
            if "" not in part.words:
                return
        elif part:
            yield part
            if not isinstance(part, Some) or part.least:
                return


def apart(some: Iterable[Part], others: Sequence[Part]) -> bool:
    """Return whether it is sure that no character begins one of `some` and one of `others`, literals or classes."""
    return all(_apart(_first(one), _first(other)) for one in some for other in others)


def _apart(one: str, other: str) -> bool:
    """Return whether it is sure that two classes share no character: one of them, at least, has few enough to try."""
    few = one if _FEW(one) else other if _FEW(other) else None
    return few is not None and re.search(f"(?={one}){other}", _LATIN + few) is None


def _first(part: Part) -> str:
    """Return a class of the characters with which `part` begins: literals or classes are all that `firsts` yields."""
    if isinstance(part, Some):
        return f"[{part.characters}]"
    if isinstance(part, LineEnd):
        return r"[\r\n]"
    assert isinstance(part, str)
    return f"[{re.escape(part[0])}]"


def beginning(word: str) -> str:
    """Return a pattern for every beginning of `word` that is not all of it; it has two characters at least."""
    pattern = ""
    for character in reversed(word[1:-1]):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return re.escape(word[0]) + pattern
