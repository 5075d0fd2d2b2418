"""A chat is continued from any beginning of its log, as after a crash of its process, any number of times."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import RunnerOptions, TextOptions, TurnResult, chat, outputs, rules, tool
from streamtools import events as kinds
from streamtools.conversation import Ask
from streamtools.errors import Code
from streamtools.history import Assistant, User
from streamtools.runs import LostRun
from streamtools.sources import events as source_of
from streamtools.tools import MemoryLedger, ToolError, ToolOutcome
from streamtools.tools.ledger import entries_of
from tests.support.cases import together
from tests.support.loops import ONE_LOOP

ASK = [{"role": "user", "content": "How is the weather in Oslo and in Rome?"}]
RAN: list[str] = []


@tool
async def weather(city: str) -> dict[str, str]:
    """Return the weather."""
    RAN.append(city)
    if city == "Atlantis":
        raise ToolError("there is no such city")
    return {"sky": "sunny", "message": f"Looked up {city}."}


@tool(idempotent=True)
async def forecast(city: str) -> str:
    """Return the forecast."""
    RAN.append(city)
    return "sunny"


@dataclass
class Interruptible:
    """A model with one answer for each turn. It continues a prefill, or its own text if it is asked to."""

    answers: Sequence[Sequence[str | kinds.SourceEvent]]
    prefill: str | None
    native_tool_calls: bool | None = None
    name: str = "interruptible"
    options: dict[str, Any] = field(default_factory=dict)
    most: float = math.inf
    """How many events the model sends, before it stops without an end."""
    sent: int = 0
    choices: list[str] = field(default_factory=list)
    """The mode of the tool choice of each request."""

    def body(self, ask: Ask) -> dict[str, Any]:
        return {}

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[Any]:
        self.choices.append(ask.tool_choice.mode)
        turns, last = [each for each in ask.history if isinstance(each, Assistant)], ask.history[-1]
        shown = ask.prefill or ""
        if isinstance(last, User) and "interrupted" in str(last.content):
            shown = turns.pop().text
        number = len(turns)
        parts = self.answers[number]
        events: list[kinds.SourceEvent] = []
        for part in parts:
            text = without_beginning(part, shown) if isinstance(part, str) else ""
            if isinstance(part, str):
                shown = shown[len(part) - len(text) :]
                events += map(kinds.TextDelta, re.findall(r"(?s).{1,4}", text))
            else:
                events.append(part)
        makes_calls = any(isinstance(part, kinds.NativeToolCall) for part in parts)
        usage = kinds.Usage(input=10, output=5, total=15)
        events.append(kinds.ProviderCompleted(finish_reason="tool_calls" if makes_calls else "stop", usage=usage))
        yield source_of(self._send(events))

    async def _send(self, events: Iterable[kinds.SourceEvent]) -> AsyncIterator[kinds.SourceEvent]:
        for event in events:
            if self.sent >= self.most:
                await anyio.sleep_forever()
            self.sent += 1
            yield event


def without_beginning(text: str, shown: str) -> str:
    """Return `text` without the characters of `shown`. White space and tags of reasoning do not count."""
    text = text[re.match(r"(?s)(<think>.*</think>)?", text).end() :] if shown else text  # type: ignore[union-attr]
    if text.startswith(shown):
        return text[len(shown) :]
    count = len("".join(shown.split()))
    for position, character in enumerate(text):
        if not count:
            return text[position:]
        count -= not character.isspace()
    return ""


def native(id: str, city: str, name: str = "weather") -> kinds.NativeToolCall:
    return kinds.NativeToolCall(key=f"key {id}", name=name, arguments=json.dumps({"city": city}), id=id)


def written(city: str) -> str:
    return f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'


ANSWERS: dict[str, list[list[str | kinds.SourceEvent]]] = {
    "text": [["It is sunny in Oslo, and it is sunny in Rome as well."]],
    "native calls": [
        ["Let me look that up for you. ", native("a", "Oslo"), native("b", "Rome")],
        ["It is sunny in Oslo, and in Rome."],
    ],
    "calls in text": [
        ["First. " + written("Oslo") + "\n" + written("Rome")],
        ["Now another: " + written("Bonn")],
        ["All are sunny. Bring <b>sunglasses</b>."],
    ],
    "reasoning": [
        [kinds.ReasoningDelta("I look. "), kinds.ReasoningDelta("Yes.", "signed"), "Looking. ", native("a", "Oslo")],
        [kinds.ReasoningDelta("Now I answer.", "signed"), "It is sunny in Oslo."],
    ],
    "reasoning in text": [["<think>hm</think>Looking. " + written("Oslo")], ["<think>good</think>It is sunny."]],
    "errors": [
        ["I try. ", native("a", "Atlantis"), native("b", "Rome"), native("c", "Oslo", "wether")],
        ["Some of that failed, sorry."],
    ],
    "malformed calls": [
        ['Trying: <tool_call>\n{"name": "weather", "arguments": {"city": }}\n</tool_call>'],
        ["Again: " + written("Oslo")],
        ["It is sunny."],
    ],
    "malformed native calls": [
        ["Trying.", kinds.NativeToolCall("weather", '{"city": ', "key a", "a"), " And.", native("b", "Oslo")],
        ["It is sunny."],
    ],
    "near misses": [['The tag <tool_call>\nis one of mine, and {"a": 1} is JSON.']],
    "repeated ids": [["First: ", native("a", "Oslo")], ["Second: ", native("a", "Rome")], ["Both are sunny."]],
    "idempotent": [["I look. ", native("a", "Oslo", "forecast")], ["It will be sunny."]],
}


class Crashes:
    """Runs a chat, and continues it after each crash."""

    def __init__(self, name: str, *, prefill: bool, has_ledger: bool, **options: Any) -> None:
        self.name, self.has_ledger, self.options = name, has_ledger, options
        self.model = Interruptible(ANSWERS[name], "vllm" if prefill else None)
        self.result = TurnResult()
        self.history: list[Any] = []

    async def run(self, ledger: MemoryLedger, **more: Any) -> list[kinds.UIEvent]:
        options = {"tools": [weather, forecast], **self.options, **more}
        RAN.clear()
        async with chat(self.model, ASK, runner=RunnerOptions(ledger=ledger), **options) as stream:
            events = [event async for event in stream]
        self.result, self.history = stream.result, stream.messages()
        return events

    async def whole(self) -> list[kinds.UIEvent]:
        return await self.run(MemoryLedger(), run_id="run_1")

    async def crash(self, log: Sequence[kinds.UIEvent], cut: int, *, copied: int = 0) -> list[kinds.UIEvent]:
        """Continue the run from the first `cut` events of its log. Returns the whole log."""
        events = list(log[:cut])
        ledger = MemoryLedger() if self.has_ledger else None
        for event in events:
            if isinstance(event, kinds.Executing) and ledger is not None:
                await ledger.begin("run_1", event.call)
                for end in log:
                    if isinstance(end, kinds.Executed) and end.call.id == event.call.id:
                        await ledger.finish("run_1", ToolOutcome.of_event(end))
        if events:
            events.append(kinds.Warning(Code.OWNER_LOST, "lost", seq=events[-1].seq + 1))
        recorded = {} if ledger is None else await entries_of(ledger, "run_1")
        lost = LostRun("run_1", "ann", None, None, 1, events, recorded, copied=copied)
        started = [event.call.arguments["city"] for event in events if isinstance(event, kinds.Executing)]
        continued = await self.run(ledger, continue_from=lost)  # type: ignore[arg-type]
        assert self.name == "idempotent" or not set(RAN) & set(started)  # no tool runs again
        return [*events, *continued]


def text_of(events: Iterable[kinds.UIEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, kinds.Text))


def without_ids(messages: Any) -> str:
    return re.sub(r'call_[\w-]{12}|"([abc])(_\d+)*"', lambda match: match[1] or "call", json.dumps(messages))


def check(log: Sequence[kinds.UIEvent], expected: Sequence[kinds.UIEvent], result: TurnResult) -> None:
    """Check what holds for each log of a run, however often it was continued."""
    outputs.validate(log)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert text_of(log) == text_of(expected) == result.text
    done, expected_done = log[-1], expected[-1]
    assert isinstance(done, kinds.Done)
    assert isinstance(expected_done, kinds.Done)
    pending = [[(call.name, call.arguments) for call in each.pending] for each in (done, expected_done)]
    assert (done.reason, pending[0]) == (expected_done.reason, pending[1])


@pytest.mark.parametrize("has_ledger", [True, False], ids=["ledger", "no_ledger"])
@pytest.mark.parametrize("prefill", [True, False], ids=["prefill", "instructed"])
@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("share", [2, pytest.param(1, marks=pytest.mark.deep)])
@ONE_LOOP
async def test_a_chat_continues_after_each_event(name: str, prefill: bool, has_ledger: bool, share: int) -> None:
    crashes = Crashes(name, prefill=prefill, has_ledger=has_ledger)
    expected = await crashes.whole()
    result, history = crashes.result, crashes.history
    for cut in range((prefill + has_ledger) % share, len(expected), share):
        log = await crashes.crash(expected, cut)
        check(log, expected, crashes.result)
        if not any(isinstance(event, kinds.Error) and event.code is Code.OUTCOME_UNKNOWN for event in log):
            assert len(crashes.result.outcomes) == len(result.outcomes)
            assert crashes.result.usage is not None
            if name not in ("errors", "malformed calls", "malformed native calls", "reasoning"):
                assert without_ids(crashes.history) == without_ids(history)


@pytest.mark.deep
@given(st.sampled_from(sorted(ANSWERS)), st.booleans(), st.booleans(), st.lists(st.integers(0, 60), max_size=4))
async def test_a_chat_continues_after_any_series_of_crashes(
    name: str, prefill: bool, has_ledger: bool, cuts: list[int]
) -> None:
    crashes = Crashes(name, prefill=prefill, has_ledger=has_ledger)
    expected = log = await crashes.whole()
    for cut in sorted(cuts):
        if cut < len(log):
            log = await crashes.crash(log, cut)
    check(log, expected, crashes.result)


@together(("limit", "last_step"), [(1, "any"), (1, "answer"), (None, "answer")])
@ONE_LOOP
async def test_a_limit_of_steps_holds_after_each_crash(limit: int | None, last_step: str) -> None:
    """No call of the last step runs. With `None`, the model answers in the last step."""
    for name, answers in ANSWERS.items():
        crashes = Crashes(name, prefill=True, has_ledger=False, max_steps=limit or len(answers), last_step=last_step)
        expected = await crashes.whole()
        for cut in range(len(expected) - (last_step == "any")):  # without the last event, the reason is not known
            crashes.model.choices.clear()
            log = await crashes.crash(expected, cut)
            check(log, expected, crashes.result)
            assert not (limit and RAN), (name, cut)
            assert crashes.model.choices[-1:] in ([], ["none" if last_step == "answer" else "auto"])


@ONE_LOOP
async def test_only_answers_of_the_run_count() -> None:
    """A superseded step does not, and no step of a waiting run, whose events the run has copied. A process with a lower
    limit runs no calls after it.
    """
    crashes = Crashes("native calls", prefill=True, has_ledger=False, max_steps=2, last_step="answer")
    superseded = kinds.StepStart(1, seq=2), kinds.StepEnd(1, None, seq=3), kinds.StepSuperseded(1, seq=4)
    await crashes.crash([kinds.Start("run_1", seq=1), *superseded], 4)
    assert crashes.model.choices == ["auto", "none"]
    crashes = Crashes("calls in text", prefill=True, has_ledger=False)
    expected = await crashes.whole()
    crashes.options["max_steps"] = 1
    cut = 1 + [isinstance(event, kinds.FollowUp) for event in expected].index(True)
    await crashes.crash(expected, cut)
    assert ("max_steps", []) == (crashes.result.finish_reason, RAN)
    crashes.options["max_steps"] = 2
    for copied, choices in ((cut, ["auto", "auto"]), (0, ["auto"])):
        crashes.model.choices.clear()
        await crashes.crash(expected, cut, copied=copied)
        assert ("max_steps" if len(choices) == 1 else "stop", choices) == (
            crashes.result.finish_reason,
            crashes.model.choices,
        )


async def test_text_rules_apply_to_the_rest_of_an_answer() -> None:
    crashes = Crashes("text", prefill=True, has_ledger=False, text=TextOptions(rules=[rules.replace("Rome", "R***")]))
    expected = await crashes.whole()
    for cut in range(len(expected)):
        assert text_of(await crashes.crash(expected, cut)) == "It is sunny in Oslo, and it is sunny in R*** as well."
