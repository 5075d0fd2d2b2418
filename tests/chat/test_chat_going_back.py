"""Chats with simulated providers that refuse the requests that real ones refuse, such as incomplete earlier answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import httpx
import pytest

from streamtools import chat
from streamtools.conversation import (
    AnthropicMessages,
    BedrockConverse,
    GeminiChat,
    GeminiInteractions,
    HTTPModel,
    OpenAIChat,
    OpenAIResponses,
    ScriptedModel,
)
from streamtools.events import FollowUp, StepEnd
from streamtools.history import read_messages
from streamtools.outputs import ag_ui, ai_sdk
from tests.support.cases import together
from tests.support.event_streams import event
from tests.support.front_ends import keep_ag_ui, keep_ai_sdk
from tests.support.options import grouped
from tests.support.talks import calls, says, talk

Body = dict[str, Any]


def sse(values: Iterable[Body]) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


def now(n: int = 1) -> str:
    """Return the time."""
    return f"{n}:00"


# For each provider: a turn with a call, a turn without one, and the parts that a request must contain.


def chat_stream(number: int, calls: bool, field: str) -> list[Body]:
    value = details(number) if field == "reasoning_details" else "Hm"
    call = {"index": 0, "id": f"c{number}", "function": {"name": "now", "arguments": "{}"}}
    deltas: list[Body] = [{field: value}, {"tool_calls": [call]} if calls else {"content": "It is one."}]
    told: list[Body] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return [*told, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]}]


def chat_complaint(body: Body, field: str) -> str | None:
    turns: list[list[Body]] = [[]]
    for message in body["messages"]:
        turns = [*turns, []] if message["role"] == "user" else turns
        turns[-1] += [message] if message["role"] == "assistant" else []
    for turn in turns:
        called = any("tool_calls" in message for message in turn)
        for message in turn:
            if called != (field in message):
                return f"{field} is {'missing from' if called else 'not wanted in'} a turn"
    return None


def details(number: int) -> list[Body]:
    return [{"type": "reasoning.encrypted", "data": f"secret {number}", "id": f"r{number}", "index": 0}]


def anthropic_stream(number: int, calls: bool, first: Body) -> list[Body]:
    last: Body = {"type": "text", "text": "It is one."}
    if calls:
        last = {"type": "tool_use", "id": f"c{number}", "name": "now", "input": {"n": 1}}
    blocks = [first, {"type": "text", "text": "So: "}, last]
    told: list[Body] = [{"type": "message_start", "message": {"id": f"m{number}", "content": []}}]
    for at, each in enumerate(blocks):
        told.append({"type": "content_block_start", "index": at, "content_block": each})
        if "signature" in each:
            told.append({"type": "content_block_delta", "index": at, "delta": {"type": "signature_delta", **SIGNED}})
        told.append({"type": "content_block_stop", "index": at})
    reason = "tool_use" if calls else "end_turn"
    return [*told, {"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


SIGNED = {"signature": "s"}


def anthropic_complaint(body: Body, first: Body) -> str | None:
    for message in body["messages"]:
        if message["role"] == "assistant" and message["content"][0] != first:
            return "a turn begins differently"
    return None


def responses_stream(number: int, calls: bool, item: Body) -> list[Body]:
    last: Body = {"type": "message", "id": f"m{number}", "role": "assistant", "phase": "final_answer"}
    last["content"] = [{"type": "output_text", "text": "It is one."}]
    if calls:
        call = {"type": "function_call", "id": f"fc{number}", "call_id": f"c{number}"}
        last = {**call, "name": "now", "arguments": "{}"}
    thought = {"type": "reasoning", "id": f"rs{number}", "summary": [], "encrypted_content": f"e{number}"}
    items = [thought, {**item, "id": f"ws{number}"}, last] if item else [thought, last]
    told: list[Body] = [
        {"type": "response.output_item.done", "output_index": at, "item": each} for at, each in enumerate(items)
    ]
    return [*told, {"type": "response.completed", "response": {"output": items}}]


def responses_complaint(body: Body, item: Body) -> str | None:
    items = body["input"]
    for at, each in enumerate(items):
        if each.get("type") == "reasoning":
            following = items[at + 1] if at + 1 < len(items) else {}
            ends = following.get("role") == "user" or following.get("type") == "reasoning"
            if ends or not each.get("encrypted_content"):
                return "reasoning was provided without its required following item"
        elif each.get("role") == "assistant" and each.get("phase") != "final_answer":
            return "a message without its phase"
        elif each.get("type") == "web_search_call" and items[at - 1].get("type") != "reasoning":
            return "a search was provided without its required reasoning item"
    turns = sum(each.get("type") == "function_call" or each.get("role") == "assistant" for each in items)
    wanted = turns * (2 if item else 1)
    return None if wanted == sum(each.get("type") in ("reasoning", "web_search_call") for each in items) else "lost"


def gemini_stream(number: int, calls: bool, on: str) -> list[Body]:
    last: Body = {"functionCall": {"name": "now", "args": {}}} if calls else {"text": "It is one."}
    parts = [{"text": "So: "}, {**last, "thoughtSignature": f"s{number}"}]
    if on == "code":
        code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "x"}
        parts = [code, {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}, *parts]
    told: list[Body] = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    return [*told, {"candidates": [{"finishReason": "STOP"}]}]


def gemini_complaint(body: Body, on: str) -> str | None:
    for number, content in enumerate(each for each in body["contents"] if each["role"] == "model"):
        signed = [part for part in content["parts"] if part.get("thoughtSignature") == f"s{number}"]
        if len(signed) != 1 or signed[0].get("text") == "So: ":
            return "missing thought_signature"
        if on == "code" and [*content["parts"][0]] != ["executableCode", "thoughtSignature"]:
            return "lost"
    return None


def steps_stream(number: int, calls: bool, search: Body) -> list[Body]:
    last: Body = {"type": "model_output", "content": [{"type": "text", "text": "It is one."}]}
    if calls:
        last = {"type": "function_call", "id": f"c{number}", "name": "now", "arguments": {}, "signature": "z"}
    found = {**search, "type": "google_search_result", "call_id": "g", "result": []}
    thought = {"type": "thought", "signature": "s", "summary": [{"type": "text", "text": "Hm"}]}
    steps = [thought, *([{**search, "id": "g"}, found] if search else []), last]
    told: list[Body] = []
    for at, step in enumerate(steps):
        told += [{"event_type": "step.start", "index": at, "step": step}, {"event_type": "step.stop", "index": at}]
    return [*told, {"event_type": "interaction.completed", "interaction": {"id": f"i{number}", "status": "completed"}}]


def steps_complaint(body: Body, search: Body) -> str | None:
    kinds = [each["type"] for each in body["input"] if each["type"] not in ("user_input", "function_result")]
    wanted = ["thought", *([search["type"], "google_search_result"] if search else [])]
    for turn in zip(*[iter(kinds)] * (len(wanted) + 1), strict=True):
        if [*turn[:-1]] != wanted:
            return "a thought or a search is missing"
    steps = [each for each in body["input"] if each["type"] in ("thought", "function_call")]
    return None if all("signature" in each for each in steps) else "a signature is missing"


def converse_stream(number: int, calls: bool, thought: Body) -> bytes:
    last: Body = {"text": "It is one."}
    start: Body = {}
    deltas = [_delta(0, {"reasoningContent": {name: value}}) for name, value in thought.items()]
    if calls:
        start, last = {"toolUse": {"toolUseId": f"c{number}", "name": "now"}}, {"toolUse": {"input": "{}"}}
    return b"".join(
        [
            event("messageStart", {"role": "assistant"}),
            *(event("contentBlockDelta", delta) for delta in deltas),
            event("contentBlockStop", {"contentBlockIndex": 0}),
            event("contentBlockStart", {"contentBlockIndex": 1, "start": start}),
            event("contentBlockDelta", _delta(1, last)),
            event("contentBlockStop", {"contentBlockIndex": 1}),
            event("messageStop", {"stopReason": "tool_use" if calls else "end_turn"}),
        ]
    )


def _delta(index: int, delta: Body) -> Body:
    return {"contentBlockIndex": index, "delta": delta}


def converse_complaint(body: Body, thought: Body) -> str | None:
    said = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
    is_kept = all({"reasoningContent": {"reasoningText": thought}} == blocks[0] for blocks in said)
    return None if is_kept else "a thought is missing"


THINKING: Body = {"type": "thinking", "thinking": "Hm", "signature": "s"}
HIDDEN: Body = {"type": "redacted_thinking", "data": "d"}
SEARCHED: Body = {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}}
Stream: TypeAlias = Callable[[int, bool], list[Body] | bytes]
Complaint: TypeAlias = Callable[[Body], str | None]
FRONT_ENDS = ("AI SDK", "AG-UI")


def provider(make: type[HTTPModel], stream: Callable[..., Any], complaint: Callable[..., Any], what: Any) -> Any:
    """Return a provider whose answers contain `what`, and which refuses a request without it."""
    return make, partial(_streaming, stream, what), partial(_complaining, complaint, what)


def _streaming(stream: Callable[..., list[Body] | bytes], what: Any, number: int, calls: bool) -> list[Body] | bytes:
    return stream(number, calls, what)


def _complaining(complaint: Callable[..., str | None], what: Any, body: Body) -> str | None:
    return complaint(body, what)


CHAT = partial(provider, OpenAIChat, chat_stream, chat_complaint)
CLAUDE = partial(provider, AnthropicMessages, anthropic_stream, anthropic_complaint)
ITEMS = partial(provider, OpenAIResponses, responses_stream, responses_complaint)
GOOGLE = partial(provider, GeminiChat, gemini_stream, gemini_complaint)
STEPS = partial(provider, GeminiInteractions, steps_stream, steps_complaint)
PROVIDERS: dict[str, tuple[type[HTTPModel], Stream, Complaint]] = {
    **{field: CHAT(field) for field in ("reasoning_content", "reasoning", "reasoning_details")},
    "thinking": CLAUDE(THINKING),
    "redacted thinking": CLAUDE(HIDDEN),
    "compaction": CLAUDE({"type": "compaction", "content": "all of it"}),
    "encrypted reasoning": ITEMS({}),
    "a search after reasoning": ITEMS(SEARCHED),
    "thought signatures": GOOGLE(""),
    "code that Google runs": GOOGLE("code"),
    "steps of Interactions": STEPS({"type": "google_search_call", "arguments": {"queries": ["x"]}}),
    "signed steps": STEPS({}),
    "Converse": provider(BedrockConverse, converse_stream, converse_complaint, {"text": "Hm", "signature": "s"}),
}

AWAY: dict[str, list[str]] = {  # the parts without which each provider refuses a request
    **{field: [field] for field in ("reasoning_content", "reasoning", "reasoning_details")},
    "thinking": ["thinking", "signature"],
    "redacted thinking": ["redacted_thinking"],
    "compaction": ["compaction"],
    "encrypted reasoning": ["encrypted_content", "reasoning", "function_call", "phase"],
    "a search after reasoning": ["encrypted_content", "reasoning", "web_search_call"],
    "thought signatures": ["thoughtSignature"],
    "code that Google runs": ["executableCode", "thoughtSignature"],
    "steps of Interactions": ["signature"],
    "signed steps": ["signature"],
    "Converse": ["signature", "reasoningContent"],
}
KEPT = [
    *("reasoning_details", "thinking", "redacted thinking", "encrypted reasoning", "thought signatures"),
    *("signed steps", "Converse"),
]
"""The turns whose signatures a front end keeps. It keeps no other items of a provider."""


def without(value: Any, name: str) -> Any:
    """Return a request without the fields of this name, and without the parts of this type."""
    if isinstance(value, list):
        return [without(each, name) for each in value if not (isinstance(each, dict) and each.get("type") == name)]
    return (
        {key: without(each, name) for key, each in value.items() if key != name} if isinstance(value, dict) else value
    )


async def converse(name: str, away: str | None = None, *, keeps: str = "history") -> tuple[list[Any], int]:
    """Return the end of three turns, and the number of accepted requests. `away` is removed from each request.

    `keeps` says what is kept between the turns: the history, the messages of the provider, or those of a front end.
    """
    make, stream, complaint = PROVIDERS[name]
    answers = [True, False, False, True, True, False]
    asked: list[Body] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        for each in body.get("input", ()) if keeps in FRONT_ENDS and make is OpenAIResponses else ():
            if each.get("role") == "assistant":
                each["phase"] = "final_answer"  # which no client sends back
        if (why := complaint(without(body, away) if away else body)) is not None:
            return httpx.Response(400, json={"error": {"message": why}})
        asked.append(body)
        told = stream(len(asked) - 1, answers[len(asked) - 1])
        if isinstance(told, bytes):
            return httpx.Response(200, content=told, headers={"content-type": "application/vnd.amazon.eventstream"})
        return httpx.Response(200, content=sse(told))

    history: list[Any] = []
    ends: list[Any] = []
    where: Any = {"region": "us-east-1"} if make is BedrockConverse else {"base_url": "https://llm.example.org/v1"}
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        model = make("m", client=client, api_key="k", retries=0, **where)
        for number, question in enumerate(("What time is it?", "Thanks.", "And now?")):
            said = {"parts": [{"type": "text", "text": question}]} if keeps == "AI SDK" else {"content": question}
            id = {"id": f"q{number}"} if keeps in FRONT_ENDS else {}
            history.append({**id, "role": "user", **said})
            encoder = ai_sdk() if keeps == "AI SDK" else ag_ui(run_id=f"run{number}", protocol_version="1.0")
            messages = read_messages(json.loads(json.dumps(history))) if keeps in FRONT_ENDS else history
            async with chat(model, messages, tools=[now]) as events:
                body = b"".join([encoder.encode(each) async for each in events])
            ends.append((events.result.reason, [error.status for error in events.result.errors]))
            match keeps:
                case "AI SDK":
                    history.append({"id": f"a{number}", "role": "assistant", "parts": []})
                    keep_ai_sdk(body, history[-1])
                case "AG-UI":
                    keep_ag_ui(body, history)
                case "messages":
                    format: Any = make.format
                    history = json.loads(json.dumps(events.messages(format)))
                case _:
                    history = [*events.history]
    return ends, len(asked)


@together(("name", "keeps"), [*product(PROVIDERS, ["history", "messages"]), *product(KEPT, FRONT_ENDS)])
async def test_three_turns_with_tools(name: str, keeps: str) -> None:
    """Each request is accepted, also if the application keeps the messages of the provider between turns.

    If a front end keeps them, the provider would refuse a missing signature.
    """
    assert (3 * [("finished", [])], 6) == await converse(name, keeps=keeps)


@together("name", PROVIDERS)
async def test_each_provider_refuses_incomplete_requests(name: str) -> None:
    """A request without the part is refused. Otherwise the providers would accept anything."""
    for away in AWAY[name]:
        ends, asked = await converse(name, away)
        assert ("failed", [400]) in ends, away
        assert asked < 6, away


# Paused turns.

PAUSED: list[Body] = [
    {"type": "message_start", "message": {"id": "m", "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "I look. "}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}},
    },
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize("tools", [None, [now]], ids=["no tools", "tools"])
async def test_a_paused_turn_is_continued(tools: Any) -> None:
    """The whole turn is sent as the end of the history. The next answer is the next step."""
    end = anthropic_stream(1, False, {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []})
    model = ScriptedModel([sse(PAUSED), sse(PAUSED), sse(end)], format="anthropic")
    async with chat(model, [{"role": "user", "content": "?"}], tools=tools, tool_choice="auto") as events:
        told = [event async for event in events]
    assert ["pause", "pause", "stop"] == [event.finish_reason for event in told if isinstance(event, StepEnd)]
    assert 2 == sum(isinstance(event, FollowUp) for event in told)
    assert ("finished", "stop") == (events.result.reason, events.result.finish_reason)
    first, second, third = (AnthropicMessages("m", api_key="").body(ask)["messages"] for ask in model.asks)
    assert ["user"] == [message["role"] for message in first]
    assert ["user", "assistant"] == [message["role"] for message in second] == [message["role"] for message in third]
    assert ["text", "server_tool_use"] == [block["type"] for block in second[-1]["content"]]
    assert 2 * ["text", "server_tool_use"] == [block["type"] for block in third[-1]["content"]]


async def test_pauses_are_steps() -> None:
    """Their number is limited. With `follow_up="never"`, no request follows."""
    bounds: list[tuple[Any, int, str]] = [({"max_steps": 2}, 2, "stopped"), ({"follow_up": "never"}, 1, "finished")]
    for options, asks, reason in bounds:
        model = ScriptedModel([sse(PAUSED)] * 5, format="anthropic")
        events = chat(model, [{"role": "user", "content": "?"}], **grouped(**options))
        await events
        assert (asks, reason) == (len(model.asks), events.result.reason)


def kept(id: str) -> list[Body]:
    """Return the messages that a front end with the AI SDK posts after a turn with a call of this id."""
    call = {"type": "tool-clock", "toolCallId": id, "state": "output-available", "input": {}, "output": "11:00"}
    said = [call, {"type": "step-start"}, {"type": "text", "text": "Eleven."}]
    turns = (("user", [{"type": "text", "text": "What time is it?"}]), ("assistant", said))
    return [
        *({"id": str(at), "role": role, "parts": parts} for at, (role, parts) in enumerate(turns)),
        {"id": "2", "role": "user", "parts": [{"type": "text", "text": "And now?"}]},
    ]


async def test_ids_that_a_provider_repeats() -> None:
    """Front ends find calls by their ids, so the ids differ in the whole conversation."""
    told = await talk(calls(("clock", {})), says("Noon."), messages=kept("n0"))
    assert ["n0", "n0_2"] == [each["tool_call_id"] for each in told.bodies[1]["messages"] if each["role"] == "tool"]


@pytest.mark.parametrize(("id", "in_text"), [("call_4iNmq2vWZ0k3", True), ("emulated_5_0", True), ("n0", False)])
async def test_calls_from_a_front_end_may_have_been_text(id: str, in_text: bool) -> None:
    """An id that this package made may belong to a call in text. Calls in text are then still found."""
    answers = [says('~~~tool_call\n{"name": "clock"}\n~~~\n'), says("Noon.")]
    told = await talk(*answers[: 1 + in_text], messages=kept(id))
    assert in_text == ("12:00" in str(told.bodies[-1]["messages"]))
