"""Tools of an MCP server, with sessions of any SDK. tests/sdks uses the real SDK."""

from __future__ import annotations

import sys
from types import ModuleType
from types import SimpleNamespace as Record
from typing import Any

import pytest
import structlog.testing

from streamtools import ToolRegistry, ToolStream, sources
from streamtools.conversation import AnthropicMessages, Ask, OpenAIChat
from streamtools.errors import Code
from streamtools.events import Executed, NativeToolCall, ProviderCompleted, UIEvent
from streamtools.history import User
from streamtools.tools import ToolOutcome
from tests.support.cases import together

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


def text(said: str) -> Record:
    return Record(type="text", text=said)


class Server:
    """A session with the names of the SDK's first version, which pages by a cursor."""

    def __init__(self, *tools: Record, result: Any = None, page: int = 100) -> None:
        self.tools = tools
        self.result = Record(content=[text("rain")], isError=False) if result is None else result
        self.called: list[tuple[str, Any]] = []
        self._page = page

    async def list_tools(self, cursor: str | None = None) -> Record:
        start = int(cursor or 0)
        stop = start + self._page
        more = str(stop) if stop < len(self.tools) else None
        return Record(tools=self.tools[start:stop], nextCursor=more)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        self.called.append((name, arguments))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def listed(name: str, schema: Any = None, **more: Any) -> Record:
    return Record(name=name, description=f"Tell {name}.", inputSchema=OBJECT if schema is None else schema, **more)


async def run(registry: ToolRegistry, name: str, arguments: Any) -> tuple[list[UIEvent], ToolOutcome]:
    """Return the events of a stream with one call, and its outcome."""
    source = sources.events([NativeToolCall(name, arguments, id="n0"), ProviderCompleted(finish_reason="tool_calls")])
    async with ToolStream(source, tools=registry) as stream:
        events = [event async for event in stream]
    (outcome,) = stream.result.outcomes
    return events, outcome


async def test_a_tool_of_a_server_is_a_tool() -> None:
    """It is described as the server does, called by its own name, and returns results like a local tool."""
    server = Server(listed("weather", CITY))
    registry = await ToolRegistry().add_mcp(server, prefix="eu_")
    (tool,) = registry
    assert ("eu_weather", "Tell weather.", CITY) == (tool.name, tool.description, tool.parameters)
    events, outcome = await run(registry, "eu_weather", {"city": "Paris"})
    assert [("weather", {"city": "Paris"})] == server.called
    assert ["rain"] == [event.result for event in events if isinstance(event, Executed)]
    assert "rain" == outcome.text


async def test_all_pages_are_read() -> None:
    """In the order of the server. An endless list is abandoned."""
    names = [f"tool_{n}" for n in range(5)]
    registry = await ToolRegistry().add_mcp(Server(*map(listed, names), page=2))
    assert names == registry.names

    class Endless(Server):
        async def list_tools(self, cursor: str | None = None) -> Record:
            return Record(tools=[], nextCursor="more")

    assert [] == (await ToolRegistry().add_mcp(Endless())).names


