"""Each way in which an SDK returns a stream, as a context manager that yields the stream and closes the client.

The functions import the SDKs, so that these tests can be collected without them.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

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


async def _enter(stack: AsyncExitStack, context: Any) -> Any:
    if hasattr(context, "__aenter__") and "Async" in type(context).__name__:
        return await stack.enter_async_context(context)
    return stack.enter_context(context)


class Way(NamedTuple):
    """One way to request a stream, which the adapter `name` reads."""

    name: str
    make: Callable[[str], Any]
    request: Callable[[Any], Any]
    is_helper: bool = False
    objects: bool = False
    on_trio: bool = True

    @asynccontextmanager
    async def ask(self, url: str) -> AsyncIterator[Any]:
        """Yield the stream of the server at `url`."""
        async with AsyncExitStack() as stack:
            stream = self.request(await _enter(stack, self.make(url)))
            if self.is_helper:
                stream = await _enter(stack, stream)
            elif inspect.isawaitable(stream):
                stream = await stream
            yield aiter(stream) if self.objects else stream


def _chat(client: Any) -> Any:
    return client.chat.completions.create(model="m", messages=ASKED, stream=True)


def _responses(client: Any) -> Any:
    return client.responses.create(model="m", input="?", stream=True)


def _responses_helper(client: Any) -> Any:
    return client.responses.stream(model="m", input="?")


def _messages(client: Any) -> Any:
    return client.messages.create(model="m", max_tokens=9, messages=ASKED, stream=True)


def _messages_helper(client: Any) -> Any:
    return client.messages.stream(model="m", max_tokens=9, messages=ASKED)


def _ollama(client: Any) -> Any:
    return client.chat(model="m", messages=ASKED, stream=True)


def _gemini(client: Any) -> Any:
    return client.models.generate_content_stream(model="m", contents="?")


WAYS = {
    "openai, its bytes": Way("openai", openai_async, _chat),
    "openai, its objects": Way("openai", openai_async, _chat, objects=True),
    "openai, blocking": Way("openai", openai_client, _chat),
    "responses, its bytes": Way("responses", openai_async, _responses),
    "responses, its objects": Way("responses", openai_async, _responses, objects=True),
    "responses, blocking": Way("responses", openai_client, _responses),
    "responses, the helper": Way("responses", openai_async, _responses_helper, is_helper=True),
    "responses, the blocking helper": Way("responses", openai_client, _responses_helper, is_helper=True),
    "anthropic, its bytes": Way("anthropic", anthropic_async, _messages),
    "anthropic, its objects": Way("anthropic", anthropic_async, _messages, objects=True),
    "anthropic, blocking": Way("anthropic", anthropic_client, _messages),
    "anthropic, its helper's bytes": Way("anthropic", anthropic_async, _messages_helper, is_helper=True),
    "anthropic, objects of the helper": Way(
        "anthropic", anthropic_async, _messages_helper, is_helper=True, objects=True
    ),
    "anthropic, the blocking helper": Way("anthropic", anthropic_client, _messages_helper, is_helper=True),
    "ollama": Way("ollama", ollama_async, _ollama),
    "ollama, blocking": Way("ollama", ollama_client, _ollama),
    "gemini": Way("gemini", lambda url: gemini_client(url).aio, _gemini, on_trio=False),  # it requires asyncio
    "gemini, blocking": Way("gemini", gemini_client, _gemini),
}
