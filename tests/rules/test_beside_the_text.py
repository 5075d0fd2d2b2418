"""Tests of rules on reasoning and on shown arguments. No event, encoder, log or record holds a match."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streamtools import (
    Parser,
    ParserOptions,
    TextOptions,
    ToolStream,
    chat,
    coalesce,
    outputs,
    parse,
    rules,
    sources,
    tool,
)
from streamtools import events as kinds
from streamtools.conversation import ScriptedModel
from streamtools.errors import Code
from streamtools.history import Assistant, Thought
from streamtools.outputs import FORMATS
from streamtools.runs import Runs
from streamtools.testing.laws import cut
from tests.machine.test_machine_laws import run
from tests.rules.test_text_guard import CALL, RULES, feed
from tests.support.options import grouped
from tests.support.stories import Script

SECRET = "bob@example.org"
EMAIL = [rules.email()]
pieces = st.sampled_from(
    ["<think>", "</think>", "secret", "sec", "ret", "top ", "a@b.org", "me", " ", ".", CALL, "END", "[1]", "\n"]
)
texts = st.lists(pieces, max_size=12).map("".join)
places = st.lists(st.integers(0, 120), max_size=8)


def thoughts(events: Sequence[kinds.UIEvent]) -> str:
    """Return the visible reasoning."""
    return "".join(event.text for event in events if isinstance(event, kinds.Reasoning))


# Reasoning.


@given(texts, places, st.booleans(), st.booleans())
def test_rules_in_reasoning_do_not_depend_on_cuts(text: str, at: list[int], ends: bool, inside: bool) -> None:
    """Each character is shown once, and no match spans text and reasoning."""
    chosen: Any = {"reasoning": "anywhere", "rules_in_reasoning": True, "in_reasoning": inside}
    found = [*RULES, *([rules.stop("END")] if ends else [])]
    whole = parse(text, text_rules=found, **chosen)
    events = feed(Parser(text_rules=found, **chosen), cut(text, at))

    outputs.validate(events, run=False)
    assert coalesce(whole.events) == coalesce(events)
    if not ends:
        plain = parse(text, reasoning="anywhere", in_reasoning=inside)
        assert plain.reasoning == _written(events, "reasoning")
        assert plain.content == _written(events, "text")


def _written(events: Sequence[kinds.UIEvent], where: str) -> str:
    written, instead = "", 0
    for event in events:
        if isinstance(event, kinds.Matched) and event.where == where:
            assert event.position == len(written)
            written, instead = written + (event.match or ""), event.shown
        elif event.type == where and isinstance(event, kinds.Text | kinds.Reasoning):
            written, instead = written + event.text[instead:], max(0, instead - len(event.text))
    return written


def test_reasoning_is_unchanged_without_the_option() -> None:
    text = f"<think>ask {SECRET}</think>mail {SECRET}"
    assert f"ask {SECRET}" == parse(text, text_rules=EMAIL).reasoning
    assert "ask [email]" == parse(text, text_rules=EMAIL, rules_in_reasoning=True).reasoning


GIVEN: list[kinds.SourceEvent] = [
    kinds.ReasoningDelta("ask bob@exa"),
    kinds.ReasoningDelta("mple.org or", own={"openai": {"reasoning_details": [SECRET]}}),
    kinds.ReasoningDelta(" not", "signed"),
    kinds.TextDelta("mail bob@exam"),
    kinds.ReasoningDelta("x"),
    kinds.TextDelta("ple.org"),
    kinds.ProviderCompleted(finish_reason="stop"),
]


def test_fields_of_the_provider_do_not_end_a_match_in_reasoning() -> None:
    """The first delta of chat completions names the field of the reasoning."""
    written = f"ask {SECRET} or not"
    for at in range(len(written)):
        own = {"openai": {"reasoning_content": None}}
        deltas = [kinds.ReasoningDelta(written[:at], own=own), kinds.ReasoningDelta(written[at:])]
        assert "ask [email] or not" == thoughts(
            run([*deltas, kinds.ProviderCompleted()], text_rules=EMAIL, rules_in_reasoning=True)
        )


def test_text_ends_a_match_in_reasoning_and_vice_versa() -> None:
    """Signatures are kept. The provider's fields of the original reasoning are not shown."""
    events = run(GIVEN, text_rules=EMAIL, rules_in_reasoning=True)
    outputs.validate(events)
    assert "ask [email] or notx" == thoughts(events)
    assert "mail bob@example.org" == "".join(e.text for e in events if isinstance(e, kinds.Text))  # cut by a thought
    assert "signed" in [e.signature for e in events if isinstance(e, kinds.Reasoning)]
    assert "reasoning_details" not in "".join(event.to_json() for event in events)


