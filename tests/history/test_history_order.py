"""Histories that providers accept: message order, and one result for each call."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ToolError, ToolStream, TurnResult, tool
from streamtools.calls import NATIVE, ToolCall
from streamtools.events import NativeToolCall, ProviderCompleted, ReasoningDelta, SourceEvent, TextDelta
from streamtools.history import (
    Assistant,
    CallResult,
    Message,
    Results,
    System,
    Thought,
    User,
    calls_as_text,
    read_messages,
    write_messages,
)
from streamtools.history.pairing import pair_results
from streamtools.history.parts import steps_to_history
from streamtools.parsing.dialects import Dialect, hash_marker, tilde_fence
from tests.support.examples import examples
from tests.support.history_rules import RULES, breaches, check_anthropic, check_openai
from tests.support.options import grouped
from tests.support.stories import Script

FORMATS = list(RULES)
DIALECTS = (hash_marker(), tilde_fence())

# Runs.


async def succeed(text: str) -> str:
    return text


async def fail() -> None:
    raise ToolError("not on Sundays")


@tool(timeout=0.001)
async def hang() -> None:
    await anyio.sleep_forever()


async def wait() -> None:
    """Wait until the run is cancelled."""
    await anyio.sleep_forever()


KINDS: dict[str, tuple[str | None, Any]] = {
    "success": ("succeed", {"text": "a"}),
    "nothing": ("succeed", {"text": ""}),
    "half a character": ("succeed", {"text": "\ud83d"}),
    "failure": ("fail", {}),
    "timeout": ("hang", {}),
    "refused": ("succeed", {}),
    "unknown": ("multi_tool_use.parallel", {"a": [1]}),
    "malformed": ("succeed", '{"text": "a'),
    "nameless": (None, {}),
}
TEXTS = [
    *("", "Hi. ", " \n", '###:{"name":"succeed","arguments":{"text":"~~~"}}'),
    *('\n~~~tool_call\n{"name":"fail"}\n~~~\n', '###:{"name":3}'),
]

turns = st.tuples(
    st.sampled_from(["", "Hm."]),
    st.sampled_from(TEXTS),
    st.lists(st.tuples(st.sampled_from([*KINDS]), st.sampled_from(["", "x", "y", "a.b"])), max_size=4),
)


def source_of(turn: tuple[str, str, list[tuple[str, str]]], last: bool) -> list[SourceEvent]:
    """Return the provider's events of one turn. Ids may be missing, invalid or duplicated."""
    thought, text, calls = turn
    events: list[SourceEvent] = [ReasoningDelta(thought), ReasoningDelta("", "signed")] if thought else []
    events += [TextDelta(text)] if text else []
    for number, (kind, id) in enumerate(calls):
        name, arguments = KINDS[kind]
        events.append(NativeToolCall(name, arguments, str(number), id))
    return [*events, ProviderCompleted(finish_reason="tool_calls", ends_run=last)]


async def run(source: list[SourceEvent], left_at: int | None, **options: Any) -> TurnResult:
    """Return the result of a run, which is left at an event if `left_at` is set."""
    new_id = map("c{}".format, itertools.count(1)).__next__
    async with ToolStream(
        Script(source), tools=[succeed, fail, hang, wait], **grouped(new_id=new_id, **options)
    ) as events:
        count = itertools.count()
        async for _ in events:
            if next(count) == left_at:
                break
    return events.result


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@examples(0.6)
@given(st.lists(turns, min_size=1, max_size=3), st.none() | st.integers(0, 40), st.sampled_from(["auto", "none"]))
def test_messages_of_a_run_are_accepted(
    backend: str, said: list[tuple[str, str, list[tuple[str, str]]]], left_at: int | None, choice: str
) -> None:
    """Each call has one result at its place: successful, failed, timed out, malformed or cancelled."""
    source = [event for number, turn in enumerate(said, 1) for event in source_of(turn, number == len(said))]

    async def told() -> TurnResult:
        return await run(source, left_at, tool_choice=choice)

    result = anyio.run(told, backend=backend)

    history: list[Message] = [User("?"), *steps_to_history(result.steps), User("And now?")]
    for format in FORMATS:
        assert [] == breaches(write_messages(history, format, dialects=DIALECTS), format)
        assert [] == breaches(write_messages(history[:-1], format, dialects=DIALECTS, unanswered="cancelled"), format)


def test_the_rules_find_misplaced_results() -> None:
    """A missing, a duplicate, a late and an unexpected result are found."""
    function = {"name": "f", "arguments": "{}"}
    asked = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }
    used = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]}
    said = {"role": "user", "content": [{"type": "text", "text": "Well?"}]}
    forms: list[tuple[Any, Any, Any, Any]] = [
        (
            check_openai,
            {"role": "user", "content": "Well?"},
            asked,
            {"role": "tool", "tool_call_id": "a", "content": "1"},
        ),
        (check_anthropic, said, used, result),
    ]
    for check, user, call, told in forms:
        check([user, call, told])
        for messages in ([user, call], [user, call, told, told], [user, call, user, told], [user, told]):
            with pytest.raises(AssertionError):
                check(messages)


