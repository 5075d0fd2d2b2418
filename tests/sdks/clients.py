"""Each way in which an SDK hands out a stream, as a context that gives what is to be read and closes it in the end.

The SDKs are imported where they are used: whoever has none of them can still collect these tests, and deselect them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

Ask = Callable[[str], AbstractAsyncContextManager[Any]]

ASKED: list[Any] = [{"role": "user", "content": "?"}]


def openai_client(url: str) -> Any:
    import openai

    return openai.OpenAI(api_key="x", base_url=url, max_retries=0)


def openai_async(url: str) -> Any:
    import openai

    return openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0)


def anthropic_client(url: str) -> Any:
    import anthropic

    return anthropic.Anthropic(api_key="x", base_url=url, max_retries=0)


def anthropic_async(url: str) -> Any:
    import anthropic

    return anthropic.AsyncAnthropic(api_key="x", base_url=url, max_retries=0)


def ollama_client(url: str) -> Any:
    import ollama

    return ollama.Client(url)


def ollama_async(url: str) -> Any:
    import ollama

    return ollama.AsyncClient(url)


def gemini_client(url: str) -> Any:
    from google import genai

    return genai.Client(api_key="x", http_options={"base_url": url})


@asynccontextmanager
async def chat(url: str) -> AsyncIterator[Any]:
    async with openai_async(url) as client:
        yield await client.chat.completions.create(model="m", messages=ASKED, stream=True)


@asynccontextmanager
async def chat_objects(url: str) -> AsyncIterator[Any]:
    async with chat(url) as stream:
        yield aiter(stream)


@asynccontextmanager
async def chat_sync(url: str) -> AsyncIterator[Any]:
    with openai_client(url) as client:
        yield client.chat.completions.create(model="m", messages=ASKED, stream=True)


@asynccontextmanager
async def chat_helper(url: str) -> AsyncIterator[Any]:
    async with openai_async(url) as client, client.chat.completions.stream(model="m", messages=ASKED) as stream:
        yield stream


@asynccontextmanager
async def chat_helper_sync(url: str) -> AsyncIterator[Any]:
    with openai_client(url) as client, client.chat.completions.stream(model="m", messages=ASKED) as stream:
        yield stream


@asynccontextmanager
async def responses(url: str) -> AsyncIterator[Any]:
    async with openai_async(url) as client:
        yield await client.responses.create(model="m", input="?", stream=True)


@asynccontextmanager
async def responses_objects(url: str) -> AsyncIterator[Any]:
    async with responses(url) as stream:
        yield aiter(stream)


@asynccontextmanager
async def responses_sync(url: str) -> AsyncIterator[Any]:
    with openai_client(url) as client:
        yield client.responses.create(model="m", input="?", stream=True)


@asynccontextmanager
async def responses_helper(url: str) -> AsyncIterator[Any]:
    async with openai_async(url) as client, client.responses.stream(model="m", input="?") as stream:
        yield stream


@asynccontextmanager
async def responses_helper_sync(url: str) -> AsyncIterator[Any]:
    with openai_client(url) as client, client.responses.stream(model="m", input="?") as stream:
        yield stream


@asynccontextmanager
async def messages(url: str) -> AsyncIterator[Any]:
    async with anthropic_async(url) as client:
        yield await client.messages.create(model="m", max_tokens=9, messages=ASKED, stream=True)


@asynccontextmanager
async def messages_objects(url: str) -> AsyncIterator[Any]:
    async with messages(url) as stream:
        yield aiter(stream)


@asynccontextmanager
async def messages_sync(url: str) -> AsyncIterator[Any]:
    with anthropic_client(url) as client:
        yield client.messages.create(model="m", max_tokens=9, messages=ASKED, stream=True)


@asynccontextmanager
async def messages_helper(url: str) -> AsyncIterator[Any]:
    asked = {"model": "m", "max_tokens": 9, "messages": ASKED}
    async with anthropic_async(url) as client, client.messages.stream(**asked) as stream:
        yield stream


@asynccontextmanager
async def messages_helper_objects(url: str) -> AsyncIterator[Any]:
    async with messages_helper(url) as stream:
        yield aiter(stream)


@asynccontextmanager
async def messages_helper_sync(url: str) -> AsyncIterator[Any]:
    asked = {"model": "m", "max_tokens": 9, "messages": ASKED}
    with anthropic_client(url) as client, client.messages.stream(**asked) as stream:
        yield stream


@asynccontextmanager
async def ollama_chat(url: str) -> AsyncIterator[Any]:
    async with ollama_async(url) as client:
        yield await client.chat(model="m", messages=ASKED, stream=True)


@asynccontextmanager
async def ollama_chat_sync(url: str) -> AsyncIterator[Any]:
    with ollama_client(url) as client:
        yield client.chat(model="m", messages=ASKED, stream=True)


@asynccontextmanager
async def gemini(url: str) -> AsyncIterator[Any]:
    async with gemini_client(url).aio as client:
        yield await client.models.generate_content_stream(model="m", contents="?")


@asynccontextmanager
async def gemini_sync(url: str) -> AsyncIterator[Any]:
    with gemini_client(url) as client:
        yield client.models.generate_content_stream(model="m", contents="?")


class Way(NamedTuple):
    """One way of asking: what comes of it is read by the adapter `name`."""

    name: str
    ask: Ask
    on_trio: bool = True


WAYS: dict[str, Way] = {
    "openai, its bytes": Way("openai", chat),
    "openai, its objects": Way("openai", chat_objects),
    "openai, blocking": Way("openai", chat_sync),
    "openai, the helper": Way("openai", chat_helper),
    "openai, the blocking helper": Way("openai", chat_helper_sync),
    "responses, its bytes": Way("responses", responses),
    "responses, its objects": Way("responses", responses_objects),
    "responses, blocking": Way("responses", responses_sync),
    "responses, the helper": Way("responses", responses_helper),
    "responses, the blocking helper": Way("responses", responses_helper_sync),
    "anthropic, its bytes": Way("anthropic", messages),
    "anthropic, its objects": Way("anthropic", messages_objects),
    "anthropic, blocking": Way("anthropic", messages_sync),
    "anthropic, bytes of the helper": Way("anthropic", messages_helper),
    "anthropic, objects of the helper": Way("anthropic", messages_helper_objects),
    "anthropic, the blocking helper": Way("anthropic", messages_helper_sync),
    "ollama": Way("ollama", ollama_chat),
    "ollama, blocking": Way("ollama", ollama_chat_sync),
    "gemini": Way("gemini", gemini, on_trio=False),  # it wants asyncio
    "gemini, blocking": Way("gemini", gemini_sync),
}
