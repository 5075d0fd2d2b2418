"""SDKs with `ToolCallTransport` and a text model: the tool loop of each, unchanged, streamed and not.

The scripted upstream answers a question with calls in text, and results with a sentence. Requests to it and responses
of the gateway are checked against the types of the SDKs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamtools.gateway import ToolCallTransport
from streamtools.gateway.service import app
from tests.sdks.conftest import MARKS
from tests.sdks.judge import faults
from tests.support.gateway import SCHEMA, answer, begin
from tests.support.readme import ROOT, read_blocks
from tests.support.scenes import SCENES
from tests.support.serving import Served
from tests.support.text_model import SAYS, TextModel, text_model

pytestmark = MARKS

BEYOND_TYPES = {  # what servers send, and the SDKs keep
    "openai": frozenset(("reasoning_content",)),
    "responses": frozenset(("store", "name")),  # of arguments that are done, the second: earlier versions want it
    "anthropic": frozenset[str](),
}
FUNCTION = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": SCHEMA}}


@pytest.fixture
def upstream() -> Iterator[TextModel]:
    with text_model() as server:
        yield server


def clients(make: str, url: str) -> tuple[Any, Any]:
    """Return a blocking and an asynchronous client of an SDK, with the transport under them."""
    import anthropic
    import httpx2
    import openai

    kinds: dict[str, tuple[Any, Any]] = {
        "openai": (openai.OpenAI, openai.AsyncOpenAI),
        "anthropic": (anthropic.Anthropic, anthropic.AsyncAnthropic),
    }
    known = {"api_key": "k", "base_url": url, "max_retries": 0}
    blocking, other = kinds[make]
    return (
        blocking(**known, http_client=httpx2.Client(transport=ToolCallTransport())),
        other(**known, http_client=httpx2.AsyncClient(transport=ToolCallTransport())),
    )


async def maybe(value: Any) -> Any:
    """Return what is, or will be, there."""
    return await value if hasattr(value, "__await__") else value


async def read(manager: Any, final: str) -> Any:
    """Return what the helper of an SDK has put together of a stream."""
    if hasattr(manager, "__aenter__"):
        async with manager as streamed:
            return await getattr(streamed, final)()
    with manager as streamed:
        return getattr(streamed, final)()


async def test_openai_reads_native_calls_with_responses(upstream: TextModel) -> None:
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}]
    for client in clients("openai", upstream.url):
        for streamed in (True, False):
            items: list[Any] = [{"role": "user", "content": "Weather?"}]
            for turn in range(2):
                asked = {"model": "m", "input": items, "tools": tools}
                if streamed:
                    answer = await read(client.responses.stream(**asked), "get_final_response")
                else:
                    answer = await maybe(client.responses.create(**asked))
                items += (each.model_dump(exclude_none=True) for each in answer.output)
                if turn == 0:
                    kinds = [each.type for each in answer.output]
                    assert kinds == ["reasoning", "message", "function_call", "function_call"]
                    calls = [each for each in answer.output if each.type == "function_call"]
                    items += (
                        {"type": "function_call_output", "call_id": each.call_id, "output": "Sunny."} for each in calls
                    )
            assert (answer.output_text, answer.status, answer.usage.total_tokens) == (SAYS, "completed", 16)
            assert answer.model_extra == {"store": False}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # of uvicorn
async def test_sdks_use_a_gateway_over_http(upstream: TextModel) -> None:
    """The gateway forwards the client's key and returns errors in the client's format."""
    import anthropic
    import openai

    question: list[Any] = [{"role": "user", "content": "Weather?"}]
    tools: list[Any] = [{"name": "weather", "input_schema": SCHEMA}]
    async with Served(app(upstream.url, client_key="k")) as server:
        one = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)
        other = anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)
        streamed = await read(
            one.chat.completions.stream(model="m", messages=question, tools=[FUNCTION]), "get_final_completion"
        )
        whole = await one.chat.completions.create(model="m", messages=question, tools=[FUNCTION])
        for answer in (streamed, whole):
            cities = [json.loads(each.function.arguments)["city"] for each in answer.choices[0].message.tool_calls]
            assert cities == ["Zürich", "Bern"]
        asked = {"model": "m", "messages": question, "tools": tools, "max_tokens": 9}
        message = await read(other.messages.stream(**asked), "get_final_message")
        assert [each.input["city"] for each in message.content if each.type == "tool_use"] == ["Zürich", "Bern"]
        response = await one.responses.create(
            model="m",
            input="Weather?",
            tools=[{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}],
        )
        assert [each.type for each in response.output][-1] == "function_call"
        upstream.status = 429
        with pytest.raises(anthropic.RateLimitError, match="It is too much") as raised:
            await other.messages.create(**asked)
        assert raised.value.response.headers["retry-after"] == "3"
        with pytest.raises(openai.NotFoundError):
            await one.files.list()
        with pytest.raises(openai.AuthenticationError, match="no valid key of the gateway"):
            await one.with_options(api_key="other").models.list()
        await one.close()
        await other.close()


async def test_errors_are_those_of_the_sdk(upstream: TextModel) -> None:
    """Status and `Retry-After` are kept. Errors of the gateway have the format of the provider."""
    import anthropic
    import openai

    asks: dict[str, list[Callable[[Any], Any]]] = {
        "openai": [
            lambda client: client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}]),
            lambda client: client.responses.create(model="m", input="?"),
        ],
        "anthropic": [
            lambda client: client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}])
        ],
    }
    errors: dict[int, str] = {400: "BadRequestError", 401: "AuthenticationError", 429: "RateLimitError"}
    errors[500] = "InternalServerError"
    for make, each in asks.items():
        library = {"openai": openai, "anthropic": anthropic}[make]
        for client in clients(make, upstream.url.removesuffix("/v1") if make == "anthropic" else upstream.url):
            for status, name in errors.items():
                upstream.status = status
                for ask in each:
                    with pytest.raises(getattr(library, name), match="It is too much") as raised:
                        await maybe(ask(client))
                    assert raised.value.response.headers["retry-after"] == "3"
    with pytest.raises(openai.BadRequestError, match="Send the items") as refused:
        clients("openai", upstream.url)[0].responses.create(model="m", input="?", previous_response_id="resp_1")
    assert refused.value.param == "previous_response_id"


def test_requests_and_responses_match_the_types_of_the_sdks() -> None:
    """Every event, response body and upstream request is checked down to the leaves."""
    from anthropic.types import Message, RawMessageStreamEvent
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as Plain
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming as Streaming
    from openai.types.responses import Response, ResponseStreamEvent

    types: dict[str, tuple[Any, Any]] = {
        "openai": (ChatCompletionChunk, ChatCompletion),
        "responses": (ResponseStreamEvent, Response),
        "anthropic": (RawMessageStreamEvent, Message),
    }
    told = []
    for client, (event_type, body_type) in types.items():
        for name, scene in SCENES.items():
            for streamed in (True, False):
                exchange = begin(client, scene.asked(client, streamed=streamed), **scene.options)
                assert exchange.request is not None
                asked = json.loads(exchange.request.body)
                told += faults(Streaming if streamed else Plain, asked, f"{client}, {name}, its request")
                body = answer(exchange, scene.answered(streamed=streamed))
                if not streamed:
                    events, kind = [json.loads(body)], body_type
                else:
                    lines = [each.rpartition(b"\n")[2].removeprefix(b"data: ") for each in body.split(b"\n\n") if each]
                    events, kind = [json.loads(each) for each in lines if each != b"[DONE]"], event_type
                for each in events:
                    if each.get("error") is None:
                        told += faults(kind, each, f"{client}, {name}", BEYOND_TYPES[client])
    assert [] == told


def test_the_program_of_the_page_runs(upstream: TextModel, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the first block of docs/gateway.md, with the address of the test model."""
    page = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
    block = next(each for each in read_blocks(page) if each.language == "python")
    exec(compile(block.text.replace("http://127.0.0.1:8080/v1", upstream.url), "gateway.md", "exec"), {})
    assert capsys.readouterr().out == 'weather {"city": "Zürich"}\nweather {"city": "Bern"}\n'


def test_the_program_with_pydantic_ai_runs() -> None:
    """A scripted model gives the answer of docs/gateway.md."""
    page = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
    block = next(each for each in read_blocks(page) if each.notes.get("sdk") == "pydantic-ai")
    with text_model() as model:
        model.says = "It says 18 °C and clear."
        code = block.text.replace("http://127.0.0.1:8080/v1", model.url)
        printed = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, encoding="utf-8")
    assert printed.stdout.replace("Bern", "Paris") == block.output
    assert "18 °C and clear" in str(model.bodies[1]["messages"][-1]["content"])


def test_an_inner_transport_of_another_library() -> None:
    import httpx
    import httpx2

    client = httpx2.Client(transport=ToolCallTransport(httpx.HTTPTransport()))
    with pytest.raises(TypeError, match=r"belongs to httpx2, .* to httpx\. Pass httpx2\.HTTPTransport"):
        client.get("http://localhost/")
