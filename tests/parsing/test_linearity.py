"""Tests of linear cost: twice the text is twice the work at any cuts. Work is counted, not timed.

The count is the number of characters in the arguments of the parser's functions. If each delta passed or read the whole
text again, the count would grow with the square.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streamtools import Parser
from tests.support.bounds import characters_handled

pytestmark = pytest.mark.deep


def read(deltas: Sequence[str], **options: Any) -> None:
    parser = Parser(**options)
    for delta in deltas:
        parser.feed(delta)
    parser.close()


@pytest.mark.parametrize(
    ("begin", "more", "options"),
    [
        pytest.param("", '###:{"a":1} ', {}, id="calls"),
        pytest.param("", "~~~tool_call\n{}\n~~~\n", {}, id="fenced calls"),
        pytest.param("", "###result f: {} ", {}, id="results"),
        pytest.param("", '###:{"a" b} ', {}, id="broken calls"),
        pytest.param("", "###:{ x ~~~ ", {}, id="text that looks like calls"),
        pytest.param("", "- `a` **b**\n", {}, id="Markdown"),
        pytest.param("", "<think>a</think>", {}, id="reasoning again and again"),
        pytest.param("<think>", 'a "b" {c} <d ', {}, id="one long reasoning"),
        pytest.param('###:{"name":"f","args":{"a":"', 'b \\" {c} ', {"call_deltas": True}, id="one long string"),
        pytest.param('###:{"name":"f","args":{"a":[', '1,{"b":2},', {"call_deltas": True}, id="one long array"),
        pytest.param('###:{"name":"f","args":"', '{\\"a\\":1} ', {"call_deltas": True}, id="one long string of JSON"),
        pytest.param('###:{"name": f ', 'and "on" {\n', {}, id="one long broken call"),
        pytest.param("~~~tool_call\n", "and on ~~~\n", {}, id="one long call without JSON"),
        pytest.param("", " \n", {"trim": True}, id="white space that may be trimmed"),
        pytest.param('###:{"name":"f"}', " a", {"after_call": "hide"}, id="hidden text"),
    ],
)
@pytest.mark.parametrize("size", [4, 1_000_000], ids=["in fours", "at once"])
def test_twice_the_text_is_twice_the_work(begin: str, more: str, options: dict[str, Any], size: int) -> None:
    """In deltas of four characters, and in one delta."""

    def work(length: int) -> int:
        text = begin + more * (length // len(more))
        deltas = [text[at : at + size] for at in range(0, len(text), size)]
        return characters_handled(lambda: read(deltas, **options))

    once, twice = work(16_384), work(32_768)

    assert twice < 2.3 * once
