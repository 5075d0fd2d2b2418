"""Calls in tags that hold a name behind an equals sign: `<function=f><parameter=a>1</parameter></function>`.

They stand in a wrapper, or alone. A value is text up to the first closing tag behind which structure follows: the next
parameter, or the end of the function or of its wrapper. Other closing tags are a part of the value, as in a file that a
model writes. One line feed at each end of a value belongs to the tags. Its type is that of the tool's JSON schema.

Models forget closing tags. The call counts all the same where the next tag leaves no doubt: a parameter of the tool
begins that the call does not have yet, the function ends before its wrapper does, another function begins, or the
wrapper ends and the message with it.

If no closing tag is followed by structure, the value goes on to the end of the message. That is an error, which ends
with the last closing tag in the value: a tag that was forgotten costs the call, and not the rest of the answer.

Another form has no names of arguments: the content of `<tool: f>` is JSON of all of them, or the text of the only one.

Another form has names between tags: `NAME<arg_key>a</arg_key><arg_value>1</arg_value>`. White space between the tags
is ignored; other text there makes the call an error, up to its end.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import Final

from streamtools.errors import Code
from streamtools.parsing.bodies import End, Members, begun, cut, settle
from streamtools.parsing.bodies.values import TYPES, Value
from streamtools.parsing.declared import UNKNOWN
from streamtools.parsing.json_text import ENDED, OPEN
from streamtools.parsing.markers import SPACES, Marker, Maybe, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Span

_NAME = Word(r"^<>\r\n", 256)
_END = Pattern(">")
_LINE_FEED = Pattern("\n")
_FUNCTION, _END_FUNCTION = Pattern("<function="), Pattern("</function", SPACES, ">")
_PARAMETER = Pattern("<parameter=")
_END_OF_BROKEN = Closing("</function>", blank_line=True)


class Functions:
    """Functions and their parameters; `wrapper` is the name of the tag around functions, and `ends` end a message.

    With `verbatim`, a line feed behind a value belongs to the tags only if one before it does.
    """

    def __init__(self, wrapper: str = "tool_call", *, ends: tuple[str, ...] = (), verbatim: bool = False) -> None:
        self._open, self._close = f"<{wrapper}>", f"</{wrapper}>"
        self._next = Pattern(self._close), _FUNCTION, Pattern(self._open)
        follows = OneOf(("<parameter=", "</function", self._close, "<function=", self._open))
        value = Marker(("</parameter>",), ahead=(SPACES, follows))
        inside = Marker(("</function>",), ahead=(SPACES, OneOf((self._close, "<function="))))
        unclosed = Marker((self._close,), ahead=(SPACES, OneOf((self._open, "<function=", *ends))))
        outside = Marker(("</function>",), ahead=(SPACES, OneOf((self._close, "<function=", self._open, *ends))))
        wrapped, last = (value, "<parameter=", inside, unclosed), OneOf((self._close, "</function>"))
        self._value = [Closing(*wrapped, line_feed=each, last=(last,)) for each in (not verbatim, True)]
        self._value_alone = [
            Closing(value, "<parameter=", outside, line_feed=each, last=("</function>",))
            for each in (not verbatim, True)
        ]
        self._broken = Closing("</function>", before=("<function=", self._close))
        self._junk = Closing("</function>", before=("<function=", self._open, self._close), blank_line=True)

    def alone(self, span: Span) -> Generator[None, None, None]:
        """Read one function, from behind its marker."""
        end = yield from _Function(span, self._value_alone, *self._next[1:]).read()
        if end is End.BROKEN:
            yield from span.until(_END_OF_BROKEN)
        settle(span, end, "</function>")

    def wrapped(self, span: Span) -> Generator[None, None, None]:
        """Read functions, from behind the opening tag of their wrapper; the first one is certain."""
        while True:
            yield from span.peek()
            place = span.place
            found = yield from span.choose(*self._next)
            if found == 0:
                span.close()
                return
            if found == 2 or span.at_end_in(self._close):
                if found == 2:
                    span.go_back(place)  # it opens the next wrapper
                span.close()
                span.warn(Code.MISSING_CLOSE, f"the call lacks its closing {self._close}")
                return
            span.begin_call(place)
            if found == 1:
                end = yield from _Function(span, self._value, *self._next).read()
                if end is End.BROKEN:
                    yield from span.until(self._broken)
            else:
                end = _cut_or_broken(span)
                if end is End.BROKEN and (yield from span.until(self._junk)) and span.place == span.before_closing + 1:
                    break  # a blank line: this is prose
            if end is End.CUT:
                break
            settle(span, end, "</function>", last=False)
        span.close(end.code)


class _Function:
    """Reads one function from behind `<function=`."""

    def __init__(self, span: Span, closings: list[Closing], *behind: Pattern) -> None:
        """`closings` end a value, the second of them one that begins with a line feed.

        `behind` is what may come in the place of the closing tag of the function.
        """
        self._span = span
        self._closings = closings
        self._behind = behind
        self._given: set[str] = set()
        self._schema = UNKNOWN

    def read(self) -> Generator[None, None, End]:
        """Read it; return how it ends."""
        span = self._span
        name = yield from span.word(_NAME)
        if not (yield from span.accept(_END)):
            return _cut_or_broken(span)
        empty = name.endswith("/")  # <function=f/>
        name = _bare(name.removesuffix("/"))
        span.call(name)
        self._schema = span.declared.arguments(name)
        members = Members(span)
        parameter: str | None = None  # its tag has been read
        while not empty:
            if parameter is None:
                yield from span.peek()
                place = span.place
                found = yield from span.choose(_PARAMETER, _END_FUNCTION, *self._behind)
                if found > 1:
                    span.go_back(place)
                    members.end()
                    span.end_call()
                    return End.UNCLOSED
                if found == 1:
                    break
                if found < 0:
                    return _cut_or_broken(span)
                parameter = yield from span.word(_NAME)
                if not (yield from span.accept(_END)):
                    return _cut_or_broken(span)
            key = _bare(parameter.removesuffix("/"))
            self._given.add(key)
            members.key(key)
            value = Value(self._schema.property(key), span)
            if parameter.endswith("/"):  # <parameter=a/>
                parameter = None
            else:
                line_feed = yield from span.accept(_LINE_FEED)
                closed, parameter = yield from self._read_value(value, self._closings[line_feed])
                if not closed:
                    return End.CUT
            value.end()
        members.end()
        span.end_call()
        return End.CLOSED

    def _read_value(self, value: Value, closing: Closing) -> Generator[None, None, tuple[bool, str | None]]:
        """Read a value and what closes it; return whether it came, and the next parameter if its tag did."""
        span = self._span
        begin = span.place
        while (yield from span.content(closing, value.take)):
            found = span.read_since(span.before_closing)
            if not found.endswith("="):
                if "</parameter>" not in found:  # read as the end of the function, or of its wrapper
                    span.at -= len(found.removeprefix("\n"))
                return True, None
            name = yield from span.word(_NAME)
            if self._may_begin(name) and (yield from span.accept(_END)):
                return True, name
            value.take(found + name)
        cut(span, begin, closing)
        return False, None

    def _may_begin(self, name: str) -> bool:
        """Whether a parameter of this name may begin where the last one has not been closed."""
        known = self._schema.properties
        return bool(name) and name not in self._given and (not known or name in known)


def _bare(name: str) -> str:
    """Return a name without white space and quotes around it."""
    name = name.strip()
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'" else name


def _cut_or_broken(span: Span) -> End:
    """Return how a function ends where something stands that has no place there: the stream may end in a tag."""
    return End.CUT if span.at_end_in("</function>", "<parameter=", "<function=", ">") else End.BROKEN


_TOOL = Word(r"^<>\s", 256)
_KEY = Word("^<", 256)
_SUFFIX = Maybe((":", Some(r"A-Za-z0-9_\-", 1, 32)))
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Pairs:
    """A name and pairs of tags.

    The tags are `<tool_call>`, `<arg_key>` and `<arg_value>`; with `suffixed`, the name of each may end with more:
    `<arg_key:opensource>`. `spelled` has other ways to write them; one that is empty is none.

    A call that lacks only its closing tag, because another one or the end of the wrapper stands there, is a call. The
    closing tag of a value counts where another pair follows it, or the end of the call; one that was forgotten, where
    the call ends and so does the message, or another call begins.
    """

    def __init__(
        self,
        *,
        separator: str = "",
        wrapper: str = "",
        suffixed: bool = False,
        spelled: Mapping[str, str] = _NOTHING,
        ends: tuple[str, ...] = (),
    ) -> None:
        """`separator` is the name of a tag that stands behind the name, `wrapper` that of the tag around calls.

        A type may stand between a key and its value, in a tag `arg_type` if that is `spelled`; the schema of the tool
        knows it better. `ends` end a message.
        """

        def tag(name: str) -> tuple[Part, ...]:
            if name in spelled:
                return (spelled[name],)
            return ("<" + name, _SUFFIX, ">") if suffixed else (f"<{name}>",)

        self.opening, self.close = tag("tool_call"), tag("/tool_call")
        self._says = spelled.get("/tool_call", "</tool_call>")
        """The tags around a call."""
        self.first = (tag(separator),) if separator else (tag("arg_key"), self.close)
        """What may stand behind its name."""
        self.wrapper = tag(wrapper)
        """The opening tag around calls."""
        self.unwrap = unwrap = tag("/" + wrapper) if wrapper else ("<>",)  # which no model writes
        self._separator = Pattern(*tag(separator)) if separator else None
        self._tags = [Pattern(*each) for each in (tag("arg_key"), self.close, self.opening, unwrap)]
        self._end_key = Pattern(*tag("/arg_key"))
        self._begin_value = None if tag("arg_value") == ("",) else Pattern(*tag("arg_value"))
        self._type = [Pattern(spelled[each]) for each in ("arg_type", "/arg_type") if each in spelled]
        # what follows is a tag up to its name, behind which there may be more
        key, call, end, end_all, self._value_ends = (
            spelled.get(each, f"<{each}>")[:-1]
            for each in ("arg_key", "tool_call", "/tool_call", "/tool_calls", "/arg_value")
        )
        self._end_value = Closing(
            Marker(tag("/arg_value"), ahead=(SPACES, OneOf((key, end, call)))),
            Marker(self.close, ahead=(SPACES, OneOf((call, end_all, *ends)))),
            last=self.close,
        )
        self._next = Closing(self.close, before=(self.opening, unwrap))
        inside = (tag(each) for each in ("arg_key", "/arg_key", "arg_value") if tag(each) != ("",))
        self._begun = begun(*inside, *self.first, self.opening, unwrap)

    def single(self, span: Span) -> Generator[None, None, None]:
        """Read one call, from behind its opening tag."""
        end = yield from self._read_call(span)
        if end is End.BROKEN:
            yield from span.until(self._next)
        settle(span, end, self._says)

    def wrapped(self, span: Span) -> Generator[None, None, None]:
        """Read calls, from behind the opening tag of their wrapper; the first one is certain."""
        while True:
            yield from span.peek()
            place = span.place
            found = yield from span.choose(*self._tags)
            if found == 3 or self._is_cut(span):
                span.close()
                if found != 3:
                    span.warn(Code.MISSING_CLOSE, "the calls lack the closing tag of their wrapper")
                return
            span.begin_call(place)
            end = (yield from self._read_call(span)) if found == 2 else End.BROKEN
            if end is End.BROKEN:
                yield from span.until(self._next)
            settle(span, end, self._says, last=end is End.CUT)
            if end is End.CUT:
                return

    def _read_call(self, span: Span) -> Generator[None, None, End]:
        """Read a call to its end; return how that comes."""
        yield from span.peek()
        name = yield from span.word(_TOOL)
        span.call(name)
        members, schema = Members(span), span.declared.arguments(name)
        yield from span.peek()
        if self._separator is not None and not (yield from span.accept(self._separator)):
            return self._broken(span)
        while True:
            yield from span.peek()
            place = span.place
            found = yield from span.choose(*self._tags)
            if found < 0:
                return self._broken(span)
            if found:
                members.end()
                span.end_call()
                if found == 1:
                    return End.CLOSED
                span.go_back(place)
                return End.UNCLOSED
            key = yield from span.word(_KEY)
            if not (yield from span.accept(self._end_key)):
                return self._broken(span)
            key, said = key.strip(), None
            if self._begin_value is not None:
                yield from span.peek()
                if self._type and (yield from span.accept(self._type[0])):
                    kind = yield from span.word(_KEY)
                    said = None if key in schema.properties else TYPES.get(kind.strip())
                    if not (yield from span.accept(self._type[1])):
                        return self._broken(span)
                    yield from span.peek()
                if not (yield from span.accept(self._begin_value)):
                    return self._broken(span)
            members.key(key)
            value = Value(schema.property(key), span, said=said)
            begin = span.place
            if not (yield from span.content(self._end_value, value.take)):
                return cut(span, begin, self._end_value)
            if not span.read_since(span.before_closing).startswith(self._value_ends):
                span.go_back(span.before_closing)
            value.end()

    def _broken(self, span: Span) -> End:
        """Return how a call ends where something stands that has no place in it."""
        return End.CUT if self._is_cut(span) else End.BROKEN

    def _is_cut(self, span: Span) -> bool:
        """Whether the stream ends here, or in the middle of a tag, which is read then."""
        cut = span.ended and (span.at == len(span.text) or self._begun(span.text, span.at) is not None)
        if cut:
            span.at = len(span.text)
        return cut


class Named:
    """A call whose content has no tags: a JSON object, or text, if the tool declares one argument."""

    def __init__(self, opening: str, close: str) -> None:
        """`opening` begins the opening tag, before the name."""
        self._opening, self._says = opening, close
        self._close, self._end = Pattern(close), Closing(close)
        self._object, self._value = Pattern("{", SPACES, OneOf(('"', "}"))), Closing(close, line_feed=True)

    def __call__(self, span: Span) -> Generator[None, None, None]:
        name = span.marker[len(self._opening) : -1].strip()
        span.call(name)
        yield from span.accept(_LINE_FEED)
        begin = span.place
        yield from span.peek()
        place = span.place
        if (yield from span.accept(self._object)):
            span.go_back(place)
            end = yield from self._read_object(span)
        else:
            end = yield from self._read_text(span, name, begin, empty=(yield from span.expect(self._close)) == 0)
        settle(span, end, self._says)

    def _read_object(self, span: Span) -> Generator[None, None, End]:
        state = yield from span.arguments()
        if state is OPEN:
            return End.CUT
        if state is ENDED:
            span.end_call()
            yield from span.peek()
            if (yield from span.accept(self._close)):
                return End.CLOSED
            if span.at_end_in(self._says):
                return End.UNCLOSED
        yield from span.recover_at(self._end)
        return End.BROKEN if state is ENDED else End.BROKEN_JSON

    def _read_text(self, span: Span, name: str, begin: int, *, empty: bool) -> Generator[None, None, End]:
        schema, members = span.declared.arguments(name), Members(span)
        keys = list(schema.properties)
        if not (empty and not keys):
            span.rewind(begin)
            if len(keys) != 1 and name in span.declared:
                span.blame(Code.INVALID_ARGUMENTS, "text can only be the argument of a tool that has one")
            key = keys[0] if len(keys) == 1 else "content"
            members.key(key)
            value = Value(schema.property(key), span)
            if not (yield from span.content(self._value, value.take)):
                return End.CUT
            value.end()
        members.end()
        span.end_call()
        return End.CLOSED
