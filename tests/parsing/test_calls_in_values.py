"""Tests of values that hold calls and tags, such as the content of a file. No call runs with a part of its value.

A value that holds a call of any dialect is read whole, or its call is an error. The same holds for parts of calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from streamtools import Parser, StreamMachine, rules
from streamtools.errors import Code
from streamtools.events import Error, ProviderCompleted, Text, TextDelta
from streamtools.machine.event_order import validate
from streamtools.parsing import dialect_set
from streamtools.parsing.bodies import nesting, rest_of_call
from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.dialect_set import dialect_set_of
from streamtools.parsing.dialects import DIALECTS
from streamtools.testing.laws import assert_chunk_invariant, assert_deltas_match_arguments
from tests.parsing.faults import IN_TAGS
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, read
from tests.support.ways_to_cut import some, usual_ways

FIELDS = {name: {"type": "string"} for name in ("path", "text", "mode")}
TOOLS: list[dict[str, Any]] = [
    {"name": "save", "parameters": {"type": "object", "properties": FIELDS}},
    {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
]
RAW = sorted(IN_TAGS - {"minicpm5_xml", "morph_xml"})
"""Dialects with values in tags that are written without escapes."""

IGNORED = {
    "step3_xml": "its tokens around a call are no levels, so they may follow the call",
    "minimax_m3_xml": "an element inside a call may have any name",
}
"""Dialects in which a malformed call in a value may be cut at the tags of the call."""


def written(dialect: str, name: str, **arguments: str) -> str:
    """Return a call in one dialect."""
    return DIALECTS[dialect].write_call(name, arguments)


def with_raw(dialect: str, value: str, *, last: bool = True) -> str:
    """Return a call with a value as a model writes it, without escapes."""
    arguments = {"path": "n", "text": "VALUE"} if last else {"text": "VALUE", "path": "n"}
    return written(dialect, "save", **arguments).replace("VALUE", value)


def calls_in_values(dialect: str) -> Iterator[str]:
    """Yield values that hold whole calls of a dialect."""
    one, other = written(dialect, "get_weather", city="Paris"), written(dialect, "save", path="p", text="y")
    yield from (one, other, f"Before.\n{one}\nAfter.", f"{one}\n{other}", f"{one}\nand\n{other}.")
    yield written(dialect, "get_weather")


def tags_of(dialect: str) -> list[str]:
    return re.findall(r"(?:\]<\]minimax\[>\[)?<[^<>]*>", written(dialect, "get_weather", city="Paris"))


def tags_in_values(dialect: str) -> Iterator[str]:
    """Yield values that hold one tag of a dialect, or a call without one of its tags."""
    whole = written(dialect, "get_weather", city="Paris")
    for tag in tags_of(dialect):
        yield from (tag, f"x {tag} y", f"{tag} y", f"x {tag}", f"x\n{tag}\ny")
        if dialect not in IGNORED:
            yield whole.replace(tag, "", 1).strip()


def beginnings_of_calls(dialect: str) -> Iterator[str]:
    """Yield values that hold the first tags of a call."""
    tags = tags_of(dialect)
    for count in range(1, len(tags)):
        yield from ("".join(tags[:count]), "\nx\n".join(tags[:count]))


def read_at_all_cuts(text: str, *dialects: str) -> list[Brief]:
    """Return the events, which must be the same at all cuts. The deltas of each call must join to its arguments."""
    options: dict[str, Any] = {"dialects": dialects, "tools": TOOLS} if dialects else {"tools": TOOLS}
    events = assert_chunk_invariant(text, usual_ways(text), **options)
    parser = Parser(**options, call_deltas=True, call_partials=True)
    assert_deltas_match_arguments([event for delta in text for event in parser.feed(delta)] + parser.close())
    return brief(events)


def read_whole(text: str, dialect: str) -> list[Brief]:
    """Return the events of a text in one piece, and check that its characters give the same calls and errors."""
    readings = []
    for deltas in ([text], text):
        parser = Parser([dialect], TOOLS)
        readings.append(brief([event for delta in deltas for event in parser.feed(delta)] + parser.close()))
    whole, alone = ([event for event in events if isinstance(event, tuple)] for events in readings)
    assert whole == alone, text
    return readings[0]


def is_error(events: Iterable[Brief], expected: Brief) -> bool:
    """Return True if the call is an error, and no call other than the one after it is read."""
    found = [event for event in events if isinstance(event, tuple)]
    return any(event[0] == "error" for event in found) and all(
        event == expected for event in found if event[0] == "call"
    )


def wrong_readings(dialect: str, values: Iterable[str], *, may_fail: bool = True) -> list[tuple[str, list[Brief]]]:
    """Return the readings that are neither whole nor errors. Other text and another call may follow the call."""
    wrong, after = [], call("get_weather", city="Rome")
    for value in values:
        for follows, text_after, calls_after in (
            ("", "", []),
            (" So.", "So.", []),
            (written(dialect, "get_weather", city="Rome"), "", [after]),
        ):
            for last in (True, False):
                text = with_raw(dialect, value, last=last) + follows
                events = read_whole(text, dialect)
                found = [event for event in events if isinstance(event, tuple)]
                shown = "".join(event for event in events if isinstance(event, str)).strip()
                whole = found == [call("save", path="n", text=value), *calls_after] and shown == text_after
                if not (whole or (may_fail and is_error(found, after))):
                    wrong.append((text, events))
    return wrong


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_value_may_be_a_call_of_any_dialect(dialect: str) -> None:
    """At every cut. With the dialect and, if it is one of the default dialects, with these."""
    for inner in {dialect, *some(DIALECTS, 20, [*DIALECTS].index(dialect))}:
        value = written(inner, "get_weather", city="Paris")
        text = written(dialect, "save", path="n", text=value)
        assert [call("save", path="n", text=value)] == read_at_all_cuts(text, dialect), inner
        if DIALECTS[dialect].auto is True:
            assert [call("save", path="n", text=value)] == read_at_all_cuts(text), inner


@pytest.mark.parametrize("dialect", RAW)
def test_calls_in_a_value_are_a_part_of_it(dialect: str) -> None:
    """Two calls, calls between prose, and calls in the values of these calls. They may be of another dialect."""
    values = list(calls_in_values(dialect))
    values += [with_raw(dialect, value) for value in values[:3]]
    values += [value for inner in some(RAW, 99) for value in calls_in_values(inner)]

    assert [] == wrong_readings(dialect, values, may_fail=False)


@pytest.mark.parametrize("dialect", RAW)
def test_no_call_runs_with_a_part_of_a_value_that_holds_tags(dialect: str) -> None:
    """The call is read whole, or it is an error."""
    values = [*tags_in_values(dialect), *beginnings_of_calls(dialect)]
    assert [] == wrong_readings(dialect, some(values, 3, RAW.index(dialect)))


def halves_of_calls(inner: str) -> Iterator[str]:
    """Yield the second half of a call and a whole call, and the reverse."""
    one, other = written(inner, "get_weather", city="Paris"), written(inner, "save", path="p", text="y")
    half = len(one) // 2
    yield from (one[half:], f"{one[half:]}\n{other}", f"{other}\n{one[:half]}")


def values_with_ends(dialect: str) -> Iterator[str]:
    """Yield values that hold all closing tags of a call."""
    end = with_raw(dialect, "VALUE").partition("VALUE")[2]
    yield from (f"x{end}", f"x{end} y", end, f"x{end}\n{end}", f"x{end}\n{written(dialect, 'get_weather')}")


def calls_that_run(dialect: str, values: Iterable[str]) -> list[str]:
    """Return texts whose call runs with a part of its value. No call without an error is shown."""
    wrong = []
    end = with_raw(dialect, "VALUE").partition("VALUE")[2]
    for value in values:
        for last in (True, False):
            text = with_raw(dialect, value, last=last)
            for deltas in usual_ways(text):
                parser = Parser([dialect], TOOLS)
                events = [event for delta in deltas for event in parser.feed(delta)] + parser.close()
                validate(events, run=False)
                whole = [(made.name, made.arguments) for made in parser.calls] == [
                    ("save", {"path": "n", "text": value})
                ]
                shown = "".join(event.text for event in events if isinstance(event, Text))
                if not whole and (parser.calls or not parser.errors or end.strip()[:8] in shown):
                    wrong.append(text)
                    break
    return wrong


@pytest.mark.parametrize("dialect", RAW)
def test_no_call_runs_if_its_value_held_all_closing_tags(dialect: str) -> None:
    """The call was complete before the other closing tags, so it is reported first and then turned into an error."""
    assert [] == calls_that_run(dialect, values_with_ends(dialect))


@pytest.mark.parametrize("dialect", RAW)
def test_no_call_runs_if_its_value_held_halves_of_calls(dialect: str) -> None:
    for inner in {dialect, "hermes_json", "llama31_function_tag", *some(DIALECTS, 99)}:
        assert [] == calls_that_run(dialect, halves_of_calls(inner)), inner


@pytest.mark.parametrize("dialect", ["qwen3_coder_xml", "glm_xml", "hunyuan_xml", "zaya_xml"])
def test_a_parser_that_withdraws_only_calls_with_the_same_tag_breaks_the_law(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault."""
    withdraw = CallEvents.withdraw
    monkeypatch.setattr(CallEvents, "withdraw", lambda output, text, _: withdraw(output, text, ""))

    assert any(calls_that_run(dialect, halves_of_calls(inner)) for inner in ("hermes_json", "llama31_function_tag"))


