"""Finished responses of the SDKs: their calls equal those of the stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools import extract_tool_calls
from tests.sdks.clients import ASKED, anthropic_client, gemini_client, ollama_client, openai_client
from tests.sdks.conftest import Serve
from tests.support.provider_streams import BY_NAME, CALLS

pytestmark = pytest.mark.sdk


def chat(url: str) -> list[Any]:
    with openai_client(url) as client:
        response = client.chat.completions.create(model="m", messages=ASKED)
    return [response, response.choices[0].message, response.choices[0].message.tool_calls]


def responses(url: str) -> list[Any]:
    with openai_client(url) as client:
        response = client.responses.create(model="m", input="?")
    return [response, response.output]


def messages(url: str) -> list[Any]:
    with anthropic_client(url) as client:
        message = client.messages.create(model="m", max_tokens=9, messages=ASKED)
    return [message, message.content]


def ollama(url: str) -> list[Any]:
    with ollama_client(url) as client:
        response = client.chat(model="m", messages=ASKED)
    return [response, response.message, response.message.tool_calls]


def gemini(url: str) -> list[Any]:
    with gemini_client(url) as client:
        return [client.models.generate_content(model="m", contents="?")]


ASKS = {"openai": chat, "responses": responses, "anthropic": messages, "ollama": ollama, "gemini": gemini}


@pytest.mark.parametrize("name", ASKS)
def test_calls_of_a_finished_response_equal_the_stream(name: str, serve: Serve) -> None:
    """This holds for the response and its parts, as objects and as JSON."""
    finished = BY_NAME[name].finished
    url = serve(json.dumps(finished).encode(), "application/json")
    for response in (finished, *ASKS[name](url)):
        calls, errors = extract_tool_calls(response)
        assert CALLS == [(call.name, call.arguments) for call in calls]
        assert [] == errors
