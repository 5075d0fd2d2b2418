"""A name, and then the JSON of its arguments: `NAME[ARGS]{"city": "Paris"}`.

The name is outside of the JSON, between tags of the template, and one wrapper may hold several calls. The tags are
parameters. Broken text ends at the closing tag; without such a tag, a span is one call, and ends with its JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import NamedTuple

from streamtools.errors import Code
from streamtools.parsing.bodies import Members
from streamtools.parsing.declared import Declared
from streamtools.parsing.json_text import ENDED, OPEN
from streamtools.parsing.markers import SPACES, OneOf, Pattern, Some
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Body, Span

_CHARACTERS = r"^ \t\r\n<>{}\[\]\"`"  # all but those
NAME = Some(_CHARACTERS, 1, 96)
"""A name in a marker: more than the 64 characters that most providers allow, and less than reasoning is watched for."""
PROSE = r".,;:!?'()*/\\|"
"""What no name begins with that a marker which people write about counts with: it is the punctuation of a sentence."""
WORD_FIRST = Some(_CHARACTERS + PROSE, 1, 1), Some(_CHARACTERS, 0, 95)
"""Such a name."""
GAP = Some(r" \t\r\n", 0, 4)
"""White space between the tags of one marker; for the same reason not much."""

_WORD = Word(_CHARACTERS, 256)
_FENCE = Pattern("```")
_LABEL = Word("A-Za-z", 16)
_NULL = Pattern("null")
_BEGINS_JSON = ("{", '"')


class Identity(NamedTuple):
    """The name and the id in the word before the arguments."""

    name: str
    provider_id: str | None = None


def plain_name(word: str, declared: Declared) -> Identity | None:
    """Return the word as the name; None if it is empty."""
    return Identity(word) if word else None


class NamedCall:
    """One call to the end of its JSON: `before NAME id_tag ID separator {...}`; only name and JSON must be."""

    def __init__(
        self,
        separator: str = "",
        *,
        before: str = "",
        id_tag: str = "",
        optional: bool = False,
        fenced: bool = False,
        typed: str = "",
        identify: Callable[[str, Declared], Identity | None] = plain_name,
    ) -> None:
        """Take the tags around the name; the separator may be missing if it is `optional`, an id always may.

        With `fenced`, the JSON may stand in a fence of back-ticks. `typed` is a type of calls that may stand in the
        place of the name, which is behind the separator then. `identify` says what the word before the arguments means,
        or None if it names no call.
        """
        self._before, self._separator = (before, Pattern(before)), (separator, Pattern(separator))
        self._id_tag = Pattern(id_tag) if id_tag else None
        self._optional = optional
        self._typed = typed
        self.fenced = fenced
        self._identify = identify

    def read(self, span: Span, close: Pattern | None = None) -> Generator[None, None, Code | None]:
        """Read it; return what is wrong with it. Where `close` comes at once, there are no arguments."""
        return (yield from self._head(span)) or (yield from self._arguments(span, close))

    def _head(self, span: Span) -> Generator[None, None, Code | None]:
        if not (yield from self._literal(span, *self._before)):
            return self._missing(span, self._before[0])
        yield from span.peek()
        word = yield from span.word(_WORD)
        yield from span.peek()
        if self._id_tag is not None and (yield from span.accept(self._id_tag)):
            yield from span.peek()
            span.identify((yield from span.word(_WORD)))
            yield from span.peek()
        if not (yield from self._literal(span, *self._separator)):
            code = self._missing(span, self._separator[0])
            if code is Code.TRUNCATED or not self._optional:
                return code
        if self._typed and word == self._typed and (char := (yield from span.peek())) not in _BEGINS_JSON:
            if not char:
                return Code.TRUNCATED
            word = yield from span.word(_WORD)
        identity = self._identify(word, span.declared)
        if identity is None:
            return Code.UNRECOGNISED_TOOL_CALL
        if identity.provider_id is not None:
            span.identify(identity.provider_id)
        span.call(identity.name)
        return None

    def _literal(self, span: Span, text: str, pattern: Pattern) -> Generator[None, None, bool]:
        if not text:
            return True
        yield from span.peek()
        return (yield from span.accept(pattern))

    def _missing(self, span: Span, text: str) -> Code:
        return Code.TRUNCATED if span.at_end_in(text) else Code.UNRECOGNISED_TOOL_CALL

    def _arguments(self, span: Span, close: Pattern | None) -> Generator[None, None, Code | None]:
        char = yield from span.peek()
        if self.fenced and char == "`" and (yield from span.accept(_FENCE)):
            yield from span.word(_LABEL)
            char = yield from span.peek()
        if not char or (self.fenced and span.at_end_in("```")):
            return Code.TRUNCATED
        if char not in '{"':
            if close is None or not (yield from self._nothing(span, close)):
                return Code.INVALID_ARGUMENTS
            Members(span).end()
            span.end_call()
            return None
        state = yield from span.arguments()
        return None if state is ENDED else Code.TRUNCATED if state is OPEN else Code.INVALID_JSON

    def _nothing(self, span: Span, close: Pattern) -> Generator[None, None, bool]:
        """Return whether there are no arguments, or they are null; what closes them is not read."""
        return (yield from span.expect(_NULL, close, *([_FENCE] if self.fenced else []))) >= 0


def bare(call: NamedCall, begin: str) -> Body:
    """Return the grammar of one call that ends where its JSON does, or without JSON with its paragraph.

    `begin` begins another one.
    """
    closing = Closing(before=(begin,), blank_line=True)

    def read(span: Span) -> Generator[None, None, None]:
        code = yield from call.read(span)
        if code is Code.INVALID_JSON:
            yield from span.recover()
        elif code is not None and code is not Code.TRUNCATED:
            yield from span.until(closing)
        span.close(code)

    return read


class Enclosed:
    """Calls between tags, in a wrapper or each by itself."""

    def __init__(
        self, named: NamedCall, begin: str, end: str, *, around: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    ) -> None:
        """Take the tags of a call, and those `around` all of them, in their spellings, if these have been opened."""
        begins, ends = around or ((), ())
        self._named = named
        self._wrapped = around is not None
        self._close = Pattern(end)
        self._others = [Pattern(each) for each in (begin, *ends, *begins)]
        self._ends = range(1, 1 + len(ends))  # which of them close the wrapper
        self._tags = (end, begin, *ends, *begins)
        self._cut = (*self._tags, "```") if named.fenced else self._tags
        self._resume, self._next = Closing(*self._tags), Closing(*self._tags[1:])

    def __call__(self, span: Span) -> Generator[None, None, None]:
        while (yield from self._call(span)) and (yield from self._go_on(span)):
            pass

    def section(self, span: Span) -> Generator[None, None, None]:
        """Read calls from behind the opening tag of the wrapper, which may hold none."""
        yield from span.peek()
        place = span.place
        if (yield from span.choose(*self._others)) < 0 and self._is_cut(span):
            span.begin_call(0)
            span.close(Code.TRUNCATED)
            return
        span.go_back(place)
        while (yield from self._go_on(span)) and (yield from self._call(span)):
            pass

    def _call(self, span: Span) -> Generator[None, None, bool]:
        """Read a call to its end; return whether the span goes on behind it."""
        code = yield from self._named.read(span, self._close)
        if code is None:
            found = yield from self._close_call(span)
            if found >= 0 or self._is_cut(span):
                goes_on = self._settle(span, goes_on=found >= 0)
                if found != 0:
                    self._warn(span)
                return goes_on
            code = Code.INVALID_JSON
        if code is Code.TRUNCATED:
            span.close(code)
            return False
        return self._settle(span, code, goes_on=(yield from self._skip(span, self._resume)))

    def _close_call(self, span: Span) -> Generator[None, None, int]:
        """Read what closes a call; return 0, or more where another tag comes instead, or -1."""
        char = yield from span.peek()
        if self._named.fenced and char == "`" and (yield from span.accept(_FENCE)):
            yield from span.peek()
        return (yield from span.expect(self._close, *self._others))

    def _go_on(self, span: Span) -> Generator[None, None, bool]:
        """Read from one call of a wrapper to the next, or to the end of the wrapper; return whether there is one."""
        while True:
            yield from span.peek()
            place = span.place
            found = yield from span.choose(*self._others)
            if found == 0:
                span.begin_call(place)
                return True
            if found > 0 or self._is_cut(span):
                if found not in self._ends and found > 0:
                    span.go_back(place)
                span.close()
                if found not in self._ends:
                    self._warn(span)
                return False
            span.begin_call(place)
            if not self._settle(span, Code.UNRECOGNISED_TOOL_CALL, goes_on=(yield from self._skip(span, self._next))):
                return False

    def _skip(self, span: Span, until: Closing) -> Generator[None, None, bool]:
        """Behind broken text, read to the next tag, and through it if it closes a call; False without one."""
        found = yield from span.recover_at(until)
        begin = span.before_closing - span.base
        if found and not self._close.match(span.text, begin, True):
            span.at = begin
        return found

    def _settle(self, span: Span, code: Code | None = None, *, goes_on: bool) -> bool:
        """End the call here, and the span unless it `goes_on` and has a wrapper; return whether it does."""
        if goes_on and self._wrapped:
            span.finish(code)
            return True
        span.close(code)
        return False

    def _is_cut(self, span: Span) -> bool:
        """Whether the stream ends here, or in the middle of a tag; it is read then."""
        return span.at_end_in(*self._cut)

    def _warn(self, span: Span) -> None:
        span.warn(Code.MISSING_CLOSE, f"the call lacks its closing {self._tags[0]}, or what closes all calls")


class AddressedCall:
    """A call that is a message of its own, addressed to the tool: `ends` end a message, and `begins` begin another one.

    `recipient` finds the tool in the header, which is the marker of the span; its first group is the name. The content
    is one JSON object, and may be missing. Anything else, like the code that a model sends to an interpreter, cannot be
    arguments and is an error, up to the end of the message. That may also be the next one: models stop at the token
    that ends a call, and servers cut it off.
    """

    def __init__(self, recipient: str, *, ends: tuple[str, ...], begins: tuple[str, ...]) -> None:
        self._recipient = re.compile(recipient).search
        self._tokens = (*ends, *begins)
        self._at_once = Pattern(SPACES, OneOf(ends))
        self._end, self._next = Pattern(OneOf(ends)), Pattern(OneOf(begins))
        self._closing = Closing(*ends, before=begins)
        self._missing = f"the call lacks its closing {ends[0]}"

    def __call__(self, span: Span) -> Generator[None, None, None]:
        found = self._recipient(span.marker)
        span.call(found[1] if found else "")
        char = yield from span.peek()
        code: Code | None = Code.TRUNCATED
        if char == "{":
            state = yield from span.arguments()
            if state is not OPEN:
                done = state is ENDED and (yield from self._close(span))
                code = None if done else Code.INVALID_JSON
        elif char:
            code = yield from self._read_other(span)
        if code is Code.INVALID_JSON:
            yield from span.recover_at(self._closing)
        if code is not None:
            span.close(code)

    def result(self, span: Span) -> Generator[None, None, None]:
        """Read a message that is no call but the result of one, up to its end."""
        yield from span.until(self._closing)
        span.close()

    def _read_other(self, span: Span) -> Generator[None, None, Code | None]:
        """Read what is no object: nothing, which is as good as an empty one, or anything else, which is an error."""
        yield from span.accept(_NULL)
        Members(span).end()
        span.end_call()
        if (yield from self._close(span)):
            return None
        span.blame(Code.INVALID_ARGUMENTS, "the arguments are no JSON object")
        if not (yield from span.until(self._closing)):
            return Code.TRUNCATED
        span.close()
        return None

    def _close(self, span: Span) -> Generator[None, None, bool]:
        """Read the end of the message and close the span; return False where something else stands."""
        if (yield from span.accept(self._at_once)):  # as a rule
            span.close()
            return True
        yield from span.peek()
        found = yield from span.expect(self._end, self._next)
        if found < 0 and not span.at_end_in(*self._tokens):
            return False
        span.close()
        if found:
            span.warn(Code.MISSING_CLOSE, self._missing)
        return True
