"""The command `streamtools serve`: its options, its errors, the recordings that it plays, and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import uvicorn

from streamtools.apps.cli import main
from streamtools.apps.cli.answerers import FIRST, RecordedAnswers
from streamtools.recording import shipped
from tests.apps.test_cli_bad_input import error_line
from tests.support.answering import calling, opened, saying
from tests.support.command import COMMAND, ENVIRONMENT
from tests.support.provider import serving


@contextlib.contextmanager
def start_server(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start the command, and return its address."""
    environment = {name: value for name, value in ENVIRONMENT.items() if "proxy" not in name.lower()}
    with subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            yield process, line.partition(": ")[2].partition("/ ")[0]
        finally:
            process.kill()


def test_the_command_serves_recordings_until_it_is_interrupted() -> None:
    with start_server() as (process, url):
        state = httpx.get(f"{url}/conversation", trust_env=False).json()
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=60)
    assert "recordings of gemma-3-270m" == state["label"]
    assert {*shipped()} == {each["name"] for each in state["suggestions"]}
    assert FIRST == tuple(each["name"] for each in state["suggestions"])[: len(FIRST)]
    assert (130, "streamtools: interrupted\n") == (process.returncode, complaints.decode())


def serve(
    monkeypatch: pytest.MonkeyPatch, visit: Callable[[httpx.Client], object], *arguments: str, command: str = "serve"
) -> int:
    """Run the command in this process with the function `visit`, stop its server after `visit`, and return its status.

    The server is stopped as uvicorn stops it after a signal. A signal to this process could end the test run.
    """
    reading, writing = os.pipe()
    servers: list[uvicorn.Server] = []

    class Server(uvicorn.Server):
        async def startup(self, *arguments: Any, **options: Any) -> None:
            servers.append(self)
            await super().startup(*arguments, **options)

    def come() -> None:
        with os.fdopen(reading) as output:
            url = output.readline().partition(": ")[2].partition("/ ")[0]
        try:
            with httpx.Client(base_url=url, headers={"origin": url}, trust_env=False) as client:
                visit(client)
        finally:
            for server in servers:
                server.should_exit = True

    with ThreadPoolExecutor(1) as pool, os.fdopen(writing, "w") as output:
        visited = pool.submit(come)
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.setattr(uvicorn, "Server", Server)
        status = main([command, "--port", "0", *arguments])
        visited.result(60)
    return status


def test_the_command_talks_to_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    responses: list[str] = []

    def visit(client: httpx.Client) -> None:
        responses.append(client.get("/conversation").json()["label"])
        run = client.post("/runs", json={"question": "Oslo?"}).json()["run"]
        responses.append(client.get(f"/runs/{run}/events").text)

    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with serving(saying(calling("get_weather", city="Oslo")), saying("Cold.")) as provider:
        status = serve(
            monkeypatch,
            visit,
            *("--url", provider.url, "--model", "m", "--tools", "streamtools.apps.cli.demo:TOOLS"),
            *("--system", "Be brief.", "--dialect", "tilde_fence", "--host", "localhost"),
        )

    assert 0 == status
    assert responses[0].startswith("m at http://127.0.0.1:")
    assert "Oslo: snow, -2 °C" in responses[1]
    assert "Cold." in responses[1]
    system, question = provider.bodies[0]["messages"]
    assert "Be brief." in system["content"]
    assert "~~~tool_call" in system["content"]
    assert "Oslo?" == question["content"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url", "http://127.0.0.1:1"], "--url needs a --model: without a model, recordings are played"),
        (["--tools", "a:b"], "--tools needs a --model: without a model, recordings are played"),
        (["--api", "gemini"], "--api needs a --model: without a model, recordings are played"),
        (["--model", "m", "--tools", "nowhere:tools"], "No module named 'nowhere'"),
        (["--port", "65536"], "expected a port from 0 to 65535, got '65536'"),
        (["--port", "x"], "expected a port from 0 to 65535, got 'x'"),
        (["--speed", "-1"], "expected 0 or a factor"),
        (["--host", "not a host"], "cannot listen on not a host, port 8765"),
    ],
)
def test_invalid_options_are_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    status = main(["serve", *arguments])
    assert status == (1 if "--host" in arguments else 2)
    assert message in error_line(capsys)


