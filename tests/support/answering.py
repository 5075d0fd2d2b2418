"""A provider on the loopback interface for the tests of the page."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import httpx

from streamtools import ApprovalOptions, ParserOptions
from streamtools.apps.web import Answerer, PageAnswer, Suggestion, make_app
from streamtools.conversation import OpenAIChat, chat
from streamtools.history import Message, User
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
    """Pay a person."""
    return f"paid {amount} to {to}"


@tool(client=True)
def pick_date(title: str) -> Any:
    """Let the user pick a date."""
    raise AssertionError("the user picks it")


TOOLS = ToolRegistry(look_up, pay, pick_date)


def delta(text: str) -> bytes:
    """Return one chunk of a response."""
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': text}}]})}\n\n".encode()


END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def saying(*pieces: Piece, hold: bool = False) -> Loopback:
    """Return a response with text. It waits for events among the pieces. With `hold`, it never ends."""
    script = [delta(each) if isinstance(each, str) else each for each in pieces]
    return Loopback(script if hold else [*script, END], hold=hold)


def calling(name: str, **arguments: Any) -> str:
    """Return a call as text."""
    return f"~~~tool_call\n{json.dumps({'name': name, 'arguments': arguments})}\n~~~\n"


class ProviderAnswerer(Answerer):
    """Answers questions with the responses of a provider."""

    label = "a provider of the tests"
    note = "It is on this machine."
    client_tools = ("pick_date",)
    suggestions = (Suggestion("weather", "One call", "What is the weather in Oslo?"),)

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> PageAnswer:
        """Return the answer to a question."""
        model = OpenAIChat("m", base_url=self._provider.url, api_key="k")
        return PageAnswer(
            chat(
                model,
                [*history, User(question)],
                tools=TOOLS,
                approvals=ApprovalOptions(ask="now"),
                parser=ParserOptions(call_deltas=True),
            )
        )


class Page:
    """A browser with its cookies. `server` is the address of the page."""

    def __init__(self, client: httpx.AsyncClient, server: Served, provider: Provider) -> None:
        self.client = client
        self.server = server
        self.provider = provider

    async def post(self, path: str, value: Any = None) -> httpx.Response:
        """Send a POST request with JSON, as the page does."""
        return await self.client.post(path, json={} if value is None else value)

    async def ask(self, question: str) -> str:
        """Send a question, and return the id of the run."""
        response = await self.post("/runs", {"question": question})
        assert 201 == response.status_code, response.text
        run: str = response.json()["run"]
        return run

    async def events(self, run: str, after: int = 0) -> list[dict[str, Any]]:
        """Return all events of a run."""
        response = await self.client.get(f"/runs/{run}/events", headers={"last-event-id": str(after)})
        assert 200 == response.status_code, response.text
        return read_frames(response.content)

    async def until(self, run: str, text: str) -> str:
        """Read a run until an event contains this text, and return the line of this event."""
        async with self.client.stream("GET", f"/runs/{run}/events") as response:
            async for line in response.aiter_lines():
                if line.startswith("data: ") and text in line:
                    return line.removeprefix("data: ")
        raise AssertionError(f"no event contains {text!r}")

    async def state(self) -> dict[str, Any]:
        """Return the state that the server sends to a loaded page."""
        state: dict[str, Any] = (await self.client.get("/conversation")).json()
        return state


def browser(server: Served) -> httpx.AsyncClient:
    """Return a client that sends the headers of the page."""
    return httpx.AsyncClient(base_url=server.url, headers={"origin": server.url}, trust_env=False, timeout=60)


@contextlib.asynccontextmanager
async def opened(*answers: Loopback, answerer: Answerer | None = None, **options: Any) -> AsyncIterator[Page]:
    """Serve an application with these responses."""
    async with Provider(*answers) as provider:
        app = make_app(answerer or ProviderAnswerer(provider), **options)
        async with Served(app, lifespan="on") as server, browser(server) as client:
            yield Page(client, server, provider)
