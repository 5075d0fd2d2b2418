"""Common mistakes of callers: each message says what to do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from streamtools import Parser, RunnerOptions, TextOptions, Tool, ToolContext, ToolStream, chat, parse, sources
from streamtools.conversation import AnthropicMessages, OpenAIChat, RequestOptions, ScriptedModel
from streamtools.errors import UnreadableSource
from streamtools.events import UIEvent
from tests.support.cases import cases
from tests.support.loopback import Loopback

pytestmark = pytest.mark.anyio


def moved(name: str) -> Any:
    """Return keyword arguments with a name that is now a field of an option object."""
    return {name: 1}


async def read(stream: ToolStream) -> list[UIEvent]:
    """Return the events of a stream."""
    async with stream as events:
        return [event async for event in events]


DEFINITION = {"type": "function", "function": {"name": "f", "parameters": {}}}


class Completion(BaseModel):
    """The response of an SDK without `stream=True`. It is an iterable of its fields."""

    choices: list[str] = []


async def create() -> None:
    """An SDK request that the caller forgets to await."""


@asynccontextmanager
async def entered() -> Any:
    """A stream that must be entered."""
    yield


LOCAL = OpenAIChat("m", base_url="http://127.0.0.1:1/v1")
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a parameter of a model that is misspelled": (
        lambda: OpenAIChat("m", base_ulr="http://x/v1"),
        *(TypeError, "OpenAIChat has no parameter 'base_ulr'; did you mean 'base_url'?"),
    ),
    "a time that is none": (
        lambda: OpenAIChat("m", timeout="soon"),
        *(TypeError, "`timeout` must be a Timeouts, a number of seconds, or None, got 'soon'"),
    ),
    "a model by its name": (
        lambda: chat("gpt-4o", []),  # type: ignore[arg-type]
        *(TypeError, "such as OpenAIChat('gpt-4o') of streamtools.conversation"),
    ),
    "a dialect by a part of its id": (
        lambda: parse("a", dialects="hermes"),
        *(ValueError, "no dialect 'hermes'; did you mean 'hermes_json'?"),
    ),
    "a dialect that is misspelled": (
        lambda: parse("a", dialects=["tilde_fense"]),
        *(ValueError, "no dialect 'tilde_fense'; did you mean 'tilde_fence'?"),
    ),
    "a parameter of a stream": (
        lambda: ToolStream(sources.text("a"), dialect="auto"),  # type: ignore[arg-type]
        *(TypeError, "ToolStream() has no parameter 'dialect'; did you mean 'dialects'?"),
    ),
    "a parameter of a stream that is an option of the runner": (
        lambda: ToolStream(sources.text("a"), **moved("timeout")),
        *(TypeError, "ToolStream() has no parameter 'timeout'; write runner=RunnerOptions(timeout=...)"),
    ),
    "a parameter of a chat that is an option of the output": (
        lambda: chat(LOCAL, [], **moved("retries")),
        *(TypeError, "chat() has no parameter 'retries'; write output=OutputOptions(retries=...)"),
    ),
    "a judge that is only a function": (
        lambda: TextOptions(judge=bool),  # type: ignore[arg-type]
        *(TypeError, "judge must be a TextJudge, got <class 'bool'>"),
    ),
    "a callback that is no function": (
        lambda: RunnerOptions(on_result="log"),  # type: ignore[arg-type]
        *(TypeError, "on_result must be None or a function, got 'log'"),
    ),
    "an example that is a text": (
        lambda: RequestOptions(few_shot=["a"]),  # type: ignore[list-item]
        *(TypeError, "few_shot must be a bool or a list of Example objects, got ['a']"),
    ),
    "a parameter of a parser": (
        lambda: parse("a", dialect="auto"),  # type: ignore[call-arg]
        *(TypeError, "Parser() has no parameter 'dialect'; did you mean 'dialects'?"),
    ),
    "a parameter of a chat": (
        lambda: chat(LOCAL, [], max_step=3),  # type: ignore[call-arg]
        *(TypeError, "chat() has no parameter 'max_step'; did you mean 'max_steps'?"),
    ),
    "a definition for a provider": (
        lambda: ToolStream(sources.text("a"), tools=[DEFINITION]),
        *(TypeError, "Write `tool(function, name=…, parameters=SCHEMA)`"),
    ),
    "bytes as a text": (lambda: parse(b"abc"), TypeError, "got bytes: decode bytes, or let `streamtools.sources`"),  # type: ignore[arg-type]
    "bytes as a delta": (lambda: parse([b"abc"]), TypeError, "a delta must be a str, got bytes: decode bytes"),  # type: ignore[list-item]
    "nothing as a delta": (lambda: Parser().feed(None), TypeError, "a delta must be a str, got NoneType"),  # type: ignore[arg-type]
    "a request that was not awaited": (lambda: sources.openai(create()), UnreadableSource, "await it first"),
    "a stream that was not entered": (lambda: sources.openai(entered()), UnreadableSource, "enter it first"),
    "a whole answer": (
        lambda: sources.openai(Completion()),
        *(UnreadableSource, "is a whole answer and not a stream: request a stream with `stream=True`"),
    ),
}


def test_messages_say_what_to_do() -> None:
    """The exception is raised at the mistake, not at the first request."""
    with cases() as case:
        for name, (make, kind, text) in MISTAKES.items():
            with case(name):
                with pytest.raises(kind) as caught:
                    make()
                assert text in str(caught.value)


async def test_a_response_that_was_read_before_arrives_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why."""
    async with Loopback([b'data: {"choices":[]}\n\n', b"data: [DONE]\n\n"]) as server, httpx.AsyncClient() as client:
        streams = client.stream("POST", server.url)
        async with streams as response:
            await read(ToolStream(sources.openai(response)))
        assert not [each for each in caplog.records if each.name.startswith("streamtools")]
        await read(ToolStream(sources.openai(await client.post(server.url))))
    (record,) = [each for each in caplog.records if each.name.startswith("streamtools")]
    assert "client.stream(" in record.getMessage()


def test_an_empty_message_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The record has its position. The request is sent."""
    chat(ScriptedModel(["Yes?"]), [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": ""}])
    assert not caplog.records
    contents: list[Any] = ["", [], None]
    for content in contents:
        caplog.clear()
        said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}]
        chat(ScriptedModel(["Yes?"]), [*said, {"role": "user", "content": content}])
        (record,) = caplog.records
        assert "empty_message messages=[2]" in record.getMessage()


def test_parameters_without_a_type_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A parameter with the type `Any` is not."""

    def look(place, near: Any, context: ToolContext, most: int = 1, *, soon=False):  # type: ignore[no-untyped-def]
        return place, near, most, soon

    def see(place: Any, *, soon: bool = False) -> Any:
        return place, soon

    Tool(see)
    assert not caplog.records
    Tool(look)
    (record,) = caplog.records
    assert "tool='look' parameters=['place', 'soon']" in record.getMessage()


async def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is checked before the request, unless the caller passes a client or headers."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    model = AnthropicMessages("claude")
    stream = chat(model, [{"role": "user", "content": "Hi"}])
    with pytest.raises(ValueError, match="has no API key: set ANTHROPIC_API_KEY, or pass api_key"):
        await read(stream)
