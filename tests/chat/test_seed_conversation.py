"""A question about the weather in nine steps, as earlier chat front ends promised it.

The model calls with `###:` in its text over an agent's event stream. A websocket gets the events, and shows them to its
user.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import httpx

from streamtools import RunnerOptions, ToolOutcome, ToolRegistry, UiTexts, chat, tool
from streamtools.calls import ToolCall
from streamtools.conversation import Ask, Chat, HTTPModel, latitude_request
from streamtools.events import Done, FollowUp, Text, Thinking, read_ui_event
from tests.sources.test_sources_latitude import chain, native, part
from tests.support.loopback import Loopback
from tests.support.loops import OTHER_LOOP_DEEP
from tests.support.provider import Provider

QUESTION = {"role": "user", "content": "Check the weather in San Francisco"}
CALL = '###:{"toolName":"getWeather","parameters":{"city":"San Francisco"}}'
WEATHER = {"success": True, "temperature": 65, "condition": "Sunny"}
RESULT = {"role": "user", "content": f"###result getWeather: {json.dumps(WEATHER, separators=(',', ':'))}"}
ANSWER = "The weather in San Francisco is 65°F and sunny."


class Agent(HTTPModel):
    """A prompt that runs on the server of a chat front end."""

    format = "latitude"
    _default_base_url = "http://127.0.0.1"
    key_names = ()

    def body(self, ask: Ask) -> dict[str, Any]:
        named: dict[str, Any] = {"tools": ask.tools, "dialects": ask.dialects, "prompt_path": self.name}
        return latitude_request(ask.history, **named, **ask.options)

    def _path(self) -> str:
        return "/chat"


class Websocket:
    """The websocket of a web framework, with its page, which shows text and the current activity."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.message = ""
        self.beside: list[str] = []
        self.thinking = False

    async def send_text(self, data: str) -> None:
        self.received.append(data)
        event = read_ui_event(data)
        if isinstance(event, Text):
            self.message += event.text
        if isinstance(event, Thinking):
            self.thinking = event.active
        if told := UiTexts().render(event):
            self.beside.append(told)
        assert "###" not in self.message


def registry(called: list[str]) -> ToolRegistry:
    @tool(name="getWeather")
    async def get_weather(city: str) -> dict[str, Any]:
        """Tell the weather in a city."""
        called.append(city)
        return WEATHER

    return ToolRegistry(get_weather)


def says(*deltas: str) -> Loopback:
    """Return a run of the agent that answers with these deltas."""
    text = "".join(deltas)
    begin = [chain("chain-started"), chain("step-started"), chain("provider-started", config={"model": "m"})]
    told = [part("text-delta", id="t", textDelta=delta) for delta in deltas]
    response = {"streamType": "text", "text": text, "toolCalls": []}
    end = [
        chain("provider-completed", finishReason="stop", response=response),
        chain("step-completed"),
        chain("chain-completed", finishReason="stop", response=response),
    ]
    return Loopback([native(event) for event in (*begin, *told, *end)])


def cuts(text: str) -> Iterable[list[str]]:
    """Yield the deltas of a text: two pieces with each cut, the whole text, and single characters."""
    yield from ([text[:at], text[at:]] for at in range(1, len(text)))
    yield [text]
    yield [*text]


async def forward(events: Chat, websocket: Websocket) -> None:
    async for event in events:
        await websocket.send_text(event.to_json())


async def test_the_nine_steps() -> None:
    """From the question to the answer, which contains the result of the tool."""
    called: list[str] = []
    told: list[Any] = []
    websocket = Websocket()

    def on_tool_result(call: ToolCall, outcome: ToolOutcome) -> None:
        told.append((call.name, outcome.result, "*🔧 Executed getWeather*" in websocket.beside))

    tools = registry(called)
    deltas = ["I will look. \n", "#", "##", ':{"toolName":"get', 'Weather","parameters":{"city":"San Fran', 'cisco"}}']
    async with Provider(says(*deltas), says("The weather in San ", "Francisco is 65°F and sunny.")) as server:
        agent = Agent("briefPlanner", base_url=server.url, api_key="")
        async with chat(
            agent, [QUESTION], tools=tools, runner=RunnerOptions(on_result=on_tool_result), request={"todos": []}
        ) as events:
            await forward(events, websocket)
        first, second = server.bodies

    # 2 and 3: the call is found in any pieces; the page waits and never shows it
    assert f"I will look. \n{ANSWER}" == websocket.message
    assert "🔧 Waiting for tool call completion..." == websocket.beside[0]
    assert not websocket.thinking
    # 4 and 5: it is parsed and runs
    assert ["San Francisco"] == called
    assert ["🔧 Executing tool: getWeather...", "*🔧 Executed getWeather*"] == websocket.beside[1:]
    # 6: the callback gets the result before the page
    assert [("getWeather", WEATHER, False)] == told
    # 7 and 8: a new request contains the result in a message
    (follow_up,) = [event for event in map(read_ui_event, websocket.received) if isinstance(event, FollowUp)]
    assert [{"role": "assistant", "content": "I will look. \n" + CALL}, RESULT] == follow_up.messages
    assert [QUESTION] == first["messages"]
    assert [QUESTION, *follow_up.messages] == second["messages"]
    for body in (first, second):
        assert (tools.definitions("tool_clients"), "briefPlanner", []) == (
            body["toolClients"],
            body["promptPath"],
            body["todos"],
        )
    # 9: the answer, without text that only the page has shown
    end = read_ui_event(websocket.received[-1])
    assert isinstance(end, Done)
    assert ("finished", "c-1") == (end.reason, end.conversation_id)
    assert [QUESTION, *follow_up.messages, {"role": "assistant", "content": ANSWER}] == events.messages()


@OTHER_LOOP_DEEP
async def test_cuts_of_the_call_change_nothing() -> None:
    async with httpx.AsyncClient() as client:
        for deltas in cuts(CALL):
            called: list[str] = []
            websocket = Websocket()
            async with Provider(says(*deltas), says(ANSWER)) as server:
                agent = Agent("briefPlanner", base_url=server.url, api_key="", client=client)
                async with chat(agent, [QUESTION], tools=registry(called)) as events:
                    await forward(events, websocket)
            assert [ANSWER, ["San Francisco"], 3] == [websocket.message, called, len(websocket.beside)], deltas
