"""A server with the MCP SDK over standard input and output, for `test_mcp`."""

from __future__ import annotations

from typing import Any

import anyio
from pydantic import BaseModel


class Weather(BaseModel):
    """A structured result."""

    city: str
    celsius: float


async def weather(city: str) -> Weather:
    """Tell how warm it is."""
    return Weather(city=city, celsius=21)


async def note(text: str) -> str:
    """Take a note."""
    return f"noted: {text}"


async def refuse() -> str:
    """Refuse."""
    raise ValueError("not on Sundays")


def serve() -> None:
    """Serve these tools, and one that reports progress, until the client disconnects."""
    from mcp.server.mcpserver import Context, MCPServer

    async def work(context: Any) -> str:
        """Work, and tell how far it is."""
        await context.report_progress(1, 2, "half")
        return "done"

    async def wait(context: Any) -> str:
        """Report progress once, then wait forever."""
        await context.report_progress(0, 1, "waiting")
        await anyio.sleep_forever()
        return "never"

    wait.__annotations__["context"] = Context
    work.__annotations__["context"] = Context  # by which the SDK knows whom to give it
    server = MCPServer("weather", log_level="CRITICAL")
    server.add_tool(weather)
    server.add_tool(note, structured_output=False)
    server.add_tool(refuse)
    server.add_tool(work)
    server.add_tool(wait)
    server.run()


if __name__ == "__main__":
    serve()
