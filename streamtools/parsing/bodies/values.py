"""Converts an argument in plain text to JSON, with the types in the schema of the tool.

In formats that write arguments as plain text, such as XML tags, only the schema tells whether `1` is a number. A string
is converted while it arrives. A value of another type is buffered until its type is certain. A value that has none of
the types in the schema becomes a string, and the validation of the tool's arguments reports the error to the model.
Three kinds of values make the call an error. If no string is allowed, these are a malformed container and one that
nests too deep. The third is a value that contradicts a mark such as `type="number"`. Without a mark, every value of an
unknown tool or parameter is a string.

Objects and arrays may be written in the syntax of Python or JSON. They are converted while they arrive, unless the
schema also allows a string. If their quotes are escaped, as inside a JSON string, the quotes are unescaped first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from streamtools.errors import Code
from streamtools.parsing.bodies.literals import Literals, number, quoted
from streamtools.parsing.declared import Schema, Types
from streamtools.parsing.json_scanner import DEEP, ENDED, OPEN, json_number
from streamtools.parsing.reader import matcher
from streamtools.parsing.span import Span

STRING: Final = frozenset({"string"})
"""The allowed types of a value that the dialect marks as a string. They replace the types of the schema."""

JSON_TYPES: Final = frozenset({"object", "array", "integer", "number", "boolean", "null"})
"""The allowed types of a value that the dialect marks as JSON. A string is then allowed only in quotes."""

_ALL_TYPES: Final = STRING | JSON_TYPES

TYPES: Final = {name: frozenset((name,)) for name in _ALL_TYPES}
"""Maps the name of a type to the allowed types of a value that the dialect marks with this name."""

_BUFFER_LIMIT = 512  # characters: longer than any number with white space around it

_SPACE = " \t\r\n"
# Matches a number, such as -1.5e3 or 0xff, or the beginning of a number.
_number_begun = re.compile(r"[-+]?(?:[0-9.][-+.0-9_a-fA-FxXoO]*)?").fullmatch

_first_in_container = matcher(r"[\[{ \t\r\n]*(\\.|[^\\])?")
"""Matches the brackets at the beginning of a container. Group 1 is the first character inside it.

