"""Writes the pages about dialects and models from their tables: `python -m tests.whole.dialects_page`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from streamtools import parse
from streamtools.parsing import DIALECTS, Dialect, Opener
from streamtools.parsing.dialects import MODELS, TAUGHT_DIALECTS
from streamtools.parsing.markers import OneOf
from tests.support.readme import ROOT, write_table

PAGE = ROOT / "docs" / "dialects.md"
MODELS_PAGE = ROOT / "docs" / "models.md"

_NAME, _ARGUMENTS, _RESULT = "get_weather", {"city": "Paris", "days": 3}, "18 °C"
_PLACES = {"anywhere": "anywhere", "line_start": "at the start of a line", "start": "at the start of a message"}
_TOOLS = [
    {
        "name": _NAME,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    }
]

_USUAL_RESULT = f"<tool_response>\n{_RESULT}\n</tool_response>"

_INTRODUCTION = """\
# Dialects

A dialect is one way in which models write calls into their text. Does your model write a known form? Search this page
for its tag. If it is not there, write [your own dialect](parser.md#a-dialect-of-your-own). [Your model and its
dialect](models.md) lists the models. `python -m tests.whole.dialects_page` generates this page.

**Choosing dialects.** `dialects=["hermes_json", …]` enables the dialects that you name. `dialects="auto"` enables every
dialect whose marker is hardly ever written by chance. If you choose nothing, `"auto"` is enabled until the model makes
a native call. After that, no text is a call. Prompts then teach {default}, or the dialect of the model if its name is
known. `instructions()` of a dialect returns the text for the prompt.

**Where calls count.** A call counts outside of Markdown code and quotes. Values that are not JSON get their types from
the JSON schemas of the declared tools. A value of the wrong type is an error that is returned to the model.

**Cut answers.** If an answer ends inside a call, or with a complete tag that begins one, this is the error `truncated`.
The tag is hidden.

**Tags in values.** A file that a model writes may hold calls, or single tags of the dialect. A whole call in a value is
a part of the value. A closing tag ends a value only if no nested tag is open and the text after it continues the call.
Otherwise the call is an error. If a value holds all closing tags of its call, the call ends too early. The real closing
tags then make it an error (`unrecognised_tool_call`), except in four cases:

- The tags are in Markdown code.
- `execute="eager"` has run the call, or `after_call="stop"` has ended the turn.
- The real closing tags are missing, or a complete call follows the closing tags in the value and ends the message.
- The tags in the value also begin another value, such as `x</parameter><parameter=b>y`. This reads as two values.

**Calls in reasoning.** Models forget to end their reasoning before a call. If the answer ends after a run of calls,
they are calls. Otherwise they are reasoning. Until that is known, none is reported and none runs.

**White space.** Hidden are a line feed inside each end of reasoning, one before it at the start of an answer, and up to
two after it. A space before a call is shown.

