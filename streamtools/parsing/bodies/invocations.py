"""Reads calls with names in attributes: `<invoke name="f"><parameter name="a">1</parameter></invoke>`.

Calls may be in a wrapper, such as `<function_calls>`. The module `nesting` decides where a value ends. The type of a
value comes from the JSON schema of the tool, or from an attribute: `string="true"` is text, and `string="false"` is
JSON. Some models write one JSON object with all arguments in the position of the first parameter.

The slash in `<invoke name="f"/>` ends the call, unless an argument or the closing tag follows. In a wrapper, other text
makes the call an error.

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
from streamtools.parsing.bodies import CallEnd, Members, WrappedCalls, cut_in_tag, read_end, read_json_call, single
from streamtools.parsing.bodies.nesting import Level, NestedText, Parameter, is_whole, unescape
from streamtools.parsing.bodies.values import JSON_TYPES, STRING, TYPES
from streamtools.parsing.bodies.xml import BEFORE_ATTRIBUTE, END_OF_EMPTY, Elements, read_attributes
from streamtools.parsing.markers import NO_TAG, SPACES, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Body, Span

_KEY_IN_TAG = r"""\sname\s*=\s*["']?([^"'>]*)"""
_TYPES_BY_ATTRIBUTE = {"true": STRING, "false": JSON_TYPES}


class Invocations:
    """The grammar of calls like `<invoke name=…>`. The constructor sets the names of the tags.

    `self.invoke` is the beginning of the opening tag of a call, before the XML attributes. `self.wrapper` and
    `self.unwrap` are the opening and the closing tag around calls. `self.close_value` is the end of an argument.
    `self.names` are the names of the tags of a call and of an argument.
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
        # The search for markers is fast only if they begin with a long literal.
        names: tuple[Part, ...] = wrapper if len(wrapper) == 1 else (OneOf(wrapper),)
        self.wrapper: tuple[Part, ...] = (*begin, *names, ">")
        self.unwrap: tuple[Part, ...] = (*end, *names, ">") if wrapper else NO_TAG
        close: tuple[Part, ...] = (*end, invoke, SPACES, ">")
        parameter_begin: tuple[Part, ...] = (*begin, parameter, BEFORE_ATTRIBUTE)
        self.close_value: tuple[Part, ...] = (*end, parameter, SPACES, ">")
        self._ends = _, opened, unwrap = Pattern(*close), Pattern(*self.invoke), Pattern(*self.unwrap)
        wrappers = (Level(self.wrapper, self.unwrap),) if wrapper else ()
        levels = [
            Level((*opening, Some("^<>", 1, 1024), ">"), closing, (*opening[:-1], Some(r" \t\r\n", 1, 1)))
            for opening, closing in ((self.invoke, close), (parameter_begin, self.close_value))
        ]
        tokens = [(token,) for token in following]
        self.text, self._level = NestedText(*wrappers, *levels, ends=tokens, key=_KEY_IN_TAG, xml=xml), len(wrappers)
        broken = Closing(close, before=((*self.invoke, "name"), self.unwrap))
        self.names, self._read_name = (invoke, parameter), read_name
        self._elements = Elements(lead, xml=xml) if elements else None
        self._close_text = f"</{first}{invoke}>"
        read, tags = partial(self._read_call, outermost=0), (opened, unwrap, Pattern(*self.wrapper))
        self.bare = single(partial(read, outermost=self._level), self._close_text, broken)
        """Reads one call without a wrapper, after the beginning of its opening tag."""
        self.wrapped = WrappedCalls(read, tags, self._close_text, broken, broken)
        """Reads calls after the opening tag of their wrapper."""

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
            return cut_in_tag(span, END_OF_EMPTY)
        name = self._read_name(attributes.get("name", ""))
        span.set_name(name)
        if _has_tag(name) and name not in span.declared:
            span.fail_call(Code.UNRECOGNISED_TOOL_CALL, "the name of the tool contains a tag")
        argument = self._elements.opening if self._elements else self.text.argument
        wrapped, tags = outermost < self._level, self.text.after_slash
        if end_of_tag == "/>" and (yield from is_whole(span, argument, *tags, wrapped=wrapped)):
            Members(span).end()
            return CallEnd.CLOSED
        if (yield from span.peek()) == "{":
            return (yield from read_json_call(span, *self._ends))
        schema = span.declared.arguments(name)
        if self._elements is not None:
            end = yield from self._elements.read(span, self.names[0], schema)
            if end is CallEnd.UNCLOSED:
                end = yield from read_end(span, *self._ends)
            span.end_call()
            return end
        members = Members(span, schema)
        read_tag = partial(self._read_parameter, members)
        return (yield from self.text.read_parameters(span, members, read_tag, self._ends, outermost))

    def _read_parameter(self, members: Members, span: Span) -> Generator[None, None, Parameter | CallEnd]:
        """Read the tag of an argument after its name."""
        attributes, end_of_tag = yield from read_attributes(span)
        if not end_of_tag:
            return cut_in_tag(span, END_OF_EMPTY)
        key = attributes.get("name", "")
        if not key or (_has_tag(key) and key not in members.known):
            span.fail_call(Code.INVALID_ARGUMENTS, "an argument has no name, or a tag in its name")
        types = _TYPES_BY_ATTRIBUTE.get(attributes.get("string", ""))
        return Parameter(key, types, empty=end_of_tag == "/>")


_CLOSE, _CLOSE_VALUE = "<|close|>call<|sep|>", "<|close|>argument<|sep|>"
_AFTER_CALL = ("<|open|>call ", "<|close|>tools<|sep|>", "<|close|>message<|sep|>")
"""The tags that may follow a call, even if the call lacks its closing tag."""

_ENDS, _BEGIN_JSON = tuple(map(Pattern, (_CLOSE, *_AFTER_CALL))), Pattern("<|open|>json")
_SEPARATOR = Pattern("<|sep|>")
_REST_OF_TAG: tuple[Part, ...] = (Some("^<", 0, 512), "<|sep|>")
_TEXT = NestedText(
    Level(("<|open|>tools<|sep|>",), ("<|close|>tools<|sep|>",)),
    Level(("<|open|>call ", *_REST_OF_TAG), (_CLOSE,), ("<|open|>call ",)),
    Level(("<|open|>argument", *_REST_OF_TAG), (_CLOSE_VALUE,), ("<|open|>argument",)),
    ends=(("<|close|>message<|sep|>",), ("<|open|>json",)),
    key=r"""key\s*=\s*["']([^"']*)""",
)
_END_OF_JSON = Pattern("<|close|>json<|sep|>")
_END_OF_BROKEN = Closing(_CLOSE, before=_AFTER_CALL)
_ATTRIBUTES = Word("^<", 4096)  # attributes contain no `<`, because it is escaped
_has_tag = re.compile("<[^<>]+>").search
# Finds `key="days"` or `key = 'days'`. The quantifiers are possessive, so that each key is read once.
_find_attributes = re.compile(r"""(?<![^\s="'])([^\s="']++)\s*+=\s*+(?:"([^"]*)"|'([^']*)')""").findall


STRAY_XTML = _TEXT.strays


def _read_xtml(span: Span) -> Generator[None, None, CallEnd]:
    attributes = yield from _read_token_attributes(span)
    if attributes is None:
        return cut_in_tag(span, _SEPARATOR)
    name = attributes.get("tool", "")
    span.set_name(name)
    yield from span.peek()
    if not (yield from span.accept(_BEGIN_JSON)):
        members = Members(span, span.declared.arguments(name))
        return (yield from _TEXT.read_parameters(span, members, _read_argument, _ENDS, 1))
    if (yield from _read_token_attributes(span)) is None:
        return cut_in_tag(span, _SEPARATOR)
    end = yield from read_json_call(span, _END_OF_JSON)
    if end is not CallEnd.CLOSED:
        return CallEnd.CUT if end is CallEnd.UNCLOSED else end
    yield from span.peek()
    return (yield from read_end(span, *_ENDS))


xtml_call = single(_read_xtml, _CLOSE, _END_OF_BROKEN)
"""Reads one XTML call after `<|open|>call`."""


def _read_argument(span: Span) -> Generator[None, None, Parameter | CallEnd]:
    """Read the tag of an argument after its name."""
    attributes = yield from _read_token_attributes(span)
    if attributes is None:
        return cut_in_tag(span, _SEPARATOR)
    key = attributes.get("key")
    return CallEnd.BROKEN if key is None else Parameter(key, TYPES.get(attributes.get("type", "")))


def _read_token_attributes(span: Span) -> Generator[None, None, dict[str, str] | None]:
    """Read the attributes and the end of an opening tag. Returns None if the end does not follow the attributes."""
    text = yield from span.word(_ATTRIBUTES)
    if not (yield from span.accept(_SEPARATOR)):
        return None
    return {key: unescape(double or single) for key, double, single in _find_attributes(text)}
