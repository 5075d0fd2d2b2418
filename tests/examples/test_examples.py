"""The programs in `examples/`, with real sockets and a scripted model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import httpx
import pytest
import websockets
from fastapi import FastAPI

from streamtools import ToolError, chat
from streamtools.conversation import OpenAIChat, ScriptedModel
from tests.examples.loading import EXAMPLES, call, load, piece, say
from tests.support.gateway import collect, request, stream
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.readme import read_blocks, running
from tests.support.serving import Served
from tests.whole.test_readme import normal


def test_each_example_is_in_the_readme_and_tested() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    tried = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    examples = [each for each in EXAMPLES.iterdir() if each.name not in ("README.md", "__pycache__")]

    assert len(examples) > 10
    for path in examples:
        assert f"[{path.name}]({path.name})" in listed
        assert f'"{path.stem}' in tried, path


@pytest.mark.parametrize("address", ["http://169.254.169.254/latest/meta-data/", "file:///etc/passwd"])
async def test_a_tool_fetches_no_internal_address(address: str) -> None:
    with pytest.raises(ToolError, match=r"^The page cannot be read\.$"):
        await load("fetch_public").fetch(address)


@pytest.mark.parametrize("native", [True, False])
async def test_the_scripted_provider_calls_a_tool_and_counts(*, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It also plays a recording of the package, by its name as the model."""
    monkeypatch.setenv("DELAY", "0")

    async def pay(to: str, amount: int) -> str:
        """Send a payment."""
        return f"paid {amount} to {to}"

    async with Served(load("scripted_provider").app) as server:
        url, asked = f"{server.url}/v1", [{"role": "user", "content": "Pay Ann."}]
        model = OpenAIChat("any", base_url=url, api_key="", native_tool_calls=native)
        result = await chat(model, asked, tools=[pay])
        named = [{"role": "user", "content": 'Please pay {"to": "Bob", "amount": 7}, and count.'}]
        model = OpenAIChat("short", base_url=url, api_key="", native_tool_calls=native)
        (outcome,) = (counted := await chat(model, named, tools=[pay])).outcomes
        recorded = await chat(OpenAIChat("tilde-call", base_url=url, api_key="", native_tool_calls=False), asked)
    assert ["paid 5 to Ann"] == [outcome.result for outcome in result.outcomes]
    assert ("finished", [str(number) for number in range(30)]) == (result.reason, result.text.split())
    assert ("paid 7 to Bob", result.text) == (outcome.result, counted.text)
    assert [] == [*result.errors, *result.warnings]
    assert recorded.text.startswith("I will look up the weather in Paris.")


