"""Reads calls that consist of a name and pairs of tags: `f<arg_key>a</arg_key><arg_value>1</arg_value>`.

White space between the tags is ignored. Other text between them makes the call an error, up to its closing tag. A value
ends at its closing tag if another pair or the end of the call follows that tag. If this tag is missing, the value ends
at the closing tag of the call, but only at the end of the message or before another call. If only the closing tag of a
call is missing, and another call or the end of the wrapper follows, the call is valid.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import Final

from streamtools.errors import Code
from streamtools.parsing.bodies import CallEnd, Members, cut_in_tag, cut_in_value, report_end, skip_broken
from streamtools.parsing.bodies.values import TYPES, Value
from streamtools.parsing.markers import SPACES, Marker, Maybe, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Span

_TOOL_NAME = Word(r"^<>\s", 256)
_KEY = Word("^<", 256)
_SUFFIX = Maybe((":", Some(r"A-Za-z0-9_\-", 1, 32)))
_NO_TAG = ("<>",)
"""A tag that no model writes."""
_NO_OTHER_SPELLINGS: Final[Mapping[str, str]] = MappingProxyType({})


class ArgumentPairs:
    """The grammar of a name and pairs of tags. The default tags are `<tool_call>`, `<arg_key>` and `<arg_value>`.

    The attributes `opening` and `close` are the tags around one call. `wrapper` and `unwrap` are the tags around all
    calls. `after_name` holds the tags that may follow the name.
    """

    def __init__(
        self,
        *,
        separator: str = "",
        wrapper: str = "",
        suffixed: bool = False,
        spelled: Mapping[str, str] = _NO_OTHER_SPELLINGS,
        ends: tuple[str, ...] = (),
    ) -> None:
        """Configure the tags.

        - `separator`: the name of the tag after the name of the tool. "" for none.
        - `wrapper`: the name of the tag around all calls. "" for none.
        - `suffixed`: whether the name of each tag may have a suffix, as in `<arg_key:opensource>`.
        - `spelled`: maps names of tags to other spellings, or to "" for a tag that does not exist. If it contains
          `arg_type`, this tag may stand between a key and its value. The schema of the tool takes precedence over it.
        - `ends`: the tokens that end a message.
        """

        def tag(name: str) -> tuple[Part, ...]:
            if name in spelled:
                return (spelled[name],)
            return ("<" + name, _SUFFIX, ">") if suffixed else (f"<{name}>",)

        def start(name: str) -> str:
            """Return a tag without its last character, because a suffix may precede that."""
            return spelled.get(name, f"<{name}>")[:-1]

        self.opening, self.close = tag("tool_call"), tag("/tool_call")
        self.wrapper, self.unwrap = tag(wrapper), tag("/" + wrapper) if wrapper else _NO_TAG
        self.after_name = (tag(separator),) if separator else (tag("arg_key"), self.close)
        self._close = spelled.get("/tool_call", "</tool_call>")
        self._separator = Pattern(*tag(separator)) if separator else None
        self._tags = [Pattern(*parts) for parts in (tag("arg_key"), self.close, self.opening, self.unwrap)]
        self._end_key = Pattern(*tag("/arg_key"))
        self._begin_value = None if tag("arg_value") == ("",) else Pattern(*tag("arg_value"))
        self._type_tags = [Pattern(spelled[name]) for name in ("arg_type", "/arg_type") if name in spelled]
        self._start_of_end_value = start("/arg_value")
        after_value = OneOf((start("arg_key"), start("/tool_call"), start("tool_call")))
        self._end_value = Closing(
            Marker(tag("/arg_value"), ahead=(SPACES, after_value)),
            Marker(self.close, ahead=(SPACES, OneOf((start("tool_call"), start("/tool_calls"), *ends)))),
            last=self.close,
        )
        self._end_of_broken = Closing(self.close, before=(self.opening, self.unwrap))
        others = filter(None, (self._begin_value, self._separator))
        self._all_tags = [*self._tags, self._end_key, *others]

    def single(self, span: Span) -> Generator[None, None, None]:
        """Read one call without a wrapper, after its opening tag."""
        end = yield from self._read_call(span)
        yield from skip_broken(span, end, self._end_of_broken)
        report_end(span, end, self._close)

    def wrapped(self, span: Span) -> Generator[None, None, None]:
        """Read calls after the opening tag of their wrapper. The opener makes sure that there is a call."""
        while True:
            yield from span.peek()
            place = span.place
            found = yield from span.choose(*self._tags)
            if found == 3 or span.at_end_in(*self._all_tags):
                span.close()
                if found != 3:
                    span.warn(Code.MISSING_CLOSE, "the calls lack the closing tag of their wrapper")
                return
            span.begin_call(place)
            end = (yield from self._read_call(span)) if found == 2 else CallEnd.BROKEN
            yield from skip_broken(span, end, self._end_of_broken)
            report_end(span, end, self._close, last=end is CallEnd.CUT)
            if end is CallEnd.CUT:
                return

    def _read_call(self, span: Span) -> Generator[None, None, CallEnd]:
        """Read a call. Returns its `CallEnd`."""
        yield from span.peek()
        name = yield from span.word(_TOOL_NAME)
        span.set_name(name)
        members, schema = Members(span), span.declared.arguments(name)
        yield from span.peek()
        if self._separator is not None and not (yield from span.accept(self._separator)):
            return cut_in_tag(span, *self._all_tags)
        while True:
            yield from span.peek()
            place = span.place
            found = yield from span.choose(*self._tags)
            if found < 0:
                return cut_in_tag(span, *self._all_tags)
            if found:
                members.end()
                span.end_call()
                if found == 1:
                    return CallEnd.CLOSED
                span.go_back(place)
                return CallEnd.UNCLOSED
            key = yield from span.word(_KEY)
            if not (yield from span.accept(self._end_key)):
                return cut_in_tag(span, *self._all_tags)
            key, types = key.strip(), None
            if self._begin_value is not None:
                yield from span.peek()
                if self._type_tags and (yield from span.accept(self._type_tags[0])):
                    word = yield from span.word(_KEY)
                    types = None if key in schema.properties else TYPES.get(word.strip())
                    if not (yield from span.accept(self._type_tags[1])):
                        return cut_in_tag(span, *self._all_tags)
                    yield from span.peek()
                if not (yield from span.accept(self._begin_value)):
                    return cut_in_tag(span, *self._all_tags)
            members.key(key)
            value = Value(schema.property(key), span, types)
            begin = span.place
            if not (yield from span.content(self._end_value, value.take)):
                return cut_in_value(span, begin, self._end_value)
            if not span.read_since(span.before_closing).startswith(self._start_of_end_value):
                span.go_back(span.before_closing)
            value.end()
