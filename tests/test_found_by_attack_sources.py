"""What an attack on the sources has found: each test is one hostile stream, and what must come of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streamtools.events import SourceEvent, TextDelta
from streamtools.sources.adapter import FrameAdapter
from streamtools.sources.ai_sdk import AISDKMessages
from streamtools.sources.anthropic import Anthropic
from streamtools.sources.gemini import Gemini
from streamtools.sources.latitude import Latitude
from streamtools.sources.openai import OpenAIChat
from streamtools.sources.responses import Responses

_ADAPTERS: tuple[Callable[[], FrameAdapter], ...] = (OpenAIChat, Responses, Anthropic, Gemini, AISDKMessages, Latitude)


def _frames(*values: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(value).encode() for value in values)


def _read(adapter: FrameAdapter, *values: Any) -> list[SourceEvent]:
    return adapter.feed(_frames(*values)) + adapter.close()


# Half of a surrogate pair, wherever it stands.


@pytest.mark.parametrize("adapter", _ADAPTERS)
@pytest.mark.parametrize(
    "value",
    [
        {"\ud83d": 1},
        {"type": "x", "delta": {"\ud83d": 1}, "choices": [{"delta": {"\ud83d": 1}}], "data": {"\ud83d": {"\udc00": 1}}},
        {"type": "\ud83d", "delta": "\udc00x", "choices": "\udc00x", "data": "\udc00x", "response": "\udc00x"},
        {"type": "x", "choices": ["\udc00x"], "delta": ["\udc00x"], "data": {"response": "\udc00x"}},
        {"choices": [{"delta": "\udc00x", "message": "\ud83d"}], "event_type": "\ud83d", "candidates": ["\ud83d"]},
    ],
)
def test_half_a_character_in_a_key_or_value_raises_nothing(adapter: Callable[[], FrameAdapter], value: Any) -> None:
    """Whatever holds half of a surrogate pair, the adapter goes on."""
    for event in _read(adapter(), value, value):
        assert event.to_json()


def test_text_beside_half_a_key_is_read() -> None:
    """A key that is half a character costs nothing, and a text cut in mid-character is joined all the same."""
    first = {"choices": [{"delta": {"content": "hi\ud83d", "\ud83d": 1}}]}
    second = {"choices": [{"delta": {"content": "\ude00", "\udc00": 1}}]}
    events = _read(OpenAIChat(), first, second)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["hi", "\U0001f600"]