@pytest.mark.parametrize("history", ["as_written", "as_shown"])
async def test_the_history_holds_the_original_reasoning(history: Any) -> None:
    """Its provider has signed it."""
    async with ToolStream(
        Script(GIVEN), text=TextOptions(rules=EMAIL, rules_in_reasoning=True, history=history)
    ) as stream:
        assert [] != [event async for event in stream]
    said = stream.result.steps[0].turn
    assert isinstance(said, Assistant)
    first = next(part for part in said.parts if isinstance(part, Thought))

    assert "ask [email] or notx" == stream.result.reasoning
    assert "ask bob@example.org or" in first.text
    assert SECRET in str(first.extra)
    assert "signed" in [part.signature for part in said.parts if isinstance(part, Thought)]


@pytest.mark.parametrize(("rule", "reason"), [(rules.stop("END"), "finished"), (rules.fail("END"), "failed")])
def test_a_match_in_reasoning_can_end_the_run(rule: rules.Rule, reason: str) -> None:
    """The text after it is not read."""
    native: list[kinds.SourceEvent] = [
        kinds.TextDelta("a"),
        kinds.ReasoningDelta("hm EN"),
        kinds.ReasoningDelta("D x"),
        kinds.TextDelta(CALL),
    ]
    for said in (native, [kinds.TextDelta(f"<think>hm END x</think>{CALL}")]):
        events = run([*said, kinds.ProviderCompleted()], text_rules=[rule], rules_in_reasoning=True)

        outputs.validate(events)
        assert "hm " == thoughts(events)
        assert (reason, []) == (getattr(events[-1], "reason", None), [e for e in events if isinstance(e, kinds.Call)])


# Arguments.


@pytest.mark.parametrize("history", ["as_written", "as_shown"])
@pytest.mark.parametrize("native", [True, False])
async def test_rules_apply_to_shown_arguments(history: Any, native: bool) -> None:
    """Tools, the result and the history hold the original arguments, unless the history is as shown."""
    ran: list[str] = []

    @tool
    def mail(to: str) -> str:
        """Send a mail."""
        ran.append(to)
        return "sent"

    written = '{"to": "bob\\u0040example.org"}' if native else f'{{"to": "{SECRET}"}}'
    given: list[kinds.SourceEvent] = [
        kinds.TextDelta(each) for each in f'###:{{"name": "mail", "arguments": {written}}}'
    ]
    if native:
        deltas = [kinds.ToolCallDelta("0", each) for each in written]
        given = [kinds.ToolCallStart("0", "i", "mail"), *deltas, kinds.NativeToolCall("mail", written, "0", "i")]
    bad = kinds.NativeToolCall("mail", '{"to": 5, "cc": "bob@example.org"}', "1", "j")
    more: list[kinds.SourceEvent] = [bad] if native else []
    async with ToolStream(
        Script([*given, *more, kinds.ProviderCompleted(finish_reason="stop")]),
        tools=[mail],
        text=TextOptions(rules=EMAIL, rules_in_arguments=True, history=history),
        parser=ParserOptions(call_deltas=True, call_partials=True),
    ) as stream:
        events = [event async for event in stream]
    outputs.validate(events)
    reported = "".join(event.to_json() for event in events)
    result = stream.result

    assert [SECRET] == ran
    assert "bob" not in reported
    assert not [event for event in events if isinstance(event, kinds.CallDelta)]
    assert [{"to": "[email]"}] == [e.call.arguments for e in events if isinstance(e, kinds.Executing)][:1]
    grown = [e.value for e in events if isinstance(e, kinds.Partial) and e.path == ["to"] and isinstance(e.value, str)]
    assert "[email]" == "".join(grown)
    assert {"to": SECRET} == result.calls[0].arguments == result.outcomes[0].call.arguments
    assert ("bob" in json.dumps(result.messages())) is (history == "as_written")


async def test_rules_apply_to_pending_calls() -> None:
    """The result holds the original arguments."""

    @tool(requires_approval=True)
    def mail(to: str) -> str:
        """Send a mail."""
        return to

    call = f'###:{{"name": "mail", "arguments": {{"to": "{SECRET}"}}}}'
    for tools in ([mail], None):
        async with ToolStream(
            sources.text([call]), tools=tools, text=TextOptions(rules=EMAIL, rules_in_arguments=True)
        ) as stream:
            events = [event async for event in stream]
        done = events[-1]
        assert isinstance(done, kinds.Done)
        assert SECRET not in "".join(event.to_json() for event in events)
        assert [{"to": "[email]"}] == [each.arguments for each in done.pending]
        assert [{"to": SECRET}] == [each.arguments for each in stream.result.pending]
        assert tools is None or (stream.suspension is not None and SECRET in stream.suspension.to_json())


