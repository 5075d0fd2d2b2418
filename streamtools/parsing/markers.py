"""Find a marker, or the beginning of one at the end of the text.

A marker is written down once, as a sequence of literals and bounded repetitions, and compiled to a regular expression
in which every place may also be the end of the text: `ab` becomes `a(?:\\Z|b())`. One match then answers in three ways:
the marker stands here, it may yet stand here, it does not. Every repetition has a bound, so what is held back while a
marker may yet stand is bounded too, and no text makes the expression backtrack further than that bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")
_Match: TypeAlias = Callable[..., re.Match[str] | None]


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
_MARK = "()"  # an empty group: the match has come this far
_NEVER = "(?!)"  # matches nothing
_LATIN = "".join(map(chr, range(256)))  # two classes of characters that share any share one of these


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
        parts, ahead = ("".join(map(_complete_line, each)) for each in (self.parts, self.ahead))
        return before + self.behind + parts + (f"(?={ahead})" if ahead else "")

    def begun_pattern(self) -> str:
        """Return a pattern, without groups, that finds every beginning of the marker at the end of the text."""
        pattern = _NEVER
        for part in reversed(self.parts + self.ahead):
            pattern = _before(part, pattern)
        return self.behind + pattern

    @property
    def behind(self) -> str:
        """A pattern for what may stand before it."""
        return f"(?<!{self.not_after})" if self.not_after else ""


class Markers(Generic[T]):
    """Several markers, looked for at once; each with something that belongs to it."""

    def __init__(self, entries: Sequence[tuple[Marker, T]]) -> None:
        # By what they begin with: two characters, or one where the text at hand has no more or the second is not fixed.
        self._groups: dict[str, _Group[T]] = {}
        self._open: dict[str, _Group[T]] = {}
        heads = [(marker.head[:2], (marker, companion)) for marker, companion in entries]
        for head in dict.fromkeys(head for head, _ in heads):
            alike = [(other, entry) for other, entry in heads if other[0] == head[0]]
            self._groups[head[0]] = _Group([entry for _, entry in alike])
            if len(head) == 2:
                self._groups[head] = _Group([entry for other, entry in alike if other in (head, head[0])])
            else:
                self._open[head] = _Group([entry for other, entry in alike if other == head])

    def at(self, text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | None:
        """Return what belongs to the marker at this place, and where the marker ends; None if one may yet stand here.

        Returns False if none can. The character before the place, if there is one, has to be in the text.
        """
        head = text[at : at + 2]
        group = self._groups.get(head) or self._open.get(head[:1])
        if group is None:
            return False
        if not group.plain:
            return group.at(text, at, ended)
        found = group.begun(text, at)  # one expression gives all three answers
        if found is None:
            return False
        last = found.lastindex
        if last is None or last % 2:
            return False if ended else None
        return group.entries[last // 2 - 1][1], found.start(last - 1)


class _Group(Generic[T]):
    """Markers that begin alike. Their patterns are compiled when they are wanted: few texts have use for many."""

    def __init__(self, entries: Sequence[tuple[Marker, T]]) -> None:
        self.entries = entries

    @cached_property
    def plain(self) -> bool:
        """Whether two of them can never stand at one place, nor one of them in two ways."""
        markers = [marker for marker, _ in self.entries]
        apart = not any(one.head.startswith(other.head) for one in markers for other in markers if one is not other)
        return apart and all(map(_is_plain, markers))

    @cached_property
    def _going(self) -> _Match:
        return re.compile("|".join(each.behind + _whole(each, _complete_line) for each, _ in self.entries)).match

    @cached_property
    def _ended(self) -> _Match:
        return re.compile("|".join(each.behind + _whole(each, _complete) for each, _ in self.entries)).match

    @cached_property
    def begun(self) -> _Match:
        return re.compile("|".join(each.behind + _begun(each.parts, each.ahead) for each, _ in self.entries)).match

    def at(self, text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | None:
        found = shorter = self._going(text, at)
        while shorter is not None:  # the one that is complete first, however the text is cut
            found = shorter
            shorter = self._going(text, at, found.end() - 1)
        if ended and found is None:
            found = self._ended(text, at)
        if found is not None:
            last = found.lastindex
            assert last is not None  # each marker has two groups
            return self.entries[last // 2 - 1][1], found.start(last - 1)
        return None if not ended and self.begun(text, at) else False


class Pattern:
    """A sequence of parts that can be looked for in text that goes on."""

    def __init__(self, *parts: Part) -> None:
        self._going = re.compile(_begun(parts, ())).match
        self._ended = re.compile("".join(map(_complete, parts)) + _MARK + _MARK).match

    def match(self, text: str, at: int, ended: bool) -> int | Literal[False] | None:
        """Return where the parts end, None if they may yet match, or False if they cannot."""
        found = self._ended(text, at) if ended else self._going(text, at)
        if found is None:
            return None if at == len(text) and not ended else False
        return found.end() if found.lastindex == 2 else None


def _begun(parts: Sequence[Part], ahead: Sequence[Part]) -> str:
    """Return a pattern for the parts, or for any beginning of them at the end of the text; whole, it has two groups."""
    pattern = _MARK  # put together from the last part to the first
    for part in reversed(ahead):
        pattern = _before(part, pattern)
    pattern = _MARK + pattern
    for part in reversed(parts):
        pattern = _before(part, pattern)
    return pattern


def _before(part: Part, rest: str) -> str:
    """Return a pattern for `part` and then `rest`, with the end of the text allowed everywhere in between."""
    if isinstance(part, LineEnd):
        return rf"(?:\r?\Z|\r?\n{rest})"
    if isinstance(part, Maybe):
        inner = ""
        for each in reversed(part.parts):
            inner = _before(each, inner)
        return f"(?:{inner})?{_or_end(rest)}"
    if isinstance(part, OneOf):
        short = "".join(f"{beginning(word)}\\Z|" for word in part.words if len(word) > 1)
        return f"(?:{short}{_complete(part)}{_or_end(rest)})"
    if isinstance(part, Some):
        short = f"[{part.characters}]{{0,{part.least - 1}}}\\Z|" if part.least else ""
        return f"(?:{short}[{part.characters}]{{{part.least},{part.most}}}{_or_end(rest)})"
    for character in reversed(part):
        rest = re.escape(character) + _or_end(rest)
    return rest


def _or_end(rest: str) -> str:
    return rest if rest in (_MARK, _MARK + _MARK, _NEVER) else f"(?:\\Z|{rest})"


def _whole(marker: Marker, complete: Callable[[Part], str]) -> str:
    return "".join(map(complete, marker.parts)) + _MARK + "".join(map(complete, marker.ahead)) + _MARK


def _complete_line(part: Part) -> str:
    """Return a pattern for all of `part`, where the end of the stream is not in sight."""
    if isinstance(part, OneOf):  # not while a longer word may yet come
        longer = "|".join(beginning(word) for word in part.words if len(word) > 1)
        return f"(?!(?:{longer}){'?' * ('' in part.words)}\\Z){_complete(part)}" if longer else _complete(part)
    return r"\r?\n" if isinstance(part, LineEnd) else _complete(part)


def _complete(part: Part) -> str:
    """Return a pattern for all of `part`, where the text does not go on."""
    if isinstance(part, LineEnd):
        return r"\r?(?:\n|\Z)"
    if isinstance(part, Some):
        return f"[{part.characters}]{{{part.least},{part.most}}}"
    if isinstance(part, Maybe):
        return "(?:" + "".join(map(_complete, part.parts)) + ")?"
    if isinstance(part, OneOf):
        return "(?:" + "|".join(map(re.escape, sorted(part.words, key=len, reverse=True))) + ")"
    return re.escape(part)


def _is_plain(marker: Marker) -> bool:
    """Return whether a marker is literals, and repetitions of which what comes next shows the end."""
    parts = marker.parts + marker.ahead
    return isinstance(parts[-1], str) and all(map(_ends, parts, parts[1:]))


def _ends(part: Part, behind: Part) -> bool:
    """Return whether `part` cannot go on where `behind` begins."""
    if isinstance(part, Some):
        first = re.escape(behind[0]) if isinstance(behind, str) else ""
        if isinstance(behind, Some) and behind.least:
            first = f"[{behind.characters}]"
        return first != "" and re.search(f"(?=[{part.characters}]){first}", _LATIN) is None
    return isinstance(part, str)


def beginning(word: str) -> str:
    """Return a pattern for every beginning of `word` that is not all of it; it has two characters at least."""
    pattern = ""
    for character in reversed(word[1:-1]):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return re.escape(word[0]) + pattern
