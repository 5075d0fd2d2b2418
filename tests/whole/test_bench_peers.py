"""The comparison with peers: its streams, its judge, our own rows in it, and what it says of missing peers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers import conforming, installing, tables, worker
from benchmarks.peers.crew import Crew, Missing
from benchmarks.peers.formats import FORMATS, Call, Format
from benchmarks.peers.installing import UNPACKED
from benchmarks.peers.judging import Told, differences, judge, promptness
from benchmarks.peers.measuring import Cell, cut_in_many_ways, exponent, measure
from benchmarks.peers.ours import load
from benchmarks.peers.rows import ROWS, Row
from benchmarks.peers.short import cuttings, short_streams, tokens
from benchmarks.peers.streams import CASES, Stream, case, deltas_of, make, near
from benchmarks.peers.worker import tell, time_stream
from streamtools.parsing import DIALECTS
from tests.support.cases import together

ROOT = Path(__file__).parents[2]
OURS = [row for row in ROWS if row.group == "ours"]
WEATHER: Call = ("get_weather", {"city": "Paris", "days": 2})
HERMES = FORMATS["hermes"]

every_format = pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)


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


@every_format
def test_stream_knows_where_its_visible_text_stands(format: Format) -> None:
    """The pieces of visible text are those at their places in the text."""
    for stream in [*filter(None, (case(name, format, small=True) for name in CASES)), *short_streams(format)]:
        assert stream.visible == tuple(stream.text[start:end] for start, end in stream.spans), stream.name


@every_format
def test_streams_are_the_same_in_every_run(format: Format) -> None:
    """A case is made from its seed."""
    assert [case(name, format, small=True) for name in CASES] == [case(name, format, small=True) for name in CASES]


def test_every_cutting_holds_the_whole_text() -> None:
    """The deltas of every cutting joined are the text."""
    for stream in short_streams(HERMES):
        for name, sizes in cuttings(stream):
            assert stream.text == "".join(deltas_of(stream.text, sizes)), name


def test_tokens_leave_markers_whole() -> None:
    """A special token of the format is one delta in the first cutting."""
    pieces = tokens(one_call())
    assert [1, 1] == [pieces.count("<tool_call>"), pieces.count("</tool_call>")]


def test_near_markers_hold_no_marker() -> None:
    """No format has a whole marker in the text of near-markers, but for those that are single characters."""
    text = near(40_000)
    assert {"["} == {each.marker for each in FORMATS.values() if each.marker and each.marker in text}


def test_right_answer_is_right() -> None:
    """What was written is found without fault, in whatever pieces."""
    assert judge(one_call(), right_answer()).right


def test_white_space_is_not_counted() -> None:
    """Line feeds around a call belong to the text or to its tags."""
    answer: list[Told] = [[0, "text", "Look:There."], *right_answer()[1:4]]
    assert judge(one_call(), answer).right


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
    """Lost characters, leaked characters and wrong calls are counted each for itself."""
    verdict = judge(one_call(), answer)
    assert expected == (verdict.lost, verdict.leaked, verdict.wrong)


def test_an_index_that_is_used_again_is_another_call() -> None:
    """A parser may count its calls anew behind each text."""
    stream = make("two", HERMES, [[WEATHER], "\n", [WEATHER]])
    assert judge(stream, [*right_answer()[1:4], *right_answer()[1:4]]).wrong == 0


def test_numbers_are_compared_as_numbers() -> None:
    """1.0 is 1: a language with one kind of numbers cannot tell."""
    stream = make("number", HERMES, [[("store", {"count": 1.0})]])
    assert judge(stream, [[0, "whole", "a", "store", '{"count": 1}']]).right


def test_differences_of_long_texts_take_linear_time() -> None:
    """A piece that is missing in the middle of a long text is found at once."""
    text = near(40_000)
    assert (1000, 0) == differences(text, text[:20_000] + text[21_000:])
    assert (0, 1000) == differences(text[:20_000] + text[21_000:], text)


def test_what_may_become_a_marker_is_rightly_held() -> None:
    """Of `x <tool`, five characters may be held, and the others not."""
    stream = make("held", HERMES, ["x <tool y"])
    told: list[Told] = [[1, "text", "x <tool y"]]
    assert 2 == promptness(stream, [7, 2], told, ["<tool_call>"]).held
    assert 0 == promptness(stream, [7, 2], [[0, "text", "x "], [1, "text", "<tool y"]], ["<tool_call>"]).held


def test_delays_are_counted_in_deltas() -> None:
    """A name told three deltas after the one that ended it has a delay of three."""
    stream = make("late", HERMES, [[WEATHER]])
    told: list[Told] = [[4, "whole", "a", "get_weather", "{}"]]
    named = stream.text.index("get_weather") + len("get_weather") + 1
    assert 3 == promptness(stream, [1, named, 1, 1, len(stream.text)], told, ["<tool_call>"]).named


@together("row", OURS, ids=[f"{row.choice or 'defaults'}-{row.format}" for row in OURS])
@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.deep)])
def test_our_rows_are_right_however_a_stream_is_cut(row: Row, share: int) -> None:
    """Each dialect reads its format: nothing lost, leaked or wrong, and one result for every cutting."""
    peer = load(row.choice)
    for stream in [*short_streams(FORMATS[row.format])][::share]:
        verdicts = [judge(stream, tell(peer, deltas_of(stream.text, sizes))) for _, sizes in cuttings(stream)]
        assert all(verdict.right for verdict in verdicts), stream.name
        assert 1 == len({verdict.result for verdict in verdicts}), stream.name


@together("row", OURS, ids=[f"{row.choice or 'defaults'}-{row.format}" for row in OURS])
def test_our_rows_are_right_in_every_case(row: Row) -> None:
    """The measured streams, shortened, come out as they were written."""
    peer = load(row.choice)
    for stream in filter(None, (case(name, FORMATS[row.format], small=True) for name in CASES)):
        assert judge(stream, tell(peer, deltas_of(stream.text, [3] * (len(stream.text) // 3 + 1)))).right, stream.name


def test_a_stream_that_would_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser is not run to the end of a stream for which its growth leaves no time."""
    monkeypatch.setattr(worker, "PATIENCE", 0.0)
    assert "dnf" in time_stream(load("hermes_json"), ["word "] * 2000, limit=0.0, once=True)
    assert "seconds" in time_stream(load("hermes_json"), ["word "] * 2000, limit=60.0, once=True)


