"""Calls that nothing marks: bare JSON, as Llama 3 writes it, or any model that was not taught better.

    {"name": "get_weather", "parameters": {"city": "Paris"}}
    [{"name": "get_weather", "arguments": {"city": "Paris"}}]

An answer in JSON looks the same. So these count only at the start of a message, or behind one another with white space
or a semicolon between; only for declared tools; and only where the name comes first, but for a type or an id, so that
it is soon certain: behind it, the key of the arguments or the end of the object commits. An object that begins with its
arguments is text. None of them is armed by `dialects="auto"`.

Sources: the chat template of meta-llama/Llama-3.1 (and `<|python_tag|>`, which counts anywhere).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from streamtools.calls import ARGUMENT_FIELDS, ID_FIELDS, NAME_FIELDS
from streamtools.json_values import compact
from streamtools.parsing.bodies.chained_json import chained_json, from_its_marker
from streamtools.parsing.bodies.json_calls import json_calls
from streamtools.parsing.dialects.base import Dialect, Opener, ends_of_turn
from streamtools.parsing.dialects.hermes import write_response
from streamtools.parsing.markers import SPACES, Maybe, OneOf, Part, Some

_GAP = Some(r" \t\r\n", 0, 16)
_ID = Some(r'^"\\\n', 0, 64)

Names = tuple[str, ...]


def llama3_json() -> Dialect:
    """Return the dialect of Llama 3.1 to 4 where it is not pythonic."""
    keys = OneOf(_quoted(("type", "id", "function", *NAME_FIELDS)))
    tagged = chained_json([("{", _GAP, keys)])
    return Dialect(
        id="llama3_json",
        openers=(Opener(("<|python_tag|>", SPACES), tagged, ahead=("{",)),),
        openers_for=_objects,
        write_call=lambda name, arguments: compact({"name": name, "parameters": arguments}),
        write_result=write_response,
        reserved=("<|python_tag|>",),
        auto=False,
        tags=ends_of_turn("<|eot_id|>", "<|eom_id|>"),
        models=("llama-?v?3[.-][1-3]", "llama(?=-?4)"),  # the latter rather calls in Python
        notes="A call is the whole answer: nothing comes before it.",
    )


def raw_json() -> Dialect:
    """Return the dialect of one object or several, bare or in a fence."""
    return Dialect(
        id="raw_json",
        openers=(),
        openers_for=lambda names: _objects(names) + _fenced(_call(names)),
        write_call=lambda name, arguments: compact({"name": name, "arguments": arguments}),
        write_result=write_response,
        auto=False,
        notes="A call is the whole answer: nothing comes before it.",
    )


def json_array() -> Dialect:
    """Return the dialect of an array of calls, bare or in a fence."""
    return Dialect(
        id="json_array",
        openers=(),
        openers_for=arrays,
        write_call=lambda name, arguments: compact([{"name": name, "arguments": arguments}]),
        write_result=write_response,
        auto=False,
        notes="A call is the whole answer: nothing comes before it.",
    )


def arrays(names: Names) -> tuple[Opener, ...]:
    """Return the openers of arrays of calls to tools of these `names`."""
    begin = ("[", _GAP, *_call(names))
    return _bare(begin) + _fenced(begin)


def _objects(names: Names) -> tuple[Opener, ...]:
    return _bare(_call(names))


def _bare(begin: tuple[Part, ...]) -> tuple[Opener, ...]:
    return (
        Opener(begin[:1], from_its_marker(json_calls()), ahead=begin[1:], where="start"),
        Opener((";", SPACES), json_calls(), ahead=begin, where="start"),
    )


def _fenced(begin: tuple[Part, ...]) -> tuple[Opener, ...]:
    return (Opener(("```", Maybe(("json",)), SPACES), json_calls("```"), ahead=begin, where="start"),)


def _call(names: Names) -> tuple[Part, ...]:
    """Return the beginning of an object that calls one of these tools, up to where that is certain.

    Names take their time to compile, so they stand in it once; a colon right behind one (broken JSON) commits too.
    """
    return (
        *("{", _GAP, *_BEFORE, _NESTED, OneOf(_quoted((*NAME_FIELDS, "function"))), _GAP, ":", _GAP),
        *(OneOf(_quoted(names)), _GAP, Maybe((",", _GAP, _ARGUMENTS, _GAP)), OneOf((":", "}"))),
    )


def _quoted(words: Names) -> tuple[str, ...]:
    """Return the words as JSON strings: with characters as they are, and escaped."""
    return tuple(dict.fromkeys(write(word) for word in words for write in _WRITERS))


_WRITERS: tuple[Callable[[str], str], ...] = (json.dumps, lambda word: json.dumps(word, ensure_ascii=False))
_ARGUMENTS = OneOf(_quoted(ARGUMENT_FIELDS))
_IDENTIFIED = Maybe((OneOf(_quoted(ID_FIELDS)), _GAP, ":", _GAP, '"', _ID, '"', _GAP, ",", _GAP))
_TYPED = Maybe(('"type"', _GAP, ":", _GAP, '"function"', _GAP, ",", _GAP))
_NESTED = Maybe(('"function"', _GAP, ":", _GAP, "{", _GAP))
_BEFORE = (_IDENTIFIED, _TYPED, _IDENTIFIED)
