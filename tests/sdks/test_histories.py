"""Histories as the SDKs type them: the request of each provider accepts the history of a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, TypeAdapter

from streamtools import ToolError, ToolStream
from streamtools.events import NativeToolCall, ProviderCompleted, ReasoningDelta, SourceEvent, TextDelta
from streamtools.history import Message, System, User, write_messages
from streamtools.history.parts import steps_to_history
from tests.support.history_rules import breaches
from tests.support.options import grouped
from tests.support.stories import Script

pytestmark = pytest.mark.sdk

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}


def openai() -> Any:
    from openai.types.chat import ChatCompletionMessageParam

    return ChatCompletionMessageParam


def responses() -> Any:
    from openai.types.responses import ResponseInputItemParam

    return ResponseInputItemParam


def anthropic() -> Any:
    from anthropic.types import MessageParam

    return MessageParam


def gemini() -> Any:
    from google.genai.types import Content

    return Content


def ollama() -> Any:
    from ollama import Message

    return Message


def weather(city: str) -> dict[str, str]:
    return {"sky": f"grey over {city}"}


def refuse() -> None:
    raise ToolError("not on Sundays")


def run(id: str | None, signature: str | None) -> list[Message]:
    """Return the history of a run in which everything happens that may; `id` is of reasoning, `signature` of a call."""
    source: list[SourceEvent] = [
        ReasoningDelta("Hm.", id=id),
        ReasoningDelta("", "c2lnbmVk", id),
        TextDelta("Let me see."),
        NativeToolCall("0", "weather", {"city": "Oslo"}, "toolu_1", signature=signature),
        NativeToolCall("1", "refuse", {}, "toolu_2"),
        NativeToolCall("2", "nobody.knows", {}, "toolu_3"),
        NativeToolCall("3", "weather", '{"city"', "toolu_4"),
        ProviderCompleted(finish_reason="tool_calls", ends_run=False),
        ReasoningDelta("", "aGlkZGVu", redacted=True),
        TextDelta('###:{"name":"weather","arguments":{"city":"Rome"}}'),
        ProviderCompleted(finish_reason="tool_calls", ends_run=False),
        NativeToolCall("0", "weather", {"city": "Bern"}, "toolu_5"),
    ]
    new_id = map("c{}".format, itertools.count(1)).__next__

    async def told() -> list[Message]:
        options: Any = {"dialects": ["hash_marker"], "new_id": new_id}  # named: enabled behind native calls, too
        async with ToolStream(Script(source), tools=[weather, refuse], **grouped(**options)) as events:
            async for _ in events:
                pass
        return steps_to_history(events.result.steps)

    picture = User([{"type": "text", "text": "Where is this?"}, PICTURE])
    return [System("Be brief."), picture, *anyio.run(told), User("And now?")]


@pytest.mark.parametrize("id", [None, "rs_1"])
@pytest.mark.parametrize("typed", [openai, responses, anthropic, gemini, ollama], ids=lambda it: it.__name__)
def test_the_types_of_the_sdk_accept_a_history(typed: Callable[[], Any], id: str | None) -> None:
    """Every message is read by the type of the request; what it has read is what we wrote, with nothing left over."""
    format = typed.__name__
    type_ = TypeAdapter(typed())

    written = write_messages(run(id, signature="c2ln" if format == "gemini" else None), format)

    assert len(written) >= 7
    assert [] == breaches(written, format)
    for message in written:
        if format == "ollama":
            message = _for_ollamas_client(message)
        assert _plain(message) == _plain(type_.validate_python(message))


def _for_ollamas_client(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without ids of calls, which the server has and its client not yet, and images as objects."""
    changed = {name: value for name, value in message.items() if name != "tool_call_id"}
    if "images" in message:
        changed["images"] = [{"value": each} for each in message["images"]]
    if "tool_calls" in message:
        changed["tool_calls"] = [{"function": each["function"]} for each in message["tool_calls"]]
    return changed


def _plain(value: Any) -> Any:
    """Return what was read as plain values; some SDKs read lists lazily, that is, here."""
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(mode="json", by_alias=True, exclude_unset=True))
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key != "images"}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [_plain(each) for each in value]
