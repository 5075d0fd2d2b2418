"""The text of a span, as a grammar reads it: reads that pause when they need more text.

A grammar is a generator. It reads the next text in straight-line code, and yields if the text does not suffice. Its
position in the code is its whole state, so a new dialect takes a few lines. `Reader.ended` reports the end of the
stream to every read.

    def body(span):
        while (yield from span.peek()) != "]":
            ...

`Closing` describes the text that ends a section, such as a closing tag. `Word` describes a class of characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from functools import cached_property
from typing import TypeAlias, cast

from streamtools.parsing.markers import SPACES, Marker, Maybe, Part, Pattern, Search

Form: TypeAlias = "str | tuple[Part, ...] | Marker"
"""A way to write the end of a section. The `ahead` of a marker is not read with it."""

_INDENTS = r"[ \t\r]{0,256}"


class Closing:
    """The end of a section, for `Reader.content` and `Reader.until`. Its patterns are compiled on first use.

    The ends are compiled to one search, which also finds the beginning of an end at the end of the text. So a read
    releases all text before it, and only text that may become an end is pending.
    """

    def __init__(
        self,
        *ends: Form,
        before: Iterable[Form] = (),
        line_feed: bool = False,
        blank_line: bool = False,
        last: tuple[Part, ...] = (),
    ) -> None:
        """End at one of `ends`, or directly before one of `before`, which is left unread.

        `last` is a prefix of an end that suffices at the end of the stream. With `line_feed`, a line feed before the
        end belongs to it. With `blank_line`, a blank line is an end too: the line feed before it.
        """
        self._ends, self._before = list(map(_marker, ends)), list(map(_marker, before))
        self._line_feed, self._blank_line = line_feed, blank_line
        self.last = Pattern(*([Maybe(("\n",))] if line_feed else []), *last, SPACES) if last else None

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        """A pattern with one group after a complete end. Without the group, the text may still become an end."""
        complete = [each.search_pattern() for each in self._ends]
        complete += [f"(?={each.search_pattern()})" for each in self._before]
        begun = [each.begun_pattern() for each in (*self._ends, *self._before)]
        if self._blank_line:
            complete.append(rf"\n(?={_INDENTS}\n)")
            begun.append(rf"\n{_INDENTS}")
        if self._line_feed:
            complete = [rf"\n?(?:{'|'.join(complete)})"]
            begun = [rf"\n?(?:{'|'.join(begun)})", r"\n"]
        return re.compile(f"(?:{'|'.join(complete)})()|(?:{'|'.join(begun)})\\Z")

    @cached_property
    def search(self) -> Search:
        """Finds an end, or the beginning of one at the end of the text."""
        return self._compiled.search

    @cached_property
    def partial(self) -> Search:
        """Matches what `search` finds."""
        return self._compiled.match

    @cached_property
    def leaves(self) -> Search:
        """Finds the first character of an end."""
        firsts = {marker.first for marker in (*self._ends, *self._before)}
        if self._line_feed or self._blank_line:
            firsts.add("\n")
        return re.compile(f"[{re.escape(''.join(sorted(firsts)))}]").search

    @cached_property
    def _without_ahead(self) -> str:
        return "|".join(marker.parts_pattern() for marker in self._ends if marker.ahead) or "(?!)"

    def lost(self, text: str) -> int | None:
        """Return the place after the last end in `text` whose `ahead` does not follow.

        Returns None if there is none, or if the text ends with a part of `ahead` or with another end.
        """
        begin, end = max((found.span() for found in re.finditer(self._without_ahead, text)), default=(0, 0))
        if not end or not text[end:].strip(" \t\r\n") or self.partial(text, begin):
            return None
        begun = self.search(text, end)
        while begun is not None and begun.lastindex:
            begun = self.search(text, begun.end(1))
        return end if begun is None or len(begun[0].strip()) < 2 else None  # a single character is not evidence


def _marker(form: Form) -> Marker:
    if isinstance(form, Marker):
        return form
    return Marker((form,) if isinstance(form, str) else form)


class Word:
    """A word: at most `most` characters of a class, which is written as inside `[...]` of a pattern."""

    def __init__(self, characters: str, most: int = 256) -> None:
        self.partial = matcher(f"[{characters}]{{{most}}}()|[{characters}]{{0,{most - 1}}}+(?:\\Z|())")
        """Matches the word at a place. A group matches if more text cannot extend it."""

    def matches(self, text: str) -> bool:
        """Return whether `text` is one word."""
        return text != "" and self.partial(text, 0).end() == len(text)


def matcher(pattern: str) -> Callable[[str, int], re.Match[str]]:
    """Return the match function of a pattern that matches the empty text, and so never returns None."""
    match = re.compile(pattern, re.DOTALL).match
    assert match("") is not None
    return cast("Callable[[str, int], re.Match[str]]", match)


white_space = matcher(r"[ \t\r\n]*")
not_white_space = re.compile(r"[^ \t\r\n]").search

always: Callable[[str], object] = str.__len__
"""A search that finds something in every text, because a number is not None. No search is cheaper."""

_LOOK_BACK = 320  # characters that are kept before the last piece after a limit: more than any indentation
_MAX_REWIND = 256  # characters that a grammar can go back after a limit: less than _LOOK_BACK by the start of any tag


class Reader:
    """The text of one span: `text` from `at` on is unread. Places count from the beginning of the span.

    Nothing of a span may be lost. So the reader keeps the text that was read, and a grammar can go back over it. After
    a limit, only the end of the text is kept, and the grammar goes on only to find the end of the span.
    """

    def __init__(self, marker: str, limit: int) -> None:
        """Begin after `marker`. At most `limit` characters are kept, but always the marker."""
        self.marker = marker
        self.text = marker
        self.at = len(marker)
        self.base = 0  # the place where `text` begins
        self.ended = False  # no more text will arrive
        self.leaves: Callable[[str], object] = always  # finds nothing in text that `take` accepts
        self.take: Callable[[str], None] | None = None  # accepts text without asking the grammar
        self.waits: Search | None = None  # matches the text at `at` while nothing else can be decided
        self.before_closing = 0  # the place before the last closing that was read
        self.parts = [marker]  # the text that is kept
        self.kept_from = 0  # the place where the kept text begins
        self.stores = True  # no limit is exceeded, so all text is kept
        self._limit = limit
        self._max_received = max(limit, len(marker))
        self.room = self._max_received - len(marker)  # characters that can still be kept; negative after a limit
        self._skipped_from = 0  # the place after which nothing is kept
        self._previous = ""  # the character before the kept text

    # Positions.

    @property
    def place(self) -> int:
        """How many characters of the span have been read."""
        return self.base + self.at

    @property
    def received(self) -> int:
        """How many characters of the span have arrived."""
        return self._max_received - self.room

    @property
    def skipped(self) -> int:
        """How many characters were read after a limit; negative if the limit is after the current place."""
        return self.place - self._skipped_from

    @property
    def last(self) -> str:
        """The character before the current place."""
        return self.text[self.at - 1] if self.at else self._before_text()

    @property
    def at_line_start(self) -> bool:
        """Whether only blanks stand between the last line feed and the current place."""
        before = self.text[: self.at]
        parts = iter(reversed(self.parts))
        unread = len(self.text) - self.at
        while not (stripped := before.rstrip(" \t")):
            part = next(parts, None)
            if part is None:
                return False
            before, unread = part[: max(0, len(part) - unread)], max(0, unread - len(part))
        return stripped[-1] == "\n"

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

    def rewind(self, place: int) -> None:
        """Go back to any place that was read. After a limit, go back at most a bounded distance."""
        if not self.stores:
            place = max(place, self.place - _MAX_REWIND)
        unread = self.received - place
        self.text = "".join(self.parts)[-unread:] if unread else ""
        self.at, self.base = 0, place

    # Reads.

    def peek(self) -> Generator[None, None, str]:
        """Skip white space. Return the next character without reading it, or "" at the end of the stream."""
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
        """Read `pattern` if it matches here. Return whether it does."""
        while True:
            match = pattern.final if self.ended else pattern.partial
            found = match(self.text, self.at)
            if found is not None and found.lastindex:
                self.at = found.end()
                return True
            if found is None and (self.at < len(self.text) or self.ended):
                return False
            self.waits = pattern.partial
            yield
            self.waits = None

    def choose(self, *patterns: Pattern) -> Generator[None, None, int]:
        """Read the first of `patterns` that matches here. Return its index, or -1 if none matches."""
        while True:
            for index, pattern in enumerate(patterns):
                match = pattern.final if self.ended else pattern.partial
                found = match(self.text, self.at)
                if found is not None and found.lastindex:
                    self.at = found.end()
                    return index
                if found is not None or (self.at == len(self.text) and not self.ended):
                    self.waits = pattern.partial
                    break
            else:
                return -1
            yield
            self.waits = None

    def expect(self, pattern: Pattern, *others: Pattern) -> Generator[None, None, int]:
        """Do the same as `choose`, but leave the text unread if it matches one of `others`."""
        place = self.place
        found = yield from self.choose(pattern, *others)
        if found > 0:
            self.go_back(place)
        return found

    def word(self, word: Word) -> Generator[None, None, str]:
        """Read and return the word that stands here, which may be empty."""
        partial = word.partial
        while True:
            begin = self.at
            found = partial(self.text, begin)
            if found.lastindex or self.ended:
                self.at = found.end()
                return self.text[begin : self.at]
            self.waits = partial
            yield
            self.waits = None

    def content(self, closing: Closing, take: Callable[[str], None]) -> Generator[None, None, bool]:
        """Pass the text before the next `closing` to `take`, and read the closing. Return whether it was found.

        Text in which no closing begins may be passed to `take` without resuming this generator.
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
                self.waits = closing.partial
            yield
            self.leaves, self.take, self.waits = always, None, None

    def until(self, closing: Closing) -> Generator[None, None, bool]:
        """Read up to the end of the next `closing` and return True, or to the end of the stream and return False."""
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

    # The text that is kept.

    def add(self, text: str) -> int:
        """Keep the text that arrived. Return the place where it begins."""
        room = self.room
        if room >= 0:
            self.parts.append(text)
        else:
            self.parts = ["".join(self.parts)[-_LOOK_BACK:], text]
        self.room = room - len(text)
        return self._max_received - room

    def kept_since(self, place: int) -> str:
        """Return the kept text from `place` on."""
        return "".join(self.parts)[place - self.kept_from :]

    def kept_to(self, place: int) -> str:
        """Return the kept text up to `place`."""
        return "".join(self.parts)[: place - self.kept_from]

    def take_read(self) -> str:
        """Return the text that was read, and keep it no longer. The limit counts from the current place."""
        kept = "".join(self.parts)
        length = self.place - self.kept_from
        received = self.received
        self._previous = kept[length - 1 : length] or self._previous
        self.parts = [kept[length:]]
        self.kept_from += length
        self.room = max(0, self._limit - len(kept) + length)
        self._max_received = received + self.room
        return kept[:length]

    def skip_from(self, place: int) -> None:
        """Keep no text after `place`."""
        self.stores = False
        self._skipped_from = place
        self._previous = self._before_text()
        self._max_received -= self.room + 1
        self.room = -1
        self.parts = [self.text]

    def _before_text(self) -> str:
        """Return the character before `text`."""
        return "".join(self.parts)[: -len(self.text) or None][-1:] or self._previous