@pytest.mark.parametrize("native", [True, False])
async def test_the_quickstart_prints_what_its_page_shows(*, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAY", "0")
    blocks = read_blocks((EXAMPLES.parent / "docs" / "quickstart.md").read_text(encoding="utf-8"))
    (program,) = [block for block in blocks if block.notes.get("program") == "quickstart"]
    (shown,) = [block for block in blocks if "shows" in block.notes]
    provider = load("scripted_provider")
    (written,) = provider.script({"model": "short", "messages": [{"role": "user", "content": '"get_weather"'}]})
    async with Served(provider.app) as server:
        code = program.text.replace("http://127.0.0.1:8080", server.url).replace("calls=True", f"calls={native}")
        done = await anyio.run_process([sys.executable, "-W", "error", "-c", code], check=False)

    assert ("" if native else "\n") + str(program.output) == done.stdout.decode()
    assert b"" == done.stderr
    assert shown.text == written["content"]


async def test_a_fine_tune_works_as_its_page_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its programs print what they show, its tests pass, and a client of the gateway gets native calls."""
    monkeypatch.setenv("DELAY", "0")
    blocks = read_blocks((EXAMPLES.parent / "docs" / "models.md").read_text(encoding="utf-8"))
    app, *programs = [block for block in blocks if block.language == "python"]
    (asked,) = [block for block in blocks if block.text.startswith("curl")]
    async with Served(load("scripted_provider").app) as server:
        with running(app.text.replace("http://127.0.0.1:8080", server.url)) as names:
            for block in programs:
                tests: dict[str, Any] = {}
                await anyio.to_thread.run_sync(exec, block.text, tests)
                for name in filter(re.compile("test_").match, tests):
                    await anyio.to_thread.run_sync(tests[name])
                assert normal(block.output or "").strip() == normal(capsys.readouterr().out).strip()
            async with Served(names["app"]) as gateway, httpx.AsyncClient(base_url=gateway.url) as client:
                answer = await client.post("/v1/chat/completions", json=json.loads(asked.text.split("'")[1]))
    assert re.search(re.escape(str(asked.output).strip()).replace("…", ".*"), answer.text)


@asynccontextmanager
async def asking_to_pay(
    monkeypatch: pytest.MonkeyPatch, *answers: Loopback
) -> AsyncIterator[tuple[ModuleType, httpx.AsyncClient, str, Provider]]:
    """Serve the program, and ask for a payment. Yields the module, a client, the link in the e-mail, and the model."""
    async with Provider(*answers) as model:
        monkeypatch.setenv("MODEL_URL", model.url)
        module = load("approvals_by_email")
        async with Served(module.app) as server, httpx.AsyncClient(base_url=server.url) as client:
            posted = {"messages": [{"role": "user", "content": "Pay Ann 50."}]}
            answer = (await client.post("/chat", json=posted)).json()
            assert "for an approval by e-mail" == answer["waits"]
            assert [] == module.paid
            yield module, client, module.outbox[-1]["link"], model


async def test_an_email_approves_one_call_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening the link decides nothing, because scanners open links."""
    answers = call("pay", to="<b>Ann</b>", amount=50), say("Ann has her money.")
    async with asking_to_pay(monkeypatch, *answers) as (module, client, link, _):
        for _ in range(2):
            shown = await client.get(link)
            assert "pay {&#x27;to&#x27;: &#x27;&lt;b&gt;Ann" in shown.text
        assert [] == module.paid

        start, expires, signature = link.rsplit("/", 2)
        forged = [f"{start}/{expires}/{'0' * len(signature)}", f"{start}/{int(expires) + 60}/{signature}"]
        assert [404, 404] == [(await client.post(each, params={"verdict": "yes"})).status_code for each in forged]

        first, second = [await client.post(link, params={"verdict": "yes"}) for _ in range(2)]
    assert {"answer": "Ann has her money."} == first.json()
    assert 404 == second.status_code
    assert [("<b>Ann</b>", 50)] == module.paid


async def test_an_invalid_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_URL", "http://127.0.0.1:1/v1")
    module = load("approvals_by_email")
    async with Served(module.app) as server, httpx.AsyncClient(base_url=server.url) as client:
        bodies: list[object] = [{}, {"messages": [{"role": "nobody", "content": "Pay Ann 50."}]}]
        assert [400, 400] == [(await client.post("/chat", json=body)).status_code for body in bodies]
    assert [] == module.outbox


async def test_an_email_denies_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = call("pay", to="Ann", amount=50), say("As you wish.")
    async with asking_to_pay(monkeypatch, *answers) as (module, client, link, model):
        answer = await client.post(link, params={"verdict": "no"})
        assert "the approver said no" in json.dumps(model.bodies[-1])
    assert {"answer": "As you wish."} == answer.json()
    assert [] == module.paid


async def test_an_expired_link_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking_to_pay(monkeypatch, call("pay", to="Ann", amount=50)) as (module, client, link, _):
        late = module.time.time() + module.VALID
        monkeypatch.setattr(module.time, "time", lambda: late)
        statuses = [
            (await client.get(link)).status_code,
            (await client.post(link, params={"verdict": "yes"})).status_code,
        ]
    assert [404, 404] == statuses
    assert [] == module.paid


async def test_two_calls_need_two_emails(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [{"name": "pay", "arguments": {"to": to, "amount": 5}} for to in ("Ann", "Bob")]
    answers = say(f"~~~tool_call\n{json.dumps(both)}\n~~~\n"), say("Both have it.")
    async with asking_to_pay(monkeypatch, *answers) as (module, client, _, _):
        assert 2 == len(module.outbox)
        waits = await client.post(module.outbox[0]["link"], params={"verdict": "yes"})
        done = await client.post(module.outbox[-1]["link"], params={"verdict": "yes"})
    assert "waits" in waits.json()
    assert {"answer": "Both have it."} == done.json()
    assert [("Ann", 5), ("Bob", 5)] == module.paid


def test_rows_arrive_one_by_one() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "typed_table.py")]
    done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8")
    assert load("typed_table").City
    assert [
        "Oslo                     717,710",
        "Bergen                   291,940",
        "2 rows",
    ] == done.stdout.splitlines()