def test_our_own_row_runs_in_a_process_of_its_own() -> None:
    """The crew starts a worker, asks it for times and for what was told, and ends it."""
    row = next(each for each in OURS if each.choice == "hermes_json")
    with Crew(ROOT / "no such environment") as crew:
        (cell,) = measure(crew, [row], "arg_1K", 1, 10.0, small=True).values()
        cut = cut_in_many_ways(crew, row, 30.0, small=True)
    assert cell["seconds"] > 0
    assert {"lost": 0, "leaked": 0, "wrong": 0, "calls": 1} == cell["verdict"]
    assert not any(each["small"]["faulty"] or each["large"]["faulty"] for each in cut)


@pytest.mark.parametrize("row", [row for row in ROWS if row.group in ("peer", "json")], ids=lambda row: row.name)
def test_a_peer_that_is_not_installed_says_how_to_install_it(row: Row, tmp_path: Path) -> None:
    """Without its environment, a peer is missing, with the command that brings it."""
    with Crew(tmp_path) as crew, pytest.raises(Missing, match=r"benchmarks\.peers install|there is no node"):
        crew.start(row)


def test_nothing_else_is_overwritten_by_the_environment(tmp_path: Path) -> None:
    """A folder with something in it that is no virtual environment is left alone."""
    kept = tmp_path / "letter.txt"
    kept.write_text("Dear", encoding="utf-8")
    with pytest.raises(FileExistsError, match="not empty"):
        installing.install(tmp_path)
    assert "Dear" == kept.read_text(encoding="utf-8")


