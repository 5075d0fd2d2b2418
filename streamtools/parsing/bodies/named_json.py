"""Reads calls that consist of a name and the JSON of the arguments: `NAME[ARGS]{"city": "Paris"}`.

The name precedes the JSON, between tags of the chat template. A wrapper, which is a pair of tags, may contain several
calls. The dialect configures the tags in the constructors below. Malformed text ends at the closing tag of the call. If
the dialect has no closing tag, the grammar reads one call, which ends with its JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator

from streamtools.errors import Code
from streamtools.parsing.bodies import CallEnd, Members, WrappedCalls, cut_in_tag, end_call, read_arguments, read_close
from streamtools.parsing.declared import Declared
from streamtools.parsing.markers import SENTENCE, SPACES, OneOf, Pattern, Some
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Body, Span

NAME_CHARACTERS = r"^ \t\r\n<>{}\[\]\"`"  # all characters except these
NAME = Some(NAME_CHARACTERS, 1, 96)
"""The name in a marker. Most providers allow 64 characters.

A limit above 96 characters would delay more text that only looks like a name.
"""
PROSE = r".,;:!?'()*/\\|"
"""Punctuation that often follows a marker in prose about the marker. No name begins with one of these."""
WORD_FIRST = Some(NAME_CHARACTERS + PROSE, 1, 1), Some(NAME_CHARACTERS, 0, 95)
"""A name that does not begin with punctuation."""
GAP = Some(r" \t\r\n", 0, 4)
"""White space between the tags of a marker. A higher limit would delay text that looks like the marker."""
NAMESPACE = "(?:functions?[./:])?"
"""A pattern for the optional namespace `functions.` before a name, and for the ways in which models misspell it."""

_WORD = Word(NAME_CHARACTERS, 256)
_FENCE = Pattern("```")
_FENCE_LABEL = Word("A-Za-z", 16)
_NULL = Pattern("null")
_NO_TAG = Pattern()
_BEGINS_JSON = ("{", '"')
_NOT_JSON = CallEnd(Code.INVALID_ARGUMENTS)


def plain_name(word: str, declared: Declared) -> str | None:
    """Return `word` as the name of the tool. Returns None if it is empty."""
    return word or None


class NamedCall:
    """The grammar of one call up to the end of its JSON: `name_tag NAME id_tag ID separator {...}`.

    Only the name is required in every dialect. If the call has a closing tag, the JSON may be missing, or be `null`.
    """

    def __init__(
        self,
        separator: str = "",
        *,
        name_tag: str = "",
        id_tag: str = "",
        optional: bool = False,
        fenced: bool = False,
        type_word: str = "",
        identify: Callable[[str, Declared], str | None] = plain_name,
        word_is_id: bool = False,
        word: Word = _WORD,
    ) -> None:
        """Configure the tags around the name.

        - `name_tag`, `id_tag` and `separator`: the tags before the name, the id and the JSON. "" for none.
        - `optional`: whether the separator may be missing. The id may always be missing.
        - `fenced`: whether the JSON may be in a fence of back-ticks.
        - `type_word`: a word, such as `function`, that may stand in the position of the name. The name then follows the
          separator.
        - `identify`: a function that reads the name from the word before the arguments. It returns None if the word
          names no tool.
        - `word_is_id`: whether this word is also the provider's id of the call.
        - `word`: the word before the arguments.
        """
        self._word = word
        self._name_tag, self.separator = (Pattern(tag) if tag else _NO_TAG for tag in (name_tag, separator))
        self._id_tag = Pattern(id_tag) if id_tag else None
        self._optional = optional
        self._type_word = type_word
        self.fenced = fenced
        self._identify, self._word_is_id = identify, word_is_id

    def read(self, span: Span, close: Pattern | None = None) -> Generator[None, None, CallEnd | None]:
        """Read the call. Returns None if its arguments are complete, else its `CallEnd`.

        If the tag `close` is in the position of the JSON, the call has no arguments.
        """
        return (yield from self._read_head(span)) or (yield from self._read_arguments(span, close))

    def _read_head(self, span: Span) -> Generator[None, None, CallEnd | None]:
        yield from span.peek()
        if not (yield from span.accept(self._name_tag)):
            return cut_in_tag(span, self._name_tag)
        yield from span.peek()
        word = yield from span.word(self._word)
        yield from span.peek()
        if self._id_tag is not None and (yield from span.accept(self._id_tag)):
            yield from span.peek()
            span.identify((yield from span.word(_WORD)))
            yield from span.peek()
        if not (yield from span.accept(self.separator)):
            end = cut_in_tag(span, self.separator)
            if end is CallEnd.CUT or not self._optional:
                return end
        if self._type_word and word == self._type_word:
            if not (char := (yield from span.peek())):
                return CallEnd.CUT
            if char not in _BEGINS_JSON:
                word = yield from span.word(self._word)
            elif word not in span.declared:
                span.set_name("")  # makes the call an error
                return None
        name = self._identify(word, span.declared)
        if name is None:
            return CallEnd.BROKEN
        if self._word_is_id:
            span.identify(word)
        span.set_name(name)
        return None

    def _read_arguments(self, span: Span, close: Pattern | None) -> Generator[None, None, CallEnd | None]:
        char = yield from span.peek()
        if self.fenced and char == "`" and (yield from span.accept(_FENCE)):
            yield from span.word(_FENCE_LABEL)
            char = yield from span.peek()
        if not char or (self.fenced and span.at_end_in("```")):
            return CallEnd.CUT
        if char in _BEGINS_JSON:
            return (yield from read_arguments(span))
        no_arguments = (_NULL, close, _FENCE) if self.fenced else (_NULL, close)
        if close is None or (yield from span.expect(*filter(None, no_arguments))) < 0:
            return _NOT_JSON
        Members(span).end()  # no arguments
        return None


def bare(call: NamedCall, begin: str) -> Body:
    """Return the grammar of one call without a closing tag. The call ends with its JSON.

    A call with broken JSON ends where its brackets balance, or with the next blank line. Any other malformed call ends
    with the next blank line, or before `begin`, the beginning of another call.
    """
    closing = Closing(before=(begin,), blank_line=True)

    def read(span: Span) -> Generator[None, None, None]:
        end = (yield from call.read(span)) or CallEnd.CLOSED
        if end is CallEnd.BROKEN_JSON:
            yield from span.recover()
        elif end.code is not None and end is not CallEnd.CUT:
            yield from span.until(closing)
        span.close(end.code)

    return read


class Enclosed:
    """The grammar of calls between tags, in a wrapper or without a wrapper."""

    def __init__(
        self, named: NamedCall, begin: str, end: str, *, around: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    ) -> None:
        """Configure the tags. `begin` and `end` are the tags of a call.

        `around` holds the opening tags and the closing tags of the wrapper, in all spellings. None means no wrapper.
        """
        begins, ends = around or ((), ())
        self._named, self._close_text = named, end
        self._close = Pattern(end)
        self._sentence = Pattern(*SENTENCE, begin, GAP, NAME, GAP, *named.separator.parts)
        others = (begin, *ends, *begins)
        self._others = [Pattern(tag) for tag in others]  # the tags that may follow a call without its closing tag
        self._tags = (end, *others, "```") if named.fenced else (end, *others)
        self._closing, junk = Closing(end, before=others), Closing(before=others)
        tags = Pattern(begin), Pattern(OneOf(ends)), Pattern(OneOf(begins))
        self._alone = around is None
        self._wrapped = WrappedCalls(self._read_call, tags, end, self._closing, junk, stray=False)

    def __call__(self, span: Span) -> Generator[None, None, None]:
        """Read a call after its opening tag, and the other calls in its wrapper."""
        end = yield from self._read_call(span)
        if (yield from end_call(span, end, self._close_text, self._closing, last=self._alone)):
            yield from self._wrapped(span)

    def section(self, span: Span) -> Generator[None, None, None]:
        """Read calls after the opening tag of their wrapper. The wrapper may be empty.

        If a sentence and a call follow, the span ends before the sentence, so that the sentence is shown.
        """
        place = span.place
        if (yield from span.accept(self._sentence)):
            span.go_back(place)
            span.close()
        else:
            yield from self._wrapped(span)

    def _read_call(self, span: Span) -> Generator[None, None, CallEnd]:
        """Read a call after its opening tag, with its closing tag."""
        end = yield from self._named.read(span, self._close)
        if end is not None:
            return end
        if (yield from span.peek()) == "`" and self._named.fenced and (yield from span.accept(_FENCE)):
            yield from span.peek()
        found = yield from span.expect(self._close, *self._others)
        if found < 0 and not span.at_end_in(*self._tags):
            return CallEnd.BROKEN_JSON
        return CallEnd.UNCLOSED if found else CallEnd.CLOSED


class AddressedCall:
    """The grammar of a call that is a whole message. The recipient of the message is the tool.

    The content is one JSON object, `null`, or nothing. If the message has other content, such as code for an
    interpreter, the whole message is a malformed call. A message also ends where the next message begins, because
    servers remove the token at which a model stops.
    """

    def __init__(self, recipient: str, *, ends: tuple[str, ...], begins: tuple[str, ...]) -> None:
        """Configure the header and the tokens of a message. The header is the marker of the span.

        `recipient` is a regular expression for a recipient in the header. Its group is the name of the tool. The last
        recipient is used. `ends` are tokens that end a message, and `begins` are tokens that begin the next message.
        """
        self._recipients = re.compile(recipient).findall
        self._tokens = (*ends, *begins)
        self._end, self._next = Pattern(SPACES, OneOf(ends)), Pattern(OneOf(begins))
        self.closing = Closing(*ends, before=begins)

    def __call__(self, span: Span) -> Generator[None, None, None]:
        span.set_name(["", *self._recipients(span.marker)][-1].removesuffix("??"))  # models write `??` after a name
        if (yield from span.peek()) not in ("{", ""):
            yield from self._read_other(span)
            return
        end = yield from read_arguments(span)
        if end is None and (yield from self._close(span)):
            return
        yield from end_call(span, end or CallEnd.BROKEN_JSON, self._tokens[0], self.closing)

    def _read_other(self, span: Span) -> Generator[None, None, None]:
        """Read content that is not an object. Empty content and `null` mean no arguments. Other content is an error."""
        yield from span.accept(_NULL)
        Members(span).end()  # no arguments
        if not (yield from self._close(span)):
            span.fail_call(Code.INVALID_ARGUMENTS, "the arguments are not a JSON object")
            span.close(None if (yield from span.until(self.closing)) else Code.TRUNCATED)

    def _close(self, span: Span) -> Generator[None, None, bool]:
        """Read the end of the message and close the span. Returns False if the message does not end here."""
        return (yield from read_close(span, self._tokens[0], self._end, self._next, cut=self._tokens))
