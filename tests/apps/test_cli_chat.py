"""The command `streamtools chat`, with local servers as providers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import IO, Any

import pytest
from anyio.from_thread import start_blocking_portal

from streamtools.apps.cli import main
from streamtools.apps.cli.model_options import _CLIENTS
from streamtools.conversation import models
from streamtools.conversation.models import HTTPModel
from streamtools.events import read_ui_event
from streamtools.recording import read_recording, read_recordings, shipped
from tests.apps.test_cli_bad_input import TerminalFile, error_line
from tests.apps.test_cli_replay import sse
from tests.support.command import COMMAND, ENVIRONMENT
from tests.support.loopback import Loopback
from tests.support.provider import Provider

DEMO = ("--tools", "streamtools.apps.cli.demo:TOOLS")
KEY = "sk-do-not-tell"


class Keys(TerminalFile):
    """Keys that a user types on a terminal. The line `^C` raises KeyboardInterrupt."""

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # typeshed's StringIO has two bases
        line = super().readline(size)
        if line == "^C\n":
            raise KeyboardInterrupt
        return line


@contextlib.contextmanager
def serving(*answers: Loopback) -> Iterator[Provider]:
    """Serve these answers in a thread, one for each request."""
    provider = Provider(*answers)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(provider):
        yield provider


def recorded(name: str) -> Loopback:
    """Return an answer with the chunks of a shipped recording."""
    return Loopback([chunk.data for chunk in read_recording(shipped()[name]).chunks])


def saying(*texts: str, **options: Any) -> Loopback:
    """Return an answer with these texts."""
    return Loopback([sse(*texts)], **options)


def to(server: Provider, *more: str) -> list[str]:
    """Return the arguments for a chat with this server."""
    return ["chat", "--url", server.url, "--model", "m", *more]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove proxies from the environment, set a key for each API, and make standard input empty."""
    monkeypatch.setattr(sys, "stdin", StringIO())
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for model in _CLIENTS.values():
        monkeypatch.setenv(model.key_names[0], KEY)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """The content of standard input."""
    lines = StringIO()
    monkeypatch.setattr(sys, "stdin", lines)
    return lines


def test_once_shows_one_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """The model is taught the dialect in the prompt. No native tools are sent."""
    with serving(recorded("tilde-call"), saying("It rains, at 14 °C.")) as server:
        options = ["--dialect", "tilde_fence", "--few-shot", *DEMO, "--option", "temperature=0", "--option", "stop=END"]
        assert 0 == main(to(server, *options, "--once", "What is the weather in Paris?"))

    shown = capsys.readouterr()
    head, _, rest = shown.out.partition("Executed get_weather")
    assert (
        "❯ What is the weather in Paris?\n\n"
        "I will look up the weather in Paris.\n\n"
        "🔧 Waiting for tool call completion...\n"
        '→ get_weather(city="Paris")\n\n'
        "One moment, please.\n\n"
        "🔧 Executing tool: get_weather...\n"
        "🔧 "
    ) == head
    executed, _, rest = rest.partition("\n")
    assert executed.startswith(": Paris: light rain, 14 °C (")
    answer, _, summary = rest.rpartition("\n\n")
    assert "↩ The results are sent to the model.\n\nIt rains, at 14 °C." == answer
    assert summary.startswith("✔ finished (stop) · 1 call: 1 executed · 2 steps · ")
    assert "" == shown.err
    first, second = server.bodies
    assert ("m", 0, "END") == (first["model"], first["temperature"], first["stop"])
    assert "tools" not in first
    assert "~~~tool_call" in first["messages"][0]["content"]
    assert {"role": "user", "content": "What does get_weather say about Berlin?"} in first["messages"]
    assert first["messages"] == second["messages"][: len(first["messages"])]
    assert second["messages"][-1]["content"].startswith("~~~tool_result get_weather\n14 °C, light rain\n")


