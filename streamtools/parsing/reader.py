"""Reads the text of a span for a grammar. A span is the text of a call, or of several calls, with their markers.

The reads are generators that pause until enough text has arrived. A grammar is also a generator. It calls the reads in
order, as if all text had already arrived. A paused grammar continues at the same line, so it needs no other state, and
a new dialect needs only a few lines of code. `Reader.ended` is True after the end of the stream.

    def body(span):
        while (yield from span.peek()) != "]":
            ...

`Closing` describes the text that ends a section, such as a closing tag. `Word` describes a word of given characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterable
from functools import cached_property
from typing import TypeAlias, TypeVar, cast

from streamtools.parsing.markers import TURN_ENDS, Marker, Part, Pattern, Search, any_partial

Ending: TypeAlias = "str | tuple[Part, ...] | Marker"
"""A way to describe the end of a section: a literal text, a sequence of parts, or a marker.

The text that `Marker.ahead` describes must follow the end of the section, but is left unread.
"""

_INDENTS = r"[ \t\r]{0,256}"


class Closing:
    """The possible ends of a section, for `Reader.content` and `Reader.until`. Patterns are compiled on first use.

    One search finds all ends. It also finds an incomplete end at the end of the text. So a read delivers all text
    before the match, and only text that may become an end stays pending.
    """

    def __init__(
        self,
        *ends: Ending,
        first: Collection[Ending] = (),
        before: Iterable[Ending] = (),
        line_feed: bool = False,
        blank_line: bool = False,
    ) -> None:
        """The section ends after one of `ends`, or before one of `before`. The text of `before` is left unread.

        It also ends after one of `first`. These have priority: another end is used only if the text at its position
        cannot become one of `first`. Each of `first` must begin with the same character as an end in `ends` or
        `before`. With `line_feed`, a line feed before the end belongs to the end. With `blank_line`, the line feed
        before a blank line is also an end.
        """
        self._ends, self._before = list(map(_marker, ends)), list(map(_marker, before))
        self._first = Closing(*first, line_feed=line_feed) if first else None
        if not (self._ends or self._before or blank_line):
            raise ValueError("a Closing needs an end, such as Closing('END')")
        self._line_feed, self._blank_line = line_feed, blank_line

    def _pattern(self, *, ended: bool) -> str:
        """Return a pattern for an end. With `ended=False`, it also matches an incomplete end at the end of the text.

        An empty group marks a complete end. With `first`, group 1 marks these ends, and group 2 the other ends.
        """
        complete = [each.search_pattern() for each in self._ends]
        complete += [f"(?={each.search_pattern()})" for each in self._before]
        begun = [each.begun_pattern() for each in (*self._ends, *self._before)]
        if self._blank_line:
            complete.append(rf"\n(?={_INDENTS}\n)")
            begun.append(rf"\n{_INDENTS}")
        if self._line_feed:
            complete = [rf"\n?(?:{'|'.join(complete)})"]
            begun = [rf"\n?(?:{'|'.join(begun)})", r"\n"]
        pattern = f"(?:{'|'.join(complete)})()" + ("" if ended else f"|(?:{'|'.join(begun)})\\Z")
        return f"{self._first._pattern(ended=ended)}|{pattern}" if self._first else pattern

    @cached_property
    def search(self) -> Search:
        """Finds an end of the section, or an incomplete end at the end of the text."""
        return re.compile(self._pattern(ended=False)).search

    @cached_property
    def search_at_end(self) -> Search:
        """Finds an end of the section when the stream has ended."""
        return re.compile(self._pattern(ended=True)).search

    @cached_property
    def partial(self) -> Search:
        """Matches an end of the section, or an incomplete end, at the given position."""
        return re.compile(self._pattern(ended=False)).match

    @cached_property
    def find_start(self) -> Search:
        """Finds a character with which an end of the section may begin."""
        firsts = {marker.first for marker in (*self._ends, *self._before)}
        if self._line_feed or self._blank_line:
            firsts.add("\n")
        return re.compile(f"[{re.escape(''.join(sorted(firsts)))}]").search

    def is_begun_in(self, text: str) -> bool:
        """Return True if `text` ends with an incomplete end of the section.

        A single character counts only if the text before it is white space.
        """
        found = self.search(text)
        while found is not None and found.lastindex:
            found = self.search(text, found.end())
        return found is not None and (len(found[0].strip()) > 1 or not text[: found.start()].strip())


def _marker(end: Ending) -> Marker:
    if isinstance(end, Marker):
        return end
    return Marker((end,) if isinstance(end, str) else end)


_turn_end = Closing(*TURN_ENDS)
_turn_end_here = re.compile(any_partial((token,) for token in TURN_ENDS)).match


class Word:
    """A word of at most `most` characters.

    `characters` are the allowed characters, as in the brackets `[...]` of a regular expression.
    """

    def __init__(self, characters: str, most: int = 256) -> None:
        self.partial = matcher(f"[{characters}]{{{most}}}()|[{characters}]{{0,{most - 1}}}+(?:\\Z|())")
        """Matches the word at a position. A group matches if further text cannot extend the word."""


T = TypeVar("T", "Pattern", "Closing", "Word")


def _as(kind: type[T], given: str | T) -> T:
    """Return the object that a grammar has passed to a read, or the object for a text."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, str):
        raise TypeError(f"expected a str or a {kind.__name__}, got {given!r}")
    return kind(given)


