"""The conformance suite: its cases, its judgement of parsers with a planted fault, and its three adapters."""

from __future__ import annotations

import doctest
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import conformance
from conformance import (
    CUTS,
    FAULTS,
    Outcome,
    Parse,
    Reported,
    Score,
    WrittenCall,
    cases,
    deltas,
    function,
    judge,
    ours,
    read_lines,
    run,
    schema,
    table,
    to_line,
)  # fmt: skip
from streamtools import parse
from tests.support.cases import together

SOME = list(cases(["hermes_json", "hash_marker", "raw_json"], every_place=False))
HERMES = [case for case in SOME if case.dialect == "hermes_json"]
ONE_CALL = next(case for case in HERMES if case.rule == "one call")


def test_cases_are_data() -> None:
    """They are the same each time, survive JSON, and match the schema. Cuts lose nothing."""
    assert SOME == list(read_lines([*map(to_line, SOME), ""]))
    assert SOME == list(cases(["hermes_json", "hash_marker", "raw_json"], every_place=False))
    assert len(SOME) == len({case.id for case in SOME})
    assert json.loads(to_line(SOME[0])).keys() == schema()["$defs"]["Case"]["properties"].keys()
    for cut in CUTS:
        assert {ONE_CALL.text} == {"".join(pieces) for pieces in deltas(ONE_CALL.text, cut)}
    assert "<tool_call>" in next(deltas(ONE_CALL.text, "tokens"))


def test_a_cut_off_call_counts_if_more_text_cannot_change_it() -> None:
    """Up to its last argument it may become another call. Later it counts without its closing tag."""
    by_text = {case.text: case.expected for case in cases(["hermes_json"]) if case.rule == "cut off"}
    before, begin = "I will look it up.\n", '<tool_call>\n{"name":"write_file","arguments":{"path":"a.py"'
    written = WrittenCall("write_file", {"path": "a.py", "content": "x"})
    refused = Outcome((before,), errors=("truncated",))

    assert (refused, Outcome((before,)), Outcome((before, "<tool"))) == by_text[before + "<tool"]
    assert (refused,) == by_text[before + begin]
    assert (refused,) == by_text[before + begin + ',"content":"x"']
    assert (Outcome((before,), (written,)), refused) == by_text[before + begin + ',"content":"x"}']


def test_the_example_prints_its_output() -> None:
    assert (0, 3) == doctest.testmod(conformance)


def test_this_parser_is_right_in_the_quick_cuts() -> None:
    wrong = [result for result in run(function(ours), SOME, ["tokens", "characters"]) if not result.right]
    assert [] == wrong


@pytest.mark.deep
def test_this_parser_is_right_in_every_dialect_and_cut() -> None:
    """Also when the text is cut off after each character."""
    every = cases(every_place=False)
    wrong = [result for result in run(function(ours), every) if not result.right]
    cut_off = (case for case in cases() if case.rule == "cut off")
    wrong += [result for result in run(function(ours), cut_off, ["characters"]) if not result.right]
    assert [] == wrong


# Parsers with a fault.


def leaks_at_a_cut(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Shows a tag that is cut between deltas."""
    report = ours(deltas, dialect, tools)
    cut = "<tool_call>" not in deltas and report["calls"]
    return {**report, "text": report["text"] + "<tool"} if cut else report


def loses_what_follows(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Shows nothing after a call."""
    report = dict(ours(deltas, dialect, tools))
    return {**report, "text": report["text"].split("\nIt is 18")[0]}


def executes_what_was_cut(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Repairs a truncated call."""
    report = dict(ours(deltas, dialect, tools))
    cut = "truncated" in report["errors"]
    return {**report, "errors": [], "calls": [*report["calls"], *([{"name": "write_file", "arguments": "{}"}] * cut)]}


def ignores_code(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Executes examples in code. Reports only text and calls."""
    result = parse(deltas, dialects=dialect, tools=list(tools), in_code="call")
    return {
        "text": result.content,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in result.calls],
    }


def forgets_calls(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Reports calls with arguments that cannot be read."""
    report = ours(deltas, dialect, tools)
    return {**report, "calls": [{**call, "arguments": '{"city'} for call in report["calls"]]}


def types_nothing(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Reads every value as a string."""
    report = ours(deltas, dialect, tools)
    made = [
        {**call, "arguments": {key: str(value) for key, value in call["arguments"].items()}} for call in report["calls"]
    ]
    return {**report, "calls": made}


def joins_lines(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Loses line ends."""
    report = ours(deltas, dialect, tools)
    return {**report, "text": " ".join(report["text"].split())}


def shows_reasoning(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Shows reasoning as text."""
    report = ours(deltas, dialect, tools)
    return {**report, "text": report["reasoning"] + report["text"], "reasoning": ""}


def reports_no_error(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Hides malformed calls without a code."""
    return {**ours(deltas, dialect, tools), "errors": []}


def answers_malformed(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns an answer in another form."""
    return {"calls": ["get_weather"]}


@together(
    ("parser", "rule", "kinds"),
    [
        (leaks_at_a_cut, "one call", {"leak"}),
        (loses_what_follows, "one call", {"lost text"}),
        (executes_what_was_cut, "cut off", {"false call", "code"}),
        (ignores_code, "an example in code", {"false call", "lost text"}),
        (forgets_calls, "one call", {"lost call"}),
        (types_nothing, "one call", {"wrong arguments"}),
        (joins_lines, "prose", {"white space"}),
        (shows_reasoning, "reasoning", {"leak", "reasoning"}),
        (reports_no_error, "malformed arguments", {"code"}),
        (answers_malformed, "one call", {"raised"}),
    ],
)
def test_each_planted_fault_is_named(parser: Parse, rule: str, kinds: set[str]) -> None:
    """A parser with one fault has that fault and no other."""
    found = [result for result in run(function(parser), HERMES, ["tokens", "characters"]) if result.case.rule == rule]
    assert kinds == {kind for result in found for kind in result.kinds}
    assert kinds <= FAULTS.keys()


def test_a_fault_at_a_cut_is_no_fault_by_tokens() -> None:
    """A parser that reports no reasoning is not tested on it."""
    (result,) = run(function(leaks_at_a_cut), [ONE_CALL])
    score = Score()
    score.add(result)
    assert (score.right, score.right_by_tokens) == (0, 1)
    assert table([("hermes_json", score)], "dialect").splitlines() == [  # without the faults that do not occur
        "| dialect | cases | right | right by tokens | leak |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| hermes_json | 1 | – | 1 | 1 |",
    ]
    assert not [result for result in run(function(ignores_code), HERMES, ["tokens"]) if "reasoning" in result.case.rule]


def test_the_outcome_with_the_fewest_faults_counts() -> None:
    """White space around sections is not judged, and 3.0 equals 3."""
    case = ONE_CALL
    right = ("get_weather", {"city": "Kraków", "days": 3.0})
    text = "  ".join(case.expected[0].text)
    assert not judge(case, Reported(text, [right]))
    assert {"leak": 3} == judge(case, Reported(f"<b>{text}", [right]))
    assert {"lost text": 4, "leak": 3} == judge(case, Reported(text.replace("look", "<x>"), [right]))
    assert {"lost call": 1} == judge(case, Reported(text, [("get_weather", "")]))
    assert {"lost call": 1} == judge(case, Reported(text, [("get_weather", [1])]))
    assert {"false call": 1} == judge(case, Reported(text, [right, ("keep", '{"items": [1]}')]))
    empty = next(case for case in HERMES if case.rule == "no arguments")
    assert not judge(empty, Reported(None, [("get_weather", None)]))
