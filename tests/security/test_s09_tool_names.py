"""S9: a name finds the tool of exactly that name, or none.

Similar names are unknown, in each dialect and natively. Names are ASCII, so that no two look alike. A tool from outside
never replaces another.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
import structlog.testing

from streamtools import ToolRegistry, ToolStream, parse, tool
from streamtools.errors import Code, UnknownTool
from streamtools.events import Error, Executed, NativeToolCall, ProviderCompleted
from streamtools.parsing.dialects import DIALECTS
from streamtools.tools import Tool
from tests.support.cases import cases, together
from tests.support.stories import Script, texts
from tests.tools.test_mcp import Server, listed

NAME = "get_weather"
STRANGE = {
    "Cyrillic e": "g\u0435t_weather",
    "fullwidth": "".join(chr(ord(each) + 0xFEE0) for each in NAME),
    "fullwidth low line": "get\uff3fweather",
    "Kelvin sign": "\u212aget_weather",
    "long s": "get_\u017fweather",
    "capitals": "GET_WEATHER",
    "a capital": "Get_weather",
    "camel case": "getWeather",
    "a hyphen": "get-weather",
    "a joiner": "get\u2060_weather",
    "zero width space": "get_weather\u200b",
    "soft hyphen": "get\u00ad_weather",
    "bidi": "\u202eget_weather",
    "a NUL": "get_weather\0",
    "a NUL and more": "get_weather\0delete",
    "half a pair": "get_weather\ud83d",
    "a token after it": "get_weather<|channel|>commentary",
    "a token before": "<|im_start|>get_weather",
    "a number after it": "get_weather:0",
    "a namespace": "functions.get_weather",
    "an attribute": "get_weather.__call__",
    "a prefix": "get_weathe",
    "more": "get_weather2",
    "twice": "get_weatherget_weather",
    "__class__": "__class__",
    "__init__": "__init__",
    "__proto__": "__proto__",
    "constructor": "constructor",
    "register": "register",
    "names": "names",
    "a path": "../get_weather",
    "empty": "",
    "white space": " \t ",
    "a wildcard": "*",
    "a pattern": "get_.*",
    "long": NAME * 10_000,
}
"""What is no name of a tool, and why one might think so."""

OF_THE_FORM = {
    "functions.get_weather": {"harmony", "gemma4", "functiongemma"},
    "get_weather<|channel|>commentary": {"harmony"},
}
"""What a dialect removes from a name: a namespace before it, and a second channel after it."""

WITH_IDS = ("kimi_k2",)
"""Dialects with ids instead of names. An id means the only declared tool that fits, so its name may differ."""

strange = pytest.mark.parametrize("name", STRANGE.values(), ids=STRANGE.keys())


@tool
def get_weather(city: str = "") -> str:
    """Never runs."""
    raise AssertionError


async def codes_of(*made: Any, dialects: Any = None) -> tuple[list[str], list[str]]:
    """Return the names of the calls that ran, and the error codes."""
    source = Script([*made, ProviderCompleted(finish_reason="stop")])
    async with ToolStream(source, tools=[get_weather], dialects=dialects) as events:
        told = [event async for event in events]
    ran = [event.call.name for event in told if isinstance(event, Executed)]
    return ran, [event.code for event in told if isinstance(event, Error)]


@together("dialect", ["hash_marker", "tilde_fence", "hermes_json", "mistral_list"])
async def test_json_with_a_similar_name_runs_nothing(dialect: str) -> None:
    """The name is an unknown tool, or no name."""
    for what, name in STRANGE.items():
        call = DIALECTS[dialect].write_call("NAME", {}).replace('"NAME"', json.dumps(name))
        ran, codes = await codes_of(*texts(call), dialects=[dialect])
        assert [] == ran, what
        assert codes in ([Code.UNKNOWN_TOOL], [Code.MISSING_TOOL_NAME], [Code.LONE_SURROGATE]), what


async def test_a_native_call_with_a_similar_name_runs_nothing() -> None:
    for what, name in STRANGE.items():
        ran, codes = await codes_of(NativeToolCall(name, {}, id="n"))
        assert [] == ran, what
        assert codes in ([Code.UNKNOWN_TOOL], [Code.MISSING_TOOL_NAME]), what


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.deep)])
def test_no_dialect_changes_a_name_to_that_of_a_tool(share: int) -> None:
    with cases() as case:
        for dialect in [*DIALECTS.values()][::share]:
            for what, name in STRANGE.items():
                with case(dialect.id, what):
                    text = dialect.write_call("NAME", {"city": "a"}).replace("NAME", name)
                    read = {call.name for call in parse(text, dialects=[dialect], tools=[get_weather]).calls}
                    assert NAME not in read or dialect.id in (*WITH_IDS, *OF_THE_FORM.get(name, ()))


@strange
def test_similar_names_are_invalid_for_tools(name: str) -> None:
    """Names are 1 to 64 of A-Z, a-z, 0-9, `_` and `-`, so no two are equal after normalisation."""
    try:
        made = Tool(get_weather, name=name)
    except ValueError:
        return
    assert made.name.isascii()
    assert made.name == unicodedata.normalize("NFKC", made.name)


async def test_a_server_replaces_no_tool() -> None:
    """Registered tools stay, whatever names an MCP server uses."""

    names = (NAME, "get.weather", "get weather", "gеt_weather", f"{NAME}\n", NAME)
    with structlog.testing.capture_logs() as logs:
        registry = await ToolRegistry(Tool(get_weather, description="mine")).add_mcp(Server(*map(listed, names)))

    assert {"duplicate_tool"} == {entry["event"] for entry in logs}
    assert "mine" == registry.find(NAME).description
    assert all(each.isascii() for each in registry.names)


async def test_a_registry_finds_no_similar_name() -> None:
    """It only suggests one."""
    registry = ToolRegistry(get_weather)
    for name in STRANGE.values():
        assert registry.get(name) is None
        assert name not in registry
        with pytest.raises(UnknownTool):
            await registry.execute(name)
