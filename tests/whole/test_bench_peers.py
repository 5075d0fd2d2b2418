"""The comparison with peers: its judge, the rows of this package, and its installation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.peers import conforming, installing
from benchmarks.peers.formats import FORMATS, Call
from benchmarks.peers.judging import Told, judge
from benchmarks.peers.ours import load
from benchmarks.peers.rows import ROWS, Row
from benchmarks.peers.streams import CASES, Stream, case, deltas_of, make
from benchmarks.peers.worker import tell
from streamtools.parsing import DIALECTS
from tests.support.cases import together

OURS = [row for row in ROWS if row.group == "ours"]
WEATHER: Call = ("get_weather", {"city": "Paris", "days": 2})
HERMES = FORMATS["hermes"]


def one_call() -> Stream:
    return make("one call", HERMES, ["Look: ", [WEATHER], " There."])


def right_answer(number: int = 0) -> list[Told]:
    return [
        [number, "text", "Look: "],
        [number, "call", "a", "get_weather"],
        [number, "args", "a", '{"city": "Paris", '],
        [number, "args", "a", '"days": 2}'],
        [number, "text", " There."],
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (right_answer()[1:], (5, 0, 0)),
        ([*right_answer(), [9, "text", "</tool_call>"]], (0, 12, 0)),
        ([right_answer()[0], right_answer()[4]], (0, 0, 1)),
        (right_answer()[:3] + right_answer()[4:], (0, 0, 1)),
        ([*right_answer(), [9, "call", "b", "get_weather"]], (0, 0, 1)),
        ([*right_answer(), [9, "fail", "a"]], (0, 0, 1)),
        ([*right_answer(), [9, "whole", "a", "get_weather", '{"city": "Rome", "days": 2}']], (0, 0, 1)),
    ],
    ids=["lost", "leaked", "no call", "cut arguments", "one call more", "failed", "other arguments"],
)
def test_faults_are_counted(answer: list[Told], expected: tuple[int, int, int]) -> None:
    """Lost characters, leaked characters and wrong calls are counted separately."""
    verdict = judge(one_call(), answer)
    assert expected == (verdict.lost, verdict.leaked, verdict.wrong)


@together("row", OURS, ids=[f"{row.choice or 'defaults'}-{row.format}" for row in OURS])
def test_the_rows_of_this_package_have_no_fault(row: Row) -> None:
    peer = load(row.choice)
    for stream in filter(None, (case(name, FORMATS[row.format], small=True) for name in CASES)):
        assert judge(stream, tell(peer, deltas_of(stream.text, [3] * (len(stream.text) // 3 + 1)))).right, stream.name


def test_a_folder_without_a_virtual_environment_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "letter.txt"
    kept.write_text("Dear", encoding="utf-8")
    with pytest.raises(FileExistsError, match="not empty"):
        installing.install(tmp_path)
    assert "Dear" == kept.read_text(encoding="utf-8")


def test_peers_run_in_the_conformance_suite() -> None:
    """Each is tested in the dialects that it has, and its output is converted."""
    assert {*conforming.SGLANG, *conforming.VLLM, *conforming.WHOLE_TEXT} <= DIALECTS.keys()
    told = conforming.answer(load("hermes_json"), list(one_call().text))
    (call,) = told.pop("calls")
    assert {"text": "Look:  There."} == told
    assert WEATHER == (call["name"], json.loads(call["arguments"]))
