"""The tests: an answer that is reloaded, one that is stopped, and a payment that is decided on another connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import app
import httpx
import pytest

from streamtools.conversation import ScriptedModel
from streamtools.events import NativeToolCall, UIEvent
from streamtools.testing import read_events

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of the tests."""
    return "asyncio"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A signed-in page, without a network."""
    transport = httpx.ASGITransport(app.app)
    async with (
        app.app.router.lifespan_context(app.app),  # enters `Runs`
        httpx.AsyncClient(transport=transport, base_url="http://app", cookies={"session": "ann"}) as client,
    ):
        yield client


def play(monkeypatch: pytest.MonkeyPatch, *first: Any, resumed: str = "Done.") -> None:
    """Let a script answer."""
    monkeypatch.setattr(app, "make_model", lambda is_resumed=False: ScriptedModel([resumed] if is_resumed else first))


async def read(client: httpx.AsyncClient, path: str, **headers: str) -> list[UIEvent]:
    """Return the events up to the end of the run."""
    return list(read_events((await client.get(path, headers=headers)).raise_for_status().text))


async def test_a_reloaded_page_reads_the_rest(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, ["It ", "is ", "warm."])
    path = f"/runs/{(await client.post('/runs', json={'text': 'Warm?'})).json()['run']}"
    events = await read(client, path)
    at = next(event.seq for event in events if event.type == "text")

    assert events[-1].reason == "finished"
    assert [event for event in events if event.seq > at] == await read(client, path, **{"last-event-id": str(at)})
    assert (await client.get(path, headers={"cookie": "session=bob"})).status_code == 404


async def test_a_stop_ends_the_answer(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, ["It is warm. "] * 100_000)
    path = f"/runs/{(await client.post('/runs', json={'text': 'Warm?'})).json()['run']}"

    assert (await client.delete(path)).status_code == 204
    assert (await read(client, path))[-1].reason == "cancelled"


@pytest.mark.parametrize(("decision", "results"), [("approve", [{"message": "paid 5 to Ann"}]), ("deny", [])])
async def test_a_payment_waits_for_a_click(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, decision: str, results: list[Any]
) -> None:
    play(monkeypatch, NativeToolCall("pay", {"to": "Ann", "amount": 5}))
    path = f"/runs/{(await client.post('/runs', json={'text': 'Pay Ann 5.'})).json()['run']}"
    (asked,) = [event for event in await read(client, path) if event.type == "approval-requested"]
    body = {"decision": decision, **({"digest": asked.digest} if decision == "approve" else {})}
    clicks = [await client.post(f"{path}/calls/{asked.call.id}", json=body) for _ in range(2)]
    events = await read(client, f"/runs/{clicks[0].json()['run']}")  # of both runs

    assert [click.status_code for click in clicks] == [202, 202]
    assert results == [event.result for event in events if event.type == "executed"]
    assert "".join(event.text for event in events if event.type == "text") == "Done."
