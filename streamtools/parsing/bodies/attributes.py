"""Calls in XML whose attributes are the names: `<invoke name="f"><parameter name="a">1</parameter></invoke>`.

Calls stand alone or in a wrapper. A value is the text up to its closing tag, which counts where structure follows it,
as in `parameters`. Its type is that of the tool's JSON schema, or that of a further attribute: `string="true"` is text,
`string="false"` is JSON. Some models write all arguments of a call as one JSON object instead, which begins with a
brace in the place of the first tag.

Text in a wrapper that is no call is an error of its own, up to the next tag of the dialect. A call that
lacks only its closing tag, because another one or the end of the wrapper stands there, is a call.

XTML has the same structure, with tags made of tokens: `<|open|>argument key="days" type="number"<|sep|>1<|close|>…`.
Each argument has its type: a string is plain text, everything else is JSON. Without one, the type is that of the
tool's JSON schema. All arguments may stand together as one JSON object instead, in an element `json`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator

from streamtools.errors import Code
from streamtools.parsing.bodies import Begun, End, Members, begun, complete, cut, cut_or_broken, settle, skip_rest
from streamtools.parsing.bodies.elements import GAP, Content, Elements, read_attributes, unescape
from streamtools.parsing.bodies.values import NO_STRING, STRING, TYPES, Value
from streamtools.parsing.declared import Schema
from streamtools.parsing.json_text import BROKEN, ENDED, OPEN
from streamtools.parsing.markers import SPACES, Marker, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Body, Span

_SAID = {"true": STRING, "false": NO_STRING}


class Invocations:
    """The grammar, as data.

    `wrapper` are the names of the tags around calls, `invoke` and `parameter` those of calls and arguments. `prefix`
    stands behind the angle bracket of all of them, and if they are `spaced`, perhaps a space behind it; `lead` stands
    before the bracket. `ends` end a message, or stand behind a call. With `xml`, entities and CDATA sections are read
    in values. With `elements`, arguments are elements that have the names of parameters. `read_name` returns the name
    of the tool that the attribute means.
    """

    def __init__(
        self,
        *wrapper: str,
        invoke: str = "invoke",
        parameter: str = "parameter",
        lead: str = "",
        prefix: str = "",
        spaced: bool = False,
        ends: tuple[str, ...] = (),
        xml: bool = False,
        elements: bool = False,
        read_name: Callable[[str], str] = str,
    ) -> None:
        gap: tuple[Part, ...] = (Some(" ", 0, 1),) if spaced else ()
        begin, end = (f"{lead}<{prefix}", *gap), (f"{lead}</{prefix}", *gap)
        self.invoke: tuple[Part, ...] = (*begin, invoke, GAP)
        """The opening tag of a call, up to its attributes."""
        self.wrapper: tuple[Part, ...] = (*begin, OneOf(wrapper), ">")
        """The opening tag of the wrapper."""
        self.unwrap: tuple[Part, ...] = (*end, OneOf(wrapper), ">") if wrapper else ("<>",)
        """Its closing tag; without a wrapper, what never stands there."""
        close: tuple[Part, ...] = (*end, invoke, SPACES, ">")
        parameter_begin: tuple[Part, ...] = (*begin, parameter, GAP)
        self._open, self._close, self._unwrap = Pattern(*self.invoke), Pattern(*close), Pattern(*self.unwrap)
        self._parameter = Pattern(*parameter_begin)
        close_value: tuple[Part, ...] = (*end, parameter, SPACES, ">")
        opened, closed = ([f"{bracket}{prefix}{' ' * each}" for each in range(1 + spaced)] for bracket in ("<", "</"))
        calls = [f"{each}{invoke}{blank}" for each in opened for blank in " \n"]
        behind = [*calls, *(each + name for each in closed for name in wrapper), *ends]
        inside = [f"{each}{parameter}{blank}" for each in opened for blank in " \n"]
        inside += [*(each + invoke for each in closed), *behind]
        closings = [
            Marker(tag, ahead=(SPACES, OneOf(tuple(words)))) for tag, words in ((close_value, inside), (close, behind))
        ]
        self._ends = [Pattern(each) for each in ends]
        self._value = Content(*close_value, xml=xml, ends=closings, last=close)
        self._next = Closing(close, before=((*self.invoke, "name"), self.unwrap))
        self._invoke_name, self._read_name = invoke, read_name
        self._elements = Elements(lead, xml=xml) if elements else None
        self._says = f"</{prefix}{invoke}>", f"</{prefix}{'|'.join(wrapper)}>"
        self._wrap_begun, self._unwrap_begun = begun(self.wrapper), begun(self.unwrap)
        self._begun = begun(self.unwrap, close, (*self.invoke, "name"), (*parameter_begin, "name"))

    def bare(self, span: Span) -> Generator[None, None, None]:
        """Read one call, from behind its opening tag."""
        end = yield from self._read_call(span)
        yield from skip_rest(span, end, self._next)
        settle(span, end, self._says[0])

    def addressed(self, *ends: str) -> Body:
        """Return the grammar of a message to a tool, from behind its header: a wrapper, or an error up to its end."""
        wrap, closing = Pattern(*self.wrapper), Closing(before=ends)

        def body(span: Span) -> Generator[None, None, None]:
            yield from span.peek()
            if (yield from span.accept(wrap)):
                yield from self.wrapped(span)
            else:
                cut = span.ended and self._wrap_begun(span.text, span.at) is not None
                span.at = len(span.text) if cut else span.at
                goes_on = not cut and (yield from span.until(closing))
                span.close(Code.UNRECOGNISED_TOOL_CALL if goes_on else Code.TRUNCATED)

        return body

    def wrapped(self, span: Span) -> Generator[None, None, None]:
        """Read calls, from behind the opening tag of their wrapper."""
        calls = False
        while True:
            char = yield from span.peek()
            place = span.place
            found = yield from span.choose(self._open, self._unwrap, *self._ends)
            if found == 1:
                span.close()
                return
            if not char or found > 1 or self._is_cut(span, self._unwrap_begun):
                if found > 1:
                    span.go_back(place)
                else:
                    span.at = len(span.text)
                span.close(None if calls else Code.TRUNCATED)
                if calls:
                    span.warn(Code.MISSING_CLOSE, f"the calls lack their closing {self._says[1]}")
                return
            calls = True
            span.begin_call(place)
            end = (yield from self._read_call(span)) if found == 0 else self._end_broken(span)
            goes_on = yield from skip_rest(span, end, self._next)
            settle(span, end, self._says[0], last=not goes_on)
            if not goes_on:
                return

    def _read_call(self, span: Span) -> Generator[None, None, End]:
        attributes, end = yield from read_attributes(span)
        if not end:
            return _end_of_tag(span)
        name = self._read_name(attributes.get("name", ""))
        span.call(name)
        char = ">"
        if end == ">":
            char = yield from span.peek()
        if char == "{":
            state = yield from span.arguments()
            if state is not ENDED:
                return End.BROKEN_JSON if state is BROKEN else End.CUT
            span.end_call()
            yield from span.peek()
            return complete(span, (yield from self._end_call(span)))
        if self._elements is not None and end == ">":
            last = yield from self._elements.read(span, self._invoke_name, span.declared.arguments(name))
            if last is End.UNCLOSED:
                last = yield from self._end_call(span)
            span.end_call()
            return last
        members = Members(span)
        if end == ">":
            schema = span.declared.arguments(name)
            while (yield from span.accept(self._parameter)):
                broken = yield from self._read_parameter(span, members, schema)
                if broken is not None:
                    return broken
                yield from span.peek()
        members.end()
        last = (yield from self._end_call(span)) if end == ">" else End.CLOSED
        span.end_call()
        return last

    def _end_call(self, span: Span) -> Generator[None, None, End]:
        """Read the closing tag of a call; what may stand there instead is left to be read again."""
        found = yield from span.expect(self._close, self._open, self._unwrap)
        if found < 0:
            return self._end_broken(span)
        return End.UNCLOSED if found else End.CLOSED

    def _read_parameter(self, span: Span, members: Members, schema: Schema) -> Generator[None, None, End | None]:
        """Read one argument, from behind the name of its tag; return how the call ends, if it ends in here."""
        attributes, end = yield from read_attributes(span)
        if not end:
            return _end_of_tag(span)
        key = attributes.get("name", "")
        if not key:
            span.blame(Code.INVALID_ARGUMENTS, "an argument has no name")
        members.key(key)
        said = _SAID.get(attributes.get("string", ""))
        value = Value(schema.property(key), span, said=said)
        if end == ">":
            begin = span.place
            tag = yield from self._value.read(span, value.take)
            if not tag:
                return cut(span, begin, self._value.closing)
            if self._close.match(tag, 0, True):  # of the call
                span.go_back(span.before_closing)
        value.end()
        return None

    def _end_broken(self, span: Span) -> End:
        """Return how the call ends where something stands that has no place in it."""
        at_end = span.ended and span.at == len(span.text)
        return cut_or_broken(span, cut=at_end or self._is_cut(span, self._begun))

    def _is_cut(self, span: Span, begun: Begun) -> bool:
        """Whether the stream ends in a tag."""
        return span.ended and begun(span.text, span.at) is not None


def _end_of_tag(span: Span) -> End:
    """Return how the call ends whose tag, behind its attributes, does not."""
    return cut_or_broken(span, cut=span.ended and not span.text[span.at :].strip(" \t\r\n/"))


_CLOSE, _CLOSE_VALUE, _CLOSE_JSON = (f"<|close|>{each}<|sep|>" for each in ("call", "argument", "json"))
_OTHERS = ("<|open|>call ", "<|close|>tools<|sep|>", "<|close|>message<|sep|>")
"""What stands behind a call, or instead of its closing tag."""
_ARGUMENT, _JSON = "<|open|>argument", "<|open|>json"

_TAGS = (_ARGUMENT, _JSON, _CLOSE, *_OTHERS)
_PATTERNS = tuple(map(Pattern, _TAGS))
_SEP = Pattern("<|sep|>")
_END_OF_VALUE = Closing(
    Marker((_CLOSE_VALUE,), ahead=(SPACES, OneOf(_TAGS))),
    Marker((_CLOSE,), ahead=(SPACES, OneOf(_OTHERS))),  # where that of the value is missing
    last=(_CLOSE,),
)
_END_OF_JSON = Pattern(_CLOSE_JSON)
_RESUME = Closing(_CLOSE, before=_OTHERS)
_ATTRIBUTES = Word("^<", 4096)  # an angle bracket is escaped there
_each_attribute = re.compile(r"""(?<![^\s="'])([^\s="']++)\s*+=\s*+(?:"([^"]*)"|'([^']*)')""").findall  # keys read once


def xtml_call(span: Span) -> Generator[None, None, None]:
    """Read one call in XTML, from behind `<|open|>call`."""
    end = yield from _read_xtml(span)
    if end is not End.CUT:
        yield from skip_rest(span, end, _RESUME)
    settle(span, end, _CLOSE)


def _read_xtml(span: Span) -> Generator[None, None, End]:
    """Read it to its end, or to where it is broken; return which that is."""
    attributes = yield from _read_attributes(span)
    if attributes is None:
        return _broken(span, "<|sep|>")
    name = attributes.get("tool", "")
    span.call(name)
    schema = span.declared.arguments(name)
    members: Members | None = None
    while True:
        yield from span.peek()
        place = span.place
        found = yield from span.choose(*_PATTERNS)
        if found < 0 or (found < 2 and not span.in_call):  # behind the JSON of all arguments
            return _broken(span, *_TAGS)
        if found > 1:
            break
        attributes = yield from _read_attributes(span)
        if attributes is None:
            return _broken(span, "<|sep|>")
        if found == 1:
            if members is not None:
                return End.BROKEN
            broken = yield from _read_json(span)
            if broken is not None:
                return broken
            continue
        key = attributes.get("key")
        if key is None:
            return End.BROKEN
        members = members or Members(span)
        members.key(key)
        value = Value(schema.property(key), span, said=TYPES.get(attributes.get("type", "")))
        begin = span.place
        if not (yield from span.content(_END_OF_VALUE, value.take)):
            return cut(span, begin, _END_OF_VALUE)
        if not span.read_since(span.before_closing).startswith(_CLOSE_VALUE):
            span.go_back(span.before_closing)
        value.end()
    if span.in_call:
        (members or Members(span)).end()
        span.end_call()
    if found == 2:
        return End.CLOSED
    span.go_back(place)
    return End.UNCLOSED


def _read_json(span: Span) -> Generator[None, None, End | None]:
    """Read the JSON of all arguments, and its closing tag; return how the call ends, if it ends in here."""
    if not (yield from span.peek()):
        return End.CUT
    state = yield from span.arguments()
    if state is not ENDED:
        return End.CUT if state is OPEN else End.BROKEN_JSON
    yield from span.peek()
    return None if (yield from span.accept(_END_OF_JSON)) else _broken(span, _CLOSE_JSON)


def _read_attributes(span: Span) -> Generator[None, None, dict[str, str] | None]:
    """Read the attributes and the end of an opening tag; return None where it does not end so."""
    text = yield from span.word(_ATTRIBUTES)
    if not (yield from span.accept(_SEP)):
        return None
    return {key: unescape(double or single) for key, double, single in _each_attribute(text)}


def _broken(span: Span, *tags: str) -> End:
    """Return how a call ends where none of `tags` stands: nothing more comes, or something else does."""
    return End.CUT if span.at_end_in(*tags) else End.BROKEN
