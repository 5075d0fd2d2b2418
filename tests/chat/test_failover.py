"""The next model replaces one that fails, before its first byte or during its answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ApprovalOptions, OutputOptions, RunnerOptions, TextJudge, TextOptions, chat, outputs, parse
from streamtools import events as kinds
from streamtools import rules as text_rules
from streamtools import tool as make_tool
from streamtools.conversation import Ask, Fallback, OpenAIChat, ScriptedModel, Timeouts
from streamtools.conversation.failover import OnBreak
from streamtools.errors import Code
from streamtools.history import Assistant, System, User, write_messages
from streamtools.recording import read_recording, shipped
from streamtools.runs import LostRun
from streamtools.serving.event_response import EventStreamResponse
from streamtools.sources import Source
from streamtools.tools import MemoryLedger
from tests.support.cases import together
from tests.support.chat_chunks import DONE, chunk, read
from tests.support.examples import examples
from tests.support.loopback import Loopback
from tests.support.loops import ONE_LOOP
from tests.support.provider import Provider

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


@together("status", [400, 401, 402, 403, 404, 408, 409, 410, 413, 422, 429, 500, 503])
async def test_statuses_that_are_failures(status: int) -> None:
    """A status about the key, the account, the model or the load leads to the next model. Others are final."""
    answers = Provider(Loopback([b"{}"], status=status), Loopback([lines("Hello"), chunk(finish="stop"), DONE]))
    async with answers as server:
        first, second = (OpenAIChat(name, base_url=server.url, api_key="", retries=0) for name in ("one", "two"))
        events = await told(chat(Fallback(first, second), ASK))

    fails_over = status not in (400, 413, 422)
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


async def test_a_failing_model_rests() -> None:
    """After several consecutive failures, the others are called first. A good answer closes the circuit."""
    first = ScriptedModel([LOST, LOST, "back"], name="first")
    second = ScriptedModel(["a", "b", "c", LOST], name="second")
    fallback = Fallback(first, second, failures=2, rest=1000.0)

    said = [text_of(await told(chat(fallback, ASK))) for _ in range(4)]

    assert said == ["a", "b", "c", "back"]
    assert (first.left, second.left) == (0, 0)
    assert fallback.circuits[0].failures == 0


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
    assert "signed" not in repr(asked.history)
    assert f"<Ask with {len(asked.history)} messages and 1 tools>" == repr(asked)
    texts = [each.text for each in asked.history if isinstance(each, Assistant)]
    assert (texts == ["One, "]) is (on_break == "continue")


CALLS_COST = kinds.ProviderCompleted(finish_reason="stop", usage=kinds.Usage(input=3, output=4))


async def test_a_call_never_runs_twice() -> None:
    """The step ends with the call that ran, without an incomplete one, and the next model gets the result."""
    whole = kinds.NativeToolCall("get_weather", {"city": "Rome"}, "0", "c0")
    begun = [kinds.ToolCallStart("1", "c1", "get_weather"), kinds.ToolCallDelta("1", "{}")]
    models = ScriptedModel([["Look: ", whole, *begun, LOST]]), ScriptedModel(["Rain."])
    result = await chat(Fallback(*models), ASK, tools=[get_weather], runner=RunnerOptions(execute="eager"))
    assert (result.text, [call.call.id for call in result.outcomes], result.errors) == ("Look: Rain.", ["c0"], [])
    asked = repr(models[1].asks[0].history)
    assert ("c0" in asked, "c1" in asked, "rain in Rome" in asked) == (True, False, True)


@pytest.mark.parametrize("native", [True, None])
async def test_native_and_text_models_together(native: bool | None) -> None:
    """Each model gets requests for its way of calling, and calls of both are valid."""
    whole = kinds.NativeToolCall("get_weather", {"city": "Rome"})
    first = ScriptedModel([whole, ["One, ", LOST]], name="one", native_tool_calls=native)
    called = ["two.\n", '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n~~~\n']
    second = ScriptedModel([called, "Rain."], name="two", native_tool_calls=False)
    stream = chat(fallback := Fallback(first, second), ASK, tools=[get_weather])
    await told(stream)

    assert fallback.native_tool_calls is None
    assert [len(ask.tools) for ask in (*first.asks, *second.asks)] == [1, 1, 0, 0]
    assert "get_weather" in second.asks[0].history[0].text  # type: ignore[union-attr]
    assert stream.result.text == "One, two.\n\nRain."
    assert [outcome.result for outcome in stream.result.outcomes] == ["rain in Rome", "rain in Oslo"]


@ONE_LOOP
async def test_a_failure_after_a_wrong_value() -> None:
    """Only a wrong last answer is requested again, and only its warning and usage count."""
    cost = kinds.SourceUsage(kinds.Usage(input=3))
    for on_break, begin in ("continue", '{"n": "x"}'), ("restart_step", "{"), ("fail", cost):
        failed = kinds.ProviderCompleted(finish_reason="error", usage=kinds.Usage(input=4))
        first = ScriptedModel([[begin, failed], '{"n": 1}'])
        wrong = [cost, *["[1]"] * (on_break != "continue"), kinds.ProviderCompleted(usage=kinds.Usage(input=5))]
        second = ScriptedModel([wrong, [cost, '{"n": 1}']])
        fallback: Any = Fallback(first, second, on_break=on_break)  # type: ignore[arg-type]
        result = await chat(fallback, ASK, output=OutputOptions(dict[str, int], retries=3))
        assert (result.output, first.left, second.left, result.usage) == ({"n": 1}, 1, 0, kinds.Usage(input=4 + 5 + 3))
        assert sorted(each.code for each in result.warnings) == [Code.FAILED_OVER, Code.INVALID_OUTPUT]


@ONE_LOOP
async def test_a_lost_run_that_has_failed_runs_no_call() -> None:
    """Its calls are pending, as without the loss, and no model gets a request."""
    whole = kinds.NativeToolCall("get_weather", {"city": "Rome"}, "1", "c1")
    events = await told(chat(ScriptedModel([["Hi", whole, LOST]]), ASK, tools=[get_weather]))
    log = events[: 1 + next(n for n, event in enumerate(events) if isinstance(event, kinds.Error))]
    lost = LostRun(log[0].run_id, "ann", None, None, 1, log)  # type: ignore[union-attr]
    stream = chat(model := ScriptedModel([]), ASK, tools=[get_weather], continue_from=lost)
    outputs.validate([*log, *await told(stream)])
    assert (stream.result.reason, stream.result.pending, model.asks) == ("failed", events[-1].pending, [])  # type: ignore[union-attr]
    assert write_messages(stream.history, "openai")


# Anywhere in a conversation.

FAULTS = LOST, None, *(kinds.SourceError("no", status=status) for status in (None, 401, 404, 429, 500, 400))
IN_TEXT = '\n~~~tool_call\n{"name": "look", "arguments": {"place": %d}}\n~~~\n'
solid = partial(re.sub, r"\s", "")


class Talker(ScriptedModel):
    """A model that writes the part of `steps` that a request lacks, and may fail. A number in `steps` is a call."""

    rng, rate, in_text, steps, used = Random(), 0.0, False, list[list[Any]](), 0  # `used`: the tokens of all models
    log: list[tuple[Talker, Ask, Any, bool]]  # the requests of all models, with the fault, and whether a part was shown

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        rng, said = self.rng, "".join(each.text for each in ask.history if isinstance(each, Assistant))
        read = repr([each for each in ask.history if not isinstance(each, Assistant | System)])
        done = {int(place) for place in re.findall(r"result (\d+)", read) + re.findall(r'"place": (\d+)', said)}
        skip = len(solid(re.sub(r"(?s)~~~tool_call\n.*?\n~~~", "", said)))
        last = [n for n, step in enumerate(self.steps) if {each for each in step if isinstance(each, int)} - done]
        deltas: list[Any] = [kinds.TextDelta("")] * rng.randrange(2)
        for each in (each for step in self.steps[: [*last, 99][0] + 1] for each in step if each not in done):
            if isinstance(each, int) and not self.in_text:
                id = rng.choice((f"{self.name}-{each}", f"c{each}"))
                parts = [kinds.ToolCallStart(id, id, "look"), kinds.ToolCallDelta(id, f'{{"place": {each}}}')]
                deltas += [*parts * rng.randrange(2), kinds.NativeToolCall("look", {"place": each}, id, id)]
                continue
            text = each if isinstance(each, str) else IN_TEXT % each
            while skip and text and isinstance(each, str):
                skip, text = skip - (not text[0].isspace()), text[1:]
            cut = rng.randrange(len(text) + 1)
            deltas += [kinds.TextDelta(text[:cut]), kinds.TextDelta(text[cut:])]
        for extra in [kinds.SourceUsage(kinds.Usage(input=3)), kinds.ReasoningDelta("hm", "s")][: 2 - self.in_text]:
            deltas[(at := rng.randrange(len(deltas) + 1)) : at] = [extra] * rng.randrange(2)
        fault: Any = rng.choice(FAULTS) if rng.random() < self.rate else kinds.ProviderCompleted(finish_reason="stop")
        del deltas[rng.randrange(len(deltas) + 1) if fault in FAULTS else len(deltas) :]
        Talker.used += 3 * any(isinstance(each, kinds.SourceUsage) for each in deltas)
        shown = any(not isinstance(each, kinds.SourceUsage) and each != kinds.TextDelta("") for each in deltas)
        self.log.append((self, ask, fault, shown))
        return self._open([*deltas, *[fault] * (fault is not None)])


@ONE_LOOP
@examples(10)
@given(st.integers(0, 2**40).map(Random))
async def test_failures_anywhere(rng: Random) -> None:
    """No text or call is lost or doubled, and the usage, warnings, circuits and history are right."""
    words, places, ran = count(), count(), list[int]()
    shapes = [*([*rng.choices("tc", k=rng.randrange(3)), "c"] for _ in range(rng.randrange(4))), ["t", "t"]]
    steps = [[next(places) if each == "c" else f"{next(words)} is fine. Ann " for each in shape] for shape in shapes]
    Talker.rng, Talker.rate, Talker.steps, Talker.log, Talker.used = rng, rng.choice((0.0, 0.3, 0.6)), steps, [], 0
    Talker.in_text, execute, asks = rng.random() < 0.3, rng.choice(("eager", "completed")), rng.choice(("now", "later"))
    native = False if Talker.in_text else rng.choice((None, True))
    models = [Talker([], name=f"m{number}", native_tool_calls=native) for number in range(rng.choice((2, 3)))]
    fallback = Fallback(*models, on_break=rng.choice(("continue", "restart_step", "fail")), failures=rng.choice((2, 9)))

    def look(place: int) -> str:
        ran.append(place)
        return f"result {place}."

    judge = {} if execute == "eager" else {"judge": TextJudge(lambda text, before: True)}
    text: Any = rng.choice(({"rules": [text_rules.remove("Z")]}, {"vault": text_rules.Vault([])}, judge))
    options: dict[str, Any] = {"text": TextOptions(**text), "max_steps": rng.choice((30, 30, 2))}
    options["tools"] = [make_tool(look, requires_approval=rng.random() < 0.3, trust="text")]
    options["runner"] = RunnerOptions(execute=execute, ledger=MemoryLedger())  # type: ignore[arg-type]
    options["follow_up"] = rng.choice(("auto", lambda messages: messages))
    more: dict[str, Any] = {"approvals": ApprovalOptions(ask=asks)}  # type: ignore[arg-type]
    history, shown, used, reason = list[Any](ASK), "", 0, "waiting"
    while reason == "waiting":
        first, events = len(Talker.log), list[kinds.UIEvent]()
        async with chat(fallback, history, **options, **more) as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, kinds.ApprovalRequested) and asks == "now":
                    stream.decide(event.call.id, True)
        outputs.validate(events)
        assert all(write_messages(stream.history, format) for format in ("openai", "anthropic", "gemini"))
        result, history, waiting = stream.result, stream.history, stream.suspension
        reason, shown = str(result.reason), shown + result.text
        used += sum(event.usage.input or 0 for event in events if isinstance(event, kinds.UsageReport))
        faults = [fault in FAULTS for _, _, fault, _ in Talker.log[first:]]
        switches = sum(event.code is Code.FAILED_OVER for event in events if isinstance(event, kinds.Warning))
        assert switches - sum(faults[:-1]) in ((0,) if reason == "failed" else (0, *faults[-1:]))
        more = {"resume": waiting, "approvals": {call.id: True for call in waiting.calls}} if waiting else {}

    assert (used, len({*ran})) == (Talker.used, len(ran))
    counts = dict.fromkeys(models, 0)
    for model, _, fault, _ in Talker.log:
        counts[model] = counts[model] + (fault is not FAULTS[-1]) if fault in FAULTS else 0
    assert [circuit.failures for circuit in fallback.circuits] == [*counts.values()]
    assert all(old not in FAULTS or said or one == two for (_, one, old, said), (_, two, *_) in pairwise(Talker.log))
    is_limited = options["max_steps"] == 2 and (reason == "stopped" or result.pending)
    whole = solid("".join(each for step in steps for each in step if isinstance(each, str)))
    assert whole.startswith(solid(shown)) or Talker.in_text  # a cut call in the text is shown
    if reason == "finished" and not is_limited:
        assert solid(shown) == whole
        assert sorted(ran) == [each for step in steps for each in step if isinstance(each, int)]
    elif not is_limited and fallback.on_break != "fail" and Talker.log[-1][2] is not FAULTS[-1]:
        assert {*models} == {model for model, _, fault, _ in Talker.log[-len(models) :] if fault in FAULTS}


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