def test_a_port_in_use_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status = main(["serve", "--port", str(port)])
    assert 1 == status
    assert (
        f"port {port}: the port is in use; choose another port with --port, or --port 0 for any free port"
        in error_line(capsys)
    )


@pytest.mark.parametrize(("missing", "extras"), [("starlette", "web"), ("uvicorn", "cli,web")])
def test_a_missing_package_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, missing: str, extras: str
) -> None:
    _without(monkeypatch, missing)
    assert 2 == main(["serve", "--port", "0"])
    assert f'this command needs {missing}: pip install "streamtools[{extras}]"' in error_line(capsys)


def _without(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    class Absent:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name == missing:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in [*sys.modules]:
        reloaded = (f"{missing}.", "streamtools.apps.web", "streamtools.apps.cli.servers", "streamtools.outputs.asgi")
        if name == missing or name.startswith(reloaded):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])


def test_an_interrupt_ends_open_answers() -> None:
    """Readers get the end of the answer, and the response of the provider is closed."""
    lines: list[str] = []
    answer = saying("Wait", hold=True)
    with serving(answer) as provider, start_server("--model", "m", "--url", provider.url) as (process, url):
        with httpx.Client(base_url=url, headers={"origin": url}, trust_env=False) as client:
            run = client.post("/runs", json={"question": "Hi"}).json()["run"]
            with client.stream("GET", f"/runs/{run}/events") as response:
                for line in response.iter_lines():
                    lines.append(line)
                    if '"Wait"' in line:
                        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    assert 130 == process.returncode
    assert '"reason":"cancelled"' in "".join(lines)
    assert answer.disconnected.is_set()


def test_an_open_address_causes_a_warning(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []

    def visit(client: httpx.Client) -> None:
        for host in ("127.0.0.1", "known.example", "evil.example"):
            statuses.append(client.get("/conversation", headers={"host": host}).status_code)

    assert 0 == serve(monkeypatch, visit, "--host", "0.0.0.0", "--allow-host", "Known.example")
    assert [200, 200, 421] == statuses
    assert "everyone who can connect to 0.0.0.0 can talk to the model and run the tools" in capsys.readouterr().err


@pytest.mark.asyncio_only
@pytest.mark.parametrize("name", shipped())
async def test_recordings_are_played_to_their_end(name: str) -> None:
    """Calls are run, and the model answers to their results."""
    async with opened(answerer=RecordedAnswers(speed=0)) as page:
        run = (await page.post("/runs", {"question": "?", "suggestion": name})).json()["run"]
        events = await page.events(run)
    kinds = [event["type"] for event in events]
    assert ("truncated" if name == "cut-call" else "finished") == events[-1]["reason"]
    assert ("call" in name or name == "two-tools") == ("call-start" in kinds) or name == "no-call"
    assert kinds.count("executed") == kinds.count("call")
    assert (2 if "executed" in kinds else 1) == kinds.count("step-end")
    assert "executed" not in kinds[kinds.index("step-end") :]


@pytest.mark.asyncio_only
async def test_a_question_without_a_recording_gets_an_explanation() -> None:
    """The text of a recorded question may be typed."""
    async with opened(answerer=RecordedAnswers(speed=50)) as page:
        unknown = await page.events(await page.ask("Who are you?"))
        events = await page.events(await page.ask("what is  17.5 plus 24?"))
    text = "".join(event.get("text", "") for event in unknown if event["type"] == "text")
    assert "streamtools serve --model NAME" in text
    assert ["add"] == [event["call"]["name"] for event in events if event["type"] == "executed"]