Each section shows a call, and a result unless that is between `<tool_response>` tags. Unless it says otherwise, a call
counts anywhere, `auto` enables the dialect, it works without declared tools, and a prompt can teach it.
"""


def openers(dialect: Dialect) -> list[Opener]:
    """Return the openers of calls, with one tool declared."""
    named = dialect.openers_for((_NAME,)) if dialect.openers_for is not None else ()
    made = dialect.openers_of(_NAME, tuple(_ARGUMENTS)) if dialect.openers_of is not None else ()
    return [opener for opener in (*dialect.openers, *named, *made) if opener.kind == "call"]


def places(dialect: Dialect) -> str:
    """Return where calls of a dialect count."""
    found = {opener.where for opener in openers(dialect)}
    where = " or ".join(text for place, text in _PLACES.items() if place in found)
    return where + (", in code too" if dialect.in_code == "call" else "")


def properties(dialect: Dialect) -> str:
    """Return the properties that most dialects do not have."""
    found = [] if places(dialect) == "anywhere" else [places(dialect)]
    found += {True: [], False: ["not in `auto`"], "marked": ["in `auto` with its marker"]}[dialect.auto]
    calls = parse(dialect.write_call(_NAME, _ARGUMENTS), dialects=[dialect]).calls
    if [_ARGUMENTS] != [call.arguments for call in calls]:
        found.append("needs tools to type values" if calls else "needs tools")
    text = ", ".join(found if dialect.teachable else [*found, "not taught"])
    return f"{text[0].upper()}{text[1:]}." if text else ""


def white_space(dialect: Dialect) -> Iterator[str]:
    """Yield sentences about the white space that is hidden with the tags of a dialect."""
    for count in {opener.line_feeds for opener in openers(dialect)} - {0}:
        yield (
            "A line feed before a call is hidden."
            if count == 1
            else f"Up to {count} line feeds before a call are hidden."
        )
    for tag in dialect.tags:
        first, *others = tag.parts
        if tag.line_feeds:
            repeated = "a repeated " * (tag.where == "after_call")
            yield f"A line feed before {repeated}`{first}` is hidden{', and one after it' * bool(others)}."
        elif OneOf(("\n", "")) in others:
            yield f"A line feed after `{first}` is hidden."
    if dialect.space_at_start:
        yield "A space before the first header of an answer is hidden."


def fenced(text: str) -> str:
    """Return a text in a code fence."""
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def write_page() -> str:
    """Return the page."""
    return "\n".join(_write_parts())


def _write_parts() -> Iterator[str]:
    yield _INTRODUCTION.format(default=f"`{TAUGHT_DIALECTS[-1]}`")
    for dialect in DIALECTS.values():
        yield f"## {dialect.id}\n"
        if notes := [note for note in (properties(dialect), dialect.notes, *white_space(dialect)) if note]:
            yield " ".join(notes) + "\n"
        yield fenced(dialect.write_call(_NAME, _ARGUMENTS))
        if (result := dialect.write_result(_NAME, _RESULT)) != _USUAL_RESULT:
            yield fenced(result)


_MODELS_INTRODUCTION = """\
# Your model and its dialect

Search this page for your model. `dialects_for(model_name)` returns the same dialects, the best first, and
`families_for(model_name)` also the source of each entry. `python -m tests.whole.dialects_page` generates this page.

A name is known in any spelling: `Qwen/Qwen3-8B`, `qwen3:8b`, `unsloth/Qwen3-8B-bnb-4bit`, `Qwen3-8B-Q4_K_M.gguf`. A
fine-tune is known if its name contains the name of its base.

These models write calls into their text. A server with a parser for the dialect makes them native. Any other server
passes the text on: [which is yours](calls.md#say-how-your-model-calls). A tag before names opens their reasoning.
*Inside*: the chat template writes that tag, so an answer holds only the end of the reasoning, and a parser takes
`in_reasoning=True`. *Maybe inside*: the request decides.
"""

_BEGINS = {True: ", *inside*", False: "", None: ", *maybe inside*"}


def write_models() -> str:
    """Return the page about models. A row has all families with the same dialects, grouped by their reasoning."""
    rows: dict[str, dict[str, list[str]]] = {}
    for family in MODELS:
        if not family.native:
            dialects = ", ".join(f"[`{id}`](dialects.md#{id})" for id in family.dialects)
            reasoning = f"`{family.reasoning}`{_BEGINS[family.in_reasoning]}: " if family.reasoning else ""
            rows.setdefault(dialects, {}).setdefault(reasoning, []).append(family.name)
    cells = ((dialects, ". ".join(map(_write_group, sorted(each.items())))) for dialects, each in rows.items())
    native = [family.name for family in MODELS if family.native]
    served = textwrap.fill(f"Only their makers serve these models, with native calls: {'; '.join(native)}.", 120)
    return f"{_MODELS_INTRODUCTION}\n{write_table(['dialects', 'models'], cells)}\n{served}\n"


def _write_group(group: tuple[str, list[str]]) -> str:
    return group[0] + "; ".join(group[1])


def read_example(dialect: Dialect) -> list[tuple[str, object]]:
    """Return the calls that are read from the example of a dialect, with its tool declared."""
    result = parse(dialect.write_call(_NAME, _ARGUMENTS), dialects=[dialect], tools=_TOOLS)
    return [(call.name, call.arguments) for call in result.calls]


EXAMPLE = [(_NAME, _ARGUMENTS)]

if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(write_page(), encoding="utf-8")
    MODELS_PAGE.write_text(write_models(), encoding="utf-8")
