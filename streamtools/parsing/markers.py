"""Find a marker, or the beginning of one at the end of the text.

A marker is written down once, as a sequence of literals and bounded repetitions, and compiled to a regular expression
in which every place may also be the end of the text: `ab` becomes `a(?:\\Z|b())`. One match then answers in three ways:
the marker stands here, it may yet stand here, it does not. Every repetition has a bound, so what is held back while a
marker may yet stand is bounded too, and no text makes the expression backtrack further than that bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from streamtools.parsing.span import Span

T = TypeVar("T")

Body: TypeAlias = Callable[["Span"], Generator[None, None, None]]
"""A grammar: reads one span from behind its marker to its end, and yields where it needs more text."""


@dataclass(frozen=True)
class Some:
    """Between `least` and `most` characters out of a class, which is written as inside `[...]` of a pattern."""

    characters: str
    least: int
    most: int


@dataclass(frozen=True)
class LineEnd:
    """LF or CR LF; the end of the stream ends a line too."""


BLANKS = Some(r" \t", 0, 32)
SPACES = Some(r" \t\r\n", 0, 32)
LINE_END = LineEnd()

Part: TypeAlias = str | Some | LineEnd

_MARK = "()"  # an empty group: the match has come this far


@dataclass(frozen=True)
class Opener:
    """What commits the text to a call, or to a forged result, and the grammar of what follows.

    `ahead` belongs to the commit point but is read again by `body`. `where` says whether the marker counts anywhere or
    only behind the indentation of a line; `not_after` is a pattern of the single characters that it must not follow.
    Raises ValueError for a marker that does not begin with a literal, or does not end with one or with a line end.
    """

    parts: tuple[Part, ...]
    body: Body
    ahead: tuple[Part, ...] = ()
    where: Literal["anywhere", "line_start"] = "anywhere"
    not_after: str = ""
    kind: Literal["call", "result"] = "call"
    first: str = field(init=False)
    """The character with which it begins."""
    last: str = field(init=False)
    """The character with which it is committed to."""
    pattern: Pattern = field(init=False)

    def __post_init__(self) -> None:
        if not self.parts or not isinstance(self.parts[0], str) or not self.parts[0]:
            raise ValueError(f"a marker begins with at least one fixed character, and this one is {self.parts!r}")
        last = (self.parts + self.ahead)[-1]
        if isinstance(last, Some):
            raise ValueError(f"a marker ends with a fixed character or a line end, and this one ends with {last!r}")
        object.__setattr__(self, "first", self.parts[0][0])
        object.__setattr__(self, "last", last[-1] if isinstance(last, str) else "\n")
        object.__setattr__(self, "pattern", Pattern(self.parts, self.ahead))

    def search_pattern(self) -> str:
        """Return a pattern, without groups, that finds the marker where it is complete."""
        before = "(?:^[ \\t]{0,32})" if self.where == "line_start" else ""
        behind = f"(?<!{self.not_after})" if self.not_after else ""
        return before + behind + "".join(map(_complete_line, self.parts + self.ahead))


class Openers(Generic[T]):
    """Several openers, looked for at once; each with something that belongs to it."""

    def __init__(self, entries: Sequence[tuple[Opener, T]]) -> None:
        self._entries = entries
        going, ended, begun = [], [], []
        for opener, _ in entries:
            behind = f"(?<!{opener.not_after})" if opener.not_after else ""
            going.append(behind + _whole(opener, _complete_line))
            ended.append(behind + _whole(opener, _complete))
            begun.append(behind + opener.pattern.begun)
        self._going, self._ended, self._begun = (re.compile("|".join(each)).match for each in (going, ended, begun))

    def at(self, text: str, at: int, ended: bool) -> tuple[Opener, T, int] | Literal[False] | None:
        """Return the opener at this place with its companion and where its body begins; None if one may yet stand here.

        Returns False if none can. The character before the place, if there is one, has to be in the text.
        """
        if not self._entries:
            return False
        found = (self._ended if ended else self._going)(text, at)
        if found is not None:
            last: int = found.lastindex  # type: ignore[assignment]  # each opener has two groups
            return *self._entries[last // 2 - 1], found.start(last - 1)
        return None if not ended and self._begun(text, at) else False


class Pattern:
    """A sequence of parts that can be looked for in text that goes on."""

    def __init__(self, parts: Sequence[Part], ahead: Sequence[Part] = ()) -> None:
        going = _MARK  # put together from the last part to the first
        for part in reversed(ahead):
            going = _before(part, going)
        going = _MARK + going
        for part in reversed(parts):
            going = _before(part, going)
        self.begun = going
        self._going = re.compile(going).match
        self._ended = re.compile("".join(map(_complete, parts)) + _MARK + "".join(map(_complete, ahead)) + _MARK).match

    def match(self, text: str, at: int, ended: bool) -> tuple[int, int] | Literal[False] | None:
        """Return where the parts and the parts ahead end, None if they may yet match, or False if they cannot."""
        found = self._ended(text, at) if ended else self._going(text, at)
        if found is None:
            return None if at == len(text) and not ended else False
        return (found.start(1), found.end()) if found.lastindex == 2 else None


def _before(part: Part, rest: str) -> str:
    """Return a pattern for `part` and then `rest`, with the end of the text allowed everywhere in between."""
    if isinstance(part, LineEnd):
        return rf"(?:\r?\Z|\r?\n{rest})"
    if isinstance(part, Some):
        short = f"[{part.characters}]{{0,{part.least - 1}}}\\Z|" if part.least else ""
        return f"(?:{short}[{part.characters}]{{{part.least},{part.most}}}{_or_end(rest)})"
    for character in reversed(part):
        rest = re.escape(character) + _or_end(rest)
    return rest


def _or_end(rest: str) -> str:
    return rest if rest in (_MARK, _MARK + _MARK) else f"(?:\\Z|{rest})"


def _whole(opener: Opener, complete: Callable[[Part], str]) -> str:
    return "".join(map(complete, opener.parts)) + _MARK + "".join(map(complete, opener.ahead)) + _MARK


def _complete_line(part: Part) -> str:
    """Return a pattern for all of `part`, where the end of the stream is not in sight."""
    return r"\r?\n" if isinstance(part, LineEnd) else _complete(part)


def _complete(part: Part) -> str:
    """Return a pattern for all of `part`, where the text does not go on."""
    if isinstance(part, LineEnd):
        return r"\r?(?:\n|\Z)"
    if isinstance(part, Some):
        return f"[{part.characters}]{{{part.least},{part.most}}}"
    return re.escape(part)
