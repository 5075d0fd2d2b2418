"""Reads calls whose tags contain a name, and calls that consist of a name and pairs of tags.

    <function=f><parameter=a>1</parameter></function>
    <tool: f>ls</tool>
    f<arg_key>a</arg_key><arg_value>1</arg_value>

Functions may be in a wrapper, such as `<tool_call>`. A value may be the content of a file, and hold the tags of the
dialect. The module `nesting` decides where the value ends. One line feed at each end of a value belongs to the tags,
except in pairs of tags. The JSON schema of the tool gives a value its type.

Models forget closing tags. The call is still valid in these cases:

- The value is followed by the opening tag of a parameter that the tool has and that the call did not contain before. If
  the tool declares no parameters, any name counts.
- The value is followed by the closing tag of the function, and then by the end of the wrapper or another function.
- The value is followed by its closing tag, and then by another function or the end of the wrapper.
- The value is followed by the end of the wrapper, and then by another wrapper or the end of the message.

The slash in `<function=f/>` ends the function, unless a parameter or the closing tag follows. In a wrapper, other text
makes the call an error.

If no closing tag of the value is followed by another tag of the call, it is unknown where the value ends. The call is
then an error. It ends with the last closing tag in its text, and the text after that tag is part of the answer.

The content of `<tool: f>` is a JSON object with all arguments, or text if the tool declares one argument. The text for
an undeclared tool becomes the argument `content`.

In a call with pairs of tags, white space between the pairs is ignored. If a value is followed by other text, and that
text by a pair of a known parameter, the closing tag and the text belong to the value. Other text elsewhere makes the
call an error, which extends to the closing tag of the call. If the closing tag of a value is missing, the value ends at
the next pair of a known parameter. It also ends at the closing tag of the call, if the message ends there or another
call follows. If only the closing tag of a call is missing, and another call or the end of the wrapper follows, the call
is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from streamtools.errors import Code
from streamtools.parsing.bodies import CallEnd, Members, WrappedCalls, cut_in_tag, end_call, read_json_call, single
from streamtools.parsing.bodies.nesting import Level, NestedText, Parameter, is_whole
from streamtools.parsing.bodies.values import TYPES, Value
from streamtools.parsing.declared import Schema
from streamtools.parsing.markers import NO_TAG, SPACES, Maybe, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Span

_FUNCTION, _END_FUNCTION, _PARAMETER, _END_PARAMETER = "<function=", "</function>", "<parameter=", "</parameter>"
_NAME = Word(r"^<>\r\n", 256)
_END_OF_TAG = Pattern(">")
_LINE_FEED = Pattern("\n")
_BEGIN_FUNCTION, _CLOSE_FUNCTION = Pattern(_FUNCTION), Pattern("</function", SPACES, ">")
_KEY_IN_TAG = r"""=\s*(?:"(.*)"|'(.*)'|(.*?))\s*/?>"""
_REST_OF_TAG: tuple[Part, ...] = (Some(r"^<>\r\n", 1, 256), ">")
_END_OF_BROKEN = Closing(_END_FUNCTION, blank_line=True)


class FunctionTags:
    """The grammar of `<function=…>` and its parameters.

    `wrapper` is the name of the tag around functions. The attribute `opening` is its opening tag, or two of them,
    because models repeat it. With `verbatim=True`, a line feed after a value belongs to the tags only if a line feed
    also precedes the value.
    """

    def __init__(self, wrapper: str = "tool_call", *, verbatim: bool = False) -> None:
        open_, close = f"<{wrapper}>", f"</{wrapper}>"
        self.opening = (open_, SPACES, Maybe((open_, SPACES)))
        tags = _BEGIN_FUNCTION, Pattern(close), Pattern(open_)
        self.text = NestedText(
            Level((open_,), (close,)),
            Level((_FUNCTION, *_REST_OF_TAG), (_END_FUNCTION,), (_FUNCTION,)),
            Level((_PARAMETER, *_REST_OF_TAG), (_END_PARAMETER,), ("<parameter", "=")),
            key=_KEY_IN_TAG,
            missing=2,
        )
        self._verbatim = verbatim
        broken = Closing(_END_FUNCTION, before=(_FUNCTION, close))
        junk = Closing(_END_FUNCTION, before=(_FUNCTION, open_, close), blank_line=True)
        ends = _CLOSE_FUNCTION, _BEGIN_FUNCTION, Pattern(open_)
        self.alone = single(partial(self._read_function, outermost=1, ends=ends), _END_FUNCTION, _END_OF_BROKEN)
        """Reads one function without a wrapper, after its marker."""
        read = partial(self._read_function, outermost=0, ends=(_CLOSE_FUNCTION, *tags))
        self.wrapped = WrappedCalls(read, tags, _END_FUNCTION, broken, junk)
        """Reads functions after the opening tag of their wrapper."""

    def _read_function(self, span: Span, outermost: int, ends: tuple[Pattern, ...]) -> Generator[None, None, CallEnd]:
        """Read one function after `<function=`. Returns the `CallEnd` of the call.

        `outermost` is the level of the outermost tag that the function must close: 0 for the wrapper, 1 for the
        function itself. `ends` are the closing tag of the function, and the tags that may follow if it is missing.
        """
        name = yield from span.word(_NAME)
        if not (yield from span.accept(_END_OF_TAG)):
            return cut_in_tag(span, _END_OF_TAG)
        empty = name.endswith("/")  # <function=f/>
        name = _bare(name.removesuffix("/"))
        span.set_name(name)
        members = Members(span, span.declared.arguments(name), any_key=True)
        if empty and (yield from is_whole(span, self.text.argument, *self.text.after_slash, wrapped=not outermost)):
            members.end()
            return CallEnd.CLOSED
        return (yield from self.text.read_parameters(span, members, self._read_tag, ends, outermost))

    def _read_tag(self, span: Span) -> Generator[None, None, Parameter | CallEnd]:
        """Read a tag after `<parameter=`."""
        key = yield from span.word(_NAME)
        if not (yield from span.accept(_END_OF_TAG)):
            return cut_in_tag(span, _END_OF_TAG)
        if key.endswith("/"):  # <parameter=a/>
            return Parameter(_bare(key.removesuffix("/")), empty=True)
        return Parameter(_bare(key), line_feed=(yield from span.accept(_LINE_FEED)) or not self._verbatim)


def _bare(name: str) -> str:
    """Return a name without the white space and the quotes around it."""
    name = name.strip()
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'" else name


_OBJECT = Pattern("{", SPACES, OneOf(('"', "}")))


class NamedTag:
    """The grammar of `<tool: f>…</tool>`. The marker of the span consists of `opening`, the name, and `>`."""

    def __init__(self, opening: str, close: str) -> None:
        self._opening, self._close = opening, close
        self._close_tag, self._closing = Pattern(close), Closing(close)
        self._text = NestedText(Level((opening, Some("^<>\r\n", 1, 128), ">"), (close,)))

    def __call__(self, span: Span) -> Generator[None, None, None]:
        name = span.marker[len(self._opening) : -1].strip()
        span.set_name(name)
        yield from span.accept(_LINE_FEED)
        begin = span.place
        yield from span.peek()
        found = yield from span.expect(self._close_tag, _OBJECT)
        if found > 0:
            end = yield from read_json_call(span, self._close_tag)
        else:
            end = yield from self._read_text(span, name, begin, empty=found == 0)
        yield from end_call(span, end, self._close, self._closing)

    def _read_text(self, span: Span, name: str, begin: int, *, empty: bool) -> Generator[None, None, CallEnd]:
        schema = span.declared.arguments(name)
        members = Members(span, schema)
        keys = list(schema.properties)
        if not (empty and not keys):
            span.rewind(begin)
            if len(keys) != 1 and name in span.declared:
                span.fail_call(
                    Code.INVALID_ARGUMENTS, "plain text is allowed only for a tool with exactly one argument"
                )
            key = keys[0] if len(keys) == 1 else "content"
            value = Value(members.key(key), span)
            end = yield from self._text.read(span, value.take, line_feed=True)
            if end is not CallEnd.CLOSED:
                return end
            value.end()
        members.end()
        return CallEnd.CLOSED


_TOOL_NAME = Word(r"^<>\s", 256)
_KEY = Word("^<", 256)
_KEY_IN_PAIR = r".*>\s*([^<>]*?)\s*<"
SUFFIX = ":", Some(r"A-Za-z0-9_.\-", 1, 32)
"""A suffix in the name of a tag, such as `:opensource`."""
_TAGS_AROUND_PAIRS = ("tool_call", "iquest_tool_call", "iquestcoder_tool_call")
"""The names of the tags around the calls of all dialects with the tag `<arg_key>`."""
_NO_OTHER_SPELLINGS: Final[Mapping[str, str]] = MappingProxyType({})


class ArgumentPairs:
    """The grammar of a name and pairs of tags. The default tags are `<tool_call>`, `<arg_key>` and `<arg_value>`.

    The attributes `opening` and `close` are the tags around one call. `wrapper` and `unwrap` are the tags around all
    calls. `begin_key` is the opening tag of a key. `after_name` holds the beginnings, up to the suffix, of the tags
    that may follow a name. If one of them follows, the text is a call. `tag_text` returns the text of a tag, without a
    suffix.
    """

    def __init__(
        self,
        *,
        separator: str = "",
        wrapper: str = "",
        suffixed: bool = False,
        spelled: Mapping[str, str | tuple[Part, ...]] = _NO_OTHER_SPELLINGS,
    ) -> None:
        """Configure the tags.

        - `separator`: the name of a tag that may follow the name of the tool, or a value. "" for none.
        - `wrapper`: the name of the tag around all calls. "" for none.
        - `suffixed`: whether the name of each tag may have a suffix, as in `<arg_key:opensource>`.
        - `spelled`: maps names of tags to other spellings or parts, or to "" for a tag that does not exist. If it
          contains `arg_type`, this tag may stand between a key and its value. The type in the tag counts if the schema
          allows it.
        """

        def tag(name: str) -> tuple[Part, ...]:
            if name in spelled:
                parts = spelled[name]
                return (parts,) if isinstance(parts, str) else parts
            return ("<" + name, Maybe(SUFFIX), ">") if suffixed else (f"<{name}>",)

        self.tag_text: Callable[[str], str] = lambda name: "".join(part for part in tag(name) if isinstance(part, str))
        self.opening, self.close = tag("tool_call"), tag("/tool_call")
        self.wrapper, self.unwrap = tag(wrapper), tag("/" + wrapper) if wrapper else NO_TAG
        self.begin_key = tag("arg_key")
        names = ("/tool_call", "arg_key", "/arg_key", "arg_value", "/arg_value", *filter(None, (separator,)))
        self.after_name = OneOf(tuple(filter(None, (str(tag(name)[0]) for name in names))))
        self._close = self.tag_text("/tool_call")
        self._separator = Pattern(*tag(separator)) if separator else None
        self._ends = [Pattern(*parts) for parts in (self.close, self.opening, self.unwrap)]
        self._end_key = Pattern(*tag("/arg_key"))
        self._begin_value = None if tag("arg_value") == ("",) else Pattern(*tag("arg_value"))
        self._type_tags = [Pattern(*tag(name)) for name in ("arg_type", "/arg_type") if name in spelled]
        levels = [Level(self.wrapper, self.unwrap)] if wrapper else []
        levels += [Level(self.opening, self.close)]
        pair = (*tag("arg_key"), Some("^<", 1, 256), *tag("/arg_key"))
        begin_value = tag("arg_value" if self._begin_value is not None else "/arg_key")
        levels += [Level(begin_value, tag("/arg_value"), tag("arg_key"))]
        outermost = 0
        if str(tag("arg_key")[0]).startswith("<arg_key"):  # other dialects have the same pairs in another tag
            others = OneOf(tuple(name for name in _TAGS_AROUND_PAIRS if self.tag_text("tool_call") != f"<{name}>"))
            levels.insert(0, Level(("<", others, ">"), ("</", others, ">")))
            outermost = 1
        following = (tag(separator),) if separator else ()
        self.text = NestedText(*levels, ends=following, head=pair, key=_KEY_IN_PAIR, outermost=outermost)
        broken = Closing(self.close, before=(self.opening, self.unwrap))
        read = partial(self._read_call, outermost=outermost)
        self.single = single(partial(read, outermost=outermost + bool(wrapper)), self._close, broken)
        """Reads one call without a wrapper, after its opening tag."""
        wrapper_tags = Pattern(*self.opening), Pattern(*self.unwrap), Pattern(*self.wrapper)
        self.wrapped = WrappedCalls(read, wrapper_tags, self._close, broken, broken)
        """Reads calls after the opening tag of their wrapper."""

    def _read_call(self, span: Span, outermost: int) -> Generator[None, None, CallEnd]:
        """Read a call. Returns its `CallEnd`. `outermost` is the level of the outermost tag that must be closed."""
        yield from span.peek()
        name = yield from span.word(_TOOL_NAME)
        span.set_name(name)
        members = Members(span, span.declared.arguments(name))
        read_tag = partial(self._read_key, members.schema)
        return (yield from self.text.read_parameters(span, members, read_tag, self._ends, outermost, self._separator))

    def _read_key(self, schema: Schema, span: Span) -> Generator[None, None, Parameter | CallEnd]:
        """Read a key and the tags after it, up to the value."""
        key, types = (yield from span.word(_KEY)).strip(), None
        if not (yield from span.accept(self._end_key)):
            return cut_in_tag(span, self._end_key)
        if self._begin_value is not None:
            yield from span.peek()
            if self._type_tags and (yield from span.accept(self._type_tags[0])):
                word = yield from span.word(_KEY)
                marked, allowed = TYPES.get(word.strip()), schema.property(key).types
                types = marked if marked is not None and (not allowed or marked <= allowed) else None
                if not (yield from span.accept(self._type_tags[1])):
                    return cut_in_tag(span, self._type_tags[1])
                yield from span.peek()
            if not (yield from span.accept(self._begin_value)):
                return cut_in_tag(span, self._begin_value)
        return Parameter(key, types)
