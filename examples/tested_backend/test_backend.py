"""The backend with a recorded answer of a model, at every cut, and with network failures.

pytest                                                                  # replays the recording
MODEL_URL=http://127.0.0.1:8080/v1 pytest --record-streams=rewrite      # calls the model, and records it again
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from backend import app, make_client

from streamtools.events import Executed, Start, Text
from streamtools.testing import RecordingFixture, assert_events, every_cut, read_events

pytestmark = [pytest.mark.anyio, pytest.mark.recording("weather")]

QUESTION = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
EXPECTED = [
    Start,
    ...,
    {"type": "call", "call": {"name": "get_weather", "arguments": {"city": "Paris"}}},
    ...,
    {"type": "executed", "message": "18 °C in Paris"},
    ...,
    Text,
    ...,
    {"type": "done", "reason": "finished"},
]


@pytest.fixture
async def client(recording: RecordingFixture) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the backend, with the recording as its model."""
    app.dependency_overrides[make_client] = lambda: recording.client()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://backend") as client:
        yield client
    app.dependency_overrides.clear()


async def test_the_tool_runs_and_its_result_is_answered(client: httpx.AsyncClient) -> None:
    """No character of the call is shown, and the second request has the result."""
    events = read_events((await client.post("/chat", json=QUESTION)).text)

    assert_events(events, EXPECTED)
    assert "tool_call" not in "".join(event.text for event in events if isinstance(event, Text))


@every_cut
async def test_it_does_not_matter_where_the_network_cuts(client: httpx.AsyncClient) -> None:
    """The same events for every cut."""
    assert_events(read_events((await client.post("/chat", json=QUESTION)).text), EXPECTED)


@pytest.mark.recording(reset_after=6000, unplayed="ignore")
async def test_a_connection_that_breaks_in_a_call(client: httpx.AsyncClient) -> None:
    """The page gets an error, and no tool runs on half a call. Places are byte offsets in the response."""
    events = read_events((await client.post("/chat", json=QUESTION)).text)

    assert not any(isinstance(event, Executed) for event in events)
    assert_events(events, [..., {"type": "error", "code": "truncated"}, ..., {"type": "done", "reason": "failed"}])


@pytest.mark.recording(unplayed="ignore")
async def test_what_is_no_message_is_refused(client: httpx.AsyncClient) -> None:
    """With status 400, before the model is called."""
    response = await client.post("/chat", json={"messages": [{"role": "nobody", "content": "Hello"}]})
    assert response.status_code == 400
