"""Several markers at once: which of them stands at a place, or may yet stand there.

They are told apart by what they begin with. Those that begin alike are one expression, a tree, in which each common
beginning stands once: openers differ in the last character of a commit point as a rule, and the headers of a dialect of
channels begin alike for fifty characters. Where each text leaves the tree in one way only, one match gives all answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Generic, Literal, TypeAlias, TypeVar

from streamtools.parsing.markers import (
    MARK,
    Marker,
    Maybe,
    OneOf,
    Part,
    Some,
    apart,
    complete,
    complete_line,
    firsts,
    followed,
    whole,
)

T = TypeVar("T")
_Match: TypeAlias = Callable[..., re.Match[str] | None]
_Piece: TypeAlias = Part | None  # None stands between what is read with a marker and what is ahead
_Ways: TypeAlias = list[tuple[tuple[_Piece, ...], int]]  # the rest of some markers, and their numbers


class Markers(Generic[T]):
    """Several markers, looked for at once; each with something that belongs to it."""

    def __init__(self, entries: Sequence[tuple[Marker, T]]) -> None:
        # By what they begin with: two characters, or one where the text at hand has no more or the second is not fixed.
        self._groups: dict[str, Group[T]] = {}
        self._open: dict[str, Group[T]] = {}
        heads = [(marker.head[:2], (marker, companion)) for marker, companion in entries]
        for head in dict.fromkeys(head for head, _ in heads):
            alike = [(other, entry) for other, entry in heads if other[0] == head[0]]
            self._groups[head[0]] = Group([entry for _, entry in alike])
            if len(head) == 2:
                self._groups[head] = Group([entry for other, entry in alike if other in (head, head[0])])
            else:
                self._open[head] = Group([entry for other, entry in alike if other == head])

    def at(self, text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | None:
        """Return what belongs to the marker at this place, and where the marker ends; None if one may yet stand here.

        Returns False if none can. The character before the place, if there is one, has to be in the text.
        """
        group = self.group(text, at)
        return group is not None and group.at(text, at, ended)

    def group(self, text: str, at: int) -> Group[T] | None:
        """Return the markers of which one may stand here, or may yet; of the others more text makes none."""
        group = self._groups.get(text[at : at + 2]) or self._open.get(text[at : at + 1])
        if group is not None and not group.ready:
            group.prepare()
        return group


class Group(Generic[T]):
    """Markers that begin alike. Their patterns are compiled when they are wanted: few texts have use for many."""

    __slots__ = ("_entries", "_going", "_told", "back", "begun", "final", "last", "ready")

    begun: _Match
    """Matches where one stands or may yet stand."""
    last: _Match | None
    """Finds what one of them ends with; None where `begun` tells all."""
    final: str
    """The character with which each is complete, or "" if they have no such character in common."""
    back: int
    """How many characters before the place have to be in the text."""

    def __init__(self, entries: Sequence[tuple[Marker, T]]) -> None:
        self._entries = entries
        self.ready = False

    def prepare(self) -> None:
        """Compile what every text asks for. Threads may do so at once: each attribute is set to the same."""
        markers = [marker for marker, _ in self._entries]
        tree = _Tree(markers)
        self.begun = re.compile(tree.pattern).match
        if not tree.plain:
            self._going = self._compile(complete_line)
        self.last = None if tree.plain else re.compile("|".join(sorted(set(map(_last, markers))))).search
        finals = {marker.last if _ends_at_once(marker) else "" for marker in markers}
        self.final = finals.pop() if len(finals) == 1 else ""
        self.back = int(any(marker.behind for marker in markers))
        self._told = tree.told
        self.ready = True

    def at(self, text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | None:
        """Return what `Markers.at` does."""
        begins = self.begun  # called as a variable: what looks like a method is looked for in the type first
        begun = begins(text, at)
        return begun is not None and self.choose(begun, text, at, ended)

    def choose(self, begun: re.Match[str], text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | None:
        """Return what `Markers.at` does, where `begun` is what has matched."""
        last = self.last
        if last is None:
            told = self._told.get(begun.lastindex)
            if told is not None:
                return self._entries[told[0]][1], begun.start(told[1])
        elif ended or begun.end() < len(text) or last(text, at) is not None:  # else what ends a marker has not come
            found = shorter = self._going(text, at)
            while shorter is not None:  # the one that is complete first, however the text is cut
                found = shorter
                shorter = self._going(text, at, found.end() - 1)
            if found is not None:
                return self._named(found)
        if not ended:
            return None
        found = self._compile(complete)(text, at)
        return False if found is None else self._named(found)

    def _named(self, found: re.Match[str]) -> tuple[T, int]:
        group = found.lastindex
        assert group is not None  # each marker has two
        return self._entries[group // 2 - 1][1], found.start(group - 1)

    def _compile(self, pattern: Callable[[Part], str]) -> _Match:
        return re.compile("|".join(each.behind + whole(each, pattern) for each, _ in self._entries)).match


class _Tree:
    """One pattern for markers and all their beginnings at the end of the text.

    It is `plain` if two of them can never stand at one place, nor one of them in two ways: then `told` maps the last
    group that took part to the number of the marker that is complete and the group where that ends.
    """

    def __init__(self, markers: Sequence[Marker]) -> None:
        self.plain = len({marker.behind for marker in markers}) == 1
        self.told: dict[int | None, tuple[int, int]] = {}
        self._groups = 0
        alike: dict[str, _Ways] = {}
        for number, marker in enumerate(markers):
            alike.setdefault(marker.behind, []).append((tuple(_pieces(marker)), number))
        self.pattern = "|".join(behind + self._branch(ways, 0) for behind, ways in alike.items())

    def _branch(self, ways: _Ways, ends: int) -> str:
        """Return a pattern for the rests of some markers; `ends` is the group where what is read with them ends."""
        branches: dict[_Piece, _Ways] = {}
        for pieces, number in ways:
            if not pieces:
                self.plain = self.plain and len(ways) == 1
                self._groups += 1
                self.told[self._groups] = number, ends
                return MARK
            branches.setdefault(pieces[0], []).append((pieces[1:], number))
        if len(branches) > 1:  # a marker that ends here, or may, is the beginning of the others
            open_end = any(_may_end(pieces) for pieces, _ in ways)
            begins = [[each for pieces, _ in some for each in firsts((at, *pieces))] for at, some in branches.items()]
            self.plain = self.plain and not open_end and all(apart(*pair) for pair in combinations(begins, 2))
        patterns = [self._piece(piece, some, ends) for piece, some in branches.items()]
        return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"

    def _piece(self, piece: _Piece, behind: _Ways, ends: int) -> str:
        """Return a pattern for a piece and what comes `behind` it; characters that all go on with are one literal."""
        if piece is None:
            self._groups += 1
            return MARK + self._branch(behind, self._groups)
        if isinstance(piece, Some):  # how far it goes has to show
            shows = apart([piece], [each for pieces, _ in behind for each in firsts(pieces)])
            self.plain = self.plain and shows
            return followed(piece, self._branch(behind, ends), goes_back=not shows)
        if isinstance(piece, OneOf | Maybe):
            self.plain = False
        while isinstance(piece, str) and isinstance(next_piece := _common(behind), str):
            piece += next_piece
            behind = [(pieces[1:], number) for pieces, number in behind]
        return followed(piece, self._branch(behind, ends))


def _common(ways: _Ways) -> _Piece:
    """Return the piece with which all of some rests begin; None where they do not, or nothing is left of one."""
    begins = {pieces[0] if pieces else None for pieces, _ in ways}
    return begins.pop() if len(begins) == 1 else None


def _pieces(marker: Marker) -> Iterator[_Piece]:
    """Yield the parts of a marker, literals character by character."""
    for part in (*marker.parts, None, *marker.ahead):
        yield from part if isinstance(part, str) else (part,)


def _may_end(pieces: Iterable[_Piece]) -> bool:
    """Return whether no character has to follow."""
    return all(piece is None or (isinstance(piece, Some) and not piece.least) for piece in pieces)


def _ends_at_once(marker: Marker) -> bool:
    """Return whether a marker is complete with its last character; a word may have to show that no longer one comes."""
    return not isinstance((marker.parts + marker.ahead)[-1], OneOf)


def _last(marker: Marker) -> str:
    """Return a pattern for what a marker ends with."""
    last = (marker.parts + marker.ahead)[-1]
    return re.escape(last) if isinstance(last, str) else f"[{re.escape(marker.last)}]"
