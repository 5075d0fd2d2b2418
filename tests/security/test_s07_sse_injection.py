"""S7: no text of a model, a tool or a provider can start another event in the stream to a front end.

Every string of every event of a run is hostile. Each encoder writes the run, and several readers read it: one that
follows the standard, one that accepts each kind of line end, httpx-sse, and the reader of this package.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest
from httpx_sse import EventSource

from streamtools import outputs
from streamtools.events import UIEvent
from streamtools.outputs import Encoder
from streamtools.sources import Frame, SSEDecoder
from tests.outputs.test_sse import browser, careless
from tests.support.cases import cases, together
from tests.support.sample_runs import RUNS

ENCODERS: dict[str, Callable[[], Encoder]] = {
    "native": lambda: outputs.native(exclude=()),
    "ai_sdk 5": lambda: outputs.ai_sdk(5),
    "ai_sdk 7": lambda: outputs.ai_sdk(7),
    "ag_ui": outputs.ag_ui,
    "openai": outputs.openai,
}

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


def read_with_all_readers(body: bytes) -> list[Frame]:
    """Return the events in a body. All readers must find the same ones."""
    decoder = SSEDecoder()
    ours = decoder.feed(body) + decoder.close()
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body)
    theirs = [Frame(each.data.encode(), each.event, each.id) for each in EventSource(response).iter_sse()]
    text = body.decode()
    assert theirs == browser(text) == careless(text)
    assert [(frame.data, frame.event) for frame in theirs] == [
        (frame.data, frame.event) for frame in ours if isinstance(frame, Frame)
    ]
    return theirs


def write(encoder: Encoder, events: list[UIEvent]) -> bytes:
    """Return the whole body."""
    return b"".join(map(encoder.encode, events)) + encoder.close()


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS.keys())
def test_hostile_strings_add_no_event(make: Callable[[], Encoder]) -> None:
    """The run has the same number of events, with the same names and ids."""
    with cases() as case:
        for (name, events), (what, text) in itertools.product(RUNS.items(), {"": "", **HOSTILE}.items()):
            if len(text) > 1000 and name != next(iter(RUNS)):
                continue
            with case(name, what):
                told = read_with_all_readers(write(make(), [attack(each, text) for each in events]))
                if not what:
                    plain = [(frame.event, frame.id) for frame in told]
                assert plain == [(frame.event, frame.id) for frame in told]
                assert all(frame.data == b"[DONE]" or isinstance(json.loads(frame.data), dict) for frame in told)


@together("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_each_event_is_one_line(text: str) -> None:
    """Holds for NDJSON and for websocket frames, and for readers that split at any kind of line end."""
    for events in list(RUNS.values())[: 1 if len(text) > 1000 else None]:
        attacked = [attack(event, text) for event in events]
        lines = write(outputs.native(framing="ndjson", exclude=()), attacked).decode().splitlines()
        assert [event.type for event in events] == [json.loads(line)["type"] for line in lines]
        assert all(event.to_json().encode() for event in attacked)