def test_smoke_runs_without_the_peers(tmp_path: Path) -> None:
    """The whole command, small, prints a line for each missing peer and is content with our rows."""
    saved = tmp_path / "run.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.bench_peers",
        "--smoke",
        "--peers",
        str(tmp_path),
        "--save",
        str(saved),
    ]
    command += ["--cases", "prose_10k", "arg_1K", "--only", "Hermes"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=120)
    assert 0 == done.returncode, done.stderr
    assert "not measured: SGLang Hermes: there is no environment" in done.stderr
    assert {"SGLang Hermes", "vLLM Hermes"} == set(json.loads(saved.read_text(encoding="utf-8"))["missing"])


def test_exponent_of_doubled_time() -> None:
    """Ten times the deltas in a hundred times the time is quadratic; what did not end has no exponent."""
    cells: dict[str, dict[str, Cell]] = {
        "small": {"a": {"deltas": 10, "seconds": 1.0}},
        "large": {"a": {"deltas": 100, "seconds": 100.0}},
        "huge": {"a": {"deltas": 1000, "dnf": "too long"}},
    }
    assert 2.0 == exponent(cells, "a", "small", "large")
    assert "DNF" == exponent(cells, "a", "large", "huge")
    assert exponent(cells, "b", "small", "large") is None


def test_tables_show_what_did_not_end_and_what_was_wrong() -> None:
    """A cell that did not end is DNF; faults stand in the short table."""
    row = {"key": "P [hermes]", "name": "P", "format": "hermes", "group": "peer", "node": False, "version": "1"}
    floor = {"deltas": 1000, "seconds": 0.00003}
    verdict = {"lost": 3, "leaked": 0, "wrong": 1, "calls": 1}
    faults = {"cuttings": 9, "faulty": 4, "raised": 0, "lost": 3, "leaked": 0, "wrong": 1}
    cut = {"stream": "s", "calls": 1, "results": 2, "tokens": faults, "small": faults, "large": faults}
    run = {
        "rows": [row | {"text": True}],
        "cells": {
            "prose_10k": {
                "P [hermes]": {"deltas": 1000, "seconds": 0.003, "verdict": verdict},
                "floor: list.append in a method [hermes]": floor,
            },
            "arg_1M": {"P [hermes]": {"deltas": 1000, "dnf": "90 s by n^2.0 at 1/2"}},
        },
        "cut": {"P [hermes]": [cut]},
        "missing": {"Q": "no such package"},
        "command": "c",
        "date": "d",
        "machine": "m",
        "python": "p",
        "repeats": 5,
        "limit": 60,
    }
    assert "| P | hermes | 3.00 | 100 |  |  | DNF |  | 3 | 0 | 1 of 1 | 1 of 1 | 1 of 1 |" in tables.short(run)
    assert "Not measured: Q (no such package)." in tables.markdown(run)
    assert "3 / 0 / 1" in tables.plain(run)
    assert "| P | hermes | s | 2 | 4 of 9 / 3 / 0 / 1 of 1 |" in tables.plain(run)


@pytest.mark.parametrize("package", UNPACKED)
def test_no_package_of_an_engine_imports_it_whole(package: str) -> None:
    """`__init__` modules, data and other folders of a wheel stay packed."""
    folder = UNPACKED[package][0]
    wanted = [f"{folder}one.py", f"{folder}__init__.py", f"{folder}one.so", f"{package}/__init__.py", f"{package}/a.py"]
    assert [f"{folder}one.py"] == [each for each in wanted if installing.is_wanted(each, UNPACKED[package])]


def test_peers_in_the_conformance_suite() -> None:
    """Each is asked about dialects that there are; what one says becomes what the suite takes."""
    assert {*conforming.SGLANG, *conforming.VLLM, *conforming.WHOLE_TEXT} <= DIALECTS.keys()
    told = conforming.answer(load("hermes_json"), list(one_call().text))
    (call,) = told.pop("calls")
    assert {"text": "Look:  There."} == told
    assert WEATHER == (call["name"], json.loads(call["arguments"]))
