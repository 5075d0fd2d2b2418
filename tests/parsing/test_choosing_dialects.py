"""Tests of how a caller chooses dialects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamtools import parse
from streamtools.parsing import SPACES, json_calls
from streamtools.parsing.dialects import DIALECTS, Dialect, Opener, choose_dialects, hash_marker


def test_auto_adds_all_dialects_that_are_not_named() -> None:
    """Named dialects come first and unchanged, in any position of `"auto"`."""
    usual = [each.id for each in choose_dialects("auto")]
    house = Dialect("house", hash_marker().openers, DIALECTS["hermes_json"].write_call)

    ways: list[list[str | Dialect]] = [["auto", house, "hermes_json"], [house, "hermes_json", "auto"]]
    for given in ways:
        chosen = choose_dialects(given)
        assert [each.id for each in chosen] == [
            "house",
            "hermes_json",
            *(each for each in usual if each != "hermes_json"),
        ]
        assert chosen[:2] == (house, DIALECTS["hermes_json"])
    token = replace(house, openers=(Opener(("<|call|>", SPACES), json_calls("<|end|>"), ahead=("{",)),))
    reported = parse('So <|call|>{"name":"a"}<|end|> and <|start|>assistant<|message|>on', dialects=[token, "auto"])
    assert (["house"], "So  and on") == ([call.dialect for call in reported.calls], reported.content)
    with pytest.raises(TypeError, match="must be a tuple of str"):
        replace(house, reserved="@call")  # type: ignore[arg-type]
    assert ["house", "functools_list"] == [
        call.dialect for call in parse('###:{"name":"a"}\nfunctools[{"name":"b"}]', dialects=[house, "auto"]).calls
    ]
