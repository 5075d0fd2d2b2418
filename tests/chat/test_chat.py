"""The chat loop: which request follows an answer, its messages, and the end of the run."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from streamtools import Guards, ToolError, ToolOutcome, ToolRegistry, chat
from streamtools import events as kinds
from streamtools.calls import ToolCall
from streamtools.conversation import Chat, RequestOptions, ScriptedModel, ScriptedReply
from streamtools.errors import Code
from streamtools.history import Assistant, Results, System, User
from streamtools.outputs import validate
from tests.support.cases import together
from tests.support.history_rules import check_openai
from tests.support.options import grouped
from tests.support.stories import story

QUESTION = {"role": "user", "content": "How warm is it in Paris?"}
PARIS = {"city": "Paris"}


async def weather(city: str) -> dict[str, Any]:
    """Return the weather."""
    return {"celsius": 21}


async def fail() -> None:
    raise ToolError("not on Sundays")


TOOLS = ToolRegistry(weather, fail)


def calls(*wanted: tuple[str, Any], text: str = "", usage: kinds.Usage | None = None, ids: str = "n") -> ScriptedReply:
    """Return a turn with native calls, whose ids are n0, n1 and so on."""
    made = [kinds.NativeToolCall(name, given, str(at), f"{ids}{at}") for at, (name, given) in enumerate(wanted)]
    return [
        *([kinds.TextDelta(text)] if text else []),
        *made,
        kinds.ProviderCompleted(finish_reason="tool_calls", usage=usage),
    ]


PARIS_CALL = calls(("weather", PARIS))
ANSWER = "It is 21 °C."
IN_TEXT = '~~~tool_call\n{"name":"weather","arguments":{"city":"Paris"}}\n~~~\n'
FUNCTION = {"name": "weather", "arguments": '{"city":"Paris"}'}
CALLED: list[dict[str, Any]] = [
    {"role": "assistant", "content": None, "tool_calls": [{"id": "n0", "type": "function", "function": FUNCTION}]},
    {"role": "tool", "tool_call_id": "n0", "content": '{"celsius":21}'},
]


async def hold(
    answers: Iterable[ScriptedReply], *, tools: Any = TOOLS, native: bool | None = None, **options: Any
) -> tuple[list[kinds.UIEvent], ScriptedModel, Chat]:
    """Run a conversation. Returns its events as text, its model and the chat."""
    model = ScriptedModel(answers, native_tool_calls=native)
    async with chat(model, [QUESTION], tools=tools, **grouped(**options)) as events:
        told = [event async for event in events]
    assert 0 == model.open
    assert list(range(1, len(told) + 1)) == [event.seq for event in told]
    return told, model, events


def sent(model: ScriptedModel) -> list[Any]:
    """Return the messages of each request."""
    return [model.body(ask)["messages"] for ask in model.asks]


def end(told: list[kinds.UIEvent]) -> kinds.Done:
    assert isinstance(told[-1], kinds.Done)
    return told[-1]


# Questions, calls, results, answers.


async def test_results_lead_to_the_answer() -> None:
    """The `follow-up` event is between two steps of one run, and has the turn of the model and its results."""
    told, model, events = await hold([calls(("weather", PARIS), text="Let me see."), ANSWER])
    assert [
        "start",
        "step 1",
        "text 'Let me see.'",
        *("thinking n0", "n0 is weather", "call n0", "not thinking n0"),
        *("executing n0", "executed n0: {'celsius': 21}", "step 1 ends: tool_calls", "follow-up of 2"),
        *("step 2", f"text {ANSWER!r}", "step 2 ends: stop", "done finished: stop (None)"),
    ] == story(told)
    called = [CALLED[0] | {"content": "Let me see."}, CALLED[1]]
    assert [called] == [event.messages for event in told if isinstance(event, kinds.FollowUp)]
    assert [[QUESTION], [QUESTION, *called]] == sent(model)
    assert [QUESTION, *called, {"role": "assistant", "content": ANSWER}] == events.messages()
    assert [each.name for each in TOOLS] == [tool.name for tool in model.asks[1].tools]


async def test_a_call_in_text() -> None:
    """Its result is sent in the form of the dialect, in a user message without fields of the front end."""
    _, model, _ = await hold([IN_TEXT, ANSWER])
    assert [[QUESTION], [QUESTION, *WRITTEN]] == sent(model)


async def test_the_model_may_repeat_malformed_calls() -> None:
    """The model gets the error, for native calls and for calls in text."""
    script = [calls(("weather", "{")), '###:{"name":"weather",}', PARIS_CALL, ANSWER]
    _, model, _ = await hold(script, dialects=("hash_marker", "tilde_fence"))

    _, second, third, _ = sent(model)
    assert "n0" == second[-1]["tool_call_id"]
    assert second[-1]["content"].endswith("; send the call again")
    assert "; send the call again" in third[-1]["content"]
    assert "user" == third[-1]["role"]


async def test_messages_and_options_are_not_changed() -> None:
    """Later changes by the caller have no effect either."""
    messages, request = [copy.deepcopy(QUESTION), *copy.deepcopy(CALLED)], {"stop": ["a"]}
    before = copy.deepcopy((messages, request))
    model = ScriptedModel([PARIS_CALL, ANSWER])
    events = chat(model, messages, tools=TOOLS, request=request)
    assert before == (messages, request)
    messages.clear()
    request["stop"].append("b")
    async with events:
        [event async for event in events]
    assert [["a"], ["a"]] == [model.body(ask)["stop"] for ask in model.asks]
    assert [3, 5] == [len(each) for each in sent(model)]


# Answers after which no request follows.


async def test_no_follow_up() -> None:
    """With `follow_up="never"`, calls run, the history has their results, and there is one request."""
    noticed: list[tuple[str, Any]] = []

    async def notice(call: ToolCall, outcome: ToolOutcome) -> None:
        noticed.append((call.name, outcome.result))

    told, model, events = await hold([PARIS_CALL], follow_up="never", on_tool_result=notice)
    assert [("weather", {"celsius": 21})] == noticed
    assert "done finished: tool_calls (None)" == story(told)[-1]
    assert [QUESTION, *CALLED] == events.messages()
    assert 1 == len(model.asks)


@pytest.mark.parametrize(
    ("options", "pending"), [({"execute": "never"}, ["n0"]), ({"tools": None}, ["n0"]), ({"tool_choice": "none"}, [])]
)
async def test_calls_that_do_not_run_end_the_loop(options: dict[str, Any], pending: list[str]) -> None:
    """No request follows, and the run has finished."""
    told, model, _ = await hold([PARIS_CALL], **options)
    assert ("finished", pending) == (end(told).reason, [call.id for call in end(told).pending])
    assert 1 == len(model.asks)


async def test_pending_calls_end_the_loop() -> None:
    """A call without a result ends the loop, even if other calls ran."""
    answer = [*calls(("weather", PARIS)), kinds.ProviderCompleted()]  # type: ignore[misc]  # a list
    answer[1:] = [kinds.NativeToolCall("weather", PARIS, "1", "n1", answerable=False), kinds.ProviderCompleted()]
    told, model, events = await hold([answer])
    assert ("finished", ["n1"], 1) == (end(told).reason, [call.id for call in end(told).pending], len(model.asks))
    assert ["n0"] == [outcome.call.id for outcome in events.result.outcomes]


# Tool choices.


async def test_a_forced_call_is_forced_once() -> None:
    """The second request has no tool choice, or the loop would never end."""
    told, model, _ = await hold([PARIS_CALL, ANSWER], tool_choice="weather")
    assert ["tool", "auto"] == [ask.tool_choice.mode for ask in model.asks]
    assert "finished" == end(told).reason


# Reviews.


async def test_a_review_may_change_the_messages() -> None:
    """Its messages are sent, reported and kept. It may be asynchronous."""
    seen: list[Any] = []

    def change(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        seen.append(copy.deepcopy(messages))
        messages[1]["content"] = '{"celsius":22}'
        return [*messages, {"role": "user", "content": "Be brief."}]

    async def change_later(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        await anyio.lowlevel.checkpoint()
        return change(messages)

    changed = [CALLED[0], CALLED[1] | {"content": '{"celsius":22}'}, {"role": "user", "content": "Be brief."}]
    for review in (change, change_later):
        told, model, events = await hold([PARIS_CALL, ANSWER], review=review)
        assert [QUESTION, *changed] == sent(model)[1]
        assert [changed] == [event.messages for event in told if isinstance(event, kinds.FollowUp)]
        assert [QUESTION, *changed, {"role": "assistant", "content": ANSWER}] == events.messages()
    assert [CALLED, CALLED] == seen


async def test_a_review_may_stop_the_run() -> None:
    """None finishes the run. The history has the results."""
    told, model, events = await hold([PARIS_CALL], review=lambda messages: None)
    assert "done finished: tool_calls (None)" == story(told)[-1]
    assert [QUESTION, *CALLED] == events.messages()
    assert 1 == len(model.asks)


async def test_a_review_keeps_reasoning() -> None:
    """Reasoning and its signature are sent to the provider, unless the review changed the turn."""
    thinking: list[Any] = [kinds.ReasoningDelta("Hm.", "signed"), *calls(("weather", PARIS))]  # type: ignore[misc]  # a list

    def change_result(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [messages[0], messages[1] | {"content": "22"}]

    def change_text(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [messages[0] | {"content": "Well."}, messages[1]]

    for review, kept in ((change_result, 1), (change_text, 0)):
        _, model, _ = await hold([thinking, ANSWER], review=review)
        _, said, _ = model.asks[1].history
        assert isinstance(said, Assistant)
        assert kept == len(said.thoughts)


@together("review", [lambda messages: 1 / 0, lambda messages: [{"role": "robot"}]], ids=["raises", "no history"])
async def test_a_review_that_fails(review: Any) -> None:
    """The run fails, and the exception is raised."""
    model = ScriptedModel([PARIS_CALL])
    told: list[kinds.UIEvent] = []
    events = chat(model, [QUESTION], tools=TOOLS, follow_up=review)

    async def read() -> None:
        async with events:
            async for event in events:
                told.append(event)

    with pytest.raises((ZeroDivisionError, ValueError)):
        await read()
    assert ("failed", 0) == (end(told).reason, model.open)
    assert [QUESTION, *CALLED] == events.messages()


WRITTEN: list[dict[str, Any]] = [
    {"role": "assistant", "content": IN_TEXT},
    {"role": "user", "content": '~~~tool_result weather\n{"celsius":21}\n~~~'},
]


@together(
    "review",
    [
        lambda messages: [*messages, {"role": "user", "content": "And in French."}],
        lambda messages: [messages[0], {"role": "user", "content": "~~~tool_result weather\n22\n~~~"}],
        lambda messages: [messages[0], {"role": "user", "content": "It is warm."}],
        lambda messages: [{"role": "user", "content": "Hear me."}, *messages],
        lambda messages: [{"role": "assistant", "content": "It was I."}, messages[1]],
    ],
    ids=["adds", "changes the result", "answers in words", "adds before", "changes what was said"],
)
async def test_a_review_of_calls_in_text(review: Any) -> None:
    """Its messages are sent unchanged, without a message that the call did not run."""
    _, model, events = await hold([IN_TEXT, ANSWER], native=False, teach="never", review=review)
    assert [QUESTION, *review(WRITTEN)] == sent(model)[1]
    assert [QUESTION, *review(WRITTEN), {"role": "assistant", "content": ANSWER}] == events.messages()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("~~~tool_result weather\n22\n~~~", "~~~tool_result weather\n22\n~~~"),
        ("Never mind.", "~~~tool_result weather\nthis call has no result; it may not have run\n~~~\n\nNever mind."),
    ],
    ids=["with its result", "without"],
)
async def test_the_caller_answers_pending_calls_in_text(said: str, told: str) -> None:
    """The history has the result of the caller. Without one, it says that the call did not run."""
    _, _, pending = await hold([IN_TEXT], native=False, execute="never")
    model = ScriptedModel([ANSWER], native_tool_calls=False)
    events = chat(model, [*pending.history, User(said)], tools=TOOLS, request=RequestOptions(teach="never"))
    await events
    assert [QUESTION, WRITTEN[0], {"role": "user", "content": told}] == sent(model)[0]
    assert [*sent(model)[0], {"role": "assistant", "content": ANSWER}] == events.messages()


async def test_the_response_is_closed_during_a_review() -> None:
    """A person may review the messages for a day."""
    model = ScriptedModel([PARIS_CALL, ANSWER])
    open_then: list[int] = []

    def review(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        open_then.append(model.open)
        return messages

    await chat(model, [QUESTION], tools=TOOLS, follow_up=review)
    assert [0] == open_then


async def test_leaving_during_a_review() -> None:
    """The run is cancelled, or stopped if its time is over."""
    reviewing = anyio.Event()

    async def never(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        reviewing.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with chat(ScriptedModel([PARIS_CALL]), [QUESTION], tools=TOOLS, follow_up=never) as left:
        await reviewing.wait()
    told, _, stopped = await hold([PARIS_CALL], review=never, guards=Guards(seconds=0.05))
    assert "cancelled" == left.result.reason
    assert ("stopped", "time_limit") == (end(told).reason, end(told).finish_reason)
    assert [QUESTION, *CALLED] == left.messages() == stopped.messages()


# Limits.


async def test_the_last_step_runs_no_calls() -> None:
    """No request could follow with their results.

    The run is stopped, and the history says that the calls did not run.
    """
    told, model, events = await hold([PARIS_CALL, PARIS_CALL], max_steps=2)
    done = end(told)
    assert ("stopped", "max_steps", ["n0_2"]) == (done.reason, done.finish_reason, [call.id for call in done.pending])
    assert 1 == len([line for line in story(told) if line.startswith("executed")])
    assert "this call has no result; it may not have run" == events.messages()[-1]["content"]
    assert 2 == len(model.asks)


@together(
    ("call", "options"),
    [
        *((PARIS_CALL, options) for options in ({}, {"execute": "eager"})),
        *((IN_TEXT, options) for options in ({}, {"native": False}, {"native": False, "execute": "eager"})),
    ],
)
async def test_the_last_step_may_be_an_answer(call: ScriptedReply, options: dict[str, Any]) -> None:
    """Its request has the results, and forbids calls. If the model makes one, it does not run, and is not pending."""
    for last, errors in ((ANSWER, []), (call, [Code.TOOL_CHOICE_VIOLATION])):
        told, model, _ = await hold([call, last], max_steps=2, last_step="answer", **options)
        validate(told)
        assert ["auto", "none"] == [ask.tool_choice.mode for ask in model.asks]
        assert ("finished", []) == (end(told).reason, end(told).pending)
        assert errors == [event.code for event in told if isinstance(event, kinds.Error)]
        first, second = (ask.history for ask in model.asks)
        assert isinstance(second[-1], Results)
        before, after = (
            next((each.text for each in asked if isinstance(each, System)), "") for asked in (first, second)
        )
        added = "Do not call tools now. Give your final answer."
        assert after.removeprefix(before).strip() == (added if "native" in options else "")


def paid(total: int, *wanted: tuple[str, Any]) -> ScriptedReply:
    return calls(*wanted, usage=kinds.Usage(total=total))


@together(
    ("guards", "answers", "why"),
    [
        (Guards(repeated_calls=3), [PARIS_CALL] * 3, "repeated_call"),
        (Guards(calls=1), [PARIS_CALL, calls(("fail", {}))], "call_limit"),
        (Guards(failed_turns=2), [calls(("fail", {})), calls(("weather", "{"))], "failed_turns"),
        (Guards(tokens=5), [paid(3, ("weather", PARIS)), paid(2, ("fail", {}))], "token_limit"),
        (Guards(tokens=5), [paid(5, ("weather", "{"))], "token_limit"),
    ],
)
async def test_guards_apply_to_the_whole_run(guards: Guards, answers: list[ScriptedReply], why: str) -> None:
    """Their limits count all answers together."""
    told, model, events = await hold(answers, guards=guards)
    assert ("stopped", why, 0) == (end(told).reason, end(told).finish_reason, model.left)
    check_openai(events.messages())


# Failures.


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (kinds.SourceError("the model is overloaded", status=529), Code.UPSTREAM_ERROR),
        (OSError("gone"), Code.STREAM_INTERRUPTED),
        (b'data: {"choices":[{"delta":{"content":"It is"}}]}\n\n', Code.STREAM_INTERRUPTED),
    ],
)
async def test_the_second_request_fails(second: ScriptedReply, code: Code) -> None:
    """The run fails. The steps before the request stay valid, and can be sent again."""
    told, _, events = await hold([PARIS_CALL, second])
    assert ("failed", [code]) == (end(told).reason, [error.code for error in events.result.errors])
    assert [QUESTION, *CALLED] == events.messages()[:3]


@together(
    ("options", "complaint"),
    [
        ({"follow_up": "always"}, "follow_up must be one of 'auto', 'never'"),
        ({"teach": "maybe"}, "teach must be one of"),
        ({"last_step": "text"}, "last_step must be one of 'any', 'answer'"),
        ({"max_steps": 0}, "max_steps must be a number of at least 1"),
        ({"tool_choice": "nope"}, "names 'nope'"),
        ({"messages": [{"role": "bot"}]}, "message 0"),
        ({"teach": "always", "dialects": "llama_json"}, "no dialect|chat template"),
        ({"emulation": "sometimes"}, "emulation must be one of"),
        ({"review": "yes"}, "follow_up must be one of 'auto', 'never'"),
    ],
)
def test_invalid_arguments(options: dict[str, Any], complaint: str) -> None:
    """They raise immediately, not during the run."""
    with pytest.raises(ValueError, match=complaint):
        chat(ScriptedModel([]), **grouped(**{"messages": [QUESTION], "tools": TOOLS, **options}))


def test_unknown_parameters() -> None:
    """The message names them, and says where options of the provider belong."""
    with pytest.raises(TypeError, match=r"chat\(\) has no parameter 'temperature'.* request=\{'temperature': \.\.\.\}"):
        chat(ScriptedModel([]), [QUESTION], **grouped(temperature=0))


# Teaching.


def taught(model: ScriptedModel) -> tuple[str, list[str], bool]:
    """Return the system prompt of the last request, the roles of the others, and whether tools were offered."""
    first, *rest = model.asks[-1].history
    prompt = first.text if isinstance(first, System) else ""
    roles = [type(each).__name__ for each in (rest if prompt else model.asks[-1].history)]
    return prompt, roles, bool(model.asks[-1].tools)


async def test_models_that_are_taught() -> None:
    """The prompt teaches models without native calls. All others get the definitions of the tools."""
    for native, options, told, offered in (
        (None, {}, False, True),
        (True, {}, False, True),
        (False, {}, True, False),
        (False, {"teach": "never"}, False, False),
        (True, {"teach": "always"}, True, True),
        (True, {"native_tool_calls": False}, True, False),
        (False, {"native_tool_calls": None}, False, True),
        (False, {"dialects": ()}, False, False),
        (True, {"dialects": (), "teach": "always"}, False, True),
        (False, {"tools": ()}, False, False),
    ):
        _, model, _ = await hold([ANSWER], native=native, **options)
        prompt, roles, tools = taught(model)
        assert (told, offered, ["User"]) == ("weather" in prompt, tools, roles), (native, options)


async def test_tools_that_no_prompt_can_teach_are_logged() -> None:
    """No prompt can contain the tokens of a chat template. The server's own template may."""
    cases: list[tuple[str, bool | None, list[str]]] = [("kimi_k2", False, ["kimi_k2"]), ("kimi_k2", None, [])]
    for dialects, native, expected in (*cases, ("hermes_json", False, [])):
        with capture_logs() as logs:
            _, model, _ = await hold([ANSWER], native=native, dialects=dialects)
        assert expected == [each["dialect"] for each in logs if each["event"] == "tools_not_told"], (dialects, native)
        assert (expected == []) == any(taught(model)[::2]), (dialects, native)