# What leaves the process.

SHOWN: Any = {"rules_in_arguments": True, "rules_in_reasoning": True}
BAD = f'###:{{"name": "f", "arguments": {{"a": "{SECRET}'
LEAKY: list[list[kinds.SourceEvent]] = [
    [kinds.TextDelta(f"hi {SECRET}"), kinds.SourceError(f"could not parse: {SECRET}", cause="odd")],
    [
        kinds.TextDelta("hi "),
        kinds.SourceError("no", failed_generation=f'{SECRET} ###:{{"name": "f" {SECRET}}} ###:{{"name": "g"}}'),
    ],
    [
        kinds.TextDelta(f"hi {SECRET}"),
        kinds.ProviderCompleted(text=f'other {SECRET} ###:{{"a": "{SECRET}"}} ###:{{"name": "g"}}'),
    ],
    [kinds.ToolCallStart("0", "i", "g"), kinds.ToolCallDelta("0", f'{{"a": {SECRET}'), kinds.ProviderCompleted()],
    [
        kinds.SourceWarning(Code.TEXT_MISMATCH, f"odd {SECRET}", raw=SECRET),
        kinds.SourceWarning(Code.BAD_FRAME, "odd", raw="bob@exam"),
    ],
    [
        kinds.TextDelta("x"),
        kinds.SourceRaw({SECRET: 1, "a": [(SECRET, 1)]}, "openai"),
        kinds.SourceRaw({"b": SECRET}),
        kinds.ProviderCompleted(),
    ],
    [kinds.TextDelta(BAD[:-4]), kinds.TextDelta(BAD[-4:])],
    [
        kinds.TextDelta(f"###: {{{SECRET} ~~~tool_caller {SECRET}\n~~~tool_call\n{SECRET}\n~~~ {SECRET}"),
        kinds.ProviderCompleted(),
    ],
    [kinds.TextDelta(f'~~~tool_result x\n{SECRET}\n~~~\n###:{{"name": "g"}} {SECRET}'), kinds.ProviderCompleted()],
    [kinds.TextDelta(f'```\n###:{{"name": "g", "arguments": {{"a": "{SECRET}"}}}}\n```'), kinds.ProviderCompleted()],
]


@pytest.mark.parametrize("given", LEAKY)
@pytest.mark.parametrize("on", [{}, {"on_malformed": "text"}, {"after_call": "hide"}, {"native_tool_calls": False}])
async def test_no_output_holds_a_match(given: list[kinds.SourceEvent], on: Any) -> None:
    """Events as JSON and as text, encoders, logs, and records of a run."""
    with capture_logs() as logs:
        async with Runs() as runs:
            stream = ToolStream(
                Script(*([each] for each in given)), **grouped(text_rules=EMAIL, call_deltas=True, **SHOWN, **on)
            )
            started = await runs.start(stream, owner="me")
            async with started.attach() as reading:
                events = [event async for event in reading]
    reported = "".join(event.to_json() + repr(event) for event in events) + str(logs)
    for name in FORMATS:
        encoder = outputs.make_encoder(name)
        reported += b"".join([*map(encoder.encode, events), encoder.close()]).decode()

    assert [] == [reported[at - 200 : at + 20] for at in [reported.find("bob@exam")] if at >= 0]


async def test_a_follow_up_event_holds_no_match() -> None:
    """The model and a reviewer get the original text."""
    model = ScriptedModel([f"mail {SECRET} {CALL}", "done"])
    reviewed: list[Any] = []

    def review(messages: list[Any]) -> list[Any]:
        reviewed.append(messages)
        return messages

    @tool
    def now(a: str) -> str:
        """Tell the time."""
        return a

    async with chat(
        model, [{"role": "user", "content": "?"}], tools=[now], text=TextOptions(rules=EMAIL), follow_up=review
    ) as stream:
        (reported,) = [event async for event in stream if isinstance(event, kinds.FollowUp)]

    assert SECRET not in reported.to_json()
    assert SECRET in json.dumps(reported.written)
    assert SECRET in json.dumps(reviewed)
    assert SECRET in str(model.asks[1].history)
