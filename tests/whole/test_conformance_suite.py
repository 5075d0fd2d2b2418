"""The conformance suite: its cases, its verdicts on parsers with a planted fault, and its three adapters."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

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
    """They are the same each time, survive a line of JSON, and hold what the schema names; cuts lose nothing."""
    assert SOME == list(read_lines([*map(to_line, SOME), ""]))
    assert SOME == list(cases(["hermes_json", "hash_marker", "raw_json"], every_place=False))
    assert len(SOME) == len({case.id for case in SOME})
    assert json.loads(to_line(SOME[0])).keys() == schema()["$defs"]["Case"]["properties"].keys()
    for cut in CUTS:
        assert {ONE_CALL.text} == {"".join(pieces) for pieces in deltas(ONE_CALL.text, cut)}
    assert "<tool_call>" in next(deltas(ONE_CALL.text, "tokens"))


def test_a_cut_off_call_is_known_by_what_else_it_may_become() -> None:
    """Up to its last argument it may go on to another call; behind that it may count, though its end is missing."""
    by_text = {case.text: case.expected for case in cases(["hermes_json"]) if case.rule == "cut off"}
    before, begin = "I will look it up.\n", '<tool_call>\n{"name":"write_file","arguments":{"path":"a.py"'
    written = WrittenCall("write_file", {"path": "a.py", "content": "x"})
    refused = Outcome((before,), errors=("truncated",))

    assert (refused, Outcome((before,)), Outcome((before, "<tool"))) == by_text[before + "<tool"]
    assert (refused,) == by_text[before + begin]
    assert (refused,) == by_text[before + begin + ',"content":"x"']
    assert (Outcome((before,), (written,)), refused) == by_text[before + begin + ',"content":"x"}']


def test_our_parser_is_right() -> None:
    """In the cuts that are quick."""
    wrong = [result for result in run(function(ours), SOME, ["tokens", "characters"]) if not result.right]
    assert [] == wrong


@pytest.mark.deep
def test_our_parser_is_right_in_every_dialect_and_cut() -> None:
    """In two at each place, too; and cut off behind each character."""
    every = cases(every_place=False)
    wrong = [result for result in run(function(ours), every) if not result.right]
    cut_off = (case for case in cases() if case.rule == "cut off")
    wrong += [result for result in run(function(ours), cut_off, ["characters"]) if not result.right]
    assert [] == wrong


# Parsers with a fault.


def leaks_at_a_cut(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Shows a tag that a delta has cut."""
    told = ours(deltas, dialect, tools)
    cut = "<tool_call>" not in deltas and told["calls"]
    return {**told, "text": told["text"] + "<tool"} if cut else told


