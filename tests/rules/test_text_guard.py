"""Tests of `text_rules` in a parser, a machine and a stream: visible text, events, and no leaks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import Parser, StreamMachine, TextOptions, ToolStream, coalesce, outputs, parse, rules, sources, tool
from streamtools import events as kinds
from streamtools.errors import Code
from streamtools.limits import Limits
from streamtools.parsing.text_filter import TextFilter
from streamtools.rules import Rule
from streamtools.rules.matcher import Matcher
from streamtools.testing.laws import cut
from streamtools.typed import OutputType
from tests.machine.test_machine_laws import options as machine_options
from tests.machine.test_machine_laws import run
from tests.machine.test_machine_laws import sources as machine_sources

CALL = '###:{"name": "now", "arguments": {"a": "b"}}'
SECRET = re.compile("s[ecr]{1,4}et|top ?s[ecr]{1,4}et")
RULES: list[Rule] = [
    rules.replace(SECRET, "…", name="secret"), rules.remove("##"), rules.email(), rules.mark(re.compile(r"\[\d\]")),
]  # fmt: skip
pieces = st.sampled_from([
    "secret", "sec", "ret", "top ", "s", "[1]", "[", "1]", "a@b.org", "@b.org", "me", ".", " ", "\n", "##", "#",
    CALL, CALL[:9], "~~~tool_call\nno\n~~~", "<think>", "secret</think>", "END", "EN", "D", "`", "FAIL",
])  # fmt: skip


def feed(parser: Parser, deltas: Sequence[str]) -> list[kinds.UIEvent]:
    """Return all events of a parser."""
    return [event for delta in deltas for event in parser.feed(delta)] + parser.close()


texts = st.lists(pieces, max_size=12).map("".join)
places = st.lists(st.integers(0, 120), max_size=8)
options = st.fixed_dictionaries(
    {},
    optional={
        "after_call": st.sampled_from(["show", "hide", "stop"]),
        "on_malformed": st.sampled_from(["error", "text"]),
        "reasoning": st.sampled_from(["start", "anywhere", "off"]),
    },
)


@given(texts, places, options, st.booleans())
def test_visible_text_and_matches_do_not_depend_on_cuts(text: str, at: list[int], chosen: Any, ends: bool) -> None:
    """Nor do the calls, and the end of the answer."""
    chosen = chosen | {"text_rules": [*RULES, *([rules.stop("END"), rules.fail("FAIL")] if ends else [])]}
    whole = parse(text, **chosen)
    parser = Parser(**chosen)
    events = feed(parser, cut(text, at))
    outputs.validate(events, run=False)
    assert coalesce(whole.events) == coalesce(events)
    assert [call.name for call in whole.calls] == [call.name for call in parser.calls]
    assert len(whole.errors) == len(parser.errors)


@given(texts, places, options)
def test_each_character_is_shown_or_in_a_match(text: str, at: list[int], chosen: Any) -> None:
    """At the position that the events state."""
    plain = parse(text, **chosen).content
    events = feed(Parser(text_rules=RULES, **chosen), cut(text, at))
    assert_conserved(plain, events)


def assert_conserved(plain: str, events: Sequence[kinds.UIEvent]) -> None:
    """Raise AssertionError unless the events hold the whole text, in order."""
    written, instead = "", 0
    for event in events:
        if isinstance(event, kinds.Matched):
            assert event.position == len(written)
            assert event.match is not None
            assert len(event.match) == event.length
            written += event.match
            instead = event.shown
        elif isinstance(event, kinds.Text):
            written += event.text[instead:]
            instead = max(0, instead - len(event.text))
    assert plain == written


def no_candidate_ends(patch: pytest.MonkeyPatch) -> None:
    """Let a match continue across a call."""
    end = TextFilter.end
    patch.setattr(TextFilter, "take", _only_at_the_end(TextFilter.take, end))


def _only_at_the_end(take: Callable[..., Any], end: Callable[..., Any]) -> Callable[..., Any]:
    def taken(guard: TextFilter, events: list[kinds.UIEvent]) -> Any:
        guard.end = lambda out: None  # type: ignore[method-assign]
        try:
            return take(guard, events)
        finally:
            guard.end = lambda out: end(guard, out)  # type: ignore[method-assign]

    return taken


def what_is_held_is_dropped(patch: pytest.MonkeyPatch) -> None:
    """Drop pending text at the end."""
    patch.setattr(Matcher, "close", lambda matcher: "")


def a_match_is_counted_wrong(patch: pytest.MonkeyPatch) -> None:
    """Count the position of a match in the shown text."""
    show_all = TextFilter._show

    def show(guard: TextFilter, found: Any, out: list[kinds.UIEvent]) -> None:
        each = [found] if isinstance(found, str) else found
        show_all(guard, [one if isinstance(one, str) else one._replace(position=one.position + 1) for one in each], out)

    patch.setattr(TextFilter, "_show", show)


@pytest.mark.parametrize("plant", [no_candidate_ends, what_is_held_is_dropped, a_match_is_counted_wrong])
def test_a_planted_fault_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"a secret, top {CALL}secret and sec"

    def check() -> None:
        events = feed(Parser(text_rules=RULES), list(text))
        assert_conserved(parse(text).content, events)
        assert "a …, top … and sec" == "".join(each.text for each in events if isinstance(each, kinds.Text))

    check()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


def test_a_call_and_reasoning_end_a_match() -> None:
    """The pending text is shown before them."""
    parser = Parser(text_rules=[rules.remove("top secret")], reasoning="anywhere")
    events = feed(parser, [f"a top {CALL}secret top <think>secret</think>secret"])
    assert ["a top ", "thinking", "call-start", "call", "thinking", "secret top ", "reasoning", "secret"] == [
        each.text if isinstance(each, kinds.Text) else each.type for each in coalesce(events)
    ]


def test_a_match_is_reported_before_its_replacement() -> None:
    """No JSON holds the match."""
    found = parse(
        "my [1] secret", text_rules=[rules.mark(re.compile(r"\[(\d)\]"), lambda match: {"n": match[1]}), *RULES]
    )
    events = coalesce(found.events)

    assert events == [
        kinds.Text("my "),
        kinds.Matched("mark", "mark", 3, 3, fields={"n": "1"}),
        kinds.Text(" "),
        kinds.Matched("secret", "replace", 7, 6, 1),
        kinds.Text("…"),
    ]
    assert ["[1]", "secret"] == [event.match for event in found.events if isinstance(event, kinds.Matched)]
    assert "secre" not in "".join(event.to_json().replace('"secret"', "") for event in events)


def test_no_event_holds_a_match() -> None:
    """Including the raw text of calls, errors and near misses, and unknown data."""
    bad = '###:{"name": "f", "arguments": {"a": "secret"}'
    given: list[kinds.SourceEvent] = [
        kinds.TextDelta(f"say secret: {CALL.replace('b', 'x')} {bad} secret"),
        kinds.SourceRaw({"choices": ["sec"]}),
        kinds.SourceRaw({"item": ["a secret", 1]}, "openai"),
        kinds.SourceWarning(Code.BAD_FRAME, "odd", raw='{"sec'),
        kinds.ToolCallStart("0", "i", "f"),
        kinds.ToolCallDelta("0", '{"secret'),
        kinds.ProviderCompleted(finish_reason="stop"),
    ]
    events = run(given, text_rules=[rules.replace("secret", "…", name="r")], on_malformed="error")

    outputs.validate(events)
    assert "sec" not in "".join(event.to_json() for event in events)
    assert [{"item": ["a …", 1]}] == [event.data for event in events if isinstance(event, kinds.Raw)]
    near = parse("###: {secret", text_rules=[rules.replace("secret", "…")]).warnings
    assert all(each.raw is None for each in near)


def test_half_a_match_at_the_end_of_a_long_call_is_removed() -> None:
    text = '###:{"name": "f", "arguments": {"a": "' + "secret" * 9
    found = parse(text, text_rules=[rules.replace("secret", "…")], limits=Limits(call=41))
    assert ['###:{"name": "f", "arguments": {"a": "'] == [each.raw for each in found.errors]


STOP: list[tuple[Sequence[str], str, list[str]]] = [
    (["a E", "ND b"], "a ", []),
    ([f"{CALL} END {CALL}"], " ", ["now"]),
    ([f"a {CALL}", "E", "N", f"D{CALL}b"], "a ", ["now"]),
]


@pytest.mark.parametrize(("deltas", "shown", "calls"), STOP)
@pytest.mark.parametrize("native", [None, False])
def test_stop_ends_the_turn_as_a_stop_sequence_does(
    deltas: list[str], shown: str, calls: list[str], native: bool | None
) -> None:
    """Complete calls run. Later text is not shown, and later calls do not run."""
    machine = StreamMachine(text_rules=[rules.stop("END")], native_tool_calls=native, execute="eager")
    events = [event for delta in deltas for event in machine.feed(kinds.TextDelta(delta))]
    due = machine.take_runnable()
    events += machine.feed(kinds.ProviderCompleted(text="".join(deltas))) + machine.end_step() + machine.close()
    assert machine.stopped
    assert calls == [call.name for call in due]
    assert shown == "".join(event.text for event in events if isinstance(event, kinds.Text))
    assert ("finished", "stopped_by_rule") == _ending(events)


def _ending(events: list[kinds.UIEvent]) -> tuple[str, str | None]:
    done = events[-1]
    assert isinstance(done, kinds.Done)
    return done.reason, done.finish_reason


@pytest.mark.parametrize("tail", ["", " more"])
def test_a_match_may_be_decided_at_the_end_of_the_turn(tail: str) -> None:
    """Or by a native call, which is then ignored."""
    ends = [rules.stop(re.compile(r"END\b"))]
    call = kinds.NativeToolCall("f", "{}", "0", "i")
    for after in ([], [call], [kinds.TextDelta(tail)] if tail else []):
        events = run([kinds.TextDelta("a END"), *after, kinds.ProviderCompleted()], text_rules=ends)
        assert ("finished", "stopped_by_rule") == _ending(events)
        assert [] == [event for event in events if event.type in ("call", "executing")]


def test_fail_ends_the_run() -> None:
    """With an error. No call of the turn runs."""
    events = run(
        [kinds.TextDelta(f"{CALL} a FAIL b"), kinds.TextDelta("c"), kinds.ProviderCompleted()],
        text_rules=[rules.fail("FAIL")],
    )

    outputs.validate(events)
    (error,) = [event for event in events if isinstance(event, kinds.Error)]
    assert Code.GUARD_FAILED is error.code
    assert "failed" == _ending(events)[0]
    assert ["now"] == [call.name for call in events[-1].pending]  # type: ignore[union-attr]
    assert " a " == "".join(event.text for event in events if isinstance(event, kinds.Text))


def test_native_reasoning_and_calls_end_a_match() -> None:
    """The numbers of events rise by one."""
    given: list[kinds.SourceEvent] = [
        kinds.TextDelta("a sec"),
        kinds.ReasoningDelta("hm"),
        kinds.TextDelta("ret sec"),
        kinds.SourceRaw({}, "openai"),
    ]
    events = run([*given, kinds.TextDelta("ret"), kinds.ProviderCompleted()], text_rules=RULES)

    outputs.validate(events)
    assert ["a sec", "hm", "ret sec", "ret"] == [
        event.text for event in coalesce(events) if isinstance(event, kinds.Text | kinds.Reasoning)
    ]


@given(machine_sources, machine_options, st.booleans())
def test_a_run_with_rules_has_valid_events(given: list[kinds.SourceEvent], chosen: Any, cancel: bool) -> None:
    """For any source events, and for rules that end the run."""
    ends = [rules.stop(re.compile(r"[a-f]\b")), rules.fail(re.compile(r"(?:H|```)(?!x)")), rules.remove("name")]
    for found in ([*RULES, *ends[2:]], ends):
        events = run(given, text_rules=found, cancel=cancel, **chosen)
        outputs.validate(events)
        assert "name" not in "".join(event.text for event in events if isinstance(event, kinds.Text))


@pytest.mark.parametrize("at", [1, 12, 30, 31, 32, 40])
def test_typed_values_hold_the_shown_text(at: int) -> None:
    """Also if pending text is shown before another event."""
    text = '{"who": "bob@example.org and sec", "n": 12}'
    given: list[kinds.SourceEvent] = [
        kinds.TextDelta(text[:at]),
        kinds.ReasoningDelta("hm"),
        kinds.TextDelta(text[at:]),
        kinds.ProviderCompleted(),
    ]
    events = run(given, text_rules=[rules.replace(re.compile("sec(?![a-z])"), "…")], output=OutputType(dict[str, Any]))

    outputs.validate(events)
    shown = "".join(event.text for event in events if isinstance(event, kinds.Text))
    values = [event.instance for event in events if isinstance(event, kinds.Partial) and event.instance is not None]
    assert [json.loads(shown)] == values
    assert ("…" in shown) is ("sec" in f"{text[:at]}|{text[at:]}")


@tool
def now(a: str) -> str:
    """Return the time."""
    return f"{a} o'clock"


@pytest.mark.parametrize("history", ["as_written", "as_shown"])
async def test_the_history_is_as_written_or_as_shown(history: Any) -> None:
    """Tools get the original arguments in both cases."""
    call = CALL.replace('"b"', '"secret"')
    text = f"my secret [1] and {call} top secret"
    async with ToolStream(
        sources.text([text[at : at + 5] for at in range(0, len(text), 5)]),
        tools=[now],
        text=TextOptions(rules=[*RULES[:1], *RULES[2:], rules.replace(" and", "")], history=history),
    ) as stream:
        assert [] != [event async for event in stream]
    result = stream.result
    said = result.messages()[0]["content"]

    assert "my …   …" == result.text
    assert ["secret o'clock"] == [outcome.result for outcome in result.outcomes]
    assert said == (text if history == "as_written" else f"my …  {call.replace('secret', '…')} …")


def test_values_that_are_no_rules_are_refused() -> None:
    """When they are given, not when a text arrives."""
    with pytest.raises(ValueError, match="list of rules"):
        Parser(text_rules=rules.email())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="list of rules"):
        ToolStream(sources.text([]), text=TextOptions(rules=["secret"]))  # type: ignore[list-item]
    with pytest.raises(ValueError, match="history"):
        Parser(text_rules=[rules.email()], history="no")  # type: ignore[arg-type]
