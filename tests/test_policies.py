"""The policies of a parser: explicit, few, and each does what its name says."""

from __future__ import annotations

from typing import Literal

import pytest

from streamtools import Parser, parse
from streamtools.errors import ClosedError, Code


def test_a_feed_behind_the_end_is_refused() -> None:
    """A closed parser takes no text, not even text that it would only have to pass on."""
    parser = Parser()
    parser.feed("Some prose, ")
    parser.close()

    with pytest.raises(ClosedError, match="reset"):
        parser.feed("and more of it")


@pytest.mark.parametrize("reasoning", ["start", "anywhere"])
@pytest.mark.parametrize(
    ("able", "decisive"),
    [(" \n", "<"), ("", "x"), ("##", "x"), ("###", "r"), ("\n~~~tool_", "r"), ("###:", "x")],
    ids=["a reasoning tag", "a letter", "a heading", "a hash result", "a tilde result", "a broken marker"],
)
def test_stop_decides_at_the_first_character_that_begins_no_call(able: str, decisive: str, reasoning: str) -> None:
    """Neither a reasoning tag nor an invented result is a reason to read on."""
    parser = Parser(after_call="stop", reasoning="start" if reasoning == "start" else "anywhere")
    stopped = []
    for delta in ('###:{"name":"f"}' + able, decisive):
        parser.feed(delta)
        stopped.append(parser.stopped)

    assert [False, True] == stopped
    assert "" == parser.held


def test_a_parser_that_has_stopped_holds_nothing() -> None:
    """What looks like a marker behind the stop is not read, and so not held."""
    parser = Parser(after_call="stop")
    parser.feed('###:{"name":"f"} and ###')

    assert parser.stopped
    assert "" == parser.held


@pytest.mark.parametrize("after_call", ["show", "hide", "stop"])
def test_a_malformed_call_that_is_text_hides_nothing_behind_it(after_call: Literal["show", "hide", "stop"]) -> None:
    """What is shown as text is no call, so `after_call` does not begin to count there."""
    result = parse('Say ###:{"name" f} or ###', on_malformed="text", after_call=after_call)

    assert 'Say ###:{"name" f} or ###' == result.content


@pytest.mark.parametrize(
    ("after_call", "content", "hidden"),
    [("show", ' ###:{"x" y} z', []), ("hide", "", [" ", '###:{"x" y}', " z"]), ("stop", " ", [])],
)
def test_a_malformed_call_behind_a_call_is_text_behind_a_call(
    after_call: Literal["show", "hide", "stop"], content: str, hidden: list[str]
) -> None:
    """What becomes of text behind a call becomes of a malformed call there, too, where that is to be text."""
    result = parse('###:{"name":"f"} ###:{"x" y} z', on_malformed="text", after_call=after_call)

    assert content == result.content
    assert hidden == [each.raw for each in result.warnings if each.code is Code.HIDDEN_AFTER_CALL]
