"""The page docs/security.md: its threats, and the limits that it links to."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from streamtools import Limits, gateway
from streamtools.conversation import Timeouts
from streamtools.runs import MemoryEventLog, RedisStore
from streamtools.serving.requests import MAX_TOTAL_BODIES
from streamtools.stream.event_buffer import MAX_BYTES, MAX_EVENTS
from streamtools.tools import MemoryLedger, PostgresLedger, RedisLedger, SQLiteLedger, mcp
from tests.support.readme import ROOT, read_blocks, read_tables, write_list

TEXT = (ROOT / "docs" / "security.md").read_text()


def default(made_by: Callable[..., Any], name: str) -> Any:
    """Return the default of a parameter."""
    return inspect.signature(made_by).parameters[name].default


def test_the_list_of_fixed_limits_matches_the_code() -> None:
    rows = (
        ("JSON values in all arguments of a history", Limits().values),
        ("tools of an MCP server", mcp._MAX_TOOLS),
        ("characters of their definitions", mcp._MAX_LENGTH),
        ("bytes of all bodies that are read at the same time", MAX_TOTAL_BODIES),
    )
    assert write_list((what, "", f"{value:,}") for what, value in rows) == read_tables(TEXT)["fixed"]


@pytest.mark.parametrize(("page", "made_by"), [("many-machines", RedisStore), ("gateway", gateway.app)])
def test_defaults_are_on_the_page_of_their_subject(page: str, made_by: Callable[..., Any]) -> None:
    """The page has each number in brackets, or in the next column."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for name, parameter in inspect.signature(made_by).parameters.items():
        if type(value := parameter.default) in (int, float):
            assert re.search(rf"`{name}`[ |(]+({value:,.0f}|{value:.0f}|{int(value) >> 20} MiB)\b", text), name


def test_the_other_limits_match_the_code() -> None:
    """Each is in a sentence of another page."""
    times, week, month = Timeouts(), 7 * 24 * 3600, 30 * 24 * 3600
    ledgers, memory = (SQLiteLedger, PostgresLedger, RedisLedger), inspect.signature(MemoryLedger).parameters
    assert (10, 600, 120) == (times.connect, times.first_byte, times.between_bytes)
    assert (10_000, 1_000, week) == tuple(memory[name].default for name in ("size", "per_owner", "keep"))
    assert {(month, 15)} == {(default(each, "keep"), default(each, "lease")) for each in ledgers}
    assert (4, 50_000) == (default(PostgresLedger, "connections"), default(MemoryEventLog, "max_events"))
    assert (16 * 2**20, 1024, 4 * 2**20) == (default(MemoryEventLog, "max_bytes"), MAX_EVENTS, MAX_BYTES)


def test_each_threat_has_its_tests() -> None:
    rows = re.findall(r"^## S(\d+) ", TEXT, re.MULTILINE)
    assert [str(number) for number in range(1, 17)] == rows
    assert all(list((ROOT / "tests" / "security").glob(f"test_s{int(number):02}_*.py")) for number in rows)


def test_programs_for_hosted_models_say_that_their_calls_are_native() -> None:
    """A reader who copies one gets a model whose text cannot call a tool."""
    hosted = re.compile(r"sources\.(?:anthropic|gemini|responses)\(|(?:AnthropicMessages|GeminiChat|OpenAIResponses)\(")
    found = 0
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = page.read_text()
        programs = [block.text for block in read_blocks(text) if block.language == "python"]
        for code in (*programs, *re.findall(r"`(ToolStream\([^`]+)", text)):
            if hosted.search(code):
                found += 1
                assert "native_tool_calls=True" in code, f"{page.name}: {code}"
    assert found
