"""The policies of a parser: explicit, few, and each does what its name says."""

from __future__ import annotations

import pytest

from streamtools import Parser
from streamtools.errors import ClosedError


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
    parser.feed('###:{"name":"f"}' + able)

    assert not parser.stopped

    parser.feed(decisive)

    assert parser.stopped