@together(
    ("dialects", "opener"),
    [
        *((None, "~~~tool_call"), ("auto", "~~~tool_call")),
        *((["hash_marker", "tilde_fence"], "###:"), ("hermes_json", "<tool_call>")),
    ],
)
async def test_the_taught_dialect(dialects: Any, opener: str) -> None:
    """It is the first one that the caller names, or the default."""
    _, model, _ = await hold([ANSWER], native=False, dialects=dialects)
    assert opener in taught(model)[0]


@pytest.mark.parametrize("system", [None, "Be brief."])
async def test_each_request_has_one_tool_section(system: str | None) -> None:
    """The prompt of the application comes first, and the history is unchanged. It has no `system` of the chat."""
    model = ScriptedModel([IN_TEXT, ANSWER], native_tool_calls=False)
    messages = [{"role": "system", "content": "Be brief."}, QUESTION][system is not None :]
    events = chat(model, messages, system=system, tools=TOOLS)
    await events

    first, second = ([each for each in ask.history if isinstance(each, System)] for ask in model.asks)
    assert first == second
    assert first[0].text.startswith("Be brief.\n\n<tool_instructions>")
    roles = [message["role"] for message in events.messages()]
    assert (messages, roles.count("system")) == (events.messages()[: len(messages)], len(messages) - 1)


async def test_a_taught_model_gets_native_calls_as_text() -> None:
    """Native calls of another model are written in the taught dialect."""
    model = ScriptedModel([ANSWER], native_tool_calls=False)
    events = chat(model, [QUESTION, *CALLED], tools=TOOLS)
    await events

    _, _, called, answered = sent(model)[0]
    assert IN_TEXT.strip() == called["content"].strip()
    assert {"role": "user", "content": '~~~tool_result weather\n{"celsius":21}\n~~~'} == answered
    assert QUESTION == events.messages()[0]
