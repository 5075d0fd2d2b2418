"""Who answers on the page in its tests: a provider on this machine, asked as a real one is."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import httpx

from streamtools import ApprovalOptions, ParserOptions
from streamtools.apps.web import Answerer, Suggestion, make_app
from streamtools.conversation import Message, OpenAIChat, User, chat
from streamtools.tools import ToolRegistry, tool
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.serving import Served, read_frames

Piece = str | anyio.Event


@tool
async def look_up(city: str) -> str:
    """Tell the weather in a city."""
    return f"17 °C in {city}"


@tool(requires_approval=True)
async def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


@tool(client=True)
def pick_date(title: str) -> Any:
    """Let the user pick a date."""
    raise AssertionError("the user picks it")


TOOLS = ToolRegistry(look_up, pay, pick_date)


def delta(text: str) -> bytes:
    """Return one chunk of an answer."""
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': text}}]})}\n\n".encode()


END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def saying(*pieces: Piece, hold: bool = False) -> Loopback:
    """Return an answer of text; an event among its pieces is waited for, and with `hold` it never ends."""
    script = [delta(each) if isinstance(each, str) else each for each in pieces]
    return Loopback(script if hold else [*script, END], hold=hold)


def calling(name: str, **arguments: Any) -> str:
    """Return a call as text."""
    return f"~~~tool_call\n{json.dumps({'name': name, 'arguments': arguments})}\n~~~\n"


class Answering:
    """Answers what a provider answers."""

    label = "a provider of the tests"
    note = "It is on this machine."
    client_tools = ("pick_date",)
    suggestions = (Suggestion("weather", "One call", "What is the weather in Oslo?"),)

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> chat:
        """Return the answer."""
        model = OpenAIChat("m", base_url=self._provider.url, api_key="k")
        return chat(
            model,
            [*history, User(question)],
            tools=TOOLS,
            approvals=ApprovalOptions(ask="now"),
            parser=ParserOptions(call_deltas=True),
        )


class Page:
    """What one browser does, and one cookie jar. `server` is where it does it."""

    def __init__(self, client: httpx.AsyncClient, server: Served, provider: Provider) -> None:
        self.client = client
        self.server = server
        self.provider = provider

    async def tell(self, path: str, value: Any = None) -> httpx.Response:
        """Post JSON, as the page does."""
        return await self.client.post(path, json={} if value is None else value)

    async def ask(self, question: str) -> str:
        """Ask, and return the id of the run."""
        response = await self.tell("/runs", {"question": question})
        assert 201 == response.status_code, response.text
        run: str = response.json()["run"]
        return run

    async def events(self, run: str, after: int = 0) -> list[dict[str, Any]]:
        """Return the events of a run, to its end."""
        response = await self.client.get(f"/runs/{run}/events", headers={"last-event-id": str(after)})
        assert 200 == response.status_code, response.text
        return read_frames(response.content)

    async def until(self, run: str, text: str) -> str:
        """Read a run until an event holds this text, and return the event as it came."""
        async with self.client.stream("GET", f"/runs/{run}/events") as response:
            async for line in response.aiter_lines():
                if line.startswith("data: ") and text in line:
                    return line.removeprefix("data: ")
        raise AssertionError(f"no event held {text!r}")

    async def known(self) -> dict[str, Any]:
        """Return what the server tells a page that is loaded."""
        told: dict[str, Any] = (await self.client.get("/conversation")).json()
        return told


def browser(server: Served) -> httpx.AsyncClient:
    """Return a client that sends what the page sends."""
    return httpx.AsyncClient(base_url=server.url, headers={"origin": server.url}, trust_env=False, timeout=60)


@contextlib.asynccontextmanager
async def opened(*answers: Loopback, answerer: Answerer | None = None, **options: Any) -> AsyncIterator[Page]:
    """Serve an application in which these answers are given."""
    async with Provider(*answers) as provider:
        app = make_app(answerer or Answering(provider), **options)
        async with Served(app, lifespan="on") as server, browser(server) as client:
            yield Page(client, server, provider)