async def test_a_cursor_can_be_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2 of the SDK requires this."""
    monkeypatch.setitem(sys.modules, "mcp", ModuleType("mcp"))
    monkeypatch.setitem(sys.modules, "mcp.types", Record(PaginatedRequestParams=Record))

    class Second(Server):
        async def list_tools(self, *, params: Any = None) -> Record:  # type: ignore[override]
            return await super().list_tools(params.cursor if params else None)

    names = [f"tool_{n}" for n in range(5)]
    assert names == (await ToolRegistry().add_mcp(Second(*map(listed, names), page=2))).names


async def test_names_are_made_valid() -> None:
    """Each tool gets a unique name, independent of the order. The server is called by the original name."""
    long = "files." + "x" * 80
    server = Server(*map(listed, ("files.read", "files/read", "", long, "é")))
    registry = await ToolRegistry().add_mcp(server)
    assert "files_read" == registry.names[0]
    assert registry.names[1].startswith("files_read_")
    assert all(1 <= len(name) <= 64 for name in registry.names)
    assert 5 == len({*registry.names})
    for name in registry.names:
        await run(registry, name, {})
    assert ["files.read", "files/read", "", long, "é"] == [name for name, _ in server.called]


@together(
    ("result", "for_model", "for_ui"),
    [
        pytest.param(Record(content=[text("a"), text("b")]), "a\nb", "a\nb", id="texts"),
        pytest.param(Record(content=[]), "", "", id="nothing"),
        pytest.param(Record(content=[text("{}")], structuredContent={"a": 1}), '{"a":1}', {"a": 1}, id="structured"),
        pytest.param(Record(content=[], structured_content=[1]), "[1]", [1], id="structured, version 2"),
        pytest.param(Record(content=[text("{}")], structured_content=None), "{}", "{}", id="not structured"),
    ],
)
async def test_a_structured_result_is_preferred_to_text(result: Any, for_model: str, for_ui: Any) -> None:
    events, outcome = await run(await ToolRegistry().add_mcp(Server(listed("it"), result=result)), "it", {})
    assert for_model == outcome.text
    assert [for_ui] == [event.result for event in events if isinstance(event, Executed)]


class Dumped(Record):
    """A block of content as a model of pydantic has it."""

    def model_dump(self, **how: Any) -> dict[str, Any]:
        return {"type": self.type}


@together(
    ("block", "told"),
    [
        pytest.param(Dumped(type="image", mimeType="image/png", data="AAAA"), "[image: image/png]", id="image"),
        pytest.param(Dumped(type="audio", mime_type="audio/wav"), "[audio: audio/wav]", id="audio, version 2"),
        pytest.param(Dumped(type="resource_link", uri="file:///a"), "[resource_link: file:///a]", id="link"),
        pytest.param(Dumped(type="resource", resource=Record(text="inside")), "inside", id="resource with text"),
        pytest.param(Dumped(type="resource", resource=Record(blob="AA", uri="x:y")), "[resource: x:y]", id="resource"),
        pytest.param(object(), "[unknown]", id="of no known kind"),
    ],
)
async def test_other_content_is_described_to_the_model(block: Any, told: str) -> None:
    """The interface gets the whole content."""
    result = Record(content=[text("see"), block])
    events, outcome = await run(await ToolRegistry().add_mcp(Server(listed("it"), result=result)), "it", {})
    assert f"see\n{told}" == outcome.text
    (shown,) = [event.result for event in events if isinstance(event, Executed)]
    assert 2 == len(shown)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        pytest.param(Record(content=[text("no such city")], isError=True), "no such city", id="with words"),
        pytest.param(
            Record(content=[], is_error=True), "the MCP server reported an error without a message", id="without"
        ),
        pytest.param("rain", "tool 'it' failed", id="no result"),
        pytest.param({"content": []}, "tool 'it' failed", id="a dict"),
    ],
)
async def test_errors_are_for_the_model(result: Any, told: str) -> None:
    """The model reads the server's text, as for a local `ToolError`."""
    _, outcome = await run(await ToolRegistry().add_mcp(Server(listed("it"), result=result)), "it", {})
    assert (Code.TOOL_FAILED, told) == (outcome.error, outcome.text)


@together("schema", [{"$defs": 5}, {"properties": {"a": {"anyOf": 5}}}, {"examples": 5}, 5, "x", [{"name": "a"}]])
async def test_a_tool_with_an_invalid_schema_is_skipped(schema: Any) -> None:
    """A warning names it, and prompts are written with the others."""
    server = Server(listed("odd", schema), listed("weather", CITY))
    with structlog.testing.capture_logs() as logs:
        registry = await ToolRegistry().add_mcp(server)
    assert ["weather"] == registry.names
    assert [("mcp_tool_refused", "odd")] == [(line["event"], line["tool"]) for line in logs]
    for format in ("ollama", "tool_clients"):
        assert 1 == len(registry.definitions(format))


@together("name", ["", "a\x00b", "größe", "x" * 65])
async def test_a_tool_with_a_refused_parameter_is_skipped(name: str) -> None:
    """Only in requests to that provider. The other tools are sent."""
    schema = {"type": "object", "properties": {name: {"type": "string"}}}
    registry = await ToolRegistry().add_mcp(Server(listed("odd", schema), listed("weather", CITY)))
    ask = Ask((User("Hi."),), tuple(registry))
    with structlog.testing.capture_logs() as logs:
        body = AnthropicMessages("claude", api_key="").body(ask)
    assert ["weather"] == [each["name"] for each in body["tools"]]
    assert [("tools_left_out", ["odd"])] == [(line["event"], line["tools"]) for line in logs]
    assert 2 == len(OpenAIChat("gpt", api_key="").body(ask)["tools"])


@pytest.mark.parametrize(
    ("tools", "most"),
    [
        pytest.param([listed(f"t{n}") for n in range(1_500)], 1_000, id="tools"),
        pytest.param([listed(f"t{n}", {"description": "x" * 10_000}) for n in range(200)], 104, id="characters"),
    ],
)
async def test_a_list_is_bounded(tools: list[Record], most: int) -> None:
    """In tools and in characters. The rest is left out, with one warning."""
    with structlog.testing.capture_logs() as logs:
        registry = await ToolRegistry().add_mcp(Server(*tools))
    assert most - 1 <= len(registry) <= most
    assert ["mcp_tools_left_out"] == [line["event"] for line in logs]