async def test_a_bot_edits_its_message() -> None:
    module = load("chat_bot")
    edits: list[str] = []
    app = FastAPI()

    @app.post("/messages")
    async def create(message: dict[str, str]) -> dict[str, str]:
        edits.append(message["text"])
        return {"id": "m1"}

    @app.patch("/messages/m1")
    async def edit(message: dict[str, str]) -> None:
        edits.append(message["text"])

    written = '###:{"name": "get_weather", "arguments": {"city": "Oslo"}}'
    model = ScriptedModel([["I will ", "look.", written], ["It is ", "mild."]], native_tool_calls=False)
    async with Served(app) as server, httpx.AsyncClient(base_url=server.url) as bot:
        with anyio.fail_after(20):
            said = await module.reply(bot, model, "And in Oslo?", pause=0)

    assert "I will look.\n\nIt is mild." == said == edits[-1]
    assert "…" == edits[0]
    assert any("18 °C in Oslo" in each for each in edits)
    assert not any("###" in each for each in edits)
    assert not any(before == after for before, after in pairwise(edits))


async def test_a_websocket_stops_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next question is answered."""
    endless = Loopback([piece("It is ")], hold=True)
    async with Provider(endless, call("get_weather", city="Oslo"), say("It is mild.")) as model:
        monkeypatch.setenv("MODEL_URL", model.url)
        async with Served(load("litestar_websocket").app) as server:
            async with httpx.AsyncClient(trust_env=False) as client:
                assert 'id="halt"' in (await client.get(server.url)).text
            async with websockets.connect(f"{server.websocket_url}/chat", proxy=None) as socket:

                async def ask(text: str, until: str) -> list[dict[str, object]]:
                    await socket.send(json.dumps({"text": text}))
                    return await read(until)

                async def read(until: str) -> list[dict[str, object]]:
                    events: list[dict[str, object]] = []
                    while not events or events[-1]["type"] != until:
                        events.append(json.loads(await socket.recv()))
                    return events

                with anyio.fail_after(20):
                    await ask("And in Oslo?", "text")
                    await socket.send(json.dumps({"cancel": True}))
                    assert "cancelled" == (await read("done"))[-1]["reason"]
                    await endless.disconnected.wait()
                    events = await ask("Once more.", "done")
        history = [each["content"] for each in model.bodies[1]["messages"]]
    assert "18 °C in Oslo" in [each["message"] for each in events if each["type"] == "executed"]
    assert "It is mild." in "".join(str(each["text"]) for each in events if each["type"] == "text")
    assert "Once more." == history[-1]


async def test_the_gateway_returns_native_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text with secrets is redacted."""
    text = 'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
    async with Loopback([stream([text])]) as server:
        monkeypatch.setenv("MODEL_URL", f"{server.url}v1")
        async with Served(load("llama_cpp_gateway").app) as gateway, httpx.AsyncClient(trust_env=False) as client:
            asked = request("openai", streamed=True, model="Qwen/Qwen3-8B")
            answer = await client.post(f"{gateway.url}/v1/chat/completions", json=asked)
    seen = collect("openai", answer.content)
    assert ("tool_calls", "I look.") == (seen.finish, seen.text)
    assert [("get_weather", {"city": "Zürich"})] == [each[1:] for each in seen.calls]


@pytest.mark.deep
@pytest.mark.parametrize(("name", "passed"), [("tested_backend", 10), ("reloads_and_approvals", 4)])
def test_an_example_passes_its_tests(name: str, passed: int) -> None:
    """Without the network."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider", "."],
        cwd=EXAMPLES / name,
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    assert f"{passed} passed" in done.stdout, done.stdout
