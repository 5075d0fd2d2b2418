"""Reads parameters in tags, and finds the closing tag that ends the text of a value.

A value may be the content of a file, so it may contain the tags of its own dialect. The grammar balances them: an
opening tag in a value begins a nested element, and the closing tags after it end that element first. A closing tag
that fits no nested element ends the value if the text after it continues the call. This text is the next parameter, or
the closing tags of the outer elements in their order. Any other closing tag is part of the value.

If the nested tags do not balance, the end of the value is ambiguous. The text after a run of closing tags then decides.
If it is another closing tag, the value continues. If it is any other text, the value has ended. If the end is still not
certain, the call is an error, so that no call runs with an argument that may be incomplete. The call is also an error
in these cases:

- The value contains its own closing tag, and the end of the call lacks a closing tag.
- A tag is doubled.
- The last tag in a value is a closing tag without its opening tag.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from functools import cache, cached_property
from typing import Final, NamedTuple

import msgspec

from streamtools.parsing.bodies import CallEnd, Members, Strays, cut_in_tag
from streamtools.parsing.bodies.values import Value
from streamtools.parsing.declared import Types
from streamtools.parsing.markers import SPACES, TURN_ENDS, Marker, OneOf, Part, Pattern
from streamtools.parsing.reader import Closing, Reader
from streamtools.parsing.span import Span

_OTHER: Final = -1
_TURN_END = Pattern(SPACES, OneOf(TURN_ENDS))
_DEEPEST: Final = 64
"""The deepest nesting in a value. A value that nests deeper never ends, so its call is an error."""
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_entity = re.compile(r"&(amp|lt|gt|quot|apos);")
_ANY_ENTITY: tuple[Part, ...] = ("&", OneOf(tuple(_ENTITIES)), ";")
_wrong_close = re.compile(r"</\s*+([^\s<>]++)\s*+>\s*+\Z").search
_WINDOW = 4096  # how many last characters of a value are searched for the opening tag of its last closing tag
_BEGIN_SECTION, _END_SECTION = "<![CDATA[", Closing("]]>")
_CDATA = Pattern(SPACES, _BEGIN_SECTION)


def unescape(text: str) -> str:
    """Replace the five predefined entities of XML, such as `&lt;`, with their characters."""
    return _entity.sub(lambda entity: _ENTITIES[entity[1]], text)


class Level(NamedTuple):
    """The tags of one level of a call: of the wrapper, of the call, or of a value."""

    opening: tuple[Part, ...]
    close: tuple[Part, ...]
    begin: tuple[Part, ...] = ()
    """The beginning of the opening tag. () means the whole opening tag."""


class Parameter(msgspec.Struct):
    """A parameter whose value has not been read."""

    key: str
    types: Types | None = None
    """The allowed types, if the dialect marks the value. None means the types of the schema."""
    empty: bool = False
    """True if neither a value nor a closing tag follows."""
    line_feed: bool = False
    """Whether one line feed before a tag belongs to the tag."""


class NestedText:
    """The grammar of a value that may contain the tags of its dialect."""

    def __init__(
        self,
        *levels: Level,
        ends: Sequence[tuple[Part, ...]] = (),
        head: tuple[Part, ...] = (),
        key: str = "",
        outermost: int = 0,
        missing: int = 1,
        xml: bool = False,
    ) -> None:
        """Configure the tags.

        - `levels`: the tags of a call. The first are outermost, and the last are those of a value.
        - `ends`: other tags that may follow a call or a value.
        - `head`: a tag with the key, before the opening tag of a value. By default, the opening tag has the key.
        - `key`: a pattern that finds the key in this tag. By default, no such tag ends a value.
        - `outermost`: the first level that belongs to a call of the dialect. The levels before it belong to calls of
          other dialects.
        - `missing`: how many closing tags may be missing at the end of a value. The first of these is the closing tag
          of the value itself. With 0, the closing tag of a value ends it, whatever follows.
        - `xml`: whether entities and CDATA sections are decoded.
        """
        self._value = value = len(levels) - 1
        self._outermost, self._missing, self._xml = outermost, missing, xml
        self._find_key = re.compile(key).search
        self._count = len(levels)
        self._tags = [*(level.close for level in levels), *(level.opening for level in levels), *filter(None, [head])]
        begins = [level.begin or level.opening for level in levels]
        self._ahead = ahead = [Pattern(SPACES, *parts) for parts in (*self._tags[: self._count], *begins)]
        ahead += [*(Pattern(SPACES, *end) for end in ends), _TURN_END]
        self._begin_value = Pattern(*begins[value])
        self.argument = Pattern(SPACES, *begins[value][:-1])
        self.after_slash = (*ahead[value - 1 :: -1], *ahead[value + 1 : 2 * value + 1], *ahead[2 * value + 2 :])
        """The tags that may follow a tag like `<f/>`, first its closing tag."""
        self._close_value = Pattern(SPACES, *levels[value].close)
        self._opening = "".join(part for part in levels[value].opening if isinstance(part, str))
        self._others = (_BEGIN_SECTION, _ANY_ENTITY) if xml else ()
        self._closing = cache(self._find_closing)

    def _find_closing(self, outermost: int, line_feed: bool) -> Closing:
        """Return the tags that a value may contain.

        The first one is the closing tag that ends most values. It must be followed by the closing tags of the outer
        levels, up to the level `outermost`, or by the beginning of the next value. With `missing=0`, any text may
        follow it.
        """
        close, begin = self._tags[self._value], self._ahead[self._count + self._value].parts
        run = tuple(part for tag in reversed(self._tags[outermost : self._value]) for part in (SPACES, *tag))
        first = [Marker(close, ahead=ahead) for ahead in ((run, begin) if self._missing else ((),))]
        return Closing(*self._tags, *self._others, first=first, line_feed=line_feed)

    @property
    def strays(self) -> Strays:
        """Two sequences of tags, as in `Dialect.strays`. Outside of a call, they show that a value ended too early.

        The first ends a value and then its call. The second ends a value and begins the next one.
        """
        call, value = self._tags[self._value - 1 : self._count]
        return ((*value, SPACES, *call), ()), ((*value, SPACES, *self._tags[-1]), call)

    @cached_property
    def _match_tag(self) -> Callable[[str], re.Match[str] | None]:
        """Matches a tag. The number of the group, minus one, is the index of the tag in `_tags`."""
        return re.compile("\n?(?:" + "|".join(f"({Marker(tag).parts_pattern()})" for tag in self._tags) + ")").fullmatch

    def read(
        self,
        reader: Reader,
        take: Callable[[str], None],
        may_begin: Callable[[str, bool], bool] = lambda *_: False,
        *,
        outermost: int | None = None,
        line_feed: bool = False,
    ) -> Generator[None, None, CallEnd]:
        """Pass the text of a value to `take`, and read its closing tag.

        Returns CLOSED after the closing tag, UNCLOSED before another tag that ends the value, BROKEN if the end is not
        certain, or CUT if the stream ends in the value.
        `may_begin` takes the key in the opening tag of a value, and whether the current value is blank up to that tag.
        It returns True if this tag ends the current value.
        `outermost` is the level of the outermost element that the span must close, by default the `outermost` of this
        grammar. With `line_feed`, one line feed before a tag belongs to the tag.
        """
        outermost = self._outermost if outermost is None else outermost
        value, count, closing = self._value, self._count, self._closing(outermost, line_feed)
        begin = reader.place
        nested: list[int] = []  # the levels of the open elements in the value
        closed = bare = False  # a nested element has ended; the last nested element was outside of a call
        unconfirmed = 0  # the position after the last closing tag that is probably part of the value
        if self._xml and (yield from reader.accept(_CDATA)):
            yield from self._read_section(reader, take)
        while kind := (yield from reader.content(closing, take)):
            if kind == 1 and not (nested or unconfirmed):
                return CallEnd.CLOSED
            tag = reader.read_since(reader.before_closing)
            found = self._match_tag(tag)
            if len(nested) > _DEEPEST:
                take(tag)
                continue
            if found is None:
                if tag[0] == "&":
                    take(_ENTITIES[tag[1:-1]])
                else:
                    yield from self._read_section(reader, take)
                continue
            opens, level = divmod((found.lastindex or 0) - 1, count)
            if opens:
                level = level if opens == 1 else value  # the tag before the opening tag of a value
                if level == value and not (nested or bare):
                    key, short = self._find_key(tag), reader.before_closing - begin < 16
                    first = short and not _text_before_tag(reader, begin).strip()  # the value is blank
                    if first if key is None else may_begin(key[key.lastindex or 0], first):
                        certain = not (first or _lacks_opening(reader, begin))
                        reader.unread(tag)
                        return CallEnd.UNCLOSED if certain else CallEnd.BROKEN
                    bare = opens > 1
                if (opens == 1 or tag.endswith(self._opening)) and not tag.endswith("/>"):
                    nested.append(level)
                take(tag)
                continue
            own = level == value and not nested
            run, after = yield from self._look_ahead(reader, level, outermost if own else -1)
            closes = 0 <= after < count  # a closing tag that fits no open element of the call follows
            if level in nested and (closes or _are_in(run, nested)):
                closed, unconfirmed = True, 0
                while nested.pop() != level:
                    pass
                if not nested:
                    bare = level == value
            elif own and after == value and len(run) == 1 and _lacks_opening(reader, begin, tag):
                return CallEnd.BROKEN
            elif closes or not self._has_structure(run, after, outermost, nested):
                unconfirmed = reader.place
            elif level < value:
                certain = value - level <= (1 if closed else self._missing) and not (nested or unconfirmed)
                certain = certain and not _lacks_opening(reader, begin)
                reader.unread(tag)
                return CallEnd.UNCLOSED if certain else CallEnd.BROKEN
            elif level in nested and (bare or min(nested) < value or len(self._tags) > 2 * count > after >= count):
                return CallEnd.BROKEN
            else:
                # No closing tag is missing between two others, and the tags in the value belong to no other call
                certain = level - run[-1] < len(run) and not reader.kept_from
                return CallEnd.CLOSED if certain or not unconfirmed else CallEnd.BROKEN
            take(tag)
        if unconfirmed and reader.stores:
            # The text after the last closing tag is probably the rest of the answer. If that text ends with an
            # incomplete tag, it is probably still part of the value.
            rest = "".join(reader.parts)[unconfirmed - reader.kept_from :]
            if rest.strip() and not closing.is_begun_in(rest):
                reader.rewind(unconfirmed)
        return CallEnd.CUT

    def read_parameters(
        self,
        span: Span,
        members: Members,
        read_tag: Callable[[Span], Generator[None, None, Parameter | CallEnd]],
        ends: Sequence[Pattern],
        outermost: int,
        separator: Pattern | None = None,
    ) -> Generator[None, None, CallEnd]:
        """Read the parameters of a call and its closing tag. Returns the `CallEnd` of the call.

        `read_tag` reads the text between the beginning of a parameter and its value. `ends` are the closing tag of the
        call, and the tags that may follow a call without its closing tag. The tag `separator` may stand before a
        parameter and before the closing tag.
        """
        tags = self._begin_value, *ends
        while True:
            yield from span.peek()
            if separator is not None and (yield from span.accept(separator)):
                yield from span.peek()
            place = span.base + span.at
            found = yield from span.choose(*tags)
            if found < 0:
                return cut_in_tag(span, *tags, *filter(None, [separator]))
            if found:
                members.end()
                if found == 1:
                    return CallEnd.CLOSED
                span.go_back(place)
                return CallEnd.UNCLOSED
            parameter = yield from read_tag(span)
            if isinstance(parameter, CallEnd):
                return parameter
            value = Value(members.key(parameter.key), span, parameter.types)
            if not parameter.empty:
                end = yield from self.read(
                    span, value.take, members.may_begin, outermost=outermost, line_feed=parameter.line_feed
                )
                if end.code is not None:
                    return end
            value.end()

    def reads(self, text: str, after: str, *, line_feed: bool = False) -> bool:
        """Return True if `read` finds exactly the value `text` before the text `after`, whatever follows `after`."""
        for rest in (after, f"{after} x"):
            reader, taken = Reader(text + rest, 0), list[str]()
            reader.at, reader.ended = 0, True
            try:
                next(self.read(reader, taken.append, lambda *_: True, line_feed=line_feed))
            except StopIteration as stop:
                if stop.value is not CallEnd.CLOSED or "".join(taken) != text:
                    return False
        return True

    def _look_ahead(self, reader: Reader, level: int, stop: int) -> Generator[None, None, tuple[list[int], int]]:
        """Return the levels of the closing tags from `level` outward, and the index in `_ahead` of the tag after them.

        The index is `_OTHER` for other text. At the end of the stream, it is the length of `_ahead`. The search stops
        after the closing tag of the level `stop`. All tags stay unread.
        """
        run, text, after = [level], "", _OTHER
        while run[-1] > stop:
            place = reader.place
            after = yield from reader.choose(*self._ahead)
            if after < 0 and reader.ended and not reader.text[reader.at :].strip():
                after = len(self._ahead)
            text += reader.read_since(place)
            if not 0 <= after < run[-1]:
                break
            run.append(after)
        else:
            after = _OTHER
        reader.unread(text)
        return run, after

    def _has_structure(self, run: list[int], after: int, outermost: int, nested: list[int]) -> bool:
        """Return True if the closing tags `run` and the text after them continue the call."""
        level, value, count = run[0], self._value, self._count
        if level < outermost:
            return False
        if level == value and nested:
            return run[-1] <= outermost or after == count + value or (len(run) > 1 and after >= count)
        if level == value:
            continues = run[-1] <= outermost or count <= after < len(self._ahead)
        else:
            continues = count <= after and after != count + value
        return len(run) > 1 or continues or not self._missing

    def _read_section(self, reader: Reader, take: Callable[[str], None]) -> Generator[None, None, None]:
        """Read CDATA sections after the first `<![CDATA[`. White space between them and the closing tag is dropped."""
        while (yield from reader.content(_END_SECTION, take)):
            place = reader.place
            found = yield from reader.choose(self._close_value, _CDATA)
            if found == 0:
                reader.unread(reader.read_since(place).lstrip())
            if found != 1:
                break


def is_whole(span: Span, argument: Pattern, *tags: Pattern, wrapped: bool = False) -> Generator[None, None, bool]:
    """Return whether a tag like `<f/>` is a whole call. Reads its closing tag, the first of `tags`, if it follows.

    It is no whole call if `argument`, the beginning of an argument, follows. In a wrapper, only one of the `tags` or
    the end of the stream may follow.
    """
    found = yield from span.expect(*tags, argument)
    rest = span.text[span.at :]
    if found >= 0 or not rest.strip():
        return found < len(tags)
    return not argument.startswith(rest) and (not wrapped or any(tag.startswith(rest) for tag in tags))


def _are_in(run: list[int], nested: list[int]) -> bool:
    """Return True if each closing tag in `run` ends one of the nested elements, from the inner to the outer."""
    inner = reversed(nested)
    return all(level in inner for level in run)  # `in` reads the iterator up to the element


def _text_before_tag(reader: Reader, begin: int) -> str:
    """Return the text of a value before the tag that was read last, if it is stored. `begin` is where it begins."""
    pieces, place, parts = list[str](), reader.received, reversed(reader.parts)
    while place > begin and (piece := next(parts, None)) is not None:
        pieces.append(piece)
        place -= len(piece)
    return "".join(reversed(pieces))[max(0, begin - place) : reader.before_closing - place]


def _lacks_opening(reader: Reader, begin: int, tag: str = "") -> bool:
    """Return True if the value, followed by `tag`, ends with a closing tag without its opening tag."""
    text = _text_before_tag(reader, max(begin, reader.before_closing - _WINDOW)) + tag
    found = _wrong_close(text)
    return tag != "" if found is None else f"<{found[1]}" not in text
