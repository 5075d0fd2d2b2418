"""Converts one argument that is written as plain text to JSON, by the schema of the tool.

In formats of this kind, only the schema says whether `1` is a number. A string goes out while it arrives. A value that
may be something else is held until that is certain, and is a string if it is nothing else: nothing is guessed, and the
validation of the tool reports errors to the model. A container whose quotes are escaped, as in a string of JSON, is
read as what that string says. Every value of an unknown tool or parameter is a string. Containers are read as Python or
JSON writes them and go out while they arrive, unless they may be strings as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from streamtools.errors import Code
from streamtools.parsing.bodies.literals import Literals
from streamtools.parsing.bodies.syntax import PYTHON, number, quoted
from streamtools.parsing.declared import Schema, Types
from streamtools.parsing.json_text import DEEP, ENDED, OPEN
from streamtools.parsing.reader import matcher
from streamtools.parsing.span import Span

STRING: Final = frozenset({"string"})
"""The types of a value that a format declares as a string, whatever its schema says."""

NO_STRING: Final = frozenset({"object", "array", "integer", "number", "boolean", "null"})
"""The types of a value that a format declares as JSON; a string in quotes is one too."""

TYPES: Final = {each: frozenset((each,)) for each in (*STRING, *NO_STRING)}
"""By its name, what a value is declared as that has its type beside it."""

_HELD_MOST = 512  # characters: more than a number may have digits, with the white space around it

_SPACE = " \t\r\n"
_number_begun = re.compile(r"[-+]?(?:[0-9.][-+.0-9_a-fA-FxXoO]*)?").fullmatch
_json_number = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?").fullmatch

_first_in = matcher(r"[\[{ \t\r\n]*(\\.|[^\\])?")
"""Matches the brackets at the beginning of a container, and what comes first in it, with a group once that is known."""
_escapes = matcher(r"(?:[^\\]++|\\.)*+")
_escape_in = re.compile(r"\\(.)", re.DOTALL).sub
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}


_WORDS = {
    "boolean": {"true": "true", "True": "true", "false": "false", "False": "false"},
    "null": {"null": "null", "None": "null"},
}


class Value:
    """Writes one value of the last call of a span: `take` its pieces, then `end` it."""

    def __init__(self, schema: Schema, span: Span, *, said: Types | None = None) -> None:
        """Allow the types of `schema`, or those that the text itself has `said`; others are an error."""
        self._span = span
        types = (schema.types if said is None else said) & (STRING | NO_STRING) or STRING
        if said is None and "string" not in types:
            types |= {"null"}  # the text of one would be as wrong
        self._types = types
        self._text = "string" in types or said is None  # what is no literal is a string
        self._held: list[str] = []
        self._aside: list[str] = []  # the JSON of what may yet be a string
        self._literals: Literals | None = None
        self._escaped = False  # the quotes of the container are
        self._slash = ""  # a back-slash, whose escape is cut
        self._take: Callable[[str], None] = self._hold
        self.take: Callable[[str], None] = self._pass_on
        """Takes the next piece of the text."""
        if types == STRING:
            self._begin_text("")
            self.take = self._add_text

    def end(self) -> None:
        """The value is complete."""
        if self._take == self._add_text:
            self._span.write('"')
            return
        if self._take is _ignore:
            return
        if self._literals is None and self._take == self._hold:
            self._begin_container("".join(self._held).lstrip(_SPACE))
        literals = self._literals
        if literals is None:
            literal = _read_scalar("".join(self._held).strip(_SPACE), self._types)
        else:
            literals.end()
            literal = "".join(self._aside) if literals.state is ENDED else None
        if literal is not None:
            self._span.write(literal)
        elif self._text and (literals is None or "string" in self._types):
            self._begin_text("".join(self._held))
            self._span.write('"')
        else:
            self._blame()

    def _pass_on(self, text: str) -> None:
        self._take(text)

    def _hold(self, text: str) -> None:
        """Take text whose type is not known yet."""
        self._held.append(text)
        held = "".join(self._held)
        word = held.lstrip(_SPACE)
        if len(held) - len(word) > _HELD_MOST:
            self._begin_text(held)
        elif word and word[0] in _brackets(self._types):
            if len(held) > _HELD_MOST or _first_in(word, 0).lastindex:
                self._begin_container(word)
        elif word and (len(held) > _HELD_MOST or not _may_be_scalar(word, self._types)):
            self._begin_text(held)

    def _begin_container(self, word: str) -> None:
        """Begin to read a container, if `word` begins one."""
        if word and word[0] in _brackets(self._types):
            aside = "string" in self._types
            self._escaped = (_first_in(word, 0)[1] or "").startswith("\\")
            write = self._aside.append if aside else self._span.write
            self._literals = Literals(write, PYTHON, depth=self._span.depth - 1)  # the arguments are an object
            self._take = self._add_aside if aside else self._read
            self._read(word)

    def _begin_text(self, text: str) -> None:
        if self._text:
            self._take = self._add_text
            self._span.write('"' + quoted(text))
        else:
            self._blame()

    def _add_text(self, text: str) -> None:
        plain = text.isprintable() and '"' not in text and "\\" not in text
        self._span.write(text if plain else quoted(text))

    def _add_aside(self, text: str) -> None:
        if self._span.stores:
            self._held.append(text)
            self._read(text)
        else:  # over a limit, nothing is made of it any more
            self._held.clear()
            self._take = _ignore

    def _read(self, text: str) -> None:
        """Read more of a container; one that is broken is a string where it may be one."""
        literals = self._literals
        assert literals is not None
        if self._escaped:
            text = self._slash + text
            whole = _escapes(text, 0).end()
            text, self._slash = _escape_in(lambda found: _CONTROLS.get(found[1], found[1]), text[:whole]), text[whole:]
        if literals.leaves(text) is None:
            literals.take(text)
            return
        at = literals.scan(text) if literals.state is OPEN else 0
        ended = literals.state is ENDED and not text[at:].strip(_SPACE)
        if literals.fault is None and (ended or literals.state is OPEN):
            return
        if "string" in self._types:
            self._begin_text("".join(self._held))
        elif literals.state is DEEP:
            self._span.blame(Code.TOO_DEEP, f"an argument nests deeper than {self._span.depth}")
            self._take = _ignore
        else:
            self._blame()

    def _blame(self) -> None:
        kinds = " or ".join(sorted(self._types))
        self._span.blame(Code.INVALID_ARGUMENTS, f"the value of an argument does not read as {kinds}")
        self._take = _ignore


def _ignore(text: str) -> None:
    """Drop text of a value that is an error already."""


def _brackets(types: Types) -> str:
    """Return what begins a container, or, where JSON is said to come, a string in quotes.

    Where no string is allowed, the wrong container is a container all the same.
    """
    if "string" in types:
        return ("{" if "object" in types else "") + ("[" if "array" in types else "")
    return '{["' if types == NO_STRING else "{[" if "object" in types or "array" in types else ""


def _words(types: Types) -> dict[str, str]:
    return {key: literal for kind in _WORDS if kind in types for key, literal in _WORDS[kind].items()}


def _may_be_scalar(word: str, types: Types) -> bool:
    """Whether a text that begins with `word`, behind white space, may be a number or a word of one of the types."""
    bare = word.rstrip(_SPACE)
    if ("number" in types or "integer" in types) and _number_begun(bare):
        return True
    words = _words(types)
    return bare in words if bare != word else any(each.startswith(word) for each in words)


def _read_scalar(word: str, types: Types) -> str | None:
    """Return the JSON of a number or of a word, or None if `word` is none of these types.

    Where it may be a string as well, it has to be a number as JSON writes it, and a whole one if that is what is asked.
    """
    literal = _words(types).get(word)
    if literal is not None or not ("number" in types or "integer" in types):
        return literal
    if "string" not in types:
        return number(word, zeros=True)
    found = _json_number(word)
    return word if found is not None and ("number" in types or not found.lastindex) else None
