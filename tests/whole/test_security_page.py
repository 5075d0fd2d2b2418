"""The page docs/security.md: its rows, their commands, its table of defaults, and its code."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from streamtools import Limits, gateway
from streamtools.conversation import Timeouts
from streamtools.events import BATCH_BYTES
from streamtools.outputs.asgi import event_stream_response, serve_websocket, shutdown_signal
from streamtools.runs import MemoryEventLog, RedisStore, Runs
from streamtools.serving.requests import MAX_TOTAL_BODIES
from streamtools.stream.event_buffer import MAX_BYTES, MAX_EVENTS
from streamtools.stream.long_work import IN_THREAD
from streamtools.tools import MemoryLedger, PostgresLedger, RedisLedger, SQLiteLedger, mcp
from tests.support.readme import ROOT, read_blocks, read_tables, write_list
from tests.whole.test_readme import names, normal, run_code

__all__ = ["names"]  # a fixture

PAGE = ROOT / "docs" / "security.md"
TEXT = PAGE.read_text()
BLOCKS = read_blocks(TEXT)
COMMANDS = {block.heading: shlex.split(block.text) for block in BLOCKS if block.language == "sh"}


def default(made_by: Callable[..., Any], name: str) -> Any:
    """Return the default of a parameter."""
    return inspect.signature(made_by).parameters[name].default


def defaults_table() -> str:
    """Return the list of defaults that the reference does not have, from the code."""
    times = Timeouts()
    rows: list[tuple[str, Any, str]] = [
        ("JSON values in all arguments of a history", Limits().values, "fixed"),
        ("tools of an MCP server", mcp._MAX_TOOLS, "fixed"),
        ("characters of their definitions", mcp._MAX_LENGTH, "fixed"),
        ("calls in a ledger", default(MemoryLedger, "size"), "`MemoryLedger(size=…)`"),
        ("calls of one owner", default(MemoryLedger, "per_owner"), "`MemoryLedger(per_owner=…)`"),
        ("seconds that it keeps them", default(MemoryLedger, "keep"), "`MemoryLedger(keep=…)`"),
        (
            "seconds in a file or database",
            same(*(default(each, "keep") for each in (SQLiteLedger, PostgresLedger, RedisLedger))),
            "`SQLiteLedger(keep=…)`, …",
        ),
        (
            "seconds of a lease",
            same(*(default(each, "lease") for each in (SQLiteLedger, PostgresLedger, RedisLedger, RedisStore))),
            "`SQLiteLedger(lease=…)`, …",
        ),
        ("connections to PostgreSQL", default(PostgresLedger, "connections"), "`PostgresLedger(connections=…)`"),
        ("seconds to connect to a provider", times.connect, "`Timeouts(connect=…)`"),
        ("seconds to the first byte", times.first_byte, "`Timeouts(first_byte=…)`"),
        ("seconds between bytes", times.between_bytes, "`Timeouts(between_bytes=…)`"),
        (
            "seconds of an ended run",
            same(*(default(each, "keep") for each in (Runs, RedisStore))),
            "`RedisStore(keep=…)`",
        ),
        (
            "kept events",
            same(*(default(each, "max_events") for each in (MemoryEventLog, RedisStore))),
            "`MemoryEventLog(max_events=…)`, …",
        ),
        ("their bytes", default(MemoryEventLog, "max_bytes"), "`MemoryEventLog(max_bytes=…)`"),
        ("bytes of one read, or one event", BATCH_BYTES, "fixed"),
        ("pending events", MAX_EVENTS, "fixed"),
        ("their bytes", MAX_BYTES, "fixed"),
        ("seconds to finish runs at shutdown", default(shutdown_signal, "drain"), "`shutdown_signal(drain=…)`"),
        ("bytes of all bodies", MAX_TOTAL_BODIES, "fixed; one body always fits"),
        ("bytes of a body for the event loop", IN_THREAD, "fixed"),
        (
            "seconds to disconnect an idle reader",
            same(*(default(each, "send_timeout") for each in (event_stream_response, serve_websocket, gateway.app))),
            "`gateway.app(send_timeout=…)`, …",
        ),
        ("seconds without Redis until runs end", default(RedisStore, "max_outage"), "`RedisStore(max_outage=…)`"),
        ("crashes that a run survives", default(RedisStore, "max_recoveries"), "`RedisStore(max_recoveries=…)`"),
        ("bytes of a body for the gateway", default(gateway.app, "max_body"), "`gateway.app(max_body=…)`"),
        ("its concurrent answers", default(gateway.app, "max_running"), "`gateway.app(max_running=…)`"),
        ("seconds between bytes of its upstream", default(gateway.app, "timeout"), "`gateway.app(timeout=…)`"),
        ("seconds of its answer", default(gateway.app, "longest"), "`gateway.app(longest=…)`"),
    ]
    return write_list((what, where, write(value)) for what, value, where in rows)


def same(value: Any, *others: Any) -> Any:
    """Return the value that all share."""
    assert {value} == {value, *others}
    return value


def write(value: Any) -> str:
    """Return a default in the form of the page."""
    return f"{value:,.6g}" if value < 1e6 else f"{value:,}"


def test_the_table_matches_the_code() -> None:
    """The message of a failure is the correct table."""
    assert defaults_table() == read_tables(TEXT)["defaults"], defaults_table()


def test_every_limit_is_in_the_table() -> None:
    """Numbers that limit nothing are named here. `test_readme` compares the tables of the reference."""
    limited = (MemoryEventLog, RedisStore, gateway.app)
    numbers = {
        name
        for each in (*limited, MemoryLedger, SQLiteLedger, PostgresLedger, RedisLedger, Timeouts, shutdown_signal)
        for name, parameter in inspect.signature(each).parameters.items()
        if type(parameter.default) in (int, float)
    }

    assert {"keep_alive"} == {each for each in numbers if f"({each}=…)" not in defaults_table()}


def test_all_rows_exist() -> None:
    """S1 to S16, in order, each with one command, whose first file is the module of the row."""
    rows = re.findall(r"^## (S(\d+) .*)$", TEXT, re.MULTILINE)

    assert [str(number) for number in range(1, 17)] == [number for _, number in rows]
    assert [heading for heading, _ in rows] == list(COMMANDS)
    for heading, number in rows:
        program, option, marks, first, *others = COMMANDS[heading]
        assert ("pytest", "-m", "") == (program, option, marks)
        assert first.startswith(f"tests/security/test_s{int(number):02}_")
        assert all((ROOT / each).is_file() for each in (first, *others))


@pytest.mark.deep
def test_each_command_selects_tests() -> None:
    """Each file and name on the page selects at least one test."""
    wanted = sorted({each for command in COMMANDS.values() for each in command[3:]})
    command = [sys.executable, "-m", "pytest", "-m", "", "--collect-only", "-q", *wanted]
    collected = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    selected = collected.stdout.splitlines()

    assert 0 == collected.returncode, collected.stdout[-2000:]
    assert [] == [each for each in wanted if not any(line.startswith(f"{each}::") for line in selected)]


def test_programs_for_hosted_models_say_that_their_calls_are_native() -> None:
    """A reader who copies one gets a model whose text cannot call a tool."""
    hosted = re.compile(r"sources\.(?:anthropic|gemini|responses)\(|(?:AnthropicMessages|GeminiChat|OpenAIResponses)\(")
    found = 0
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for block in read_blocks(page.read_text()):
            if block.language == "python" and hosted.search(block.text):
                found += 1
                assert "native_tool_calls=True" in block.text, f"{page.name}:{block.line}"
    assert found


@pytest.mark.anyio
async def test_code_prints_the_output_of_the_page(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """The tool that fetches pages refuses internal addresses."""
    for block in BLOCKS:
        if block.language == "python":
            await run_code(block, names)
            assert normal(block.output or "") == normal(capsys.readouterr().out), f"{PAGE.name}:{block.line}"
