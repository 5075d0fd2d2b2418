"""The conformance suite: its cases, its judgement of parsers with a planted fault, and its three adapters."""

from __future__ import annotations

import doctest
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import conformance
from conformance import (
    CUTS,
    FAULTS,
    Command,
    Outcome,
    Parse,
    Reported,
    Score,
    Server,
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
from conformance.__main__ import main
from streamtools import parse
from tests.support.cases import together
from tests.support.text_gateway import gateway

SOME = list(cases(["hermes_json", "hash_marker", "raw_json"], every_place=False))
HERMES = [case for case in SOME if case.dialect == "hermes_json"]
ONE_CALL = next(case for case in HERMES if case.rule == "one call")


def test_cases_are_data() -> None:
    """They are the same each time, survive a line of JSON, and match the schema. Cuts lose nothing."""
    assert SOME == list(read_lines([*map(to_line, SOME), ""]))
    assert SOME == list(cases(["hermes_json", "hash_marker", "raw_json"], every_place=False))
    assert len(SOME) == len({case.id for case in SOME})
    assert json.loads(to_line(SOME[0])).keys() == schema()["$defs"]["Case"]["properties"].keys()
    for cut in CUTS:
        assert {ONE_CALL.text} == {"".join(pieces) for pieces in deltas(ONE_CALL.text, cut)}
    assert "<tool_call>" in next(deltas(ONE_CALL.text, "tokens"))


def test_a_cut_off_call_counts_if_more_text_cannot_change_it() -> None:
    """Up to its last argument it may become another call. After that it may count without its closing tag."""
    by_text = {case.text: case.expected for case in cases(["hermes_json"]) if case.rule == "cut off"}
    before, begin = "I will look it up.\n", '<tool_call>\n{"name":"write_file","arguments":{"path":"a.py"'
    written = WrittenCall("write_file", {"path": "a.py", "content": "x"})
    refused = Outcome((before,), errors=("truncated",))

    assert (refused, Outcome((before,)), Outcome((before, "<tool"))) == by_text[before + "<tool"]
    assert (refused,) == by_text[before + begin]
    assert (refused,) == by_text[before + begin + ',"content":"x"']
    assert (Outcome((before,), (written,)), refused) == by_text[before + begin + ',"content":"x"}']


def test_the_example_of_the_package() -> None:
    """It prints what its docstring says."""
    assert (0, 3) == doctest.testmod(conformance)


def test_our_parser_is_right() -> None:
    """In the quick cuts."""
    wrong = [result for result in run(function(ours), SOME, ["tokens", "characters"]) if not result.right]
    assert [] == wrong


@pytest.mark.deep
def test_our_parser_is_right_in_every_dialect_and_cut() -> None:
    """In every cut, and cut off after each character."""
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
def test_a_fault_is_named(parser: Parse, rule: str, kinds: set[str]) -> None:
    """A parser with one fault has that fault and no other."""
    found = [result for result in run(function(parser), HERMES, ["tokens", "characters"]) if result.case.rule == rule]
    assert kinds == {kind for result in found for kind in result.kinds}
    assert kinds <= FAULTS.keys()


def test_a_fault_at_a_cut_is_no_fault_by_tokens() -> None:
    """By tokens the parser is right. A parser that reports no reasoning is not tested on it."""
    (result,) = run(function(leaks_at_a_cut), [ONE_CALL])
    score = Score()
    score.add(result)
    assert (score.right, score.right_by_tokens) == (0, 1)
    assert "| hermes_json | 1 | – | 1 | 1 |" in table([("hermes_json", score)], "dialect")
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


# The adapters.

PROGRAM = """
import json, sys
for line in sys.stdin:
    case = json.loads(line)
    rule = case["deltas"][0]
    if rule == "hang":
        sys.stdin.read()
    if rule == "die":
        sys.exit(1)
    answer = {"raise": {"raised": "no"}, "skip": None}.get(rule, {"text": "".join(case["deltas"])})
    print(json.dumps(answer), flush=True)
"""


def test_a_command_answers_line_by_line(tmp_path: Path) -> None:
    """A program that ends, does not answer, or reports a failure has raised. It is started again."""
    (tmp_path / "program.py").write_text(PROGRAM)
    with Command([sys.executable, str(tmp_path / "program.py")]) as command:
        assert Reported("Hello") == command(ONE_CALL, ["Hel", "lo"])
        assert command(ONE_CALL, ["skip"]) is None
        for fault in ("raise", "die"):
            with pytest.raises(RuntimeError):
                command(ONE_CALL, [fault])
        assert Reported("é") == command(ONE_CALL, ["é"])
    with (
        Command(f"{sys.executable} {tmp_path / 'program.py'}", timeout=0.1) as command,
        pytest.raises(RuntimeError, match="no answer"),
    ):
        command(ONE_CALL, ["hang"])


def test_a_server_uses_the_suite_as_its_model() -> None:
    """Its report is judged. A refusal leaves a dialect out, and an error in the stream is a fault."""
    rules = ("one call", "reasoning", "cut off")
    case = [case for case in SOME if case.rule in rules and case.id.rpartition("/")[2] in ("1", "50")]
    upstream = [""]
    with gateway(upstream) as url, Server(url) as server:
        upstream[0] = server.upstream
        results = list(run(server, case, ["tokens"]))
    assert {True} == {result.right for result in results if result.case.dialect == "hermes_json"}
    assert all({"raised"} == result.kinds for result in results if result.case.dialect == "hash_marker")
    assert {"hermes_json", "hash_marker"} == {result.case.dialect for result in results}


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It writes the schema and the cases, reads cases from a file, and exits with 1 if a case is wrong."""
    chosen = ["--dialect", "hermes_json", "--rule", "one call"]
    assert 0 == main(["schema"])
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(schema()))

    assert 0 == main(["cases", *chosen])
    written = capsys.readouterr().out
    assert [ONE_CALL] == list(read_lines(written.splitlines()))
    (tmp_path / "cases.jsonl").write_text(written + to_line(SOME[-1]) + "\n")

    assert 0 == main(["run", "--from", str(tmp_path / "cases.jsonl"), *chosen, "--by", "rule", "--cut", "whole"])
    assert "| all | 1 | 1 | – |" in capsys.readouterr().out

    (tmp_path / "silent.py").write_text("def parse(deltas, dialect, tools):\n    return {'text': ''.join(deltas)}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert 1 == main(["run", *chosen, "--function", "silent:parse", "--faults", "1", "--cut", "tokens"])
    report = capsys.readouterr().out
    assert "hermes_json/one call/1: leak, lost call" in report
    assert "| all | 1 | – | – | 1 | – | 1 |" in report

    (tmp_path / "program.py").write_text(PROGRAM)
    assert 1 == main(["run", *chosen, "--command", f"{sys.executable} {tmp_path / 'program.py'}", "--cut", "tokens"])
    with gateway([""]) as url:
        assert 1 == main(["run", *chosen, "--server", url, "--listen", "127.0.0.1:0", "--cut", "tokens"])
    assert "| all | 1 | – | – | – | – | – | – | – | – | – | – | 1 |" in capsys.readouterr().out
