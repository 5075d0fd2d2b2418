"""Tests of the limit of open native calls: an excess call is reported once and not stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools.errors import Code
from streamtools.events import NativeToolCall, SourceEvent, ToolCallStart
from streamtools.limits import Limits
from streamtools.sources import ADAPTERS

LIMITS = Limits(calls=3)


def fed(name: str, frames: list[Any]) -> list[SourceEvent]:
    adapter = ADAPTERS[name](LIMITS)
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in frames)
    return adapter.feed(body.encode()) + adapter.close()


def chat(**entry: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": [entry]}}]}


BEGINS: dict[str, Any] = {
    "openai": lambda n: chat(index=n, id=f"c{n}", function={"name": "f", "arguments": '{"a":'}),
    "anthropic": lambda n: {
        "type": "content_block_start",
        "index": n,
        "content_block": {"type": "tool_use", "id": f"c{n}", "name": "f"},
    },
    "gemini": lambda n: {
        "event_type": "step.start",
        "index": n,
        "step": {"type": "function_call", "id": f"c{n}", "name": "f"},
    },
    "responses": lambda n: {
        "type": "response.output_item.added",
        "output_index": n,
        "item": {"type": "function_call", "id": f"i{n}", "call_id": f"c{n}", "name": "f"},
    },
}


@pytest.mark.parametrize("name", BEGINS)
def test_open_calls_are_bounded(name: str) -> None:
    """The excess call begins and ends immediately. Anthropic allows a block of thinking besides."""
    events = fed(name, [BEGINS[name](n) for n in range(20)])
    started = [each.key for each in events if isinstance(each, ToolCallStart)]
    refused = [each.key for each in events if isinstance(each, NativeToolCall)]
    assert 20 == len(set(started)) == len(started)
    assert started[len(started) - len(refused) :] == refused
    assert 20 - len(refused) <= LIMITS.calls + 1
    assert {Code.TOO_MANY_CALLS} == {each.fault for each in events if isinstance(each, NativeToolCall)}


@pytest.mark.parametrize("index", [None, 0, 7])
def test_pieces_of_chat_calls_over_the_limit_are_dropped(index: int | None) -> None:
    """They are dropped at any position, and earlier calls continue."""
    begin = [BEGINS["openai"](n) for n in range(3)]
    place = {} if index is None else {"index": index}
    more = [chat(**place, id="x", function={"name": "g"}), chat(**place, function={"arguments": '"lost"'})]
    end = [chat(index=1, id="c1", function={"arguments": "1}"}), {"choices": [{"finish_reason": "tool_calls"}]}]
    events = fed("openai", [*begin, *more, *end])
    assert not any("lost" in each.to_json() for each in events)
    ends = [(each.id, each.fault) for each in events if isinstance(each, NativeToolCall)]
    assert [("x", Code.TOO_MANY_CALLS), ("c0", None), ("c1", None), ("c2", None)] == ends


def test_a_stray_entry_makes_open_calls_faulty() -> None:
    """This also holds for a repetition after other pieces."""
    stray = {"choices": [{"index": 0, "delta": {"tool_calls": [5, 5]}}]}
    end = {"choices": [{"finish_reason": "tool_calls"}]}
    closed = chat(index=0, id="a", function={"name": "f", "arguments": "{}"})
    events = fed("openai", [closed, stray, BEGINS["openai"](1), stray, end])
    ends = {each.id: each.fault for each in events if isinstance(each, NativeToolCall)}
    assert {"a": None, "c1": Code.INVALID_ARGUMENTS} == ends
