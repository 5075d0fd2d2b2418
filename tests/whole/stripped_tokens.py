"""Writes the list of special tokens in `docs/troubleshooting.md`: `python -m tests.whole.stripped_tokens`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from streamtools import coalesce, parse
from streamtools.parsing import DIALECTS, ParseResult
from streamtools.testing.laws import cut, feed
from tests.support.readme import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
NAME, ARGUMENTS = "get_weather", {"city": "Paris"}
TOOLS = [{"name": NAME, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]

SPECIAL_TOKENS = re.compile(
    r"｜DSML｜ ?|｜GCML｜|</?ifm\|[^<>]*>|<[|｜](?!DSML|GCML)[^<>]*>|<[^<>|/\s]*\|>|\]<\]minimax\[>\["
    r"|\[(?:TOOL_CALLS|ARGS|CALL_ID|unused\d+)\]|<(?:start|end)_function_call>|<escape>"
)
"""The special tokens in calls. A tag such as `<tool_call>` is no special token, so servers do not remove it."""

WITH = ("raw_json", "json_array", "llama3_json", "pythonic", "anthropic_xml", "tool_code")
"""Dialects without special tokens that may read what remains."""


def written(dialect: str) -> str:
    """Return a call as the dialect writes it."""
    return DIALECTS[dialect].write_call(NAME, ARGUMENTS)


def remainder(dialect: str) -> str:
    """Return the text of a call without its special tokens."""
    return SPECIAL_TOKENS.sub("", written(dialect))


@cache
def with_tokens() -> tuple[str, ...]:
    """Return the dialects whose calls contain special tokens."""
    return tuple(dialect for dialect in DIALECTS if remainder(dialect) != written(dialect))


def read_remainder(*dialects: str) -> ParseResult:
    """Read what remains of a call of the first dialect, at several cuts, which must agree."""
    text = remainder(dialects[0])
    ways: list[Sequence[str]] = [[text], list(text), cut(text, range(3, len(text), 3))]
    events = [coalesce(feed(deltas, dialects=dialects, tools=TOOLS)) for deltas in ways]
    assert events[0] == events[1] == events[2], dialects
    return parse(text, dialects=dialects, tools=TOOLS)


def is_read(result: ParseResult) -> bool:
    """Return whether the result is the call."""
    return [(NAME, ARGUMENTS)] == [(call.name, call.arguments) for call in result.calls]


def _reader(dialect: str) -> str:
    """Return how the remainder is read: alone, with another dialect, or not at all."""
    if is_read(read_remainder(dialect)):
        return "read"
    for other in WITH:
        if is_read(result := read_remainder(dialect, other)):
            return f"read with `{other}`" + (", and a tag is shown" if result.content.strip() else "")
    return "not read"


def table() -> str:
    """Return the list of the dialects, by the way in which they are read."""
    dialects: dict[str, list[str]] = {}
    for dialect in with_tokens():
        dialects.setdefault(_reader(dialect), []).append(f"`{dialect}`")
    return "".join(f"- {how}: {', '.join(dialects[how])}\n" for how in sorted(dialects))


def replace_table(page: str) -> str:
    """Return the page with the list between its comments."""
    begin, end = "<!-- table: special tokens -->", "<!-- end of table -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{table()}{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    PAGE.write_text(replace_table(PAGE.read_text()))
