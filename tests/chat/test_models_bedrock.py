"""Bedrock and Cohere: bodies, URLs, signatures, and an answer over a connection."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any

import httpx
import pytest

from streamtools import RunnerOptions, ToolStream
from streamtools.conversation import Ask, BedrockConverse, CohereChat, OllamaChat, OpenAIChat, RequestOptions
from streamtools.conversation.request_writer import RequestWriter
from streamtools.events import Done
from streamtools.history import Message, User, read_messages
from streamtools.tools import ToolChoice, ToolRegistry
from tests.chat.test_models_bodies import HISTORY, TOOLS, clock
from tests.support.provider_streams import BY_NAME

ARN = "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-sonnet-4-v1:0"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION", "AWS_DEFAULT_REGION", "CO_API_KEY", "COHERE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def bedrock(**given: Any) -> BedrockConverse:
    return BedrockConverse("a.b-v1:0", **({"region": "us-east-1"} | given))


def test_a_body_of_converse() -> None:
    """The system prompt, the tools and the sampling options are in separate objects."""
    body = bedrock(max_tokens=9, stop="END", additionalModelRequestFields={"a": 1}).body(Ask(HISTORY, TOOLS))

    assert [{"role": "user", "content": [{"text": "Hi"}]}] == body["messages"]
    assert [{"text": "Be brief."}] == body["system"]
    assert {"maxTokens": 9, "stopSequences": ["END"]} == body["inferenceConfig"]
    assert {"tools": ToolRegistry(*TOOLS).definitions("bedrock")} == body["toolConfig"]
    assert {"a": 1} == body["additionalModelRequestFields"]
    assert ["messages"] == list(bedrock().body(Ask((User("Hi"),))))


def test_tool_choices() -> None:
    """Converse has no `none`, and a history with calls needs its tools."""

    def config(mode: Any, history: tuple[Message, ...] = HISTORY) -> Any:
        name = "clock" if mode == "tool" else None
        return bedrock().body(Ask(history, TOOLS, ToolChoice(mode, name))).get("toolConfig", {})

    assert {"any": {}} == config("required")["toolChoice"]
    assert {"tool": {"name": "clock"}} == config("tool")["toolChoice"]
    assert {} == config("none")
    call = [{"id": "c", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]
    asked = read_messages([{"role": "assistant", "tool_calls": call}])
    assert ["tools"] == list(config("none", (*HISTORY, *asked)))
    openai, auto, always = OpenAIChat("m", api_key="k"), RequestOptions(), RequestOptions(teach="always")
    for model, options, tools, is_told in (
        *((bedrock(), auto, TOOLS, True), (OllamaChat("m"), auto, TOOLS, True), (openai, auto, TOOLS, False)),
        *((openai, always, TOOLS, True), (bedrock(), auto, (), False)),
    ):
        writer = RequestWriter(options, ToolRegistry(*tools), ("hermes_json",), True, None, by_model=False)
        system = writer.write(Ask(HISTORY, tools, ToolChoice("none")), model).history[0]
        assert is_told == ("Do not call tools now." in str(system))


@pytest.mark.parametrize(("model", "path"), [
    ("a.b-v1:0", "/model/a.b-v1%3A0/converse-stream"),
    (ARN, f"/model/{ARN.replace(':', '%3A').replace('/', '%2F')}/converse-stream"),
])  # fmt: skip
def test_model_names_in_the_path(model: str, path: str) -> None:
    """Colons and slashes are escaped, and the HTTP client does not change them."""
    url = BedrockConverse(model, region="us-east-1").url
    assert f"https://bedrock-runtime.us-east-1.amazonaws.com{path}" == url
    assert path.encode() == httpx.URL(url).raw_path


def test_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parameter, the ARN, or the environment. Otherwise the region is unknown."""
    assert "eu-west-1" in BedrockConverse(ARN).url
    assert "us-west-2" in BedrockConverse(ARN, region="us-west-2").url
    with pytest.raises(ValueError, match="Pass `region=`"):
        BedrockConverse("m")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    assert "https://bedrock-runtime.ap-south-1.amazonaws.com/model/m/converse-stream" == BedrockConverse("m").url
    assert BedrockConverse("m", base_url="http://127.0.0.1:1").url.startswith("http://127.0.0.1:1/model/m")


class Provider:
    """A transport that records its requests, and answers them with a stream."""

    def __init__(self, body: bytes, declared: str) -> None:
        self.requests: list[httpx.Request] = []
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        self._body, self._declared = body, declared

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(200, headers={"content-type": self._declared}, content=self._body)


async def ask(model: Any) -> Any:
    async with (
        model.stream(Ask(HISTORY, TOOLS)) as source,
        ToolStream(source, tools=TOOLS, runner=RunnerOptions(execute="never")) as events,
    ):
        told = [each async for each in events]
    return told, events.result


async def test_the_key_is_a_bearer_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is sufficient. The next request contains the answer."""
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "key")
    provider = Provider(BY_NAME["bedrock"].body, BY_NAME["bedrock"].declared)
    async with provider.client:
        told, result = await ask(bedrock(client=provider.client))

    assert "Bearer key" == provider.requests[0].headers["authorization"]
    assert isinstance(told[-1], Done)
    assert "finished" == told[-1].reason
    (said,) = result.messages("bedrock", answer_pending=False)
    assert ["reasoningContent", "text", "toolUse", "toolUse"] == [next(iter(block)) for block in said["content"]]


async def test_a_request_is_signed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens without a key. The credentials are requested each time, because they may expire."""
    seen: list[Any] = []

    class Credentials:
        def get_frozen_credentials(self) -> str:
            seen.append(threading.current_thread())
            return "frozen"

    class SigV4Auth:
        def __init__(self, *given: Any) -> None:
            seen.append(given)

        def add_auth(self, request: Any) -> None:
            request.headers["Authorization"] = f"signed {request.method} {request.url}"

    class AWSRequest:
        def __init__(self, method: str, url: str, headers: dict[str, str], data: bytes) -> None:
            self.method, self.url, self.headers, self.data = method, url, headers, data

    modules: dict[str, dict[str, Any]] = {
        "botocore": {},
        "botocore.auth": {"SigV4Auth": SigV4Auth},
        "botocore.awsrequest": {"AWSRequest": AWSRequest},
        "botocore.session": {"get_session": None},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    provider = Provider(BY_NAME["bedrock"].body, BY_NAME["bedrock"].declared)
    model = bedrock(client=provider.client, credentials=Credentials())
    async with provider.client:
        await ask(model)
        await ask(model)

    signed = f"signed POST {model.url}"
    assert [signed, signed] == [each.headers["authorization"] for each in provider.requests]
    threads = [each for each in seen if isinstance(each, threading.Thread)]
    assert 2 == len(threads)
    assert threading.main_thread() not in threads
    assert ("frozen", "bedrock", "us-east-1") in seen


def test_a_body_of_cohere() -> None:
    """Options have Cohere's names. For a named tool, only this tool is sent, and a call is required."""
    body = CohereChat("m", api_key="", stop="END", top_p=0.5).body(Ask(HISTORY, TOOLS, ToolChoice("tool", "clock")))

    assert [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}] == body["messages"]
    assert (["END"], 0.5, "REQUIRED") == (body["stop_sequences"], body["p"], body["tool_choice"])
    assert ToolRegistry(clock).definitions("cohere") == body["tools"]
    assert "NONE" == CohereChat("m", api_key="").body(Ask(HISTORY, TOOLS, ToolChoice("none")))["tool_choice"]