def test_raw_shows_the_text_of_calls(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(recorded("tilde-call"), saying("Rain.")) as server:
        assert 0 == main(to(server, "--raw", *DEMO, "--once", "?"))
    assert (
        '\n~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n~~~\n\nOne' in capsys.readouterr().out
    )


def test_native_calls_are_used_without_a_dialect(capsys: pytest.CaptureFixture[str]) -> None:
    """A native call has no text, so `--raw` shows it like any call."""
    function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    delta = {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}
    chunks = [{"choices": [{"index": 0, "delta": delta}]}, {"choices": [{"index": 0, "finish_reason": "tool_calls"}]}]
    called = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)
    with serving(Loopback([called]), saying("Three.")) as server:
        assert 0 == main(to(server, "--raw", *DEMO, "--system", "Be brief.", "--once", "1 + 2?"))
    assert "→ add(a=1, b=2)\n\n🔧 Executing tool: add..." in capsys.readouterr().out
    first, second = server.bodies
    assert ["get_weather", "add"] == [each["function"]["name"] for each in first["tools"]]
    assert {"role": "system", "content": "Be brief."} == first["messages"][0]
    assert {"role": "tool", "tool_call_id": "call_1", "content": "3.0"} == second["messages"][-1]


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
def test_each_api_has_a_client(
    api: str, path: str, header: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key is sent in the header of the API, and is neither shown nor recorded."""
    refused = Loopback([b'{"error":{"message":"no such model"}}'], status=400, declared="application/json")
    record = tmp_path / "refused.jsonl"
    with serving(refused) as server:
        assert 1 == main(to(server, "--api", api, "--record", str(record), "--once", "Hello?"))
    shown = capsys.readouterr()
    assert "❌ Stream error: no such model (upstream_error, status 400)" in shown.out
    (head,) = server.heads
    assert shown.err.startswith(f"streamtools: m at {server.url}")
    assert shown.err.endswith(": the stream failed: no such model\n")
    assert f"POST /{path} HTTP/1.1" == head[""]
    assert KEY in head[header]
    (exchange,) = read_recordings(record)
    assert exchange.head.response is not None
    assert (api.replace("interactions", "gemini"), 400) == (exchange.head.source, exchange.head.response.status)
    assert KEY not in shown.out + shown.err + record.read_text()


def test_questions_are_lines_of_standard_input(typed: StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, there is no prompt. `/quit` ends the chat."""
    typed.write("What is coffee?\n\n  And tea? \n/quit\nnever asked\n")
    typed.seek(0)
    with serving(saying("A drink."), saying("Too.")) as server:
        assert 0 == main(to(server))
    shown = capsys.readouterr().out
    assert shown.startswith("❯ What is coffee?\n\nA drink.\n\n✔ finished (stop) · no calls · ")
    assert "\n\n❯ And tea?\n\nToo.\n\n✔ finished" in shown
    assert ["What is coffee?", "A drink.", "And tea?"] == [each["content"] for each in server.bodies[1]["messages"]]
    assert 2 == len(server.bodies)


def test_a_question_without_an_answer_is_not_sent_again(typed: StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 1."""
    typed.write("one\ntwo")
    typed.seek(0)
    with serving(saying(status=400), saying("Yes?")) as server:
        assert 1 == main(to(server))
    assert "Yes?\n\n✔" in capsys.readouterr().out
    assert [["one"], ["two"]] == [[each["content"] for each in body["messages"]] for body in server.bodies]


def test_a_closed_standard_input_ends_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert 0 == main(["chat", "--model", "m"])


def test_a_terminal_shows_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    screen = TerminalFile()
    monkeypatch.setattr(sys, "stdin", TerminalFile("Hello\n"))
    monkeypatch.setattr(sys, "stdout", screen)
    with serving(saying("Hi.")) as server:
        assert 0 == main(to(server))
    before, _, after = screen.getvalue().partition("\n\n❯ ")
    greeting = f"m at {server.url}chat/completions. Ctrl-C stops an answer, /quit ends the chat."
    assert greeting == " ".join(before.split())
    assert after.startswith("\nHi.\n\n✔ finished (stop) · ")  # the terminal echoes the line feed of the question
    assert after.endswith(" ms\n\n❯ \n")


def test_ctrl_c_at_the_prompt_ends_the_chat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = TerminalFile()
    monkeypatch.setattr(sys, "stdin", Keys("^C\n"))
    monkeypatch.setattr(sys, "stdout", screen)
    assert 130 == main(["chat", "--model", "m"])
    assert screen.getvalue().endswith("\n\n❯ \n")
    assert "streamtools: interrupted\n" == capsys.readouterr().err


def test_json_prints_only_events(typed: StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    typed.write("one\ntwo\n")
    typed.seek(0)
    with serving(recorded("hash-call"), saying("41.5"), saying("Yes.")) as server:
        assert 0 == main(to(server, "--json", *DEMO))
    shown = capsys.readouterr()
    types = [read_ui_event(line).type for line in shown.out.splitlines()]
    assert (2, 2, 1, 1) == tuple(types.count(each) for each in ("start", "done", "follow-up", "executed"))
    assert "" == shown.err


def test_a_recording_contains_every_exchange(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file can be replayed."""
    record = tmp_path / "chat.jsonl"
    with serving(recorded("tilde-call"), saying("Rain.")) as server:
        arguments = to(server, *DEMO, "--dialect", "tilde_fence", "--once", "Weather?")
        arguments += ["--record", str(record), "--record-body"]
        assert 0 == main(arguments)
    first, second = read_recordings(record)
    assert read_recording(shipped()["tilde-call"]).data == first.data
    assert sse("Rain.") == second.data
    assert ["end", "end"] == [each.end.kind for each in (first, second) if each.end is not None]
    assert server.bodies == [each.head.request.body for each in (first, second) if each.head.request is not None]
    assert 0o600 == record.stat().st_mode & 0o777
    capsys.readouterr()
    assert 0 == main(["replay", str(record), "--speed", "0", *DEMO])
    assert "🔧 Executed get_weather: Paris: light rain, 14 °C (" in capsys.readouterr().out


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_the_proxy_of_the_environment_is_used(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(saying("Yes.")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", scheme))
        monkeypatch.setenv("no_proxy", "other.example")
        for more in ([], ["--record", str(tmp_path / "chat.jsonl")]):
            assert 0 == main(["chat", "--url", "http://models.example/v1", "--model", "m", "--once", "?", *more])
    assert ["POST http://models.example/v1/chat/completions HTTP/1.1"] * 2 == [head[""] for head in proxy.heads]


def test_calls_are_emulated(capsys: pytest.CaptureFixture[str]) -> None:
    decided = saying('{"tools": [{"tool": "add", "arguments": {"a": 1, "b": 2}}]}')
    with serving(decided, saying('{"tools": []}'), saying("Three.")) as server:
        assert 0 == main(to(server, "--emulate", "force", *DEMO, "--once", "1 + 2?"))
    shown = capsys.readouterr().out
    assert "🔧 Executed add → 3.0 (" in shown
    assert "Three.\n\n✔ finished" in shown


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--url", "localhost:8000"), "`base_url` must begin with http:// or https:// and a host"),
        (("--few-shot", *DEMO), "--few-shot shows calls of --tools in a --dialect, and needs both"),
        (("--few-shot", "--dialect", "tilde_fence"), "--few-shot shows calls of --tools in a --dialect"),
        (("--dialect", "klingon"), "no dialect 'klingon'; there are hash_marker"),
        (("--dialect", "auto"), "expected one dialect, got 'auto'"),
        (("--dialect", ""), "expected one dialect, got ''"),
        (("--dialect", "kimi_k2"), "cannot be taught: its calls contain tokens of a chat template"),
        (("--option", "temperature"), "expected NAME=VALUE, such as temperature=0, got 'temperature'"),
        (("--emulate", "force"), "emulation is forced, and there are no function tools"),
        (("--record", "no/such/folder"), "--record: no/such/folder cannot be written: No such file or directory"),
        (("--record", "\0"), "cannot be written: embedded null byte"),
        (("--api", "telnet"), "invalid choice: 'telnet'"),
        (("--model", " "), "--model must name a model, got ' '"),
        (("--once", ""), "--once must not be empty"),
    ],
)
def test_invalid_options_are_refused(options: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["chat", "--model", "m", *options])
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
        assert 2 == main(["chat", "--model", "m", "--api", api, "--once", "?"])
        assert f"--api {api} needs a key: set {_CLIENTS[api].key_names[0]}" in error_line(capsys)
    assert 2 == main(["chat", "--model", "m", "--api", "bedrock", "--once", "?"])
    assert "--api bedrock needs a region: set AWS_REGION" in error_line(capsys)
    known = {each for each in vars(models).values() if isinstance(each, type) and issubclass(each, HTTPModel)}
    assert known - {HTTPModel} == {*_CLIENTS.values()}


INTERRUPTING = """
import os, signal, anyio

async def interrupt(times: int, wait: int = 3600) -> str:
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)
    await anyio.sleep(wait)
    return "never"
"""


def calling(times: int, wait: int = 3600) -> Loopback:
    """Return an answer with a call that sends SIGINT to the process `times` times, and then waits `wait` seconds."""
    return saying(f'Now: ###:{{"tool":"interrupt","parameters":{{"times":{times},"wait":{wait}}}}}')


@pytest.fixture
def interrupting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """The arguments for a tool that sends SIGINT to the process."""
    (tmp_path / "interrupting.py").write_text(INTERRUPTING)
    monkeypatch.syspath_prepend(tmp_path)
    yield "--tools", "interrupting:interrupt"
    sys.modules.pop("interrupting", None)


def test_ctrl_c_stops_an_answer_and_keeps_the_chat(
    interrupting: tuple[str, str], typed: StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    """The partial answer stays in the history, with a result for its call."""
    typed.write("one\ntwo\n")
    typed.seek(0)
    with serving(calling(1), saying("Yes?")) as server:
        assert 0 == main(to(server, *interrupting))
    shown = capsys.readouterr()
    assert "■ cancelled" in shown.out
    assert "\n\n❯ two\n\nYes?\n\n✔ finished" in shown.out
    assert "" == shown.err
    messages = server.bodies[1]["messages"]
    assert "one" == messages[0]["content"]
    assert messages[1]["content"].startswith("Now: ###:{")
    assert messages[-1]["content"].endswith('was cancelled before it finished"}\n\ntwo')
    assert signal.default_int_handler is signal.getsignal(signal.SIGINT)


def test_ctrl_c_twice_ends_the_chat(
    interrupting: tuple[str, str], typed: StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    typed.write("one\ntwo\n")
    typed.seek(0)
    with serving(calling(2)) as server:
        assert 130 == main(to(server, *interrupting))
    assert capsys.readouterr().err.endswith("streamtools: interrupted\n")
    assert 1 == len(server.requests)


def test_an_ignored_sigint_stays_ignored(interrupting: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A shell ignores SIGINT for background jobs."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with serving(calling(2, 0), saying("Done.")) as server:
            assert 0 == main(to(server, *interrupting, "--once", "?"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert "Done.\n\n✔ finished" in capsys.readouterr().out


def read_until(file: IO[bytes], text: str) -> str:
    """Read the file up to and including `text`."""
    data = b""
    while text.encode() not in data:
        more = os.read(file.fileno(), 4096)
        assert more, data.decode(errors="replace")
        data += more
    return data.decode()


PAYING = """
from streamtools import ToolRegistry, tool

@tool(requires_approval=True)
def pay(to: str, amount: int) -> str:
    "Pay a person."
    return f"paid {amount} to {to}"

@tool(client=True)
def pick_date(title: str) -> str:
    "Let the user pick a date."
    raise NotImplementedError

TOOLS = ToolRegistry(pay, pick_date)
"""


def test_calls_are_decided_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are approved, denied and answered, after their arguments were shown. Ctrl-C leaves a call pending."""
    (tmp_path / "paying.py").write_text(PAYING)
    monkeypatch.syspath_prepend(tmp_path)
    pay = '###:{"tool":"pay","parameters":{"to":"%s","amount":50}}'
    pick = '###:{"tool":"pick_date","parameters":{"title":"\\u001b[2J"}}'
    answers = [pay % "Ann", "Ann has it.", pay % "Bob", "Bob has not.", pick, "In March.", pay % "Cy"]
    screen = TerminalFile()
    keys = ["", "Pay Ann.", "y", "Pay Bob.", "n", "too much", "When?", "2027-03-01", "Pay Cy.", "^C", "/quit", ""]
    monkeypatch.setattr(sys, "stdin", Keys("\n".join(keys)))
    monkeypatch.setattr(sys, "stdout", screen)
    with serving(*map(saying, answers)) as server:
        assert 0 == main(to(server, "--tools", "paying:TOOLS"))
    shown = screen.getvalue()
    assert [3, 4, 3] == [shown.count(text) for text in ('"amount": 50', "■ pending", "✔ finished")]
    positions = [shown.index(text) for text in ("paid 50 to Ann", "Ann has it.", "Bob has not.", "In March.")]
    assert sorted(positions) == positions
    assert "paid 50 to Bob" not in shown
    assert "\\u001b[2J" in shown  # JSON escapes the control characters of a model
    asked = [body["messages"] for body in server.bodies]
    assert "too much" in str(asked[3][-1])
    assert "2027-03-01" in str(asked[5][-1])
    assert str(asked[4][-1]["content"]).endswith("When?")


def test_a_chat_on_a_terminal(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with serving(saying("Hi there.")) as server, os.fdopen(ours, "rb+", buffering=0) as terminal:
        environment = ENVIRONMENT | {"TERM": "dumb"}
        with subprocess.Popen(
            [*COMMAND, *to(server)], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment
        ) as process:
            os.close(theirs)
            assert "/quit ends" in read_until(terminal, "❯ ")
            terminal.write(b"Hello\n")
            shown = read_until(terminal, "✔ finished")
            assert "Hi there." in shown
            if "❯ " not in shown.partition("✔ finished")[2]:
                read_until(terminal, "❯ ")
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # the process may have ended
                terminal.write(b"\n")  # a signal between the prompt and the read is handled after the next line
            _, complaints = process.communicate(timeout=120)
    assert (130, b"streamtools: interrupted\n") == (process.returncode, complaints)
