"""Reads calls with names in attributes: `<invoke name="f"><parameter name="a">1</parameter></invoke>`.

Calls may be in a wrapper, such as `<function_calls>`. The module `nesting` decides where a value ends. The type of a
value comes from the JSON schema of the tool, or from an attribute: `string="true"` is text, and `string="false"` is
JSON. Some models write one JSON object with all arguments in the position of the first parameter.

In a wrapper, text that is not a call is a separate error. Such text ends before the next call or the end of the
wrapper, or after the closing tag of a call. If only the closing tag of a call is missing, and another call or the end
of the wrapper follows, the call is valid.

XTML is a similar form. Its tags consist of tokens:
`<|open|>argument key="days" type="number"<|sep|>1<|close|>argument<|sep|>`. Each argument names its type. A string is
plain text, and any other type is JSON. Instead of these elements, one `json` element may hold all arguments, as a JSON
object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import partial

from streamtools.errors import Code
from streamtools.parsing.bodies import (
    CallEnd,
    Members,
    WrappedCalls,
    cut_in_tag,
    end_call,
    read_arguments,
    read_json_call,
)
from streamtools.parsing.bodies.nesting import Level, NestedText, unescape
from streamtools.parsing.bodies.values import JSON_TYPES, STRING, TYPES, Value
from streamtools.parsing.bodies.xml import BEFORE_ATTRIBUTE, Elements, end_in_attributes, read_attributes
from streamtools.parsing.markers import SPACES, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Body, Span

_KEY_IN_TAG = r"""\sname\s*=\s*["']?([^"'>]*)"""
_TYPES_BY_ATTRIBUTE = {"true": STRING, "false": JSON_TYPES}


class Invocations:
    """The grammar of calls like `<invoke name=…>`. The constructor sets the names of the tags.

    `self.invoke` is the beginning of the opening tag of a call, before the XML attributes. `self.wrapper` and
    `self.unwrap` are the opening and the closing tag around calls. `self.close_value` is the end of an argument.
    """

    def __init__(
        self,
        *wrapper: str,
        invoke: str = "invoke",
        parameter: str = "parameter",
        lead: str = "",
        prefix: str | tuple[Part, ...] = "",
        following: tuple[Part, ...] = (),
        xml: bool = False,
        elements: bool = False,
        read_name: Callable[[str], str] = str,
    ) -> None:
        """Configure the tags.

        - `wrapper`: the names of the tag around calls.
        - `invoke` and `parameter`: the names of the tags of a call and of an argument.
        - `lead` and `prefix`: the texts before and after the angle bracket of each tag.
        - `following`: tokens that follow a call.
        - `xml`: whether entities and CDATA sections in values are decoded.
        - `elements`: whether arguments are elements that have the names of the parameters.
        - `read_name`: a function that turns the `name` attribute into the name of the tool.
        """
        first, mark = (prefix, ()) if isinstance(prefix, str) else ("", prefix)
        begin, end = (f"{lead}<{first}", *mark), (f"{lead}</{first}", *mark)
        self.invoke: tuple[Part, ...] = (*begin, invoke, BEFORE_ATTRIBUTE)
        self.wrapper: tuple[Part, ...] = (*begin, OneOf(wrapper), ">")
        self.unwrap: tuple[Part, ...] = (*end, OneOf(wrapper), ">") if wrapper else ("<>",)  # no model writes this tag
        close: tuple[Part, ...] = (*end, invoke, SPACES, ">")
        parameter_begin: tuple[Part, ...] = (*begin, parameter, BEFORE_ATTRIBUTE)
        self.close_value: tuple[Part, ...] = (*end, parameter, SPACES, ">")
        self._open, self._close, self._unwrap = Pattern(*self.invoke), Pattern(*close), Pattern(*self.unwrap)
        self._parameter = Pattern(*parameter_begin)
        wrappers = (Level(self.wrapper, self.unwrap),) if wrapper else ()
        levels = [
            Level((*opening, Some("^<>", 1, 1024), ">"), closing, (*opening[:-1], Some(r" \t\r\n", 1, 1)))
            for opening, closing in ((self.invoke, close), (parameter_begin, self.close_value))
        ]
        tokens = [(token,) for token in following]
        self.text, self._level = NestedText(*wrappers, *levels, ends=tokens, key=_KEY_IN_TAG, xml=xml), len(wrappers)
        self._end_of_broken = Closing(close, before=((*self.invoke, "name"), self.unwrap))
        self._invoke_name, self._read_name = invoke, read_name
        self._elements = Elements(lead, xml=xml) if elements else None
        self._close_text = f"</{first}{invoke}>"
        self._inner_tags = self._unwrap, self._close, self._open, self._parameter
        read, tags = partial(self._read_call, outermost=0), (self._open, self._unwrap, Pattern(*self.wrapper))
        broken = self._end_of_broken
        self.wrapped = WrappedCalls(read, tags, self._close_text, broken, broken, self._inner_tags)
        """Reads calls after the opening tag of their wrapper."""

    def bare(self, span: Span) -> Generator[None, None, None]:
        """Read one call without a wrapper, after the beginning of its opening tag."""
        end = yield from self._read_call(span, self._level)
        yield from end_call(span, end, self._close_text, self._end_of_broken)

    def addressed(self, *ends: str) -> Body:
        """Return the grammar of a message to a tool, after the header of the message.

        The message must begin with a wrapper of calls. Other text is an error, up to one of `ends`.
        """
        wrapper, closing = Pattern(*self.wrapper), Closing(before=ends)

        def body(span: Span) -> Generator[None, None, None]:
            yield from span.peek()
            if (yield from span.accept(wrapper)):
                yield from self.wrapped(span)
                return
            has_end = not span.at_end_in(wrapper) and (yield from span.until(closing))
            span.close(Code.UNRECOGNISED_TOOL_CALL if has_end else Code.TRUNCATED)

        return body

    def _read_call(self, span: Span, outermost: int) -> Generator[None, None, CallEnd]:
        """Read a call after the name of its tag. `outermost` is the level of the outermost tag that must be closed."""
        attributes, end_of_tag = yield from read_attributes(span)
        if not end_of_tag:
            return end_in_attributes(span)
        name = self._read_name(attributes.get("name", ""))
        span.set_name(name)
        if _has_tag(name) and name not in span.declared:
            span.fail_call(Code.UNRECOGNISED_TOOL_CALL, "the name of the tool contains a tag")
        empty = end_of_tag == "/>"
        if not empty and (yield from span.peek()) == "{":
            end = yield from read_arguments(span)
            if end is not None:
                return end
            yield from span.peek()
            end = yield from self._end_call(span)
            return CallEnd.UNCLOSED if end is CallEnd.CUT else end
        schema = span.declared.arguments(name)
        if self._elements is not None and not empty:
            end = yield from self._elements.read(span, self._invoke_name, schema)
            if end is CallEnd.UNCLOSED:
                end = yield from self._end_call(span)
            span.end_call()
            return end
        members = Members(span, schema)
        while not empty and (yield from span.accept(self._parameter)):
            broken = yield from self._read_parameter(span, members, outermost)
            if broken is not None:
                return broken
            yield from span.peek()
        members.end()
        end = CallEnd.CLOSED if empty else (yield from self._end_call(span))
        span.end_call()
        return end

    def _end_call(self, span: Span) -> Generator[None, None, CallEnd]:
        """Read the closing tag of a call. If another tag follows instead, that tag is not read."""
        found = yield from span.expect(self._close, self._open, self._unwrap)
        if found < 0:
            return cut_in_tag(span, *self._inner_tags)
        return CallEnd.UNCLOSED if found else CallEnd.CLOSED

    def _read_parameter(self, span: Span, members: Members, outermost: int) -> Generator[None, None, CallEnd | None]:
        """Read one argument after the name of its tag. Returns the `CallEnd` of a failed call, else None."""
        attributes, end_of_tag = yield from read_attributes(span)
        if not end_of_tag:
            return end_in_attributes(span)
        key = attributes.get("name", "")
        if not key or (_has_tag(key) and key not in members.known):
            span.fail_call(Code.INVALID_ARGUMENTS, "an argument has no name, or a tag in its name")
        value = Value(members.key(key), span, _TYPES_BY_ATTRIBUTE.get(attributes.get("string", "")))
        if end_of_tag == ">":
            end = yield from self.text.read(span, value.take, members.may_begin, outermost=outermost)
            if end.code is not None:
                return end
        value.end()
        return None


_CLOSE, _CLOSE_VALUE, _CLOSE_JSON = (f"<|close|>{name}<|sep|>" for name in ("call", "argument", "json"))
_AFTER_CALL = ("<|open|>call ", "<|close|>tools<|sep|>", "<|close|>message<|sep|>")
"""The tags that may follow a call, even if the call lacks its closing tag."""

_TAGS = ("<|open|>argument", "<|open|>json", _CLOSE, *_AFTER_CALL)
_TAG_PATTERNS = tuple(map(Pattern, _TAGS))
_SEPARATOR = Pattern("<|sep|>")
_REST_OF_TAG: tuple[Part, ...] = (Some("^<", 0, 512), "<|sep|>")
_TEXT = NestedText(
    Level(("<|open|>tools<|sep|>",), ("<|close|>tools<|sep|>",)),
    Level(("<|open|>call ", *_REST_OF_TAG), (_CLOSE,), ("<|open|>call ",)),
    Level(("<|open|>argument", *_REST_OF_TAG), (_CLOSE_VALUE,), ("<|open|>argument",)),
    ends=(("<|close|>message<|sep|>",), ("<|open|>json",)),
    key=r"""key\s*=\s*["']([^"']*)""",
)
_END_OF_JSON = Pattern(_CLOSE_JSON)
_END_OF_BROKEN = Closing(_CLOSE, before=_AFTER_CALL)
_ATTRIBUTES = Word("^<", 4096)  # attributes contain no `<`, because it is escaped
_has_tag = re.compile("<[^<>]+>").search
# Finds `key="days"` or `key = 'days'`. The quantifiers are possessive, so that each key is read once.
_find_attributes = re.compile(r"""(?<![^\s="'])([^\s="']++)\s*+=\s*+(?:"([^"]*)"|'([^']*)')""").findall


STRAY_XTML = _TEXT.strays


def xtml_call(span: Span) -> Generator[None, None, None]:
    """Read one XTML call after `<|open|>call`."""
    end = yield from _read_xtml(span)
    yield from end_call(span, end, _CLOSE, _END_OF_BROKEN)


def _read_xtml(span: Span) -> Generator[None, None, CallEnd]:
    attributes = yield from _read_token_attributes(span)
    if attributes is None:
        return cut_in_tag(span, "<|sep|>")
    name = attributes.get("tool", "")
    span.set_name(name)
    schema = span.declared.arguments(name)
    members: Members | None = None
    while True:
        yield from span.peek()
        place = span.place
        found = yield from span.choose(*_TAG_PATTERNS)
        if found < 0 or (found < 2 and not span.in_call):  # other text, or an argument after the JSON object
            return cut_in_tag(span, *_TAGS)
        if found > 1:
            break
        attributes = yield from _read_token_attributes(span)
        if attributes is None:
            return cut_in_tag(span, "<|sep|>")
        if found == 1:
            if members is not None:
                return CallEnd.BROKEN
            end = yield from read_json_call(span, _END_OF_JSON, _CLOSE_JSON)
            if end is not CallEnd.CLOSED:
                return CallEnd.CUT if end is CallEnd.UNCLOSED else end
            continue
        key = attributes.get("key")
        if key is None:
            return CallEnd.BROKEN
        members = members or Members(span, schema)
        value = Value(members.key(key), span, TYPES.get(attributes.get("type", "")))
        end = yield from _TEXT.read(span, value.take, members.may_begin, outermost=1)
        if end.code is not None:
            return end
        value.end()
    if span.in_call:
        (members or Members(span)).end()
        span.end_call()
    if found == 2:
        return CallEnd.CLOSED
    span.go_back(place)
    return CallEnd.UNCLOSED


def _read_token_attributes(span: Span) -> Generator[None, None, dict[str, str] | None]:
    """Read the attributes and the end of an opening tag. Returns None if the end does not follow the attributes."""
    text = yield from span.word(_ATTRIBUTES)
    if not (yield from span.accept(_SEPARATOR)):
        return None
    return {key: unescape(double or single) for key, double, single in _find_attributes(text)}
