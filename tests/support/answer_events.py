"""Clients of OpenAI's Responses API and of Anthropic's Messages API, which are stricter than the SDKs.

They follow `openai` 3 and `anthropic` 2 for Python.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_KINDS = {"message": "output_text", "reasoning": "reasoning_text", "function_call": "function_call_arguments"}
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def check_responses(data: Sequence[str]) -> None:
    """Raise AssertionError for events that a client of Responses would refuse. A body may be incomplete."""
    events = [json.loads(each) for each in data]
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    items: list[dict[str, Any]] = []
    said: dict[int, str] = {}
    done: set[int] = set()
    for at, event in enumerate(events):
        kind = event["type"]
        assert (kind == "response.created") == (at == 0), event
        place = event.get("output_index")
        if kind == "response.output_item.added":
            assert place == len(items), event
            items.append(event["item"])
            said[place] = ""
        elif kind.endswith(".delta"):
            assert kind == f"response.{_KINDS[items[place]['type']]}.delta", event
            assert (event["item_id"], event["delta"] == "") == (items[place]["id"], False), event
            said[place] += event["delta"]
        elif kind == "response.output_item.done":
            assert place not in done, event
            done.add(place)
            item = event["item"]
            assert item["id"] == items[place]["id"], event
            text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
            assert text == said[place], event
            items[place] = item
        elif kind in _ENDS:
            assert at == len(events) - 1, "an event follows the end"
            assert event["response"]["status"] == kind.removeprefix("response."), event
            assert kind == "response.failed" or (event["response"]["output"], len(done)) == (items, len(items))


def check_message(data: Sequence[str]) -> None:
    """Raise AssertionError for events that a client of Messages would refuse. A body may be incomplete."""
    events = [json.loads(each) for each in data]
    blocks: list[dict[str, Any]] = []
    done: set[int] = set()
    ended = False
    for at, event in enumerate(events):
        kind, place = event["type"], event.get("index")
        if kind == "error":
            assert at == len(events) - 1, "an event follows the error"
            continue
        assert (kind == "message_start") == (at == 0), event
        if kind == "content_block_start":
            assert place == len(blocks), event
            blocks.append(event["content_block"])
        elif kind == "content_block_delta":
            assert place not in done, event
            (text,) = (value for name, value in event["delta"].items() if name != "type")
            assert text != "", event
            name = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
            assert event["delta"]["type"] == name[blocks[place]["type"]], event
        elif kind == "content_block_stop":
            assert place not in done, event
            done.add(place)
        elif kind == "message_delta":
            assert done == set(range(len(blocks))), "a block is open"
        elif kind == "message_stop":
            ended = True
            assert at == len(events) - 1, "an event follows the end"
    last = events[-1]["type"] if events else ""
    assert ended or last != "message_delta", "the end is missing"
