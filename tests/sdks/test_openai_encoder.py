"""The `openai` client reads the output of `outputs.openai` and finds native calls for calls in text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools import ParserOptions, ToolStream, outputs, replay, sources
from streamtools.events import UIEvent
from streamtools.recording import shipped
from tests.sdks.clients import ASKED, WAYS, openai_async, openai_client
from tests.sdks.conftest import MARKS, Serve
from tests.support.sample_runs import RUNS

pytestmark = MARKS

TEXT = (
    "Let me look at both.\n\n"
    '~~~tool_call\n[{"toolName": "get_weather", "arguments": {"city": "Zürich"}},'
    ' {"toolName": "get_time", "arguments": {}}]\n~~~\n'
)
CALLS = [("get_weather", '{"city":"Zürich"}'), ("get_time", "{}")]


def write(events: list[UIEvent], **options: Any) -> bytes:
    """Return a body, with what keeps the connection alive between its events."""
    encoder = outputs.openai(**options)
    return encoder.keep_alive.join(map(encoder.encode, events)) + encoder.close()


async def answer(*, call_deltas: bool, **options: Any) -> bytes:
    """Return the body of a run in which the model has written two calls as text, piece by piece."""
    deltas = [TEXT[at : at + 7] for at in range(0, len(TEXT), 7)]
    async with ToolStream(sources.text(deltas), parser=ParserOptions(call_deltas=call_deltas)) as stream:
        events = [event async for event in stream]
    return write(events, call_deltas=call_deltas, **options)


@pytest.mark.parametrize("call_deltas", [True, False])
async def test_calls_in_text_are_native_calls(serve: Serve, call_deltas: bool) -> None:
    """The chunks are of the client's own types, and their pieces make two calls with ids of their own."""
    content, finish = "", None
    calls: dict[int, list[str]] = {}
    url = serve(await answer(call_deltas=call_deltas, model="m"), "text/event-stream")
    async with WAYS["openai, its bytes"].ask(url) as stream:
        async for chunk in stream:
            assert (chunk.object, chunk.model) == ("chat.completion.chunk", "m")
            choice = chunk.choices[0]
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                known = calls.setdefault(call.index, [call.id, "", ""])
                known[1] += call.function.name or ""
                known[2] += call.function.arguments or ""

    assert ("Let me look at both.", "tool_calls") == (content, finish)
    assert [name for name, _ in CALLS] == [name for _, name, _ in calls.values()]
    assert len({id for id, _, _ in calls.values()}) == 2


@pytest.mark.parametrize("name", RUNS)
async def test_every_run_can_be_read(serve: Serve, name: str) -> None:
    """The client reads each run to its end, or raises the error that ended it."""
    import openai

    finish = None
    with openai_client(serve(write(RUNS[name]), "text/event-stream")) as client:
        stream = client.chat.completions.create(model="m", messages=ASKED, stream=True)
        if "error" in name:
            with pytest.raises(openai.APIError, match="the provider is overloaded") as caught:
                list(stream)
            assert "upstream_error" == caught.value.code
            return
        for chunk in stream:
            finish = chunk.choices[0].finish_reason or finish

    assert (finish is None) == ("cancelled" in name)
    if name in ("a call that waits", "stopped by a limit"):
        assert "tool_calls" == finish


@pytest.mark.parametrize("call_deltas", [True, False])
@pytest.mark.parametrize("name", shipped())
async def test_every_recording_validates(serve: Serve, name: str, call_deltas: bool) -> None:
    """Each chunk is one of the client's own model, and the message that it makes of them is what the run came to."""
    from openai.types.chat import ChatCompletionChunk

    async with replay(shipped()[name], parser=ParserOptions(call_deltas=call_deltas)) as stream:
        body = write([event async for event in stream], call_deltas=call_deltas)
    result = stream.result

    data = [line.removeprefix("data: ") for line in body.decode().splitlines() if line.startswith("data: {")]
    for each in data:
        assert json.loads(each) == json.loads(
            ChatCompletionChunk.model_validate_json(each).model_dump_json(exclude_unset=True)
        )
    if result.reason != "finished":
        assert "truncated" == result.reason
        assert '"finish_reason":"length"' in data[-1]  # for which the client's helper raises
        return
    url = serve(body, "text/event-stream")
    async with openai_async(url) as client, client.chat.completions.stream(model="m", messages=ASKED) as read:
        completion = await read.get_final_completion()
    message = completion.choices[0].message
    assert result.text.split() == (message.content or "").split()
    calls = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]
    assert calls == [(call.id, call.name, call.arguments) for call in result.pending]


async def test_the_helper_reads_native_calls_that_came_in_turns(serve: Serve) -> None:
    """It takes a call for ended when another begins, and reads the arguments of a strict tool then."""
    parts = [(0, "a", '{"ci'), (1, "b", '{"city": "Z'), (0, None, 'ty": "Bern"}'), (1, None, 'ug"}')]
    told = [
        {"index": at, "id": id, "function": {"name": id and "get_weather", "arguments": text}} for at, id, text in parts
    ]
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": {"tool_calls": [each]}}]} for each in told]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    body = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in chunks)
    async with ToolStream(
        sources.openai([body]), native_tool_calls=True, parser=ParserOptions(call_deltas=True)
    ) as run:
        written = write([event async for event in run], call_deltas=True)
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    weather = {"name": "get_weather", "strict": True, "parameters": schema | {"additionalProperties": False}}
    asked: Any = {"model": "m", "messages": ASKED, "tools": [{"type": "function", "function": weather}]}
    async with (
        openai_async(serve(written, "text/event-stream")) as client,
        client.chat.completions.stream(**asked) as stream,
    ):
        message = (await stream.get_final_completion()).choices[0].message
    cities = [each.function.parsed_arguments for each in message.tool_calls or ()]
    assert cities == [{"city": "Bern"}, {"city": "Zug"}]