def matcher(pattern: str) -> Callable[[str, int], re.Match[str]]:
    """Return the match function of `pattern`, which must match the empty text. So the function never returns None."""
    match = re.compile(pattern, re.DOTALL).match
    assert match("") is not None
    return cast("Callable[[str, int], re.Match[str]]", match)


white_space = matcher(r"[ \t\r\n]*")
not_white_space = re.compile(r"[^ \t\r\n]").search

always: Callable[[str], object] = str.__len__
"""A search that succeeds for every text. It returns a number, and only None means that nothing was found.

It is the cheapest function for this purpose.
"""

# Number of characters. A token that ends the message fits, even after the beginning of a tag.
_TURN_END_WINDOW = 128
LOOK_BACK = 320  # after a limit was exceeded, this many characters before the newest piece stay stored
_MAX_REWIND = 256  # a grammar can then go back this far; the rest of LOOK_BACK is for a tag before that position


class Reader:
    """The text of one span: `text` from index `at` on is unread. Positions count characters from the start of the span.

    The reader stores all text of the span, so a grammar can go back over text that it has read. If the size limit is
    exceeded, only the end of the text is stored. The grammar then reads only to find the end of the span.
    """

    def __init__(self, marker: str, limit: int) -> None:
        """Begin after `marker`. At most `limit` characters are stored. The marker is stored even if it is longer."""
        self.marker = marker
        self.text = marker
        self.at = len(marker)
        self.base = 0  # the position where `text` begins
        self.ended = False  # whether the stream or the message has ended
        self.rest = ""  # text after the end of the message; this text is not part of the span
        self.find_change: Callable[[str], object] = always  # returns None for text that `take` may receive
        self.take: Callable[[str], None] | None = None  # receives text while the grammar stays paused
        # While this pattern matches at `at` without its group, a read needs more text, and the grammar stays paused.
        self.waits: Search | None = None
        self.before_closing = 0  # the position where the most recent closing begins
        self.parts = [marker]  # the stored text, in pieces
        self.kept_from = 0  # the position where the stored text begins
        self.stores = True  # whether all text is stored; False after a limit was exceeded
        self._limit = limit
        self._max_received = max(limit, len(marker))  # how many characters may arrive before the limit is exceeded
        self.room = self._max_received - len(marker)  # how many more characters can be stored; negative after a limit
        self._skipped_from = 0  # the position from which on only the end of the text is stored
        self._previous = ""  # the character before the stored text

    # Positions.

    @property
    def place(self) -> int:
        """The current position: how many characters of the span have been read."""
        return self.base + self.at

    @property
    def received(self) -> int:
        """How many characters of the span have arrived."""
        return self._max_received - self.room

    @property
    def last(self) -> str:
        """The character before the current position."""
        return self.text[self.at - 1] if self.at else self._before_text()

    def go_back(self, place: int) -> None:
        """Go back to the position `place`, where the most recent read began."""
        self.at = place - self.base

    def read_since(self, place: int) -> str:
        """Return the text between the position `place` and the current position."""
        return self.text[place - self.base : self.at]

    def unread(self, text: str) -> None:
        """Go back over `text`, which must be the text directly before the current position."""
        self.base += self.at - len(text)
        self.text = text + self.text[self.at :]
        self.at = 0

    def rewind(self, place: int) -> None:
        """Go back to the position `place`. After a limit was exceeded, go back at most 256 characters."""
        if not self.stores:
            place = max(place, self.place - _MAX_REWIND)
        unread = self.received - place
        self.text = "".join(self.parts)[-unread:] if unread else ""
        self.at, self.base = 0, place

    # Reads.

    def peek(self) -> Generator[None, None, str]:
        """Skip white space. Return the next character without reading it, or "" at the end of the message."""
        while True:
            text, at = self.text, self.at
            if at < len(text):
                if (char := text[at]) not in " \t\r\n":
                    ends = char in "<[" and _turn_end_here(text, at) and (yield from self.at_turn_end())
                    return "" if ends else char
                self.at = white_space(text, at).end()
            elif self.ended:
                return ""
            else:
                yield

    def at_turn_end(self, *tags: str | Pattern) -> Generator[None, None, bool]:
        """Return True if a token that ends the message follows. The token acts like the end of the stream.

        The token and the text after it become `rest`. With `tags`, the beginning of one of them precedes the token.
        """
        find = _turn_end.search if tags else _turn_end_here
        while True:
            text = self.text[self.at : self.at + _TURN_END_WINDOW]
            found = find(text)
            before = text[: found.start()] if found is not None else ""
            if found is None or (tags and not any(before and tag.startswith(before) for tag in tags)):
                return False
            if found.lastindex:
                end = self.at + found.start()
                self.text, self.rest, self.ended = self.text[:end], self.text[end:], True
                self.parts = ["".join(self.parts)[: -len(self.rest)]]
                self.room += len(self.rest)
                return True
            if self.ended or len(text) == _TURN_END_WINDOW:
                return False
            yield

    def accept(self, pattern: str | Pattern) -> Generator[None, None, bool]:
        """Read `pattern` if it matches at the current position. Return whether it matched."""
        pattern = pattern if pattern.__class__ is Pattern else _as(Pattern, pattern)
        while True:
            found = (pattern.final if self.ended else pattern.partial)(self.text, self.at)
            if found is not None and found.lastindex:
                self.at = found.end()
                return True
            if found is None and (self.at < len(self.text) or self.ended):
                return False
            self.waits = pattern.partial
            yield

    def choose(self, *patterns: str | Pattern) -> Generator[None, None, int]:
        """Read the first of `patterns` that matches at the current position. Return its index, or -1 for no match."""
        while True:
            for index, pattern in enumerate(patterns):
                if pattern.__class__ is not Pattern:
                    return (yield from self.choose(*(_as(Pattern, each) for each in patterns)))
                found = (pattern.final if self.ended else pattern.partial)(self.text, self.at)
                if found is not None and found.lastindex:
                    self.at = found.end()
                    return index
                if found is not None or (self.at == len(self.text) and not self.ended):
                    self.waits = pattern.partial
                    break
            else:
                yield from self.at_turn_end(*patterns)
                return -1
            yield

    def expect(self, pattern: str | Pattern, *others: str | Pattern) -> Generator[None, None, int]:
        """Read `pattern`, or match one of `others` without reading it. Return the index of the match, or -1."""
        place = self.place
        found = yield from self.choose(pattern, *others)
        if found > 0:
            self.go_back(place)
        return found

    def word(self, word: str | Word) -> Generator[None, None, str]:
        """Read and return the word at this position, or "" if there is none. A str lists the allowed characters."""
        partial = (word if word.__class__ is Word else _as(Word, word)).partial
        while True:
            begin = self.at
            found = partial(self.text, begin)
            if found.lastindex or self.ended:
                self.at = found.end()
                return self.text[begin : self.at]
            self.waits = partial
            yield

    def content(self, closing: str | Closing, take: Callable[[str], None]) -> Generator[None, None, int]:
        """Pass the text before the next `closing` to `take`, and read the closing.

        Return 0 if no closing was found, else 1. If `closing` has `first`, return 1 for these ends, and 2 for the other
        ends. While the generator is paused, the caller may pass text directly to `take`, if no closing can begin in it.
        """
        closing = closing if closing.__class__ is Closing else _as(Closing, closing)
        search = closing.search
        while True:
            found = (closing.search_at_end if self.ended else search)(self.text, self.at)
            end = found.start() if found is not None else len(self.text)
            if end > self.at:
                take(self.text[self.at : end])
                self.at = end
            if found is not None and found.lastindex:
                self.before_closing = self.base + end
                self.at = found.end()
                return found.lastindex
            if self.ended:
                return 0
            if found is None:
                self.find_change, self.take = closing.find_start, take
            else:
                self.waits = closing.partial
            yield
            self.find_change, self.take = always, None

    def until(self, closing: str | Closing) -> Generator[None, None, bool]:
        """Read up to the end of the next `closing`. Return False if the stream ended first."""
        return (yield from self.content(closing, lambda text: None)) > 0

    # The stored text.

    def take_read(self) -> str:
        """Return the text that was read, and remove it from the stored text. The limit then applies to later text."""
        kept = "".join(self.parts)
        length = self.base + self.at - self.kept_from
        received = self.received
        self._previous = kept[length - 1 : length] or self._previous
        self.parts = [kept[length:]]
        self.kept_from += length
        self.room = max(0, self._limit - len(kept) + length)
        self._max_received = received + self.room
        return kept[:length]

    def skip_from(self, place: int) -> None:
        """From the position `place` on, store only the end of the text."""
        self.stores = False
        self._skipped_from = place
        self._previous = self._before_text()
        self._max_received -= self.room + 1
        self.room = -1
        self.parts = [self.text]

    def _before_text(self) -> str:
        """Return the character before `self.text`, or "" if it is not stored."""
        return "".join(self.parts)[: -len(self.text) or None][-1:] or self._previous
