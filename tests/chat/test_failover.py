"""The next model replaces one that fails, before its first byte or during its answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from streamtools import RunnerOptions, chat, outputs, parse
from streamtools import events as kinds
from streamtools.conversation import Ask, Fallback, OpenAIChat, ScriptedModel, Timeouts
from streamtools.conversation.failover import OnBreak
from streamtools.errors import Code
from streamtools.history import Assistant, User
from streamtools.recording import read_recording, shipped
from streamtools.serving.event_response import EventStreamResponse
from streamtools.sources import Source
from tests.support.cases import together
from tests.support.chat_chunks import DONE, chunk, read
from tests.support.loopback import Loopback
from tests.support.loops import ONE_LOOP
from tests.support.provider import Provider

pytestmark = pytest.mark.anyio

ASK = [{"role": "user", "content": "Hi"}]
LOST = OSError("gone")


async def told(stream: chat) -> list[kinds.UIEvent]:
    async with stream as events:
        return [event async for event in events]


def text_of(events: Sequence[kinds.UIEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, kinds.Text))


def lines(*texts: str) -> bytes:
    return b"".join(chunk({"content": text}) for text in texts)


# Before the first byte.


@together("status", [400, 401, 404, 408, 429, 500, 503])
async def test_statuses_that_are_failures(status: int) -> None:
    """408, 429 and 5xx lead to the next model. Errors of the request itself are final."""
    answers = Provider(Loopback([b"{}"], status=status), Loopback([lines("Hello"), chunk(finish="stop"), DONE]))
    async with answers as server:
        first, second = (OpenAIChat(name, base_url=server.url, api_key="", retries=0) for name in ("one", "two"))
        events = await told(chat(Fallback(first, second), ASK))

    fails_over = status in (408, 429) or status >= 500
    assert [each["model"] for each in server.bodies] == (["one", "two"] if fails_over else ["one"])
    assert text_of(events) == ("Hello" if fails_over else "")
    (end,) = (event for event in events if isinstance(event, kinds.Done))
    assert end.reason == ("finished" if fails_over else "failed")
    assert [event.code for event in events if isinstance(event, kinds.Warning)] == [Code.FAILED_OVER] * fails_over


@pytest.mark.trio_deep
@pytest.mark.parametrize("on_break", ["continue", "restart_step", "fail"])
async def test_failures_before_the_answer_begins(on_break: OnBreak) -> None:
    """An unreachable server, a silent one, and a stream with only an error, with all policies."""
    silent = Loopback(hold=True)
    broken = Loopback([b'data: {"error": {"message": "overloaded"}}\n\n'])
    good = Loopback([lines("Hello"), chunk(finish="stop"), DONE])
    async with silent, broken, good:
        times = {silent.url: Timeouts(first_byte=0.5)}  # enough to send the request on a slow machine
        first, *others = [
            OpenAIChat("m", base_url=url, api_key="", retries=0, timeout=times.get(url, Timeouts()))
            for url in ("http://127.0.0.1:9", silent.url, broken.url, good.url)
        ]
        fallback = Fallback(first, *others, on_break=on_break)
        stream = chat(fallback, ASK)
        events = await told(stream)
        async with fallback.stream(Ask((User("Hi"),))) as source:
            apart = [event async for batch in source for event in batch]

    assert text_of(events) == "Hello"
    assert stream.result.reason == "finished"
    assert stream.result.model is None
    assert [circuit.failures for circuit in fallback.circuits] == [2, 2, 2, 0]
    assert [each for each in apart if isinstance(each, kinds.TextDelta)] == [kinds.TextDelta("Hello")]


@pytest.mark.parametrize("on_break", ["continue", "restart_step", "fail"])
@pytest.mark.parametrize("said", ["", "I will look. "])
@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize("step", [1, 2, 3])
async def test_failures_before_any_step(step: int, usage: bool, said: str, on_break: OnBreak) -> None:
    """The next model gets the same request, also if the failing model has only reported usage. Each call runs once."""
    ran: list[int] = []

    def look(place: int) -> str:
        """Look."""
        ran.append(place)
        return f"result {place}"

    def turn(place: int) -> Any:
        call = kinds.NativeToolCall("look", {"place": place}, "0", f"c{place}")
        return ([said] if said else []) + [call] if place < 3 else "The end."

    lost = [*[kinds.SourceUsage(kinds.Usage(input=1))] * usage, LOST]
    first = ScriptedModel([*map(turn, range(1, step)), lost], name="one")
    second = ScriptedModel([turn(place) for place in range(step, 4)], name="two")
    stream = chat(Fallback(first, second, on_break=on_break), ASK, tools=[look])
    events = await told(stream)

    assert [1, 2] == ran
    assert ("finished", said * 2 + "The end.") == (stream.result.reason, text_of(events))
    assert [Code.FAILED_OVER] == [event.code for event in events if isinstance(event, kinds.Warning)]
    assert [*range(1, 4)] == [event.step for event in events if isinstance(event, kinds.StepStart)]
    assert first.asks[-1].history == second.asks[0].history


async def test_a_failing_model_rests() -> None:
    """After several consecutive failures, the others are called first. A good answer closes the circuit."""
    first = ScriptedModel([LOST, LOST, "back"], name="first")
    second = ScriptedModel(["a", "b", "c", LOST], name="second")
    fallback = Fallback(first, second, failures=2, rest=1000.0)

    said = [text_of(await told(chat(fallback, ASK))) for _ in range(4)]

    assert said == ["a", "b", "c", "back"]
    assert (first.left, second.left) == (0, 0)
    assert fallback.circuits[0].failures == 0


async def test_all_models_fail() -> None:
    """The last failure ends the run, and the shown text stays."""
    stream = chat(Fallback(ScriptedModel([["Hel", LOST]]), ScriptedModel([["lo", LOST]])), ASK)
    events = await told(stream)

    assert text_of(events) == "Hello"
    assert stream.result.reason == "failed"
    assert [each.code for each in stream.result.errors] == [Code.STREAM_INTERRUPTED]


# During the answer.


def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


class Again(ScriptedModel):
    """A model that writes a `raw` answer after the shown text."""

    def __init__(self, raw: str, prefill: str | None) -> None:
        super().__init__([], name="second")
        self.raw = raw
        self.prefill = prefill

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        said = ask.history[-2] if len(ask.history) > 1 else None
        shown = said.text if isinstance(said, Assistant) else ask.prefill
        assert self.raw.startswith(shown)
        self._answers.append([self.raw[len(shown) :]])
        return super().stream(ask)


@ONE_LOOP
@pytest.mark.parametrize("most", [10, pytest.param(1000, marks=pytest.mark.deep)])
@together("prefill", ["vllm", None])
@together("name", [each for each in shipped() if each != "cut-call"])
async def test_every_cut_of_every_recording(name: str, prefill: str | None, most: int) -> None:
    """No text is repeated or lost, and no call is made twice, with any model as the next."""
    body = read_recording(shipped()[name]).data
    events = [event for event in read(body) if isinstance(event, kinds.TextDelta)]
    raw = "".join(event.text for event in events)
    whole = parse(raw)
    frames = [at + 2 for at in range(len(body)) if body[at : at + 2] == b"\n\n"]

    for cut in frames[:: max(1, len(frames) // most)]:
        first = ScriptedModel([[body[:cut], LOST]], format="openai")
        stream = chat(Fallback(first, Again(raw, prefill)), ASK, tools=[get_weather], max_steps=1)
        await told(stream)
        assert stream.result.text == whole.content, (cut, prefill)
        assert [call.name for call in stream.result.calls] == [call.name for call in whole.calls][
            : len(stream.result.calls)
        ]


@pytest.mark.parametrize("on_break", ["continue", "restart_step", "fail"])
async def test_the_policies(on_break: OnBreak) -> None:
    """The step continues, starts again, or fails. An open native call is always discarded."""
    begun: list[kinds.SourceEvent] = [
        kinds.ToolCallStart("0", "c0", "get_weather"),
        kinds.ToolCallDelta("0", '{"city": "Os'),
    ]
    whole = kinds.NativeToolCall("get_weather", {"city": "Rome"}, "1", "c1")
    cost = kinds.SourceUsage(kinds.Usage(input=7, output=1))
    first = ScriptedModel(
        [[cost, kinds.ReasoningDelta("hm", "signed"), kinds.TextDelta("One, "), whole, *begun, LOST]], name="one"
    )
    rest = "two." if on_break == "continue" else "Started again."
    second = ScriptedModel([[rest, CALLS_COST]], name="two")
    stream = chat(Fallback(first, second, on_break=on_break), ASK, tools=[get_weather])
    events = await told(stream)
    result = stream.result

    expected = {"continue": "One, two.", "restart_step": "Started again.", "fail": "One, "}
    assert result.text == expected[on_break]
    assert result.reason == ("failed" if on_break == "fail" else "finished")
    assert not [event for event in events if isinstance(event, kinds.Executed)]
    if on_break == "fail":
        assert not second.asks
        assert [call.id for call in result.pending] == ["c1"]
        return
    assert not result.calls
    assert not result.errors
    assert not result.pending
    codes = [event.code for event in events if isinstance(event, kinds.Error)]
    assert codes == [Code.SUPERSEDED, Code.SUPERSEDED]
    assert result.usage == kinds.Usage(input=10, output=5)
    usage = [(event.model, event.usage) for event in events if isinstance(event, kinds.UsageReport)]
    assert usage == [("one", kinds.Usage(input=7, output=1)), (None, kinds.Usage(input=3, output=4))]
    superseded = [event.step for event in events if isinstance(event, kinds.StepSuperseded)]
    assert superseded == ([1] if on_break == "restart_step" else [])
    assert result.messages() == [{"role": "assistant", "content": result.text}]
    (said,) = stream.history[1:]
    assert isinstance(said, Assistant)
    assert said.origin.model == "two"
    (asked,) = second.asks
    assert "signed" not in repr(asked)
    assert ([each.text for each in asked.history if isinstance(each, Assistant)] == ["One, "]) is (
        on_break == "continue"
    )


CALLS_COST = kinds.ProviderCompleted(finish_reason="stop", usage=kinds.Usage(input=3, output=4))


@pytest.mark.parametrize("on_break", ["continue", "restart_step"])
async def test_a_call_never_runs_twice(on_break: OnBreak) -> None:
    """The step ends with the calls that ran, and the next model gets their results."""
    ran: list[str] = []

    async def now(zone: str) -> str:
        """Tell the time."""
        ran.append(zone)
        return f"noon in {zone}"

    whole = kinds.NativeToolCall("now", {"zone": "UTC"}, "0", "c0")
    begun: list[kinds.SourceEvent] = [kinds.ToolCallStart("1", "c1", "now"), kinds.ToolCallDelta("1", "{}")]
    first = ScriptedModel([[kinds.TextDelta("Look: "), whole, *begun, LOST]], name="one", native_tool_calls=True)
    second = ScriptedModel(["It is noon."], name="two", native_tool_calls=True)
    stream = chat(Fallback(first, second, on_break=on_break), ASK, tools=[now], runner=RunnerOptions(execute="eager"))
    events = await told(stream)

    assert ran == ["UTC"]
    assert stream.result.text == "Look: It is noon."
    assert stream.result.reason == "finished"
    (asked,) = second.asks
    called, answered = asked.history[1:]
    assert isinstance(called, Assistant)
    assert [call.id for call in called.calls] == ["c0"]
    assert "noon in UTC" in repr(answered)
    assert [event.code for event in events if isinstance(event, kinds.Warning)] == [Code.FAILED_OVER]


async def test_native_and_text_models_together() -> None:
    """Each model gets requests for its way of calling, and calls of both are valid."""
    first = ScriptedModel([["One, ", LOST]], name="one", native_tool_calls=True)
    called = ["two.\n", '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n~~~\n']
    second = ScriptedModel([called, "Rain."], name="two", native_tool_calls=False)
    fallback = Fallback(first, second)
    stream = chat(fallback, ASK, tools=[get_weather])
    await told(stream)

    assert fallback.native_tool_calls is None
    assert [len(ask.tools) for ask in (*first.asks, *second.asks)] == [1, 0, 0]
    assert "get_weather" in second.asks[0].history[0].text  # type: ignore[union-attr]
    assert stream.result.text == "One, two.\n\nRain."
    assert [outcome.result for outcome in stream.result.outcomes] == ["rain in Oslo"]


# Formats of responses.


async def test_formats_that_cannot_replace_a_step() -> None:
    """A response in a format without superseded steps raises an error."""
    for format, fits in [("native", True), ("ai_sdk", False), ("ag_ui", False), ("openai", False), ("text", False)]:
        for on_break in ("continue", "restart_step"):
            stream = chat(Fallback(ScriptedModel(["a"]), ScriptedModel(["b"]), on_break=on_break), ASK)
            if fits or on_break == "continue":
                EventStreamResponse(stream, format=format)
            else:
                with pytest.raises(ValueError, match="cannot report a replaced step"):
                    EventStreamResponse(stream, format=format)
            await stream.aclose()
    assert outputs.native().replaces


@pytest.mark.parametrize(
    "wrong", [{"on_break": "stop"}, {"failures": 0}, {"rest": 0.0}], ids=["policy", "failures", "rest"]
)
def test_invalid_values(wrong: dict[str, Any]) -> None:
    """The message names the value."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Fallback(ScriptedModel([]), **wrong)
