"""Tool calls of a model that makes none: the requests, their contents, and how their answers are used."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from streamtools import RunnerOptions, chat
from streamtools.conversation import RequestOptions, ScriptedModel
from streamtools.conversation.emulation import refuses_tools, write_question
from streamtools.errors import Code
from streamtools.events import Done, Error, SourceError, Usage
from streamtools.tools.tool_choice import parse_choice
from tests.support.cases import together
from tests.support.chat_chunks import chunk
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.stories import tell
from tests.support.talks import (
    OFFER,
    PARIS,
    QUESTION,
    TOOLS,
    asked,
    calls,
    decides,
    ends,
    model_of,
    native,
    refuses,
    says,
    talk,
)

pytestmark = pytest.mark.trio_deep

FORCE, FALLBACK = "force", "fallback"
PARIS_CALL = ("weather", PARIS)
WARNED = ["not thinking None", "warning emulated"]


@pytest.fixture(autouse=True)
def fixed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is a part of the ids of calls."""
    monkeypatch.setattr("streamtools.conversation.emulation.time", SimpleNamespace(time_ns=lambda: 7))


def question(choice: Any = "auto") -> dict[str, Any]:
    return {"role": "system", "content": write_question(tuple(TOOLS), parse_choice(choice))}


FIRST = asked(QUESTION, tools=OFFER)
DECISION = asked(question(), QUESTION)
LAST = asked(QUESTION)


def done(talked: Any) -> Done:
    end = talked.events[-1]
    assert isinstance(end, Done)
    return end


# The order of the requests.


async def test_decided_calls_are_the_calls_of_the_turn() -> None:
    """There are two requests. The calls have ids of the emulation, and the turn has no text."""
    talked = await talk(
        says("It may be warm."), decides(PARIS_CALL, ("clock", {})), emulation=FALLBACK, execute="never"
    )

    assert [FIRST, DECISION] == talked.bodies
    assert [
        "thinking None",
        "not thinking None",
        "warning emulated",
        *("thinking emulated_7_0", "emulated_7_0 is weather", "call emulated_7_0", "not thinking emulated_7_0"),
        *("thinking emulated_7_1", "emulated_7_1 is clock", "call emulated_7_1", "not thinking emulated_7_1"),
        "done finished: tool_calls (None), pending emulated_7_0 emulated_7_1",
    ] == talked.shown
    assert [PARIS, {}] == [call.arguments for call in done(talked).pending]
    assert ["native", "native"] == [call.dialect for call in done(talked).pending]
    (message,) = talked.chat.result.messages()
    assert (None, ["emulated_7_0", "emulated_7_1"]) == (
        message["content"],
        [each["id"] for each in message["tool_calls"]],
    )


@pytest.mark.parametrize(
    ("emulation", "answers", "bodies"),
    [(FALLBACK, ("One.",), [asked(QUESTION, tools=OFFER, tool_choice="none")]), (FORCE, ("One.",), [LAST])],
)
async def test_tool_choice_none_needs_no_decision(emulation: str, answers: tuple[str, ...], bodies: list[Any]) -> None:
    """There is no decision request and no warning, and no answer is discarded."""
    talked = await talk(*map(says, answers), emulation=emulation, tool_choice="none")

    assert bodies == talked.bodies
    assert [f"text '{answers[-1]}'", "done finished: stop (stop)"] == talked.shown


WANTED: dict[str, list[tuple[str, Any]]] = {
    "no call": [],
    "one call": [PARIS_CALL],
    "two calls": [PARIS_CALL, PARIS_CALL],
    "another tool": [("clock", {})],
    "a tool that does not exist": [("nope", {})],
}
ENDS: dict[str, list[str]] = {  # the end after each of these decisions, under each tool choice
    "auto": ["answer", "1", "2", "1", "answer"],
    "required": ["failed", "1", "2", "1", "failed"],
    "weather": ["failed", "1", "failed", "failed", "failed"],
}


@together("wanted", WANTED)
@together("choice", ENDS)
async def test_decisions_must_satisfy_the_tool_choice(choice: str, wanted: str) -> None:
    """Otherwise no call runs. Both requests contain the tool choice."""
    expected = dict(zip(WANTED, ENDS[choice], strict=True))[wanted]
    answers = [says("One."), decides(*WANTED[wanted]), *([says("Two.")] if expected == "answer" else [])]
    talked = await talk(*answers, emulation=FALLBACK, tool_choice=choice, execute="never")

    named = choice if choice == "required" else {"type": "function", "function": {"name": "weather"}}
    bodies = [FIRST | ({} if choice == "auto" else {"tool_choice": named}), asked(question(choice), QUESTION), LAST]
    assert bodies[: len(answers)] == talked.bodies
    end = done(talked)
    if expected == "answer":
        assert ("finished", "Two.") == (end.reason, talked.chat.result.text)
    elif expected == "failed":
        codes = [event.code for event in talked.events if isinstance(event, Error)]
        violations = 1 + (len(WANTED[wanted]) if wanted != "a tool that does not exist" else 0)
        assert ("failed", [], "") == (end.reason, end.pending, talked.chat.result.text)
        assert [Code.TOOL_CHOICE_VIOLATION] * violations == codes
    else:
        assert ("finished", int(expected)) == (end.reason, len(end.pending))


