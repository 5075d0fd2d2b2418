"""Requests that name the last response, for providers that store responses and may lose them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import Any, ClassVar

import anyio
import pytest
from anyio.abc import SocketStream

from streamtools import chat
from streamtools.conversation.models import AnthropicMessages, Ask, GeminiInteractions, HTTPModel, OpenAIResponses
from streamtools.errors import Code
from streamtools.history import Assistant, Message, Origin, System, User, write_messages
from streamtools.tools import ToolChoice, ToolRegistry
from tests.support.loopback import Loopback, _request

pytestmark = pytest.mark.anyio

Body = dict[str, Any]


def now() -> str:
    """Return the time."""
    return "1:00"


class Keeper(Loopback):
    """A provider that stores each answer with its history, and refuses the same requests as a real one.

    It calls `now` if the last message is a question, and answers after its result.
    """

    make: ClassVar[type[HTTPModel]] = OpenAIResponses
    field = "previous_response_id"
    status = 400
    result, call_id = "function_call_output", "call_id"

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, list[Body]] = {}
        self.bodies: list[Body] = []
        self.refuses = False

    async def _serve(self, stream: SocketStream) -> None:
        body: Body = json.loads((await _request(stream)).partition(b"\r\n\r\n")[2])
        self.bodies.append(body)
        why = self._complaint(body)
        told, status = ([self.error(why)], self.status) if why is not None else (self._answer(body), 200)
        pieces = [
            json.dumps(each).encode() if why else b"data: " + json.dumps(each).encode() + b"\n\n" for each in told
        ]
        answer = Loopback(status=status, declared="application/json" if why is not None else "text/event-stream")
        sent = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        async with stream:
            with contextlib.suppress(anyio.BrokenResourceError):  # by a client that has seen enough
                await stream.send(answer._head.encode() + sent + b"0\r\n\r\n")

    def _complaint(self, body: Body) -> str | None:
        previous = body.get(self.field)
        if self.refuses:
            return "Unsupported parameter"
        if previous is not None and previous not in self.kept:
            return f"Previous response with id '{previous}' not found."
        said = [*self.kept.get(previous or "", ()), *body["input"]]
        called = [each[self.id_of_call] for each in said if each.get("type") == "function_call"]
        answered = [each[self.call_id] for each in said if each.get("type") == self.result]
        return None if called == answered and body["input"] else f"{called} and {answered}"

    id_of_call = "call_id"

    def _answer(self, body: Body) -> list[Body]:
        id = f"r{len(self.bodies)}"
        items = self.items(len(self.bodies), body["input"][-1].get("type") != self.result)
        self.kept[id] = [*self.kept.get(body.get(self.field) or "", ()), *body["input"], *items]
        return self.told(id, items)

    def items(self, number: int, calls: bool) -> list[Body]:
        call = {"type": "function_call", "call_id": f"c{number}", "name": "now", "arguments": "{}"}
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is one."}]}
        return [call if calls else said]

    def told(self, id: str, items: list[Body]) -> list[Body]:
        done = [{"type": "response.output_item.done", "output_index": 0, "item": each} for each in items]
        return [*done, {"type": "response.completed", "response": {"id": id, "output": items}}]

    def error(self, why: str) -> Body:
        return {"error": {"message": why, "type": "invalid_request_error", "code": "previous_response_not_found"}}


class GoogleKeeper(Keeper):
    make = GeminiInteractions
    field = "previous_interaction_id"
    status = 404
    result, id_of_call = "function_result", "id"

    def items(self, number: int, calls: bool) -> list[Body]:
        thought = {"type": "thought", "signature": f"s{number}"}
        call = {"type": "function_call", "id": f"c{number}", "name": "now", "arguments": {}}
        said = {"type": "model_output", "content": [{"type": "text", "text": "It is one."}]}
        return [thought, call if calls else said]

    def told(self, id: str, items: list[Body]) -> list[Body]:
        steps: Iterable[Body] = (
            {"event_type": kind, "index": at, **({"step": each} if kind == "step.start" else {})}
            for at, each in enumerate(items)
            for kind in ("step.start", "step.stop")
        )
        end = {"id": id, "status": "completed"}
        return [*steps, {"event_type": "interaction.completed", "interaction": end}]

    def error(self, why: str) -> Body:
        return {"error": {"code": 404, "message": why, "status": "NOT_FOUND"}}


async def talk(keeper: Keeper, history: list[Message], *questions: str, **options: Any) -> list[Message]:
    model = keeper.make("m", base_url=keeper.url, api_key="k", retries=0, previous_id=True, **options)
    for question in questions:
        events = chat(model, [*history, User(question)], tools=[now])
        await events
        assert ("finished", []) == (events.result.reason, events.result.errors)
        history = events.history
    return history


@pytest.mark.parametrize("make", [Keeper, GoogleKeeper])
async def test_requests_continue_the_last_response(make: type[Keeper]) -> None:
    """They contain a result or the next question. If the provider lost the response, the whole history is sent once."""
    async with make() as keeper:
        history = await talk(keeper, [System("Be brief.")], "What time is it?", "And now?")
        assert [None, "r1", "r2", "r3"] == [body.get(keeper.field) for body in keeper.bodies]
        first = keeper.bodies[0]
        assert [len(first["input"]), 1, 1, 1] == [len(body["input"]) for body in keeper.bodies]
        tails = [write_messages([each], keeper.make.format) for each in history if isinstance(each, User)]
        assert tails[1] == keeper.bodies[2]["input"]
        assert keeper.result == keeper.bodies[1]["input"][0]["type"] == keeper.bodies[3]["input"][0]["type"]
        assert len({json.dumps(body.get("system_instruction")) for body in keeper.bodies}) == 1
        assert ["r1", "r2", "r3", "r4"] == [each.response_id for each in history if isinstance(each, Assistant)]

        keeper.kept.clear()
        history = await talk(keeper, history, "Thanks.")
        assert ["r4", None, "r6"] == [body.get(keeper.field) for body in keeper.bodies[4:]]
        assert write_messages(history[:-3], keeper.make.format) == keeper.bodies[5]["input"]


@pytest.mark.parametrize("make", [Keeper, GoogleKeeper])
async def test_a_refused_whole_history_is_an_error(make: type[Keeper]) -> None:
    """There are two requests, or one if no response was named."""
    async with make() as keeper:
        history = await talk(keeper, [], "What time is it?")
        keeper.refuses, keeper.bodies = True, []
        model = keeper.make("m", base_url=keeper.url, api_key="k", retries=0, previous_id=True)
        for said, requests in ((history, 2), (history[:1], 1)):
            keeper.bodies = []
            events = chat(model, [*said, User("?")])
            await events
            (error,) = events.result.errors
            assert (Code.UPSTREAM_ERROR, keeper.status) == (error.code, error.status)
            assert requests == len(keeper.bodies)


def test_the_response_that_a_request_names() -> None:
    """It is the last response of this provider with a message after it. With `whole`, none is named."""
    model = OpenAIResponses("m", api_key="", previous_id=True)
    here, there = Origin("responses", "api.openai.com"), Origin("responses", "elsewhere.example")

    def said(id: str | None, origin: Origin = here) -> Assistant:
        return Assistant("Hi", origin=origin, response_id=id)

    def named(*history: Message, **more: Any) -> tuple[Any, int]:
        body = model.body(Ask(history, **more))
        return body.get("previous_response_id"), len(body["input"])

    user = User("?")
    assert (None, 1) == named(user)
    assert ("a", 1) == named(user, said("a"), user)
    assert ("b", 1) == named(user, said("a"), user, said("b"), user)
    assert ("a", 3) == named(user, said("a"), user, said(None), user)
    assert ("a", 3) == named(user, said("a"), user, said("b", there), user)
    assert (None, 3) == named(user, said("b", Origin("anthropic")), user)
    assert (None, 2) == named(user, said("a"))
    assert (None, 3) == named(user, said("a"), user, whole_history=True)
    assert (None, 3) == named(user, said("a"), user, options={"store": False})
    assert said("a") == said("b")


def test_previous_id_without_stored_responses() -> None:
    """This combination raises ValueError."""
    with pytest.raises(ValueError, match="AnthropicMessages does not support `previous_id`"):
        AnthropicMessages("m", previous_id=True)
    with pytest.raises(ValueError, match="store=False"):
        OpenAIResponses("m", previous_id=True, store=False)
    assert "previous_response_id" not in OpenAIResponses("m").body(Ask((User("?"), Assistant("a"), User("?"))))


def test_body_of_interactions() -> None:
    """Instructions, tools, tool choice and options are in separate fields."""
    tools = tuple(ToolRegistry(now))
    history = (System("Be brief."), User("Hi"))
    options: Any = {"max_tokens": 9, "stop": "END"}
    google = GeminiInteractions("m", api_key="", thinking_level="low", **options)

    assert {
        "model": "m",
        "input": [{"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}],
        "stream": True,
        "system_instruction": "Be brief.",
        "tools": ToolRegistry(now).definitions("interactions"),
        "generation_config": {
            "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["now"]}},
            "thinking_level": "low",
            "max_output_tokens": 9,
            "stop_sequences": ["END"],
        },
    } == google.body(Ask(history, tools, ToolChoice("tool", "now")))
    assert "none" == google.body(Ask(history, tools, ToolChoice("none")))["generation_config"]["tool_choice"]
