"""Reads that pause for more text.

A grammar is a generator: straight-line code that reads what comes next and yields where the text does not suffice. Its
position is its whole state, so a new dialect takes a few lines, and the end of the stream is one flag that every read
sees. No text is read twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from functools import cached_property
from typing import TypeAlias, cast

from streamtools.parsing.markers import SPACES, Marker, Maybe, Part, Pattern

# What ends a section of text wherever it comes: a value, a call, a result, or what is broken.
#
# An end is written like a marker and compiled to one search, which also finds the beginning of an end at the end of the
# text. So a read releases everything before it, and holds back only what may become an end.

Form: TypeAlias = "str | tuple[Part, ...] | Marker"
"""The form of an end; what a marker has `ahead` is not read with it."""

_INDENTS = r"[ \t\r]{0,256}"


Awaited: TypeAlias = Callable[..., "re.Match[str] | None"]
"""Matches at the beginning of a text what it may become; a group matches where more text does not matter."""


class Closing:
    """What `Reader.content` and `Reader.until` look for. Its patterns are compiled when they are wanted."""

    def __init__(
        self,
        *ends: Form,
        before: Iterable[Form] = (),
        line_feed: bool = False,
        blank_line: bool = False,
        last: tuple[Part, ...] = (),
    ) -> None:
        """Look for one of `ends`, or for nothing, where one of `before` follows, which is read again.

        At the end of the stream it may be `last` with white space behind it, with which one of `ends` begins.
        With `line_feed`, one that stands before it belongs to it. A `blank_line` is one too: the line feed before it.
        """
        self._behind, self._ahead = list(map(_marker, ends)), list(map(_marker, before))
        self._line_feed, self._blank_line = line_feed, blank_line
        self.last = Pattern(*([Maybe(("\n",))] if line_feed else []), *last, SPACES) if last else None

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        """One group, behind what is read; without it, the text may yet become that."""
        behind, ahead = self._behind, self._ahead
        whole = [*(each.search_pattern() for each in behind), *(f"(?={each.search_pattern()})" for each in ahead)]
        begun = [each.begun_pattern() for each in (*behind, *ahead)]
        if self._blank_line:
            whole.append(rf"\n(?={_INDENTS}\n)")
            begun.append(rf"\n{_INDENTS}")
        if self._line_feed:
            whole = [rf"\n?(?:{'|'.join(whole)})"]
            begun = [rf"\n?(?:{'|'.join(begun)})", r"\n"]
        return re.compile(f"(?:{'|'.join(whole)})()|(?:{'|'.join(begun)})\\Z")

    @cached_property
    def search(self) -> Awaited:
        """Finds what is read, or at the end of a text what may yet become it."""
        return self._compiled.search

    @cached_property
    def going(self) -> Awaited:
        """Matches what `search` finds."""
        return self._compiled.match

    @cached_property
    def leaves(self) -> Awaited:
        """Finds nothing in text in which no closing begins."""
        firsts = {each.first for each in (*self._behind, *self._ahead)}
        if self._line_feed or self._blank_line:
            firsts.add("\n")
        return re.compile(f"[{re.escape(''.join(sorted(firsts)))}]").search

    @cached_property
    def _unfollowed(self) -> str:
        return "|".join(each.parts_pattern() for each in self._behind if each.ahead)

    def lost(self, text: str) -> int | None:
        """Return the place behind the last of the ends in a text, behind which something else follows than has to.

        None if there is none, or if the text ends in what has to follow, or in another end.
        """
        begin, end = max((found.span() for found in re.finditer(self._unfollowed or "(?!)", text)), default=(0, 0))
        if not end or not text[end:].strip(" \t\r\n") or self.going(text, begin):
            return None
        begun = self.search(text, end)
        while begun is not None and begun.lastindex:
            begun = self.search(text, begun.end(1))
        return end if begun is None or len(begun[0].strip()) < 2 else None  # one character says little


def _marker(form: Form) -> Marker:
    if isinstance(form, Marker):
        return form
    return Marker((form,) if isinstance(form, str) else form)


def matcher(pattern: str) -> Callable[[str, int], re.Match[str]]:
    """Return what matches `pattern` at a place; the pattern matches nothing, too, so that there always is a match."""
    match = re.compile(pattern, re.DOTALL).match
    assert match("") is not None
    return cast("Callable[[str, int], re.Match[str]]", match)


white_space = matcher(r"[ \t\r\n]*")
not_white_space = re.compile(r"[^ \t\r\n]").search
NO_TEXT = "decode bytes, or let `streamtools.sources` read the stream"
"""What to do with a delta that is no text."""

always: Callable[[str], object] = str.__len__
"""Finds something in any text: a number is not None. No search costs less."""

QUIET, MEETS, LEAVES = range(3)
"""What a delta is where rules read the text: nothing begins in it, a match may, or the parser has to look at it."""


class Reader:
    """The text of one span that its grammar has still to read: `text` from `at` on."""

    __slots__ = ("at", "base", "before_closing", "ended", "leaves", "take", "text", "waits")

    text: str
    at: int
    base: int  # how much of the span comes before `text`
    ended: bool  # no more text will come
    leaves: Callable[[str], object]  # see `content`; `always` where the grammar must see all text
    take: Callable[[str], None] | None  # takes text in which `leaves` finds nothing
    waits: Awaited | None  # what may yet stand at `at`, if nothing else counts before that is decided
    before_closing: int  # the place where the last closing that was read begins

    @property
    def place(self) -> int:
        """How much of the span has been read."""
        return self.base + self.at

    def go_back(self, place: int) -> None:
        """Go back to the place where the last read began."""
        self.at = place - self.base

    def read_since(self, place: int) -> str:
        """Return the text that was read from `place` on."""
        return self.text[place - self.base : self.at]

    def unread(self, text: str) -> None:
        """Go back over `text`, the text that was read last."""
        self.base += self.at - len(text)
        self.text = text + self.text[self.at :]
        self.at = 0

    def peek(self) -> Generator[None, None, str]:
        """Skip white space; return the next character, which is not read yet, or "" at the end of the stream."""
        while True:
            text, at = self.text, self.at
            if at < len(text):
                if (char := text[at]) not in " \t\r\n":
                    return char
                self.at = white_space(text, at).end()
            elif self.ended:
                return ""
            else:
                yield

    def accept(self, pattern: Pattern) -> Generator[None, None, bool]:
        """Read what `pattern` matches here, or nothing; return which."""
        while True:
            match = pattern.ending if self.ended else pattern.going
            found = match(self.text, self.at)
            if found is not None and found.lastindex:
                self.at = found.end()
                return True
            if found is None and (self.at < len(self.text) or self.ended):
                return False
            self.waits = pattern.going
            yield
            self.waits = None

    def choose(self, *patterns: Pattern) -> Generator[None, None, int]:
        """Read the first of `patterns` that matches here; return its number, or -1 where none does."""
        while True:
            for number, pattern in enumerate(patterns):
                match = pattern.ending if self.ended else pattern.going
                found = match(self.text, self.at)
                if found is not None and found.lastindex:
                    self.at = found.end()
                    return number
                if found is not None or (self.at == len(self.text) and not self.ended):
                    self.waits = pattern.going
                    break
            else:
                return -1
            yield
            self.waits = None

    def expect(self, pattern: Pattern, *others: Pattern) -> Generator[None, None, int]:
        """Do the same as `choose`, but leave the text unread if it is one of `others`."""
        place = self.place
        found = yield from self.choose(pattern, *others)
        if found > 0:
            self.go_back(place)
        return found

    def word(self, characters: Word) -> Generator[None, None, str]:
        """Read the characters of a class that stand here, as many as it allows; return them."""
        going = characters.going
        while True:
            begin = self.at
            found = going(self.text, begin)
            if found.lastindex or self.ended:
                self.at = found.end()
                return self.text[begin : self.at]
            self.waits = going
            yield
            self.waits = None

    def content(self, closing: Closing, take: Callable[[str], None]) -> Generator[None, None, bool]:
        """Give what stands before the first `closing` to `take`, and read the closing too; return whether it came.

        Pieces of the text that have no closing and no beginning of one in them may be given without this being resumed.
        """
        search = closing.search
        while True:
            found = search(self.text, self.at)
            end = found.start() if found is not None else len(self.text)
            if end > self.at:
                take(self.text[self.at : end])
                self.at = end
            if found is not None and found.lastindex:
                self.before_closing = self.base + end
                self.at = found.end(1)
                return True
            if self.ended:
                if (
                    found is not None
                    and closing.last is not None
                    and closing.last.match(self.text, end, True) == len(self.text)
                ):
                    self.before_closing, self.at = self.base + end, len(self.text)
                    return True
                if self.at < len(self.text):
                    take(self.text[self.at :])
                self.at = len(self.text)
                return False
            if found is None:
                self.leaves, self.take = closing.leaves, take
            else:
                self.waits = closing.going
            yield
            self.leaves, self.take, self.waits = always, None, None

    def until(self, closing: Closing) -> Generator[None, None, bool]:
        """Read up to the end of the first `closing` and return True, or to the end of the stream and return False."""
        while True:
            found = closing.search(self.text, self.at)
            if found is None:
                self.at = len(self.text)
            elif found.lastindex:
                self.before_closing = self.base + found.start()
                self.at = found.end(1)
                return True
            else:
                self.at = found.start()
            if self.ended:
                self.at = len(self.text)
                return False
            yield


class Word:
    """A class of characters, written as inside `[...]` of a pattern, and how many of them make a word at most."""

    def __init__(self, characters: str, most: int = 256) -> None:
        self.going = matcher(f"[{characters}]{{{most}}}()|[{characters}]{{0,{most - 1}}}+(?:\\Z|())")
        """Matches the word that stands at a place, with a group where no more text can be a part of it."""

    def matches(self, text: str) -> bool:
        """Whether all of a text is one."""
        return text != "" and self.going(text, 0).end() == len(text)


# The text of a span as it came: kept until it is handed out, up to a limit.
#
# Nothing of a span may be lost, so what a grammar reads is kept, and it may go back over that. Over the limit nothing
# is kept but the end, which may be looked back at: reading goes on only to find where the span ends.

_LOOK_BACK = 320  # characters before the last piece that are kept while skipping: more than any indentation read
_REWIND = 256  # characters that a grammar goes back while skipping: less, by the beginning of any tag


class RawText(Reader):
    """What is read of a span, and what is kept of it. Places count from the beginning of the span."""

    __slots__ = ("_before", "_length", "_most", "_skipped_from", "marker", "origin", "parts", "room", "stores")

    marker: str
    parts: list[str]
    origin: int  # the place where what is kept begins: what comes before has been handed out
    room: int  # how much more may be kept; negative while nothing is
    stores: bool  # text is kept, since no limit has been met
    _most: int
    _length: int  # how much may be kept, counted from the beginning of the span
    _skipped_from: int  # the place from which on nothing is
    _before: str  # the character before what is kept

    @property
    def received(self) -> int:
        """How much of the span has come."""
        return self._length - self.room

    @property
    def skipped(self) -> int:
        """How much has been read since a limit was met; negative if it was met behind this place."""
        return self.place - self._skipped_from

    @property
    def last(self) -> str:
        """The character before the place that has been read to."""
        return self.text[self.at - 1] if self.at else self._before_text()

    @property
    def at_line_start(self) -> bool:
        """Whether only blanks stand between the last line feed and here."""
        behind = self.text[: self.at]
        parts = iter(reversed(self.parts))
        unread = len(self.text) - self.at
        while not (stripped := behind.rstrip(" \t")):
            part = next(parts, None)
            if part is None:
                return False
            behind, unread = part[: max(0, len(part) - unread)], max(0, unread - len(part))
        return stripped[-1] == "\n"

    def keep_end(self, text: str) -> None:
        """Keep only the end of the text, which may be looked back at."""
        self.parts = ["".join(self.parts)[-_LOOK_BACK:], text]

    def kept_since(self, place: int) -> str:
        """Return what is kept, from a place on."""
        return "".join(self.parts)[place - self.origin :]

    def kept_to(self, place: int) -> str:
        """Return what is kept, up to a place."""
        return "".join(self.parts)[: place - self.origin]

    def hand_out(self) -> str:
        """Return what has been read, and keep it no longer; the limit counts from here."""
        raw = "".join(self.parts)
        length = self.place - self.origin
        received = self.received
        self._before = raw[length - 1 : length] or self._before
        self.parts = [raw[length:]]
        self.origin += length
        self.room = max(0, self._most - len(raw) + length)
        self._length = received + self.room
        return raw[:length]

    def skip_from(self, place: int) -> None:
        """Keep nothing from a place on."""
        self.stores = False
        self._skipped_from = place
        self._before = self._before_text()
        self._length -= self.room + 1
        self.room = -1
        self.parts = [self.text]

    def _before_text(self) -> str:
        """Return the character before the text that is at hand."""
        return "".join(self.parts)[: -len(self.text) or None][-1:] or self._before

    def rewind(self, place: int) -> None:
        """Go back to a place that has been read; where nothing is kept, not further than a bound."""
        if not self.stores:
            place = max(place, self.place - _REWIND)
        unread = self.received - place
        self.text = "".join(self.parts)[-unread:] if unread else ""
        self.at, self.base = 0, place