# Further turns.


async def test_each_step_has_its_own_decision() -> None:
    """The call runs, and a new decision follows its result."""
    talked = await talk(
        says("One."), decides(PARIS_CALL), says("Two."), decides(), says("It is 21 °C."), emulation=FALLBACK
    )

    assert [
        *("executing emulated_7_0", "executed emulated_7_0: {'city': 'Paris', 'celsius': 21}", "follow-up of 2"),
        *("thinking None", *WARNED, "text 'It is 21 °C.'", "done finished: stop (stop)"),
    ] == talked.shown[-8:]
    (_, called, answered) = talked.bodies[2]["messages"]
    assert ("emulated_7_0", '{"city":"Paris","celsius":21}') == (answered["tool_call_id"], answered["content"])
    assert "emulated_7_0" == called["tool_calls"][0]["id"]
    assert ["system", "user", "assistant", "user"] == [each["role"] for each in talked.bodies[3]["messages"]]


# Decisions.


@pytest.mark.parametrize(
    "answer", [says("I would rather not."), says('{"tools":[{"tool":"weather"}]}', finish="length")]
)
async def test_an_unreadable_decision_means_no_tools(answer: Loopback) -> None:
    """There is a warning. A truncated decision is unreadable, because a call may be incomplete."""
    talked = await talk(answer, says("Two."), emulation=FORCE)

    assert [Code.EMULATED, Code.DECISION_UNREADABLE] == [each.code for each in talked.chat.result.warnings]
    assert "Two." == talked.chat.result.text


# Contents of the requests.


async def test_options_of_the_answer_are_not_sent_with_the_decision() -> None:
    """Only the answer gets stop words, formats and length limits. The options of the caller are not changed."""
    request = {"stop": ["\n"], "response_format": {"type": "json_object"}, "tools": [{"type": "web_search"}], "seed": 1}
    before = copy.deepcopy(request)
    talked = await talk(
        says("One."),
        decides(),
        says("Two."),
        emulation=FALLBACK,
        request=request,
        model={"max_tokens": 9, "temperature": 1},
    )

    kept = {"stop": ["\n"], "response_format": {"type": "json_object"}, "seed": 1, "max_tokens": 9, "temperature": 1}
    assert [
        asked(QUESTION, tools=[*OFFER, {"type": "web_search"}], **kept),
        asked(question(), QUESTION, seed=1, temperature=1),
        asked(QUESTION, **kept),
    ] == talked.bodies
    assert before == request


async def test_the_application_prompt_is_dropped() -> None:
    """The decision request has its own system prompt."""
    system = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Never call clock."}]
    talked = await talk(decides(), says("Two."), messages=[*system, QUESTION], emulation=FORCE)

    assert asked(question(), QUESTION) == talked.bodies[0]
    assert ["system", "system", "user"] == [each["role"] for each in talked.bodies[1]["messages"]]


async def test_a_taught_model_calls_in_text() -> None:
    """Only the first request teaches, and has no native tools. A call in its text is the answer."""
    model = {"native_tool_calls": False}
    call = '~~~tool_call\n{"name":"clock"}\n~~~\n'
    hit = await talk(says(call), emulation=FALLBACK, execute="never", model=model)
    missed = await talk(says("One."), decides(), says("Two."), emulation=FALLBACK, model=model)

    for talked in (hit, missed):
        taught, _ = talked.bodies[0]["messages"]
        assert ("system", True, False) == (
            taught["role"],
            "~~~tool_call" in taught["content"],
            "tools" in talked.bodies[0],
        )
    assert ["clock"] == [each.name for each in done(hit).pending]
    assert [DECISION, LAST] == missed.bodies[1:]


# Failures.


async def test_a_provider_without_tools() -> None:
    """Its refusal is not an answer with calls."""
    refusal = refuses(400, "registry.example/phi3:latest does not support tools")
    talked = await talk(refusal, decides(), says("Two."), emulation=FALLBACK)

    assert [FIRST, DECISION, LAST] == talked.bodies
    assert ["thinking None", *WARNED, "text 'Two.'", "done finished: stop (stop)"] == talked.shown


