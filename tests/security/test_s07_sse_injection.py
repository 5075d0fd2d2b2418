"""S7: no text of a model, a tool or a provider can start another event in the stream to a front end.

Every string of every event of a run is hostile. Each encoder writes the run, and several readers read it: one that
follows the standard, one that accepts each kind of line end, httpx-sse, and the reader of this package.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from streamtools.events import UIEvent
from streamtools.outputs import Encoder
from tests.outputs.test_encoders_contract import STRUCTURED, Row
from tests.outputs.test_sse import read_with_all_readers
from tests.support.cases import cases, together
from tests.support.sample_runs import RUNS

ENCODERS = {name: row for name, row in STRUCTURED.items() if row.sse}
LINES = {name: row.make for name, row in STRUCTURED.items() if not row.sse}

HOSTILE = {
    "LF": '\n\ndata: {"type":"done"}\n\n',
    "CR": "\r\revent: error\rdata: x\r\r",
    "CRLF": "\r\n\r\nid: 1\r\nretry: 1\r\n\r\n",
    "U+2028": "\u2028\u2028data: x\u2028\u2028",
    "U+2029": "\u2029data: x\u2029",
    "U+0085": "\x85data: x\x85\x85",
    "other controls": "\x00\x0b\x0c\x1c\x1d\x1e\x1f\x7f: x",
    "half a pair": "\ud83d\n\n\ude00",
    "a byte order mark": "\ufeff\ufeffdata: [DONE]\n\n",
    "the end": "[DONE]",
    "many lines": "x\n" * 20_000,
}

FIXED = {"type", "code", "reason", "finish_reason", "dialect"}
"""Fields whose values come from lists in the package."""


def hostile(value: Any, text: str, key: str = "") -> Any:
    """Return an event with `text` in all its strings, and in the keys of values from tools and models."""
    if isinstance(value, dict):
        free = key in ("arguments", "result", "data")
        return {f"{name}{text}" if free else name: hostile(each, text, name) for name, each in value.items()}
    if isinstance(value, list):
        return [hostile(each, text, key) for each in value]
    return f"{value}{text}x" if isinstance(value, str) and key not in FIXED else value


def attack(event: UIEvent, text: str) -> UIEvent:
    """Return the event with `text` in its strings."""
    return msgspec.convert(hostile(msgspec.to_builtins(event), text), type(event))


def write(encoder: Encoder, events: list[UIEvent]) -> bytes:
    """Return the whole body."""
    return b"".join(map(encoder.encode, events)) + encoder.close()


@pytest.mark.parametrize("row", ENCODERS.values(), ids=ENCODERS.keys())
def test_hostile_strings_add_no_event(row: Row) -> None:
    """The run has the same number of events, with the same names and ids. A client can read it."""
    with cases() as case:
        for (name, events), (what, text) in itertools.product(RUNS.items(), {"": "", **HOSTILE}.items()):
            if len(text) > 1000 and name != next(iter(RUNS)):
                continue
            with case(name, what):
                told = read_with_all_readers(write(row.make(), [attack(each, text) for each in events]))
                row.check([frame.data.decode() for frame in told])
                if not what:
                    plain = [(frame.event, frame.id) for frame in told]
                assert plain == [(frame.event, frame.id) for frame in told]
                assert all(frame.data == b"[DONE]" or isinstance(json.loads(frame.data), dict) for frame in told)


@together("make", LINES.values(), ids=LINES)
@together("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_each_event_is_one_line(make: Callable[[], Encoder], text: str) -> None:
    """Holds for NDJSON and for websocket frames, and for readers that split at any kind of line end."""
    for events in list(RUNS.values())[: 1 if len(text) > 1000 else None]:
        attacked = [attack(event, text) for event in events]
        lines = write(make(), attacked).decode().splitlines()
        plain = write(make(), events).decode().splitlines()
        assert [json.loads(line)["type"] for line in plain] == [json.loads(line)["type"] for line in lines]
        assert all(event.to_json().encode() for event in attacked)
