"""A pydantic-ai agent with a model that writes its calls as text.

    MODEL_URL=http://127.0.0.1:8080/v1 python pydantic_ai_agent.py "What is the weather in Paris?"

The agent is the same as with OpenAI's API: tools, dependencies, a stream of events. The transport of its HTTP client
teaches the model to write calls, and turns them into native calls. If the server supports native calls, but some calls
stay in the text, use `ToolCallTransport(mode="auto")`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import anyio
import httpx2
from pydantic_ai import (
    Agent,
    FunctionToolCallEvent,
    PartDeltaEvent,
    PartStartEvent,
    RunContext,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from streamtools.gateway import ToolCallTransport


@dataclass
class Stations:
    """The dependencies of the tools."""

    degrees: dict[str, int]


def make_agent(client: httpx2.AsyncClient) -> Agent[Stations, str]:
    """Return an agent that uses this client."""
    provider = OpenAIProvider(base_url=os.environ["MODEL_URL"], api_key="none", http_client=client)
    agent = Agent(OpenAIChatModel(os.environ.get("MODEL", "default"), provider=provider), deps_type=Stations)

    @agent.tool
    def get_weather(context: RunContext[Stations], city: str) -> str:
        """Tell the weather in a city."""
        degrees = context.deps.degrees.get(city)
        return f"{degrees} °C" if degrees is not None else "There is no station."

    return agent


async def main(question: str) -> None:
    """Ask a question, and print the text while it arrives and each call when it begins."""
    stations = Stations({"Paris": 18, "Bern": 7})
    async with (
        httpx2.AsyncClient(transport=ToolCallTransport(), timeout=300) as client,
        make_agent(client).run_stream_events(question, deps=stations) as events,
    ):
        async for event in events:
            match event:
                case (
                    PartStartEvent(part=TextPart(content=text))
                    | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                ):
                    print(text, end="", flush=True)
                case FunctionToolCallEvent(part=call):
                    print(f"[{call.tool_name} {call.args}]")
    print()


if __name__ == "__main__":
    anyio.run(main, " ".join(sys.argv[1:]) or "What is the weather in Paris?")