@together(
    ("message", "refused"),
    [
        ("phi3 does not support tools", True),
        ("This model doesn't support tool use in streaming mode.", True),
        ("`tool calling` is not supported with this model", True),
        ("Function calling is not enabled for models/gemma-3-27b-it", True),
        ("No endpoints found that support tool use.", True),
        ("Unsupported parameter: 'tools'", True),
        ("tools are unsupported", True),
        ('"auto" tool choice requires --enable-auto-tool-choice', True),
        ("tools param requires --jinja flag", True),
        ("image input is not supported", False),
        ("the messages with 'tool_calls' must be followed by tool messages", False),
        ("tools[0].function.name does not match the pattern", False),
    ],
)
def test_errors_that_refuse_tools(message: str, refused: bool) -> None:
    """The messages are those of real servers."""
    assert refused == refuses_tools(SourceError(message, status=400))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (refuses(400, "no"), ["error upstream_error", "done failed: None (None)"]),
        (Loopback([chunk({"content": "{"})]), ["error stream_interrupted", "done failed: None (None)"]),
    ],
)
async def test_a_failed_decision_fails_the_run(answer: Loopback, told: list[str]) -> None:
    """The usage of earlier requests is reported."""
    talked = await talk(says("One.", usage=(10, 1)), answer, emulation=FALLBACK)

    assert ["thinking None", "not thinking None", *told] == talked.shown
    assert Usage(input=10, output=1) == talked.chat.result.usage


@pytest.mark.parametrize(
    "answer",
    [
        says('###:{"name":"clock"}'),
        says('###:{"name":"clock",}'),
        calls(("clock", "{")),
        Loopback([chunk({"content": "Hel"})]),
        Loopback([chunk({"content": "Hel"})], drop=True),
        says("Hel", finish="error"),
    ],
)
async def test_answers_that_need_no_decision(answer: Loopback) -> None:
    """An answer with a call, even a malformed one, and a failed answer are final."""
    talked = await talk(answer, emulation=FALLBACK, follow_up="never")

    assert Code.EMULATED not in [each.code for each in talked.chat.result.warnings]


async def test_a_call_releases_the_buffered_answer() -> None:
    """Buffered text is released while the rest of the answer is still arriving."""
    rest = anyio.Event()
    pieces = [chunk({"content": "Let me see."}), chunk({"tool_calls": [native(0, "clock", "{")]})]
    more = chunk({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]})
    answer = Loopback([*pieces, rest, more, *ends("tool_calls", None)])
    async with (
        Provider(answer) as server,
        chat(model_of(server), [QUESTION], tools=TOOLS, request=RequestOptions(emulation="fallback")) as events,
    ):
        told = [tell(await anext(events)) for _ in range(5)]
        rest.set()
        told += [tell(event) async for event in events]

    assert ["start", "step 1", "text 'Let me see.'", "thinking n0", "n0 is clock"] == told[:5]


async def test_emulation_without_tools() -> None:
    """With `force` this is an error. Otherwise the normal answer is shown."""
    with pytest.raises(ValueError, match="no function tools"):
        await talk(tools=None, emulation="force")
    plain = await talk(says("One."), tools=None, emulation="fallback")
    others = await talk(says("One."), tools=None, emulation="fallback", request={"tools": [{"type": "web_search"}]})

    assert [LAST] == plain.bodies
    assert ["text 'One.'", "done finished: stop (stop)"] == plain.shown
    assert [LAST | {"tools": [{"type": "web_search"}]}] == others.bodies
    assert ["warning not_emulated", *plain.shown] == others.shown


def test_invalid_options_of_emulation() -> None:
    """They raise before any request."""
    model, fallback = ScriptedModel([]), RequestOptions(emulation="fallback")
    with pytest.raises(ValueError, match="emulation must be one of"):
        chat(model, [QUESTION], tools=TOOLS, request=RequestOptions(emulation="always"))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ValueError, match="self-contained"):
        chat(model, [QUESTION], tools=TOOLS, request=fallback, runner=RunnerOptions(self_contained=True))
    with pytest.raises(ValueError, match="names 'nope'"):
        chat(model, [QUESTION], tools=TOOLS, request=fallback, tool_choice="nope")


# Usage.


@together(
    ("emulation", "answers", "total"),
    [
        (FALLBACK, [says("a", usage=(1, 2)), decides(usage=(10, 20)), says("b", usage=(100, 200))], (111, 222)),
        (FALLBACK, [says("a", usage=(1, 2)), decides(usage=(10, 20)), says("b")], (11, 22)),
        (FALLBACK, [says("a", usage=(1, 2)), decides(PARIS_CALL, usage=(10, 20))], (11, 22)),
        (FALLBACK, [says("a"), decides(PARIS_CALL, usage=(10, 20))], (10, 20)),
        (FALLBACK, [says("a", usage=(1, 2)), decides(PARIS_CALL)], (1, 2)),
        (FALLBACK, [calls(PARIS_CALL, usage=(1, 2))], (1, 2)),
        (FORCE, [decides(usage=(10, 20)), says("b", usage=(100, 200))], (110, 220)),
    ],
)
async def test_usage_includes_all_requests(emulation: str, answers: list[Loopback], total: Any) -> None:
    """The usage of a step includes all of its requests once."""
    talked = await talk(*answers, emulation=emulation, execute="never")
    usage = talked.chat.result.usage

    assert usage is not None
    assert total == (usage.input, usage.output)
    assert 1 == len([line for line in talked.story if line.startswith("usage")])
