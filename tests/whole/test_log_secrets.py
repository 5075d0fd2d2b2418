"""Private data is in no log record: arguments, results, texts of exceptions, keys, and messages.

The tools of a chat fail in each way that is logged. Its connection is real, and breaks or is refused, while the chat is
recorded and replayed. All records of structlog and of the standard library, at each level, are collected.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
import structlog

from streamtools import RunnerOptions, ToolError, ToolRegistry, ToolResult, ToolStream, chat, replay, sources
from streamtools.conversation import OpenAIChat
from streamtools.history import User
from streamtools.recording import RecordingTransport, record
from tests.apps.test_cli_replay import sse
from tests.support.loopback import Loopback
from tests.support.planted import KEYS
from tests.support.provider import Provider

SECRETS = {
    "argument": "arg-4711-secret",
    "result": "result-4711-secret",
    "exception": "exception-4711-secret",
    "question": "question-4711-secret",
    "answer": "answer-4711-secret",
    "provider": "provider-4711-secret",
    "key": KEYS["openai"],
}
CALLS = ["fails", "refuses", "answers", "is_slow", "cannot_be_sent", "blocks", "unknown"]


class Lines(logging.Handler):
    """Collects all log records, as they would be shown."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(record)} {record.__dict__!r}")

    def take(self, logger: object, name: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """Keep one entry of structlog, as its last processor."""
        self.lines.append(f"{name} {structlog.processors.format_exc_info(logger, name, dict(fields))!r}")
        raise structlog.DropEvent


@pytest.fixture
def log() -> Iterator[Lines]:
    """All lines of all logs."""
    lines = Lines()
    root = logging.getLogger()
    before = root.level
    root.addHandler(lines)
    root.setLevel(logging.NOTSET)
    structlog.configure(processors=[lines.take], wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET))
    try:
        yield lines
    finally:
        structlog.reset_defaults()
        root.setLevel(before)
        root.removeHandler(lines)


def tools(door: threading.Event) -> ToolRegistry:
    """Return tools that fail in each way."""
    registry = ToolRegistry(on_duplicate="replace")

    @registry.tool
    async def fails(text: str) -> str:
        raise ValueError(SECRETS["exception"])

    @registry.tool
    def refuses(text: str) -> str:
        raise ToolError(SECRETS["exception"])

    @registry.tool
    def answers(text: str) -> ToolResult:
        return ToolResult(model=SECRETS["result"], ui={SECRETS["result"]: text})

    @registry.tool(timeout=0.05)
    async def is_slow(text: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise RuntimeError(SECRETS["exception"])

    @registry.tool
    def cannot_be_sent(text: str) -> Any:
        return {SECRETS["result"]: object()}

    @registry.tool(timeout=0.05)
    def blocks(text: str) -> str:
        door.wait()
        raise ValueError(SECRETS["exception"])

    return registry


def answer(name: str) -> bytes:
    """Return a response with a call of this tool, and a malformed one."""
    call = f'\n###:{{"name":"{name}","arguments":{{"text":"{SECRETS["argument"]}"}}}}'
    return sse(SECRETS["answer"], call, f'\n###:{{"name":"{name}", {SECRETS["argument"]}\n\n.')


async def leak(call: object, outcome: object) -> None:
    """Fail for a secret reason."""
    raise KeyError(SECRETS["exception"])


async def talk(path: Path, registry: ToolRegistry, name: str, last: Loopback) -> str:
    """Return the events of a recorded chat in which the model calls this tool before the response `last`."""
    async with Provider(Loopback([answer(name)]), last) as server:
        transport = RecordingTransport(httpx.AsyncHTTPTransport(), path)
        async with httpx.AsyncClient(transport=transport) as client:
            model = OpenAIChat(
                "m", base_url=server.url, api_key=SECRETS["key"], client=client, native_tool_calls=False, retries=1
            )
            async with chat(
                model, [User(SECRETS["question"])], tools=registry, runner=RunnerOptions(on_result=leak)
            ) as events:
                return "".join([event.to_json() async for event in events])


def leaked(log: Lines) -> list[str]:
    """Return the lines with secrets. Exceptions of the application itself are logged on purpose."""
    private = [secret for name, secret in SECRETS.items() if name != "exception"]
    return [line for line in log.lines if any(secret in line for secret in private)]


@pytest.mark.parametrize("name", CALLS)
async def test_no_secret_of_a_tool_is_logged(name: str, log: Lines, tmp_path: Path) -> None:
    """The log has names, codes, places and types of exceptions, live and replayed."""
    path, door = tmp_path / "a.jsonl", threading.Event()
    registry = tools(door)
    told = await talk(path, registry, name, Loopback([sse(SECRETS["answer"])[:40]], drop=True))
    async with replay(path, exchange=1, tools=registry, runner=RunnerOptions(on_result=leak)) as stream:
        told += "".join([event.to_json() async for event in stream])
        door.set()
    assert SECRETS["argument"] in told  # which shows that it all happened
    assert [] == leaked(log)
    assert [line for line in log.lines if "on_tool_result_failed" in line]
    assert [line for line in log.lines if "stream_failed" in line]
    assert (name == "answers") is not any("tool_call_failed" in line for line in log.lines)


@pytest.mark.parametrize("status", [400, 401, 503])
async def test_no_text_of_a_provider_error_is_logged(status: int, log: Lines, tmp_path: Path) -> None:
    """It is for the caller only."""
    body = b'{"error":{"message":"%s"}}' % SECRETS["provider"].encode()
    last = Loopback([body], status=status, declared="application/json")
    assert SECRETS["provider"] in await talk(tmp_path / "a.jsonl", tools(threading.Event()), "answers", last)
    assert [] == leaked(log)
    assert [line for line in log.lines if "stream_failed" in line]


async def test_the_url_of_a_request_is_logged(log: Lines) -> None:
    """Host and path show a wrong `base_url`. The query and the user, which httpx logs, are omitted."""
    async with Loopback([b'{"detail":"Not Found"}'], status=404, declared="application/json") as server:
        here = server.url.partition("://")[2]
        for base_url in (f"http://me:{SECRETS['key']}@{here}?key={SECRETS['key']}", "http://127.0.0.1:1/v2"):
            model = OpenAIChat("m", base_url=base_url, api_key=SECRETS["key"], retries=0)
            async with chat(model, [User("Hello")]) as events:
                assert "error" in [event.type async for event in events]

    refused, unreachable = [line for line in log.lines if "stream_failed" in line]
    assert f"'url': '{here}" in refused
    assert "'url': '127.0.0.1:1/v2/chat/completions'" in unreachable
    assert SECRETS["key"] not in refused + unreachable


async def test_no_content_of_a_recording_is_logged(log: Lines, tmp_path: Path) -> None:
    """Holds for each ending."""

    async def stream() -> AsyncIterator[bytes]:
        yield SECRETS["key"].encode()
        raise ValueError(SECRETS["exception"])

    with pytest.raises(ValueError, match="exception"):
        async for _ in record(stream(), tmp_path / "b.jsonl"):
            pass
    async with ToolStream(sources.openai(stream())) as events:
        assert "failed" == [event async for event in events][-1].reason  # type: ignore[union-attr]
    assert [] == leaked(log)
    assert f"'raised_at': '{__file__}:{stream.__code__.co_firstlineno + 2}'" in log.lines[-1]
