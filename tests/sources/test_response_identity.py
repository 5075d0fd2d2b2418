"""Tests of the response id, the model and the cost, from each provider to the step and the result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools import ToolStream, sources
from streamtools.events import StepEnd
from streamtools.history import Origin
from streamtools.limits import DEFAULT_LIMITS
from streamtools.sources.detection import ADAPTERS
from tests.sources.adapters import cuts, response_identity
from tests.support.cases import together


def sse(*values: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


CHUNK = {"id": "r1", "model": "m1", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
STREAMS: dict[str, tuple[bytes, str | None, str | None]] = {
    "openai": (
        sse(
            CHUNK,
            CHUNK | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            CHUNK | {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "cost": 0.25}},
        ),
        "r1",
        "m1",
    ),
    "responses": (
        sse(
            {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": "Hi"},
            {"type": "response.completed", "response": {"id": "r1", "model": "m1", "output": []}},
        ),
        "r1",
        "m1",
    ),
    "anthropic": (
        sse(
            {"type": "message_start", "message": {"id": "r1", "model": "m1", "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ),
        "r1",
        "m1",
    ),
    "gemini": (
        sse(
            {"responseId": "r1", "modelVersion": "m1", "candidates": [{"content": {"parts": [{"text": "Hi"}]}}]},
            {"candidates": [{"finishReason": "STOP"}]},
        ),
        "r1",
        "m1",
    ),
    "anthropic, where another model continues": (
        sse(
            {"type": "message_start", "message": {"id": "r1", "model": "m1"}},
            {"type": "content_block_start", "content_block": {"type": "fallback", "to": {"model": "m2"}}},
            {"type": "message_stop"},
        ),
        "r1",
        "m2",
    ),
    "gemini, an interaction": (
        sse(
            {"event_type": "interaction.created", "interaction": {"id": "r1", "model": "m1"}},
            {"event_type": "interaction.completed", "interaction": {"id": "r1", "status": "completed"}},
        ),
        "r1",
        "m1",
    ),
    "ollama": (b'{"model":"m1","message":{"content":"Hi"},"done":true,"done_reason":"stop"}\n', None, "m1"),
    "cohere": (sse({"type": "message-start", "id": "r1"}, {"type": "message-end"}), "r1", None),
}


@pytest.mark.parametrize("name", STREAMS)
def test_the_end_of_a_turn_names_response_and_model(name: str) -> None:
    """The id of the response and its model, however the stream is cut."""
    stream, id, model = STREAMS[name]
    for chunks in cuts(stream):
        assert (id, model) == response_identity(lambda: ADAPTERS[name.partition(",")[0]](DEFAULT_LIMITS), *chunks)


@together("name", STREAMS)
async def test_step_and_result_name_response_and_model(name: str) -> None:
    """Each turn remembers the format and the model, too."""
    stream, id, model = STREAMS[name]
    adapter = name.partition(",")[0]
    async with ToolStream(getattr(sources, adapter)([stream])) as events:
        ends = [event async for event in events if isinstance(event, StepEnd)]
    result = events.result
    assert [(id, model)] == [(each.response_id, each.model) for each in ends]
    assert (id, model) == (result.response_id, result.model)
    (step,) = result.steps
    format = "interactions" if "interaction" in name else adapter
    assert (id, Origin(format, None, model)) == (step.response_id, step.turn.origin)


def test_names_of_a_wrong_type_are_ignored() -> None:
    """Only strings are names."""
    stream = sse(CHUNK | {"id": 5, "model": ["m"]}, {"choices": [{"delta": {}, "finish_reason": "stop"}]})
    assert (None, None) == response_identity(lambda: ADAPTERS["openai"](DEFAULT_LIMITS), stream)
