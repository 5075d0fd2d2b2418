"""Regression tests of faults that the fuzzer found."""

from __future__ import annotations

import json

import pytest

from streamtools.conversation.emulation import read_decision
from tests.support.cases import together


@pytest.mark.parametrize("hostile", ['{"tos":[{', "[1, x ", "{ ", '{"a": "b" c ', '["\n{'])
def test_brackets_in_a_decision_take_linear_time(hostile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each error, `json` counts the lines before it. So it does not get the whole answer."""
    counted = 0
    plain = json.JSONDecodeError.__init__

    def count(error: json.JSONDecodeError, message: str, text: str, place: int) -> None:
        nonlocal counted
        counted += place
        plain(error, message, text, place)

    monkeypatch.setattr(json.JSONDecodeError, "__init__", count)
    answer = hostile * 20 + "x" * 100_000 + hostile * 2_000

    read_decision(answer)

    assert counted < 300 * len(answer)


@together("length", [200, 255, 256, 257, 1_000, 1_024, 20_000])
@together("end", ["true", "null", "-1.5e+10", '"\\ud83d\\ude00"', '"\\\\"', "[]"])
def test_a_long_decision_is_read_completely(length: int, end: str) -> None:
    """It is searched for in blocks, and no block ends it."""
    for more in range(12):
        arguments = {"a": "x" * (length - 40 + more), "b": json.loads(end)}
        written = '{"tool":"f","arguments":{"a":' + json.dumps(arguments["a"]) + f',"b":{end}}}}}'

        assert arguments == read_decision(f"So: {written} is it.").calls[0].arguments
