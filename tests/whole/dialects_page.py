"""The page about dialects, made from their table: `python -m tests.whole.dialects_page` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamtools import parse
from streamtools.parsing import DIALECTS, Dialect, Opener
from streamtools.parsing.dialects import DEFAULT_DIALECTS
from tests.support.readme import ROOT, write_table

PAGE = ROOT / "docs" / "dialects.md"

_NAME, _ARGUMENTS, _RESULT = "get_weather", {"city": "Paris", "days": 3}, "18 °C"
_PLACES = {"anywhere": "anywhere", "line_start": "at the start of a line", "start": "at the start of a message"}
_TOOLS = [
    {
        "name": _NAME,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    }
]

_INTRODUCTION = """\
# Dialects

A dialect is one way in which models write calls into their text. These are the dialects that `streamtools` reads and
writes, by their ids. What writes this page is `python -m tests.whole.dialects_page`.

`dialects=["hermes_json", …]` arms some of them, and `dialects="auto"` all that have a marker which is hardly ever
written by chance. `dialects_for(model_name)` names those that a model is known to write, by the patterns that are
listed here. Where nobody chooses, {default} are armed.

A call counts outside of Markdown code and quotes; in them too, where that is said here and the dialect is armed by its
id. Values that are no JSON by themselves are read by the JSON schemas of the declared tools. A prompt can teach those
dialects that hold no tokens of a chat template; `instructions()` of a dialect writes what to say.
"""


def openers(dialect: Dialect) -> list[Opener]:
    """Return what begins calls of a dialect, where one tool is declared."""
    named = dialect.openers_for((_NAME,)) if dialect.openers_for is not None else ()
    made = dialect.openers_of(_NAME, tuple(_ARGUMENTS)) if dialect.openers_of is not None else ()
    return [opener for opener in (*dialect.openers, *named, *made) if opener.kind == "call"]


def places(dialect: Dialect) -> str:
    """Return where calls of a dialect count."""
    found = {opener.where for opener in openers(dialect)}
    where = " or ".join(_PLACES[each] for each in _PLACES if each in found)
    return where + (", in code too" if dialect.in_code == "call" else "")


def needs_tools(dialect: Dialect) -> str:
    """Return what a dialect needs declared tools for."""
    calls = parse(dialect.write_call(_NAME, _ARGUMENTS), dialects=[dialect]).calls
    if not calls:
        return "to find calls"
    return "no" if [_ARGUMENTS] == [call.arguments for call in calls] else "to type values"


def fenced(text: str) -> str:
    """Return a text as a block of code."""
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def write_page() -> str:
    """Return the page."""
    return "\n".join(_write_parts())


def _write_parts() -> Iterator[str]:
    yield _INTRODUCTION.format(default=" and ".join(f"`{each}`" for each in DEFAULT_DIALECTS))
    rows = [
        [
            f"[`{dialect.id}`](#{dialect.id})",
            places(dialect),
            "yes" if dialect.auto else "no",
            needs_tools(dialect),
            "yes" if dialect.teachable else "no",
        ]
        for dialect in DIALECTS.values()
    ]
    yield write_table(["dialect", "a call counts", "in `auto`", "needs tools", "can be taught"], rows)
    for dialect in DIALECTS.values():
        yield f"## {dialect.id}\n"
        if dialect.models:
            yield "Models: " + ", ".join(f"`{each}`" for each in dialect.models) + ".\n"
        if dialect.notes:
            yield dialect.notes + "\n"
        yield "A call, and a result:\n"
        yield fenced(dialect.write_call(_NAME, _ARGUMENTS))
        yield fenced(dialect.write_result(_NAME, _RESULT))


def read_example(dialect: Dialect) -> list[tuple[str, object]]:
    """Return what the example of a dialect is read as, where its tool is declared."""
    answer = parse(dialect.write_call(_NAME, _ARGUMENTS), dialects=[dialect], tools=_TOOLS)
    return [(call.name, call.arguments) for call in answer.calls]


EXAMPLE = [(_NAME, _ARGUMENTS)]

if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(write_page(), encoding="utf-8")