# Histories of any kind.

odd_text = st.sampled_from(["", " ", "a", "b\n", "\ud83d", '###:{"name":"f"}', "[1]", '{"a":1}', "NaN", "\x00", "~~~"])
arguments = st.dictionaries(odd_text, st.one_of(odd_text, st.floats(), st.none(), st.lists(st.integers())), max_size=2)
ids = st.sampled_from(["x", "y", "functions.f:0", "x_2", "é"])
calls = st.builds(
    ToolCall,
    id=ids,
    name=st.sampled_from(["f", "g", "a.b", "", "\ud83d" * 80]),
    arguments=arguments,
    dialect=st.just("native"),
    provider_id=st.sampled_from([None, "p"]),
    signature=st.sampled_from([None, "s"]),
)
in_text = st.builds(
    ToolCall, id=st.sampled_from(["t1", "t2"]), name=st.just("f"), arguments=arguments, dialect=st.just("hash_marker")
)
thoughts = st.builds(
    Thought, odd_text, st.sampled_from([None, "s"]), st.sampled_from([None, "r"]), st.booleans(), st.none()
)


def unique(given: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple({call.id: call for call in given}.values())


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Return histories whose results are missing, late, out of order, scattered, or interrupted."""
    history: list[Message] = [User("?")]
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["system", "user", "turn", "turn", "turn"]))
        if kind == "system":
            history.append(System(draw(odd_text.filter(bool))))
        elif kind == "user":
            history.append(User(draw(odd_text.filter(bool))))
        else:
            native, texts = unique(draw(st.lists(calls, max_size=3))), unique(draw(st.lists(in_text, max_size=2)))
            parts: Any = draw(st.permutations([*native, draw(odd_text), *draw(st.lists(thoughts, max_size=3))]))
            history.append(Assistant(parts=parts, in_text=texts))
            answered = draw(st.permutations([*native, *texts]))
            for call in answered[: draw(st.integers(0, 5))]:
                if draw(st.booleans()) and not draw(st.booleans()):
                    history.append(User("Meanwhile."))
                failed = call.name not in ("f", "g") or draw(st.booleans())  # no tool with an invalid name has a result
                text, neutralize = draw(odd_text), draw(st.booleans())
                neutralize = neutralize or call.dialect == NATIVE  # a reader of messages does not know the option
                answer = CallResult(call.dialect, call.name, text, call.id, neutralize, failed)
                history.append(Results((answer,)))
    return history


def _expected(history: list[Message]) -> list[str]:
    return [call.id for each in history if isinstance(each, Assistant) for call in each.calls]


@given(histories(), st.sampled_from(FORMATS))
@examples(3)
def test_each_paired_history_is_accepted(history: list[Message], format: str) -> None:
    """If it continues or is complete, each call has one result, in order."""
    assert [] == breaches(write_messages([*history, User("And?")], format, dialects=DIALECTS), format)
    assert [] == breaches(write_messages(history, format, unanswered="cancelled"), format)


@given(histories())
def test_pairing_keeps_all_content(history: list[Message]) -> None:
    """Results find their calls, and nothing else changes. Pairing twice equals pairing once."""
    settled = pair_results(history, "leave")
    told = [answer for each in history if isinstance(each, Results) for answer in each.results]
    kept = [answer for each in settled if isinstance(each, Results) for answer in each.results]

    assert sorted(told, key=repr) == sorted(kept, key=repr)
    assert [each for each in history if not isinstance(each, Results)] == [
        each for each in settled if not isinstance(each, Results)
    ]
    assert settled == pair_results(settled, "leave")
    complete = pair_results(history, "cancelled")
    assert complete == pair_results(complete)
    natively = [id for each in complete if isinstance(each, Results) for id in _native_ids(each)]
    assert _expected(history) == natively


def _native_ids(results: Results) -> list[str]:
    return [answer.call_id for answer in results.results if answer.dialect == "native"]


@given(histories(), st.sampled_from(FORMATS), st.sampled_from([None, *DIALECTS]))
def test_calls_as_text_leave_no_native_calls(history: list[Message], format: str, dialect: Dialect | None) -> None:
    """Each call in text has a result."""
    written = write_messages([*calls_as_text(history, dialect), User("?")], format, dialects=DIALECTS)
    assert [] == breaches(written, format)
    assert "tool_use" not in str(written)
    assert "functionCall" not in str(written)
    assert not any("tool_calls" in each or each.get("role") == "tool" or "call_id" in each for each in written)


@given(histories(), st.sampled_from(FORMATS))
@examples(2)
def test_written_messages_are_read_unchanged(history: list[Message], format: str) -> None:
    """For Anthropic, messages of one role are joined."""
    written = write_messages([*history, User("?")], format, dialects=DIALECTS)
    again = write_messages(read_messages(written), format, dialects=DIALECTS)
    assert [] == breaches(again, format)
    assert again == write_messages(read_messages(again), format, dialects=DIALECTS)
    if format not in ("anthropic", "gemini"):
        assert written == again