If this character is escaped, the group includes its back-slash.
"""
# Matches text without an incomplete escape at its end.
_whole_escapes = matcher(r"(?:[^\\]++|\\.)*+")
_escape_in = re.compile(r"\\(.)", re.DOTALL).sub
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}

_WORDS = {
    "boolean": {"true": "true", "True": "true", "false": "false", "False": "false"},
    "null": {"null": "null", "None": "null"},
}


class Value:
    """Converts one value and writes it to the span's current call. Call `take` for each piece, then `end`."""

    def __init__(self, schema: Schema, span: Span, types: Types | None = None) -> None:
        """Set the allowed types.

        `types` are the allowed types if the dialect marks the value. With None, the types of `schema` are allowed.
        """
        self._span, self._schema = span, schema
        allowed = (schema.types if types is None else types) & _ALL_TYPES or STRING
        if types is None and "string" not in allowed:
            allowed |= {"null"}  # read as a string, the value `null` would violate the schema, too
        self._types = allowed
        self._falls_back_to_string = "string" in allowed or types is None
        self._buffer: list[str] = []
        self._converted: list[str] = []  # the JSON of a container, if the value may also be a string
        self._literals: Literals | None = None
        self._escaped = False  # the quotes in the container are escaped
        self._cut_escape = ""  # a back-slash at the end of the text, whose next character has not arrived
        self._read_piece: Callable[[str], None] = self._take_undecided
        self.take: Callable[[str], None] = self._forward  # for a string, `_take_text` itself, which is faster
        """Reads the next piece of the text of the value."""
        if allowed == STRING:
            self._begin_text("")
            self.take = self._take_text

    def end(self) -> None:
        """End the value, and write its rest."""
        if self._read_piece == self._take_text:
            self._span.write('"')
            return
        if self._read_piece is _drop:
            return
        if self._literals is None:
            self._begin_container("".join(self._buffer).lstrip(_SPACE))
        literals = self._literals
        if literals is None:
            word = "".join(self._buffer).strip(_SPACE)
            literal = None if word in self._schema.strings else read_scalar(word, self._types)
        else:
            literals.end()
            literal = "".join(self._converted) if literals.state is ENDED else None
        if literal is not None:
            self._span.write(literal)
        elif self._falls_back_to_string and (literals is None or "string" in self._types):
            self._begin_text("".join(self._buffer))
            self._span.write('"')
        else:
            self._reject()

    def write(self, text: str) -> None:
        """Read and write the whole value, whose text is `text`."""
        self.take(text)
        self.end()

    def _forward(self, text: str) -> None:
        self._read_piece(text)

    def _take_undecided(self, text: str) -> None:
        """Read text while the type of the value is not certain."""
        self._buffer.append(text)
        buffered = "".join(self._buffer)
        word = buffered.lstrip(_SPACE)
        if len(buffered) - len(word) > _BUFFER_LIMIT:
            self._begin_text(buffered)
        elif word and word[0] in _brackets(self._types):
            if len(buffered) > _BUFFER_LIMIT or _first_in_container(word, 0).lastindex:
                self._begin_container(word)
        elif word and (len(buffered) > _BUFFER_LIMIT or not _may_be_scalar(word, self._types)):
            self._begin_text(buffered)

    def _begin_container(self, word: str) -> None:
        """Begin to read a container if `word` begins with the bracket of an allowed type."""
        if word and word[0] in _brackets(self._types):
            may_be_string = "string" in self._types
            self._escaped = (_first_in_container(word, 0)[1] or "").startswith("\\")
            write = self._converted.append if may_be_string else self._span.write
            self._literals = Literals(write, depth=self._span.depth - 1)  # arguments are inside an object
            self._read_piece = self._take_container_or_string if may_be_string else self._take_container
            self._take_container(word)

    def _begin_text(self, text: str) -> None:
        if self._falls_back_to_string:
            self._read_piece = self._take_text
            self._span.write('"' + quoted(text))
        else:
            self._reject()

    def _take_text(self, text: str) -> None:
        plain = text.isprintable() and '"' not in text and "\\" not in text
        self._span.write(text if plain else quoted(text))

    def _take_container_or_string(self, text: str) -> None:
        if self._span.stores:
            self._buffer.append(text)
            self._take_container(text)
        else:  # a limit was exceeded, so the call is an error
            self._buffer.clear()
            self._read_piece = _drop

    def _take_container(self, text: str) -> None:
        """Read the next piece of a container. A malformed container is a string, if a string is allowed."""
        literals = self._literals
        assert literals is not None
        if self._escaped:
            text = self._cut_escape + text
            end = _whole_escapes(text, 0).end()
            self._cut_escape = text[end:]
            text = _escape_in(lambda found: _CONTROLS.get(found[1], found[1]), text[:end])
        if literals.find_change(text) is None:
            literals.take(text)
            return
        at = literals.scan(text) if literals.state is OPEN else 0
        ended = literals.state is ENDED and not text[at:].strip(_SPACE)
        if literals.fault is None and (ended or literals.state is OPEN):
            return
        if "string" in self._types:
            self._begin_text("".join(self._buffer))
        elif literals.state is DEEP:
            self._span.fail_call(Code.TOO_DEEP, f"an argument nests deeper than {self._span.depth}")
            self._read_piece = _drop
        else:
            self._reject()

    def _reject(self) -> None:
        types = " or ".join(sorted(self._types))
        self._span.fail_call(Code.INVALID_ARGUMENTS, f"the value of an argument is not a valid {types}")
        self._read_piece = _drop


def _drop(text: str) -> None:
    """Drop the rest of a value that has an error."""


def _brackets(types: Types) -> str:
    """Return the characters with which a container of these types begins.

    If the types include a container and exclude strings, both `[` and `{` are returned, because a container of the
    wrong kind is also read. For a value that the dialect marks as JSON, the quote of a string is added.
    """
    if "string" in types:
        return ("{" if "object" in types else "") + ("[" if "array" in types else "")
    return '{["' if types == JSON_TYPES else "{[" if "object" in types or "array" in types else ""


def _words(types: Types) -> dict[str, str]:
    return {word: literal for name in _WORDS if name in types for word, literal in _WORDS[name].items()}


def _may_be_scalar(word: str, types: Types) -> bool:
    """Return True if text that begins with `word` may become a number or a literal word of one of `types`."""
    bare = word.rstrip(_SPACE)
    if ("number" in types or "integer" in types) and _number_begun(bare):
        return True
    words = _words(types)
    return bare in words if bare != word else any(literal.startswith(word) for literal in words)


def read_scalar(word: str, types: Types) -> str | None:
    """Return the JSON of a number or a literal word. Returns None if `word` has none of `types`.

    If `types` also allows a string, a number must have the syntax of JSON, and an integer must have no fraction and no
    exponent.
    """
    literal = _words(types).get(word)
    if literal is not None or not ("number" in types or "integer" in types):
        return literal
    if "string" not in types:
        return number(word, zeros=True)
    found = json_number(word)
    return word if found is not None and ("number" in types or not found.lastindex) else None
