"""Chats with a provider on the loopback interface, whose answers are in OpenAI's format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import anyio

from streamtools import ToolRegistry, chat
from streamtools.conversation import Chat, OpenAIChat
from streamtools.events import UIEvent
from tests.support.chat_chunks import DONE, chunk, sse
from tests.support.loopback import Loopback
from tests.support.options import grouped
from tests.support.provider import Provider
from tests.support.stories import story

QUESTION = {"role": "user", "content": "How warm is it in Paris?"}
PARIS = {"city": "Paris"}


async def weather(city: str) -> dict[str, Any]:
    """Tell how warm it is."""
    return {"city": city, "celsius": 21}


async def clock() -> str:
    """Tell the time."""
    return "12:00"


TOOLS = ToolRegistry(weather, clock)
OFFER = TOOLS.definitions("openai")


def says(*texts: str | anyio.Event, finish: str = "stop", usage: tuple[int, int] | None = None) -> Loopback:
    """Return a response with these deltas. The provider waits for an event among them."""
    pieces = [piece if isinstance(piece, anyio.Event) else chunk({"content": piece}) for piece in texts]
    return Loopback([*pieces, *ends(finish, usage)])


def calls(*wanted: tuple[str, Any], text: str = "", usage: tuple[int, int] | None = None) -> Loopback:
    """Return a response with native calls, whose ids are n0, n1 and so on."""
    pieces = [chunk({"content": text})] if text else []
    for index, (name, arguments) in enumerate(wanted):
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        pieces.append(chunk({"tool_calls": [native(index, name, written)]}))
    return Loopback([*pieces, *ends("tool_calls", usage)])


def native(index: int, name: str, arguments: str) -> dict[str, Any]:
    return {"index": index, "id": f"n{index}", "type": "function", "function": {"name": name, "arguments": arguments}}


def ends(finish: str, usage: tuple[int, int] | None) -> list[bytes]:
    """Return the chunks that end a response."""
    usages = [] if usage is None else [{"prompt_tokens": usage[0], "completion_tokens": usage[1]}]
    return [chunk(finish=finish), *(sse({"choices": [], "usage": each}) for each in usages), DONE]


def refuses(status: int, message: str) -> Loopback:
    body = json.dumps({"error": {"message": message}}).encode()
    return Loopback([body], status=status, declared="application/json")


def decides(*wanted: tuple[str, Any], usage: tuple[int, int] | None = None) -> Loopback:
    """Return a response with a decision about tools."""
    return says(json.dumps({"tools": [{"tool": name, "arguments": given} for name, given in wanted]}), usage=usage)


def asked(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the body of a request."""
    return {"model": "m", "messages": [*messages], "stream": True, "stream_options": {"include_usage": True}, **more}


class Talk(NamedTuple):
    """One run: its events, its requests, and the chat."""

    events: list[UIEvent]
    bodies: list[Any]
    chat: Chat

    @property
    def story(self) -> list[str]:
        return story(self.events)

    @property
    def shown(self) -> list[str]:
        """The story without the first and the last events."""
        frame = ("start", "step", "usage")
        return [line for line in self.story if not line.startswith(frame)]


def model_of(server: Provider, **options: Any) -> OpenAIChat:
    return OpenAIChat("m", base_url=server.url, api_key="", retries=0, **options)


async def talk(
    *answers: Loopback,
    messages: Sequence[Any] = (QUESTION,),
    tools: Any = TOOLS,
    model: dict[str, Any] | None = None,
    **options: Any,
) -> Talk:
    """Run a chat with a provider that sends these responses. All of them must be requested."""
    async with Provider(*answers) as server:
        async with chat(
            model_of(server, **(model or {})), messages, tools=tools, run_id="r", **grouped(**options)
        ) as events:
            seen = [event async for event in events]
        assert len(answers) == len(server.requests)
        return Talk(seen, server.bodies, events)
