"""Grammars that read the body of a call: the text after its marker. Several dialects share each grammar.

A grammar is a generator function with one argument, a `Span`. It reads from the end of the marker to the end of the
span, and yields when it needs more text. It reports the start, the name and the end of each call to the span. If the
arguments are not JSON, the grammar converts them and writes JSON text to the span. Grammars do not decode JSON. The
parser decodes it when a call is complete.

| module | bodies |
| --- | --- |
| `json_bodies` | JSON calls: one, an array, several in a row, or with the names as keys |
| `named_json` | a name, and then the JSON of the arguments |
| `parameter_tags` | `<function=NAME><parameter=KEY>…`, `<tool: NAME>…`, and `NAME<arg_key>KEY</arg_key><arg_value>…` |
| `invocations` | `<invoke name="NAME"><parameter name="KEY">…`, and the same with tokens |
| `xml` | `<NAME><KEY>…</KEY></NAME>`, and the attributes and the content of tags |
| `keyword_calls` | `NAME(KEY=…)` |
| `gemma_calls` | `call:NAME{KEY:…}`, the notation of the Gemma models |
| `nesting` | parameters in tags: the text of a value up to its closing tag, with balanced tags in it |
| `values`, `literals` | no calls: these convert values to JSON |

This module contains the parts that the grammars share. Models forget closing tags. If only the closing tag of a call is
missing, and another tag is in its position, the call is valid. Some grammars also accept the end of the message there.
A call that is malformed or cut off becomes an error. The text of a malformed call ends with the next tag of the
dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, ClassVar, TypeAlias

from streamtools.errors import Code
from streamtools.json_values import compact
from streamtools.parsing.declared import UNKNOWN, Schema
from streamtools.parsing.json_scanner import ENDED, OPEN
from streamtools.parsing.markers import Marker, Part, Pattern
from streamtools.parsing.reader import Closing
from streamtools.parsing.span import Body, Span


@dataclass(frozen=True, eq=False)
class CallEnd:
    """How a call ends. `code` is the error code of the call, or None if the call is valid.

    This is not an enum: before Python 3.12, each access to a member takes 0.14 µs, and a call needs up to 20 accesses.
    """

    code: Code | None = None
    CLOSED: ClassVar[CallEnd]
    UNCLOSED: ClassVar[CallEnd]  # the closing tag is missing, and another tag or the end of the message follows
    BROKEN: ClassVar[CallEnd]  # the call contains text that is not allowed
    BROKEN_JSON: ClassVar[CallEnd]
    CUT: ClassVar[CallEnd]  # the stream ends inside the call


CallEnd.CLOSED, CallEnd.UNCLOSED = CallEnd(), CallEnd()
CallEnd.BROKEN, CallEnd.BROKEN_JSON = CallEnd(Code.UNRECOGNISED_TOOL_CALL), CallEnd(Code.INVALID_JSON)
CallEnd.CUT = CallEnd(Code.TRUNCATED)


def read_arguments(span: Span) -> Generator[None, None, CallEnd | None]:
    """Read the JSON object of all arguments. Returns None if it is complete, else the `CallEnd` of the call."""
    state = yield from span.arguments()
    return None if state is ENDED else CallEnd.CUT if state is OPEN else CallEnd.BROKEN_JSON


def read_json_call(span: Span, *tags: Pattern) -> Generator[None, None, CallEnd]:
    """Read the JSON of all arguments and the closing tag. `tags` are those of `read_end`. Returns the `CallEnd`."""
    end = yield from read_arguments(span)
    if end is not None:
        return end
    yield from span.peek()
    end = yield from read_end(span, *tags)
    return CallEnd.UNCLOSED if end is CallEnd.CUT else end


def cut_in_tag(span: Span, *tags: str | Pattern) -> CallEnd:
    """Return CUT if the stream ends at this position or inside one of `tags`, else BROKEN."""
    return CallEnd.CUT if span.at_end_in(*tags) else CallEnd.BROKEN


def read_end(span: Span, *tags: Pattern) -> Generator[None, None, CallEnd]:
    """Read the first of `tags`, the closing tag of a call. If another of `tags` follows, that tag is not read."""
    found = yield from span.expect(*tags)
    return cut_in_tag(span, *tags) if found < 0 else CallEnd.UNCLOSED if found else CallEnd.CLOSED


def end_call(
    span: Span, end: CallEnd, tag: str, closing: Closing, *, last: bool = True, stray: bool = False
) -> Generator[None, None, bool]:
    """Report the end of a call with the closing tag `tag`. A malformed call extends to the end of `closing`.

    The span ends with the call if the call is the `last` one, if the stream ends, or if `closing` finds a blank line.
    Returns whether the span continues.

    With `stray`, malformed text may be the rest of a value that contained its own closing tags. If the text ends with a
    tag, earlier calls of the turn become errors, because such a value may be incomplete in them.
    """
    if end is CallEnd.CUT or (end is CallEnd.UNCLOSED and span.ended and span.at == len(span.text)):
        last = True
    elif end.code is not None:
        found = yield from span.recover_at(closing)
        last = last or not found or span.place == span.before_closing + 1  # one character: a blank line
        if stray and (call := span.current) is not None:
            text = "".join(span.parts)[call.begin - span.kept_from : span.before_closing - span.kept_from].rstrip()
            if text.endswith(">"):
                span.withdraw(text[max(0, text.rfind("</")) :])
    if last:
        span.close(end.code)
    else:
        span.finish(end.code)
    if end is CallEnd.UNCLOSED:
        warn_unclosed(span, tag)
    return not last


def single(read: Callable[[Span], Generator[None, None, CallEnd]], tag: str, closing: Closing) -> Body:
    """Return the grammar of one call that `read` reads. `tag` and `closing` are the parameters of `end_call`."""

    def body(span: Span) -> Generator[None, None, None]:
        end = yield from read(span)
        yield from end_call(span, end, tag, closing)

    return body


@dataclass(frozen=True, eq=False)
class WrappedCalls:
    """The grammar of several calls between two tags, after the first of these tags."""

    read: Callable[[Span], Generator[None, None, CallEnd]]
    """Reads a call after the beginning of its opening tag."""
    tags: tuple[Pattern, Pattern, Pattern]
    """The beginning of a call, the closing tag of the wrapper, and the opening tag of another wrapper."""
    close: str
    """The closing tag of a call."""
    broken: Closing
    """The end of a malformed call."""
    junk: Closing
    """The end of text that is not a call."""
    stray: bool = True
    """Whether text that is not a call may be the rest of a value that contained its own closing tags."""

    def __call__(self, span: Span) -> Generator[None, None, None]:
        """Read all calls. Text that is not a call is an error."""
        continues = True
        while continues:
            yield from span.peek()
            place = span.place
            found = yield from span.choose(*self.tags)
            if found > 0 or (found < 0 and span.at_end_in(self.tags[1])):
                self._end(span, found, place)
                return
            span.begin_call(place)
            end = cut_in_tag(span, *self.tags) if found else (yield from self.read(span))
            closing, stray = (self.junk, self.stray) if found else (self.broken, False)
            continues = yield from end_call(span, end, self.close, closing, last=False, stray=stray)

    def _end(self, span: Span, found: int, place: int) -> None:
        """End the span at the closing tag, before another opening tag at `place`, or at the end of the stream."""
        if found == 2:
            span.go_back(place)
        cut = found < 0 and not span.kept_from  # the stream ends before the first call
        if cut:
            span.begin_call(0)
        span.close(Code.TRUNCATED if cut else None)
        if found != 1 and not cut:
            span.warn(Code.MISSING_CLOSE, "the calls lack the closing tag of their wrapper")


def warn_unclosed(span: Span, tag: str) -> None:
    """Warn that the call lacks its closing `tag`."""
    span.warn(Code.MISSING_CLOSE, f"the call lacks its closing {tag}")


def read_close(span: Span, tag: str, *tags: Pattern, cut: tuple[str, ...] = ()) -> Generator[None, None, bool]:
    """Read the closing tag of a call and close the span. Returns False, and reads nothing, if other text follows.

    `tag` is the text of the closing tag, and the first of `tags` is its pattern. If another of `tags` follows instead,
    that other tag is not read, and the span closes with a warning. The span also closes with a warning if the stream
    ends here, or inside `tag` or one of `cut`.
    """
    found = 0
    if not (yield from span.accept(tags[0])):
        yield from span.peek()
        found = yield from span.expect(*tags)
        if found < 0 and not span.at_end_in(tag, *cut):
            return False
    span.close()
    if found:
        warn_unclosed(span, tag)
    return True


_NUMBERS = {"integer", "number"}
_KINDS = {'"': {"string"}, "{": {"object"}, "[": {"array"}, "t": {"boolean"}, "f": {"boolean"}, "n": {"null"}}
"""Maps the first character of a JSON value to its type. Other values are numbers."""


class Members:
    """Writes the arguments of the span's current call as a JSON object, one member at a time.

    It does not check for duplicate keys. They are found when the complete call is decoded.
    """

    def __init__(self, span: Span, schema: Schema = UNKNOWN, *, any_key: bool = False) -> None:
        """Begin the object. With `any_key`, `may_begin` accepts every key if the `schema` has no properties."""
        span.convert()
        self._span, self.schema = span, schema
        self.known, self._any_key = schema.properties, any_key
        self._given: dict[str, int] = {}  # maps each member to the index in the call's pieces where its value begins
        span.write("{")

    def key(self, name: str) -> Schema:
        """Write the key of the next member, and return its schema.

        The caller then writes the value to the span as JSON text.
        """
        if self.schema.has_alternatives:
            self._narrow()
        self._span.write(("," if self._given else "") + encode_basestring(name) + ":")
        self._given[name] = len(call.pieces) if (call := self._span.calls.current) is not None else 0
        return self.schema.property(name)

    def _narrow(self) -> None:
        """Exclude the alternatives of the schema that do not allow the last member.

        Earlier members were converted before these alternatives were excluded. If the value of an earlier member now
        has a wrong type, the call is an error.
        """
        call = self._span.current
        if call is None or not (self._given and self._span.stores):
            return
        *_, (name, begin) = self._given.items()
        schema, narrowed = self.schema, self.schema.narrowed(name, "".join(call.pieces[begin:]))
        if name not in narrowed.properties:
            return
        self.schema = narrowed
        for each, begin in self._given.items():
            types, kinds = narrowed.property(each).types, _KINDS.get(call.pieces[begin][:1], _NUMBERS)
            if types != schema.property(each).types and types and not types & kinds:
                self._span.fail_call(Code.INVALID_ARGUMENTS, f"the type of {each!r} depends on {name!r} after it")

    def may_begin(self, name: str, again: bool) -> bool:
        """Return True if the schema allows a member `name` next.

        If `again` is False, the result is also False for a member that the object already contains.
        """
        known = name in self.known or (self._any_key and not self.known and name != "")
        return known and (again or name not in self._given)

    def end(self) -> None:
        """Write the closing brace of the object, and complete the call."""
        if self.schema.has_alternatives:
            self._narrow()
        self._span.write("}")
        self._span.end_call()


Strays: TypeAlias = tuple[tuple[tuple[Part, ...], tuple[Part, ...]], ...]
"""The type of `Dialect.strays`."""

ReadText: TypeAlias = Callable[[str], tuple[str, Mapping[str, Any]]]
"""A function that takes the text of a call, and returns the name of the tool and the arguments."""


def text_calls(close: str, read: ReadText) -> Body:
    """Return a grammar that parses calls with the function `read`. For custom dialects whose calls are not JSON.

    `read` takes the text between the opener and `close`. It returns the name of the tool and the arguments. If `read`
    raises an exception, the call is an error (`unrecognised_tool_call`), and the warning `call_refused` is logged.
    String arguments are converted to the types in the schema of the tool. The name and the arguments are reported only
    when the call is complete. Raises TypeError if `read` is not callable.

    A whole call in a value belongs to the value. If only one of the two tags is in a value, the end of the call is not
    certain. So `write_call` must escape them. If a model writes them, the call is usually an error. After calls, a
    `close` in brackets, such as `</call>`, shows that a value contained it: these calls become errors.

    >>> import json
    >>> from streamtools import Dialect, parse
    >>> from streamtools.parsing import Opener, text_calls
    >>> def read_lines(text):
    ...     values = dict(line.split(": ", 1) for line in text.strip().splitlines())
    ...     return values.pop("name"), {key: json.loads(value) for key, value in values.items()}
    >>> def write_lines(name, arguments):
    ...     lines = [f"{key}: {json.dumps(value)}".replace("<", "\\u003c") for key, value in arguments.items()]
    ...     return "\\n".join(["<invoke_tool>", f"name: {name}", *lines, "</invoke_tool>"])
    >>> lines = Dialect(
    ...     id="lines",
    ...     openers=(Opener(("<invoke_tool>",), text_calls("</invoke_tool>", read_lines)),),
    ...     write_call=write_lines,
    ... )
    >>> parse(write_lines("get_weather", {"city": "Oslo"}), dialects=[lines, "auto"]).calls[0].arguments
    {'city': 'Oslo'}
    """
    if not callable(read):
        raise TypeError(f"`read` of text_calls must be a function of the text of a call, got {read!r}")
    return TextCalls(close, read)


def _log_refused(error: Exception, dialect: str | None) -> None:
    from streamtools.logs import Logger, explained  # imported here to keep `import streamtools` fast

    Logger(__name__).warning("call_refused", **explained(error) | {"reason": None, "dialect": dialect})


REFUSED: ContextVar[Callable[[Exception, str | None], None]] = ContextVar("REFUSED", default=_log_refused)
"""Takes an exception of the `read` of `text_calls`, and the id of the dialect. By default, it logs a warning."""


class TextCalls:
    """The grammar of `text_calls`."""

    def __init__(self, close: str, read: ReadText, opening: Marker | None = None) -> None:
        """`opening` is the marker that begins a call. It finds nested calls."""
        self.close, self.read = close, read
        self._end = Closing(close, *filter(None, [opening]), first=(close,))
        # Texts such as `END` also occur outside of calls.
        is_tag = re.fullmatch(r"[<\[{(].*\w.*[>\]})]", close) and opening and not opening.literal.startswith(close)
        self.strays: Strays = (((close,), ()),) if is_tag else ()
        """`Dialect.strays` of this grammar: `close`, if it is a tag in brackets."""

    def __call__(self, span: Span) -> Generator[None, None, None]:
        """Read one call. The tags of calls in it must balance."""
        from streamtools.parsing.bodies.values import Value  # imported here to keep `import streamtools` fast

        depth, last = 1, 0  # `last` is the position after the last closing tag
        while depth and (kind := (yield from span.content(self._end, lambda text: None))):
            depth += 1 if kind > 1 else -1
            last = last if kind > 1 else span.place
        if depth or not span.stores:  # with `stores=False`, the exceeded limit is already reported
            span.rewind(last or span.place)  # the text after a closing tag is probably the rest of the answer
            span.close(Code.TRUNCATED if depth else None)
            return
        try:
            name, arguments = self.read("".join(span.parts)[len(span.marker) : span.before_closing])
            texts = {key: value if isinstance(value, str) else compact(value) for key, value in dict(arguments).items()}
        except Exception as error:  # the text of a model must not raise
            REFUSED.get()(error, span.calls.dialect)
            span.close(Code.UNRECOGNISED_TOOL_CALL)
            return
        span.set_name(name)
        members = Members(span, span.declared.arguments(name))
        for key, text in texts.items():
            schema = members.key(key)
            (Value(schema, span) if isinstance(arguments[key], str) else span).write(text)
        members.end()
        span.close()


def forged_result(close: str | Closing) -> Body:
    """Return the grammar of a tool result that the model invented. The result and its closing tag are hidden."""
    return _hidden(Closing(close) if isinstance(close, str) else close)


def rest_of_call(end: tuple[Part, ...]) -> Body:
    """Return the grammar of the text after a call that ended too early, because a value contained a closing tag.

    The marker and the text up to `end` are hidden. With (), only the marker is hidden. Earlier calls of the turn become
    errors if they may be incomplete.
    """
    return _hidden(Closing(end, blank_line=True) if end else None)


def _hidden(closing: Closing | None) -> Body:
    def body(span: Span) -> Generator[None, None, None]:
        span.withdraw(span.marker)  # does nothing in a result
        if closing is not None:
            yield from span.until(closing)
        span.close()

    return body


def wrapper(span: Span) -> Generator[None, None, None]:
    """Hide the opening tag of a wrapper. Each call in the wrapper begins with a separate marker."""
    span.close()
    yield from ()


def cut_off(span: Span) -> Generator[None, None, None]:
    """Report a truncated call. The stream ended after the opening tag of the call."""
    span.close(Code.TRUNCATED)
    yield from ()
