"""The dialects without a marker: bare JSON that names a declared tool."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from tests.families.base import DECLARED, SPACES, Either, Family, Marker, Part, Run

_GAP = Run(" \t\r\n", 0, 16)
_NAMES = Either(tuple({json.dumps(name, ensure_ascii=escaped) for name in DECLARED.words for escaped in (True, False)}))
_NAME_KEYS = Either(('"name"', '"toolName"', '"tool"', '"tool_name"', '"function"'))
_ARGUMENTS = Either(('"arguments"', '"parameters"', '"input"', '"args"'))
_IDS = Either(('"id"', '"call_id"', '"tool_call_id"', '"toolCallId"'))
_ID: tuple[Part, ...] = (_IDS, _GAP, ":", _GAP, '"', Run('"\\\n', 0, 64, others=True), '"', _GAP, ",", _GAP)
_TYPE: tuple[Part, ...] = ('"type"', _GAP, ":", _GAP, '"function"', _GAP, ",", _GAP)
_BEFORE: tuple[tuple[Part, ...], ...] = ((), _ID, _TYPE, _ID + _TYPE, _TYPE + _ID, _ID + _ID, _ID + _TYPE + _ID)
_NESTED: tuple[tuple[Part, ...], ...] = ((), ('"function"', _GAP, ":", _GAP, "{", _GAP))
_NAMED: tuple[Part, ...] = (_NAME_KEYS, _GAP, ":", _GAP, _NAMES, _GAP)
_ENDS: tuple[tuple[Part, ...], ...] = ((Either((":", "}")),), (",", _GAP, _ARGUMENTS, _GAP, Either((":", "}"))))


def _calls(*before: Part) -> Iterator[tuple[Part, ...]]:
    for parts in itertools.product(_BEFORE, _NESTED, (_NAMED,), _ENDS):
        yield (*before, "{", _GAP, *itertools.chain.from_iterable(parts))


def _at_start(*befores: tuple[Part, ...]) -> tuple[Marker, ...]:
    return tuple(Marker(parts, where="start") for before in befores for parts in _calls(*before))


_FENCES: tuple[tuple[Part, ...], ...] = (("```", SPACES), ("```json", SPACES))
_ARRAYS = _at_start(("[", _GAP), (";", SPACES, "[", _GAP), *((*fence, "[", _GAP) for fence in _FENCES))
_PIECES = (
    '{"name":', '{"name":"f"', '{"name":"f","parameters":', '{"name": "f", "arguments": {}}', ";", "; ", "\n",
    '{"x":1}',
    '{"type":"function",', '{"id":"1","name":"f"}', '{"function":"f","args":{}}', '{"arguments":{},"name":"f"}',
    '{"function":{"name":"f"}}', '{"name":"nobody","parameters":{}}',
)  # fmt: skip
_FAULTY = (
    '{"name":"f","args":3}', '{"name":"f","args":{"a":1,"a":2}}', '{"name":"f","args":{"a":}}',
    '{"name":"f","args":[1]}',
    '{"name":"f","args":x}\n\n', '{"name":"f","input":{"a":NaN}}', '{"name":"f","args":{"a":1e999}}',
    '{"name":"f","args":{',
    '{"type":"function","name":"f","args":{"a":"\\ud83d"}}', '{"name":"f","args":{"a":1 2}}',
    '{"name":"f","args":{"a":\'\'}}',
)  # fmt: skip
_MANY = 8 * _FAULTY  # a text has but one beginning: few would have an error else
_MANY_IN_ARRAYS = tuple(f"[{each}]" for each in _MANY)

FAMILY = Family(
    markup={
        "llama3_json": (*_PIECES, *_MANY, "<|python_tag|>", "<|python_tag|>{", "<|python_tag|>f(", "<|python_"),
        "raw_json": (*_PIECES, *_MANY, "```json\n", "```", "```\n{", '```json\n{"name":"f"}\n```'),
        "json_array": (
            *_PIECES, *_MANY_IN_ARRAYS, "[", "[ {", "]", '[{"name":"f"}', "```json\n[", "```", "[[", "[link](url)",
        ),
        "xlam_json": (
            *_PIECES, *_MANY_IN_ARRAYS, "[", "]", "[TOOL_CALLS]", "[TOOL_CALLS] [", "<tool_call>", "</tool_call>",
            "```json\n[", "```",
        ),
    },
    markers={
        "llama3_json": (Marker(("<|python_tag|>", SPACES, "{")), *_at_start((), (";", SPACES))),
        "raw_json": _at_start((), (";", SPACES), *_FENCES),
        "json_array": _ARRAYS,
        "xlam_json": (
            Marker(("[TOOL_CALLS]", SPACES, "[")),
            *(Marker(("<tool_call>", SPACES, first), line_feeds=1) for first in "{["),
            *_ARRAYS,
        ),
    },
    tags={
    },
)  # fmt: skip