@pytest.mark.parametrize("dialect", RAW)
def test_the_rest_of_a_call_whose_value_ended_early_is_hidden(dialect: str) -> None:
    """The next argument shows it. It and the closing tags are not shown, but the text after them is."""
    text = with_raw(dialect, next(values_with_ends(dialect)), last=False)
    for after in ("", "\nYes."):
        events = read_at_all_cuts(text + after, dialect)
        assert after.strip() == "".join(event for event in events if isinstance(event, str)).strip(), events
        assert error("unrecognised_tool_call") in events


@pytest.mark.parametrize("dialect", ["qwen3_coder_xml", "glm_xml", "minimax_m2_xml", "kimi_k3_xtml"])
def test_a_parser_that_hides_only_the_first_tags_of_the_rest_breaks_the_law(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault."""
    monkeypatch.setattr(dialect_set, "rest_of_call", lambda _: rest_of_call(()))
    dialect_set_of.cache_clear()

    with pytest.raises(AssertionError):
        test_the_rest_of_a_call_whose_value_ended_early_is_hidden(dialect)
    dialect_set_of.cache_clear()


@pytest.mark.parametrize("value", ["", "\n", " \n "])
@pytest.mark.parametrize("dialect", RAW)
def test_the_tag_of_another_argument_at_the_beginning_of_a_value_is_an_error(dialect: str, value: str) -> None:
    """The tag may be a part of the value, or the value may be empty and its closing tag missing."""
    head, tail = written(dialect, "save", path="PATH", text="x").split("PATH")
    opening = re.search("<[^<]*text", tail)
    assert opening is not None

    events = read(head + value + tail[opening.start() :], dialects=[dialect], tools=TOOLS)
    assert ["error"] == [event[0] for event in events if event[0] in ("call", "error")]


@pytest.mark.parametrize("dialect", ["qwen3_coder_xml", "glm_xml", "minimax_m2_xml", "kimi_k3_xtml"])
def test_a_parser_that_does_not_withdraw_calls_breaks_the_law(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault."""
    monkeypatch.setattr(CallEvents, "withdraw", lambda *_: None)

    assert calls_that_run(dialect, values_with_ends(dialect))


def test_a_withdrawn_call_goes_back_to_the_model_as_an_error() -> None:
    """With `execute="eager"`, it may have run. So it stays, and the tags are text."""
    text = f"{QWEN}x\n{QWEN_END} y\n{QWEN_END}"
    machine = StreamMachine(dialects="qwen3_coder_xml", tools=TOOLS, native_tool_calls=False)
    events = [event for source in (TextDelta(text), ProviderCompleted("stop")) for event in machine.feed(source)]
    validate([*events, *machine.close()])
    assert [Code.UNRECOGNISED_TOOL_CALL] == [event.code for event in events if isinstance(event, Error)]
    assert [] == machine.take_runnable() == machine.pending

    machine = StreamMachine(dialects="qwen3_coder_xml", tools=TOOLS, native_tool_calls=False, execute="eager")
    events = machine.feed(TextDelta(text))
    assert [{"path": "n", "text": "x"}] == [each.arguments for each in machine.take_runnable()]
    assert f" y\n{QWEN_END}" in "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize("ruled", [False, True])
def test_calls_before_and_after_a_withdrawn_call(ruled: bool) -> None:
    other = '###:{"name": "get_weather", "arguments": {"city": "Rome"}}\n'
    text = f"{other}{QWEN}x\n{QWEN_END} y\n{QWEN_END}\n{other}"
    for deltas in usual_ways(text):
        parser = Parser(["qwen3_coder_xml", "hash_marker"], TOOLS, text_rules=[rules.replace(["Bern"], "…")] * ruled)
        events = [event for delta in deltas for event in parser.feed(delta)] + parser.close()
        assert ["get_weather", "get_weather"] == [each.name for each in parser.calls], events
        assert 1 == len(parser.errors)


@pytest.mark.parametrize("dialect", ["qwen3_coder_xml", "glm_xml", "minimax_m2_xml", "kimi_k3_xtml"])
def test_a_reader_that_does_not_balance_tags_breaks_the_law(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault."""
    monkeypatch.setattr(nesting, "_are_in", lambda run, nested: False)

    assert wrong_readings(dialect, calls_in_values(dialect))


@pytest.mark.parametrize("dialect", ["qwen3_coder_xml", "glm_xml", "minimax_m2_xml", "seed_oss_xml"])
def test_a_reader_that_does_not_look_ahead_breaks_the_law(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault."""
    monkeypatch.setattr(nesting.NestedText, "_has_structure", lambda *_: True)

    assert wrong_readings(dialect, tags_in_values(dialect))


QWEN = "<tool_call>\n<function=save>\n<parameter=path>\nn\n</parameter>\n<parameter=text>\n"
GLM = "<tool_call>save\n<arg_key>text</arg_key>\n<arg_value>"
INVOKE = '<function_calls>\n<invoke name="save">\n<parameter name="text">'
QWEN_END = "</parameter>\n</function>\n</tool_call>"
END = "</invoke>\n</function_calls>"
CALLS = "<function_calls>"
DIALECT_OF = {QWEN: "qwen3_coder_xml", GLM: "glm_xml", INVOKE: "anthropic_xml", CALLS: "anthropic_xml"}
ENDS, CLOSED = "\n</function>\n</tool_call>", "</parameter></function></tool_call>"
OPENED, DEMO = "<function=demo>", "<function=demo></function>"
PARIS = "<function=get_weather><parameter=city>Paris</parameter></function>"
MODE, UNIT = (f"<arg_key>{key}</arg_key><arg_value>y</arg_value>" for key in ("mode", "unit"))
NAMED = '<parameter name="mode">y</parameter>'
TWO = '<parameter name="a">1</parameter><parameter name="b">2</parameter>'
broken, cut = [error("unrecognised_tool_call")], [error("truncated")]


def saved(text: str, **more: str) -> list[Brief]:
    """Return the event of a call with these arguments."""
    return [call("save", text=text, **more)]


@together(
    ("begin", "rest", "expected"),
    {
        "a function, and an end of the wrapper": (QWEN, f"{OPENED}{ENDS}\n{QWEN_END}", saved(OPENED + ENDS, path="n")),
        "the ends of a function and its wrapper": (QWEN, f"x{ENDS}\n{QWEN_END}", saved(f"x{ENDS}", path="n")),
        "a function, if the closing tag of the value is missing": (QWEN, DEMO + ENDS, saved(DEMO, path="n")),
        "a function, if all closing tags are missing": (QWEN, f"{DEMO}\n</tool_call>", broken),
        "a call, and the stream ends": (QWEN, f"<tool_call>{PARIS}</tool_call>", cut),
        "a call after ordinary text, and the stream ends": (QWEN, f"x</parameter> y {PARIS}", cut),
        "the tag of a known parameter": (QWEN, f"x<parameter=mode>y{CLOSED}", saved("x", path="n", mode="y")),
        "the pair of a known parameter": (GLM, f"Oslo{MODE}</tool_call>", saved("Oslo", mode="y")),
        "the pair of an unknown parameter in a value": (GLM, f"Oslo{UNIT}</tool_call>", broken),
        "the closed pair of an unknown parameter": (GLM, f"Oslo{UNIT}</arg_value></tool_call>", saved(f"Oslo{UNIT}")),
        "a known parameter in an attribute": (INVOKE, f"x{NAMED}{END}", saved("x", mode="y")),
        "parameters in a value": (INVOKE, f"{TWO}</parameter>{END}", saved(TWO)),
        "more tags than are counted": (QWEN, "<function=f>" * 70 + CLOSED, cut),
        "a tag in the name of a tool": (CALLS, f'<invoke name="sa<|x|>ve">{END}', broken),
    },
)
def test_tags_in_values_are_balanced(begin: str, rest: str, expected: list[Brief]) -> None:
    dialect = DIALECT_OF[begin]
    assert expected == read_at_all_cuts(begin + rest, dialect)
    assert expected == read(begin + rest, dialects=[dialect], tools=TOOLS)


def test_elements_may_contain_elements_of_the_same_name() -> None:
    picture = '<svg><text x="1">a</text><text/></svg>'

    assert [call("save", text=picture)] == read_at_all_cuts(f"<save><text>{picture}</text></save>", "morph_xml")