def loses_what_follows(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Shows nothing behind a call."""
    told = dict(ours(deltas, dialect, tools))
    return {**told, "text": told["text"].split("\nIt is 18")[0]}


def executes_what_was_cut(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Repairs a truncated call."""
    told = dict(ours(deltas, dialect, tools))
    cut = "truncated" in told["errors"]
    return {**told, "errors": [], "calls": [*told["calls"], *([{"name": "write_file", "arguments": "{}"}] * cut)]}


def ignores_code(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Calls what is an example, and tells text and calls alone."""
    result = parse(deltas, dialects=dialect, tools=list(tools), in_code="call")
    return {
        "text": result.content,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in result.calls],
    }


def forgets_calls(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Announces calls whose arguments cannot be read."""
    told = ours(deltas, dialect, tools)
    return {**told, "calls": [{**call, "arguments": '{"city'} for call in told["calls"]]}


def types_nothing(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Takes every value for a string."""
    told = ours(deltas, dialect, tools)
    made = [
        {**call, "arguments": {key: str(each) for key, each in call["arguments"].items()}} for call in told["calls"]
    ]
    return {**told, "calls": made}


def joins_lines(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Loses line ends."""
    told = ours(deltas, dialect, tools)
    return {**told, "text": " ".join(told["text"].split())}


def shows_thoughts(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Does not know what a thought is."""
    told = ours(deltas, dialect, tools)
    return {**told, "text": told["reasoning"] + told["text"], "reasoning": ""}


def says_nothing_of_errors(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Hides what is malformed, and gives no code."""
    return {**ours(deltas, dialect, tools), "errors": []}


def answers_otherwise(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Does not keep to what an adapter answers."""
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
        (shows_thoughts, "a thought", {"leak", "reasoning"}),
        (says_nothing_of_errors, "malformed arguments", {"code"}),
        (answers_otherwise, "one call", {"raised"}),
    ],
)
def test_a_fault_gets_its_verdict(parser: Parse, rule: str, kinds: set[str]) -> None:
    """A parser with one fault is right, but for that."""
    found = [result for result in run(function(parser), HERMES, ["tokens", "characters"]) if result.case.rule == rule]
    assert kinds == {kind for result in found for kind in result.kinds}
    assert kinds <= FAULTS.keys()


def test_a_fault_at_a_cut_shows_in_its_own_column() -> None:
    """By tokens the parser is right; one that knows no thoughts is not asked about them."""
    (result,) = run(function(leaks_at_a_cut), [ONE_CALL])
    score = Score()
    score.add(result)
    assert (score.right, score.right_by_tokens) == (0, 1)
    assert "| hermes_json | 1 | – | 1 | 1 |" in table([("hermes_json", score)], "dialect")
    assert not [each for each in run(function(ignores_code), HERMES, ["tokens"]) if "thought" in each.case.rule]


def test_the_outcome_that_is_missed_least_counts() -> None:
    """Text of several sections may stand in any white space; numbers are equal as in every language."""
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
    asked = json.loads(line)
    rule = asked["deltas"][0]
    if rule == "hang":
        sys.stdin.read()
    if rule == "die":
        sys.exit(1)
    answer = {"raise": {"raised": "no"}, "skip": None}.get(rule, {"text": "".join(asked["deltas"])})
    print(json.dumps(answer), flush=True)
"""


def test_a_command_is_asked_line_by_line(tmp_path: Path) -> None:
    """One that ends, does not answer, or says that it has failed, has raised; it is asked again then."""
    (tmp_path / "program.py").write_text(PROGRAM)
    with Command([sys.executable, str(tmp_path / "program.py")]) as command:
        assert Reported("Hello") == command(ONE_CALL, ["Hel", "lo"])
        assert command(ONE_CALL, ["skip"]) is None
        for fault in ("raise", "die"):
            with pytest.raises(RuntimeError):
                command(ONE_CALL, [fault])
        assert Reported("é") == command(ONE_CALL, ["é"])
    with (
        Command(f"{sys.executable} {tmp_path / 'program.py'}", patience=0.1) as command,
        pytest.raises(RuntimeError, match="no answer"),
    ):
        command(ONE_CALL, ["hang"])


def test_a_server_finds_its_model_here() -> None:
    """What it says is judged; a refusal leaves a dialect out, and an error in the stream is a fault."""
    rules = ("one call", "a thought", "cut off")
    asked = [case for case in SOME if case.rule in rules and case.id.rpartition("/")[2] in ("1", "50")]
    upstream = [""]
    with gateway(upstream) as url, Server(url) as server:
        upstream[0] = server.upstream
        results = list(run(server, asked, ["tokens"]))
    assert {True} == {result.right for result in results if result.case.dialect == "hermes_json"}
    assert all({"raised"} == result.kinds for result in results if result.case.dialect == "hash_marker")
    assert {"hermes_json", "hash_marker"} == {result.case.dialect for result in results}


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It writes the schema and the cases, reads cases from a file, and its status says whether all are right."""
    chosen = ["--dialect", "hermes_json", "--rule", "one call"]
    assert 0 == main(["schema"])
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(schema()))

    assert 0 == main(["cases", *chosen])
    written = capsys.readouterr().out
    assert [ONE_CALL] == list(read_lines(written.splitlines()))
    (tmp_path / "cases.jsonl").write_text(written + to_line(SOME[-1]) + "\n")

    assert 0 == main(["run", "--from", str(tmp_path / "cases.jsonl"), *chosen, "--by", "rule", "--cut", "whole"])
    assert "| all | 1 | 1 | – |" in capsys.readouterr().out

    (tmp_path / "deaf.py").write_text("def parse(deltas, dialect, tools):\n    return {'text': ''.join(deltas)}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert 1 == main(["run", *chosen, "--function", "deaf:parse", "--faults", "1", "--cut", "tokens"])
    told = capsys.readouterr().out
    assert "hermes_json/one call/1: leak, lost call" in told
    assert "| all | 1 | – | – | 1 | – | 1 |" in told

    (tmp_path / "program.py").write_text(PROGRAM)
    assert 1 == main(["run", *chosen, "--command", f"{sys.executable} {tmp_path / 'program.py'}", "--cut", "tokens"])
    with gateway([""]) as url:
        assert 1 == main(["run", *chosen, "--server", url, "--listen", "127.0.0.1:0", "--cut", "tokens"])
    assert "| all | 1 | – | – | – | – | – | – | – | – | – | – | 1 |" in capsys.readouterr().out
