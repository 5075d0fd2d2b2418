"""Markers: matches a whole marker, or the beginning of one at the end of the text; and several markers at once.

A marker is written down once, as a sequence of literals and bounded repetitions, and compiled to a regular expression
in which every place may also be the end of the text: `ab` becomes `a(?:\\Z|b())`. One match then answers in three ways:
the marker stands here, it may yet stand here, it does not. Every repetition has a bound, so what is held back while a
marker may yet stand is bounded too, and no text makes the expression backtrack further than that bound.

Several markers are grouped by their first characters. The markers of a group are one expression, which says whether one
of them may stand at a place; only where one may is each of them tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")
Search: TypeAlias = Callable[..., re.Match[str] | None]


@dataclass(frozen=True)
class Some:
    """Between `least` and `most` characters out of a class, which is written as inside `[...]` of a pattern.

    It takes as many as it can, and gives back only what a fixed character right behind it needs, so that no other ends
    are tried.
    """

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
PartPattern: TypeAlias = "Callable[[Part, Part | None], str]"
"""Returns the pattern of a part, given the one behind it."""
Where: TypeAlias = Literal["anywhere", "line_start", "start", "behind_call"]

HEAD = 4  # first characters of a marker, by which markers are grouped
_MARK = "()"
"""An empty group of a pattern: the match has come this far."""
_NEVER = "(?!)"  # matches nothing


@dataclass(frozen=True)
class Marker:
    """The text that begins a span, where it counts.

    `ahead` belongs to the commit point but is not read with the marker. `where` says whether the marker counts
    anywhere, only behind the indentation of a line, or only behind white space at the start of a message or behind a
    call; `not_after` is a pattern of the single characters that it must not follow. `tag` is how many of `parts` and
    `ahead` are a complete tag; where the stream ends behind it, a call was cut off. None counts them: up to the first
    literal that ends what a bracket in the first one began.
    Raises ValueError for a marker that does not begin with a literal, or does not end with one, with a line end, or
    with one character out of a class.
    """

    parts: tuple[Part, ...]
    ahead: tuple[Part, ...] = ()
    where: Where = "anywhere"
    not_after: str = ""
    tag: int | None = None

    def __post_init__(self) -> None:
        if not self.parts or not isinstance(self.parts[0], str) or not self.parts[0]:
            raise ValueError(f"a marker begins with at least one fixed character, and this one is {self.parts!r}")
        *before, last = self.parts + self.ahead
        for each in [word or before[-1] for word in last.words] if isinstance(last, OneOf) else [last]:
            if not isinstance(each, str | LineEnd) and not (isinstance(each, Some) and each.least == each.most == 1):
                raise ValueError(f"a marker ends with a fixed character or a line end, and this one ends with {each!r}")

    @property
    def first(self) -> str:
        """The character with which it begins."""
        return self.head[0]

    @property
    def head(self) -> str:
        """The first characters of it, up to the first of them that is not fixed."""
        fixed = takewhile(lambda part: isinstance(part, str), self.parts + self.ahead)
        return "".join(map(str, fixed))[:HEAD]

    @property
    def last(self) -> str:
        """A pattern for the part with which it is committed to, or for nothing where that may be any."""
        last = (self.parts + self.ahead)[-1]
        if isinstance(last, Some):
            return f"[{last.characters}]"
        return "\n" if isinstance(last, LineEnd) else re.escape(last) if isinstance(last, str) else ""

    def cut_pattern(self) -> str:
        """Return a pattern, without groups, for a complete tag and what may follow it in the marker, up to the end.

        It matches nothing where the marker has no tag.
        """
        tag = (self.parts + self.ahead)[: self.tag_length]
        return f"(?={_joined(tag, complete)}){self.begun_pattern()}" if tag else _NEVER

    @property
    def tag_length(self) -> int:
        """How many of its parts are a complete tag; 0 if it has none."""
        return _length_of_tag(self.parts + self.ahead) if self.tag is None else self.tag

    def after_space(self, white: str, where: Where | None = None) -> Marker:
        """Return the marker of the same with white space before it, which belongs to it; with a place of its own."""
        tag = self.tag_length
        return Marker((white, *self.parts), ahead=self.ahead, where=where or self.where, tag=tag + 1 if tag else 0)

    def parts_pattern(self) -> str:
        """Return a pattern, without groups, for what is read of the marker, whatever is ahead."""
        return self.behind + _joined(self.parts, complete)

    def search_pattern(self) -> str:
        """Return a pattern, without groups, that finds the whole marker, and ends before what is ahead."""
        before = "(?:^[ \\t]{0,32})" if self.where == "line_start" else ""
        parts, ahead = (_joined(each, complete_line) for each in (self.parts, self.ahead))
        return before + self.behind + parts + (f"(?={ahead})" if ahead else "")

    def begun_pattern(self) -> str:
        """Return a pattern, without groups, that finds every beginning of the marker at the end of the text."""
        return self.behind + partial_pattern(self.parts + self.ahead, _NEVER)

    @property
    def behind(self) -> str:
        """A pattern for what may stand before it."""
        return f"(?<!{self.not_after})" if self.not_after else ""


def _length_of_tag(parts: Sequence[Part]) -> int:
    """Return how many of `parts` are a complete tag in brackets; 0 where no bracket begins it."""
    first = str(parts[0])
    bracket = "]" if first[0] == "[" else ">" if first[0] in "<]" else None
    ends = (count for count, part in enumerate(parts, 1) if isinstance(part, str) and part[-1:] == bracket)
    return next(ends, 0)


class Pattern:
    """A sequence of parts that can be looked for in text that goes on. It is compiled when it is wanted."""

    def __init__(self, *parts: Part) -> None:
        self.parts = parts

    @cached_property
    def partial(self) -> Search:
        """Matches all of it, with a group, or what may yet become it."""
        return re.compile(partial_pattern(self.parts, _MARK)).match

    @cached_property
    def final(self) -> Search:
        """The same, where the text does not go on."""
        return re.compile(_joined(self.parts, complete) + _MARK).match

    def match(self, text: str, at: int, ended: bool) -> int | Literal[False] | None:
        """Return where the parts end, None if they may yet match, or False if they cannot."""
        match = self.final if ended else self.partial
        found = match(text, at)
        if found is None:
            return None if at == len(text) and not ended else False
        return found.end() if found.lastindex else None


def _shortest(part: Part) -> int:
    words = part.words if isinstance(part, OneOf) else [part if isinstance(part, str) else ""]
    return part.least if isinstance(part, Some) else min(map(len, words))


def partial_pattern(parts: Sequence[Part], rest: str = "") -> str:
    """Return a pattern for `parts` and then `rest`, with the end of the text allowed everywhere in between."""
    for part, behind in reversed(_in_pairs(parts)):
        rest = _followed(part, behind, rest)
    return rest


def any_partial(sequences: Iterable[tuple[Part, ...]]) -> str:
    """Return what `going` does, for one of several sequences; what they begin with alike stands once."""
    alike: dict[Part | None, list[tuple[Part, ...]]] = {}
    for parts in sequences:
        first = parts[0] if parts else None
        alike.setdefault(first[0] if isinstance(first, str) else first, []).append(parts)
    return "|".join(
        partial_pattern(each[0], _MARK) if len(each) == 1 else _partial_alike(each) for each in alike.values()
    )


def _partial_alike(sequences: list[tuple[Part, ...]]) -> str:
    if not sequences[0]:
        return _MARK
    shared = sequences[0][0]
    if isinstance(shared, str):
        columns = zip(*(str(first) for first, *_ in sequences), strict=False)
        shared = "".join(each[0] for each in takewhile(lambda column: len(set(column)) == 1, columns))
        rests = [(str(first).removeprefix(shared), *others) for first, *others in sequences]
        rests = [rest if rest[0] else rest[1:] for rest in rests]
    else:
        rests = [rest[1:] for rest in sequences]
    behind = next((rest[0] for rest in rests if rest and complete(shared, rest[0]) != complete(shared)), None)
    return _followed(shared, behind, f"(?:{any_partial(rests)})")


def _followed(part: Part, behind: Part | None, rest: str) -> str:
    if isinstance(part, LineEnd):
        return rf"(?:\r?\Z|\r?\n{_or_end(rest)})"
    if isinstance(part, Maybe):
        return f"(?:{partial_pattern(part.parts, '')})?{_or_end(rest)}"
    if isinstance(part, OneOf):
        short = "".join(f"{beginning(word)}\\Z|" for word in part.words if len(word) > 1)
        return f"(?:{short}{complete(part, behind)}{_or_end(rest)})"
    if isinstance(part, Some):
        short = f"[{part.characters}]{{0,{part.least - 1}}}\\Z|" if part.least else ""
        return f"(?:{short}{complete(part, behind)}{_or_end(rest)})"
    if len(part) < 2:
        return re.escape(part) + _or_end(rest) if part else rest
    # All of it at once, since most text goes on, and else how far it goes where the text ends.
    first, others = re.escape(part[0]), re.escape(part[1:])
    begun = f"(?:{beginning(part[1:])})?" if len(part) > 2 else ""
    return f"{first}(?:{others}{_or_end(rest)}|(?!{others}){begun}\\Z)"


def _or_end(rest: str) -> str:
    return rest if rest in (_MARK, _NEVER) else f"(?:\\Z|{rest})"


def whole(marker: Marker, pattern: PartPattern) -> str:
    """Return a pattern for all of a marker, of the patterns of its parts; a group ends what is read with it."""
    return _joined(marker.parts, pattern) + _MARK + _joined(marker.ahead, pattern) + _MARK


def _joined(parts: Sequence[Part], pattern: PartPattern) -> str:
    return "".join(pattern(part, behind) for part, behind in _in_pairs(parts))


def _in_pairs(parts: Sequence[Part]) -> list[tuple[Part, Part | None]]:
    """Return each part with the one behind it."""
    return list(zip(parts, (*parts[1:], None), strict=False))


def complete_line(part: Part, behind: Part | None) -> str:
    """Return a pattern for all of `part`, where the end of the stream is not in sight."""
    if isinstance(part, OneOf):  # not while a longer word may yet come
        longer = [word for word in part.words if any(word != each and word.startswith(each) for each in part.words)]
        begun = [beginning(word) for word in longer if len(word) > 1] + [""] * ("" in part.words)
        return f"(?!(?:{'|'.join(begun)})\\Z){complete(part)}" if begun else complete(part)
    return r"\r?\n" if isinstance(part, LineEnd) else complete(part, behind)


def complete(part: Part, behind: Part | None = None) -> str:
    """Return a pattern for all of `part`, where the text does not go on."""
    if isinstance(part, LineEnd):
        return r"\r?(?:\n|\Z)"
    if isinstance(part, Some):
        gives_back = isinstance(behind, str) and re.match(f"[{part.characters}]", behind)
        return f"[{part.characters}]{{{part.least},{part.most}}}{'' if gives_back else '+'}"
    if isinstance(part, Maybe):
        return f"(?:{_joined(part.parts, complete)})?"
    if isinstance(part, OneOf):
        return "(?:" + "|".join(map(re.escape, sorted(part.words, key=len, reverse=True))) + ")"
    return re.escape(part)


def beginning(word: str) -> str:
    """Return a pattern for every beginning of `word` that is not all of it; it has two characters at least."""
    pattern = ""
    for character in reversed(word[1:-1]):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return re.escape(word[0]) + pattern


class Markers(Generic[T]):
    """Several markers, looked for at once; each with something that belongs to it."""

    def __init__(self, entries: Sequence[tuple[Marker, T]]) -> None:
        # Groups by the first characters of the markers, or by fewer where the text has no more of them, made when they
        # are wanted. `_whole` holds only the markers whose fixed beginning is not longer: for text that goes on like no
        # other marker.
        self._entries = [(marker.head, (marker, companion)) for marker, companion in entries]
        heads = {head for head, _ in self._entries}
        self._beginnings = {head[:length] for head in heads for length in range(1, HEAD + 1)}
        self._begun: dict[str, Group[T]] = {}
        short = [head for head in heads if len(head) < HEAD]
        self._whole = {head: Group([it for each, it in self._entries if head.startswith(each)]) for head in short}
        self._lengths = sorted({len(head) for head in self._whole}, reverse=True)

    def at(self, text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | None:
        """Return what belongs to the marker at this place, and where the marker ends; None if one may yet stand here.

        Returns False if none can. The character before the place, if there is one, has to be in the text.
        """
        found = self.find(text, at, ended)
        return None if isinstance(found, Group) else found

    def find(self, text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | Group[T]:
        """Return what `at` does, but the markers of which one may yet stand here, if one may."""
        head = text[at : at + HEAD]
        group = self._begun.get(head)
        if group is None and head in self._beginnings:
            group = self._begun[head] = self._beginning_with(head)
        if group is None:
            for length in self._lengths:
                if (group := self._whole.get(head[:length])) is not None:
                    break
            else:
                return False
        found = group.at(text, at, ended)
        return group if found is None else found

    def _beginning_with(self, begun: str) -> Group[T]:
        alike = [(head, entry) for head, entry in self._entries if head.startswith(begun) or begun.startswith(head)]
        shorter = any(len(head) <= len(begun) for head, _ in alike)
        return Group([entry for _, entry in alike], all_begin=0 if shorter else len(begun))


class Group(Generic[T]):
    """Markers that begin alike. Their patterns are compiled when they are wanted: few texts have use for many."""

    def __init__(self, entries: Sequence[tuple[Marker, T]], all_begin: int = 0) -> None:
        """Take markers. The text begins like them all, and they go on, where it has `all_begin` characters or fewer."""
        self._entries = entries
        self.all_begin = all_begin
        self._begun: tuple[Search, int, Search] | None = None  # no cached property, of which each look costs the more

    def _begin(self) -> tuple[Search, int, Search]:
        """Return what matches where one stands or may yet stand, their least length, and what finds their last part."""
        alike: dict[str, list[tuple[Part, ...]]] = {}
        for marker, _ in self._entries:
            alike.setdefault(marker.behind, []).append(marker.parts + marker.ahead)
        begun = re.compile("|".join(f"{behind}(?:{any_partial(each)})" for behind, each in alike.items())).match
        least = min(sum(map(_shortest, marker.parts + marker.ahead)) for marker, _ in self._entries)
        ends = re.compile("|".join(sorted({marker.last for marker, _ in self._entries}))).search
        self._begun = begun, least, ends
        return self._begun

    @cached_property
    def _allowed(self) -> Search:
        """Matches where what stands before allows one of them."""
        return re.compile("|".join(dict.fromkeys(marker.behind for marker, _ in self._entries))).match

    @cached_property
    def _whole(self) -> Search:
        return self._compile(complete_line)

    @cached_property
    def _cuts(self) -> list[tuple[Search, T]]:  # apart: all at once take ten times the memory to compile
        return [(re.compile(marker.cut_pattern()).match, each) for marker, each in self._entries]

    def at(self, text: str, at: int, ended: bool = False) -> tuple[T, int] | Literal[False] | None:
        """Return what `Markers.at` does."""
        if self.all_begin and len(text) - at <= self.all_begin:  # to compile all that begin with `<` takes 80 ms
            return None if not ended and self._allowed(text, at) else False
        begun, least, ends = self._begun or self._begin()
        if begun(text, at) is None:
            return False
        if not ended and (len(text) - at < least or ends(text, at) is None):
            return None
        whole = self._whole
        found = shorter = whole(text, at)
        while shorter is not None:  # the one that is complete first, however the text is cut
            found = shorter
            shorter = whole(text, at, found.end() - 1)
        if found is None:
            if not ended:
                return None
            found = self._compile(complete)(text, at)
            if found is None:
                return False
        group = found.lastindex or 0  # each marker has two
        return self._entries[group // 2 - 1][1], found.start(group - 1)

    def cut(self, text: str, at: int) -> T | None:
        """Return what belongs to the marker whose complete tag stands at this place, where the stream ends in it."""
        return next((each for match, each in self._cuts if match(text, at)), None)

    def _compile(self, pattern: PartPattern) -> Search:
        return re.compile("|".join(each.behind + whole(each, pattern) for each, _ in self._entries)).match
