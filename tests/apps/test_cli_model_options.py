"""The options of `streamtools serve` that choose a model, with local servers as providers."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from streamtools import conversation
from streamtools.apps.cli import main
from streamtools.apps.cli.answerers import ModelAnswerer
from streamtools.apps.cli.arguments import parse
from streamtools.apps.cli.model_options import _CLIENTS
from streamtools.conversation import HTTPModel
from streamtools.events import UIEvent
from streamtools.recording import read_recordings
from streamtools.stream.result import TurnResult
from tests.apps.test_cli_bad_input import error_line
from tests.support.answering import saying
from tests.support.loopback import Loopback
from tests.support.provider import Provider

pytestmark = pytest.mark.asyncio_only

DEMO = ("--tools", "streamtools.apps.cli.demo:TOOLS")
KEY = "sk-do-not-tell"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove proxies from the environment, and set a key for each API."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for model in _CLIENTS.values():
        monkeypatch.setenv(model.key_names[0], KEY)


async def ask(path: Path, *arguments: str) -> tuple[list[UIEvent], TurnResult]:
    """Ask the model that the arguments choose. Returns the events and the result. The recording is in `path`."""
    answerer = ModelAnswerer(parse(["serve", "--model", "m", *arguments]), path)
    async with answerer.answer("1 + 2?", []).chat as events:
        return [event async for event in events], events.result


@pytest.mark.parametrize(
    ("api", "path", "header"),
    [
        ("openai", "chat/completions", "authorization"),
        ("responses", "responses", "authorization"),
        ("anthropic", "v1/messages", "x-api-key"),
        ("ollama", "api/chat", "authorization"),
        ("gemini", "models/m:streamGenerateContent?alt=sse", "x-goog-api-key"),
        ("interactions", "interactions", "x-goog-api-key"),
        ("bedrock", "model/m/converse-stream", "authorization"),
        ("cohere", "v2/chat", "authorization"),
    ],
)
async def test_each_api_has_a_client(api: str, path: str, header: str, tmp_path: Path) -> None:
    """The key is sent in the header of the API, and is neither shown nor recorded."""
    refused = Loopback([b'{"error":{"message":"no such model"}}'], status=400, declared="application/json")
    async with Provider(refused) as server:
        events, result = await ask(tmp_path, "--url", server.url, "--api", api)
    assert "failed" == result.reason
    (head,) = server.heads
    assert f"POST /{path} HTTP/1.1" == head[""]
    assert KEY in head[header]
    recordings = [Path(path) async for path in anyio.Path(tmp_path).iterdir()]
    (exchange,) = read_recordings(recordings[0])
    assert exchange.head.response is not None
    assert (api.replace("interactions", "gemini"), 400) == (exchange.head.source, exchange.head.response.status)
    assert KEY not in "".join(event.to_json() for event in events)
    assert KEY not in await anyio.Path(recordings[0]).read_text()


async def test_the_options_are_sent(tmp_path: Path) -> None:
    """With a dialect, its prompt teaches the calls. Without one, the tools are in the request."""
    options = ("--system", "Be brief.", *DEMO)
    async with Provider(saying("Three."), saying("Three.")) as server:
        await ask(tmp_path, "--url", server.url, *options)
        await ask(tmp_path, "--url", server.url, *options, "--dialect", "tilde_fence")
    native, taught = server.bodies
    assert "m" == native["model"]
    assert ["get_weather", "add"] == [each["function"]["name"] for each in native["tools"]]
    assert {"role": "system", "content": "Be brief."} == native["messages"][0]
    assert "tools" not in taught
    assert taught["messages"][0]["content"].startswith("Be brief.")
    assert "~~~tool_call" in taught["messages"][0]["content"]


@pytest.mark.parametrize("scheme", ["", "http://"])
async def test_the_proxy_of_the_environment_is_used(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Provider(saying("Yes.")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", scheme))
        monkeypatch.setenv("no_proxy", "other.example")
        await ask(tmp_path, "--url", "http://models.example/v1")
    assert ["POST http://models.example/v1/chat/completions HTTP/1.1"] == [head[""] for head in proxy.heads]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--url", "localhost:8000"), "`base_url` must begin with http:// or https:// and a host"),
        (("--dialect", "klingon"), "no dialect 'klingon'; pass a dialect of your own"),
        (("--dialect", "auto"), "expected one dialect, got 'auto'"),
        (("--dialect", ""), "expected one dialect, got ''"),
        (("--dialect", "kimi_k2"), "cannot be taught: its calls contain tokens of a chat template"),
        (("--api", "telnet"), "invalid choice: 'telnet'"),
        (("--model", " "), "--model must name a model, got ' '"),
    ],
)
def test_invalid_options_are_refused(options: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["serve", "--model", "m", *options])
    assert reason in error_line(capsys)


def test_a_missing_key_or_region_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every model class can be chosen with `--api`."""
    names = {name for api in _CLIENTS for name in _CLIENTS[api].key_names}
    for name in (*names, "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for api in _CLIENTS:
        if api in ("ollama", "bedrock"):
            continue
        assert 2 == main(["serve", "--model", "m", "--api", api])
        assert f"--api {api} needs a key: set {_CLIENTS[api].key_names[0]}" in error_line(capsys)
    assert 2 == main(["serve", "--model", "m", "--api", "bedrock"])
    assert "The region is not known. Pass `region=`, or set AWS_REGION." in error_line(capsys)
    known = {each for each in vars(conversation).values() if isinstance(each, type) and issubclass(each, HTTPModel)}
    assert known - {HTTPModel} == {*_CLIENTS.values()}
