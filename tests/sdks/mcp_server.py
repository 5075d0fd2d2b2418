"""A server of MCP's SDK over its standard input and output, for the tests beside it."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("weather", log_level="CRITICAL")


class Weather(BaseModel):
    """What comes back with a structure."""

    city: str
    celsius: float


@server.tool()  # type: ignore[untyped-decorator]  # the SDK is not there for the type checker
async def weather(city: str) -> Weather:
    """Tell how warm it is."""
    return Weather(city=city, celsius=21)


@server.tool(structured_output=False)  # type: ignore[untyped-decorator]
async def note(text: str) -> str:
    """Take a note."""
    return f"noted: {text}"


@server.tool()  # type: ignore[untyped-decorator]
async def refuse() -> str:
    """Refuse."""
    raise ValueError("not on Sundays")


@server.tool()  # type: ignore[untyped-decorator]
async def work(context: Context[Any, Any]) -> str:
    """Work, and tell how far it is."""
    await context.report_progress(1, 2, "half")
    return "done"


if __name__ == "__main__":
    server.run()
