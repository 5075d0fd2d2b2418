"""Writes the pages about dialects and models from their tables: `python -m tests.whole.dialects_page`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamtools import parse
from streamtools.parsing import DIALECTS, Dialect, Opener
from streamtools.parsing.dialects import MODELS, TAUGHT_DIALECTS, ModelFamily
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

_INTRODUCTION = """\
# Dialects

A dialect is one way in which models write calls into their text. This page lists the dialects that `streamtools` reads
and writes. `python -m tests.whole.dialects_page` generates it.

Does your model write a known form? Search the table for its tag (⏎ is a line feed). If it is not there, write
[your own dialect](parser.md#a-dialect-of-your-own).

**Choosing dialects.** A parser looks for the markers of *enabled* dialects. `dialects=["hermes_json", …]` enables the
dialects that you name. `dialects="auto"` enables every dialect whose marker is hardly ever written by chance.
`dialects_for(model_name)` returns the dialects that a model is known to write. [models.md](models.md) lists the models.

If you choose nothing, `"auto"` is enabled until the model makes a native call. After that, no dialect is enabled, and
text that looks like a call is a near miss. Prompts then teach {default}, or the dialect of the model if its name is
known. A prompt can teach a dialect whose calls hold no tokens of a chat template. `instructions()` of a dialect returns
the text for the prompt.

**Where calls count.** A call counts outside of Markdown code and quotes. Some dialects below count inside them too, if
you enable the dialect by its id. Values that are not JSON get their types from the JSON schemas of the declared tools.
If alternatives of a schema (`oneOf`) have the same property, the last one gives the type. A value of the wrong type is
an error that is returned to the model.

**Cut answers.** If an answer ends with a complete tag that begins a call, the call was cut off. It is an error,
`truncated`, and the tag is hidden.

**Tags in values.** A file that a model writes may hold calls, or single tags of the dialect. Nested tags are balanced,
so a whole call in a value is a part of the value. A closing tag ends a value only if no nested tag is open and the text
after it continues the call. Otherwise the tag is part of the value. If the nested tags do not balance, the text after
the closing tags decides. If that does not decide either, the call is an error. A call without the closing tag of a
value is also an error. It ends with the last closing tag in the value, and the rest is text once the answer has ended.
A closing tag that is repeated after a call is hidden.

**Calls that turn into errors.** A value may hold all closing tags of its call. The call then ends inside the value, and
the rest of the value follows as text, up to its real closing tags. These tags show that the call was incomplete. So
this call and the calls after it become errors (`unrecognised_tool_call`), which are returned to the model. The tags are
hidden. This is not possible in four cases:

- The tags are in Markdown code.
- `execute="eager"` has run the call, or `after_call="stop"` has ended the turn.
- The real closing tags are missing, or a complete call follows the closing tags in the value and ends the message.
- The tags in the value also begin another value, such as `x</parameter><parameter=b>y`. This reads as two values.

**Calls in reasoning.** Models forget to end their reasoning before a call. So the text after a run of calls decides. If
the answer ends there, they are calls. Otherwise they are reasoning. Until that is known, no call is reported and none
runs. A call that counts only at the start of a line or a message counts in reasoning at the start of a line.

**White space.** White space that a template writes is hidden. This is a line feed inside each end of reasoning, one
before it at the start of an answer, and up to two after it. Each dialect below lists more. A space before a call is
shown.
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


def needs_tools(dialect: Dialect) -> str:
    """Return why a dialect needs declared tools, or "no"."""
    calls = parse(dialect.write_call(_NAME, _ARGUMENTS), dialects=[dialect]).calls
    if not calls:
        return "to find calls"
    return "no" if [_ARGUMENTS] == [call.arguments for call in calls] else "to type values"


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


def beginning(dialect: Dialect) -> str:
    """Return the beginning of a call, up to the name of its tool."""
    text = dialect.write_call(_NAME, _ARGUMENTS).strip().partition(_NAME)[0].replace("\n", "⏎")
    if not text:
        return "the tool's name"
    return f"`` {text} ``" if "`" in text else f"`{text[:40]}`"


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
    rows = [
        [
            f"[`{dialect.id}`](#{dialect.id})",
            beginning(dialect),
            places(dialect),
            {True: "yes", False: "no", "marked": "with its marker"}[dialect.auto],
            needs_tools(dialect),
            "yes" if dialect.teachable else "no",
        ]
        for dialect in DIALECTS.values()
    ]
    yield write_table(["dialect", "begins with", "a call counts", "in `auto`", "needs tools", "can be taught"], rows)
    for dialect in DIALECTS.values():
        yield f"## {dialect.id}\n"
        if known := [family.name for family in MODELS if dialect.id in family.dialects]:
            yield "Models: " + ", ".join(known) + ".\n"
        if notes := [note for note in (dialect.notes, *white_space(dialect)) if note]:
            yield " ".join(notes) + "\n"
        yield "A call, and a result:\n"
        yield fenced(dialect.write_call(_NAME, _ARGUMENTS))
        yield fenced(dialect.write_result(_NAME, _RESULT))


_MODELS_INTRODUCTION = """\
# Your model and its dialect

`dialects_for(model_name)` and `families_for(model_name)` know these families of models. Each row has the dialects that
the models write, the best first, and the source of that information. `python -m tests.whole.dialects_page` generates
this page.

A name is known in any spelling: `Qwen/Qwen3-8B`, `qwen3:8b`, `unsloth/Qwen3-8B-bnb-4bit`, `Qwen3-8B-Q4_K_M.gguf`. A
fine-tune is known if its name contains the name of its base.

- **Reasoning** is the text that opens reasoning.
- **Begins inside** says whether the chat template writes that text. If it does, an answer holds only the end of the
  reasoning, and a parser takes `in_reasoning=True`. "maybe" means that the request switches thinking on or off.
- **Calls** are "text" if the model writes them into its answer. A server with a parser for the dialect makes them
  native, and any other server passes the text on. Calls are "native" if only the maker serves the model.

One form is missing. `yaml_xml` of the AI SDK's tool parser writes YAML in tags with the name of a tool. Reading it
takes a YAML loader for text that a model writes, and a small subset of YAML would read other values than the model
meant.
"""

_BEGINS = {True: "yes", False: "no", None: "maybe"}


def write_models() -> str:
    """Return the page about models."""
    rows = [_describe(family) for family in MODELS]
    columns = ["model", "dialects", "reasoning", "begins inside", "calls", "source"]
    return _MODELS_INTRODUCTION + "\n" + write_table(columns, rows)


def _describe(family: ModelFamily) -> list[str]:
    return [
        family.name,
        ", ".join(f"[`{id}`](dialects.md#{id})" for id in family.dialects) or "none",
        f"`{family.reasoning}`" if family.reasoning else "none",
        _BEGINS[family.in_reasoning],
        "native" if family.native else "text",
        family.source,
    ]


def read_example(dialect: Dialect) -> list[tuple[str, object]]:
    """Return the calls that are read from the example of a dialect, with its tool declared."""
    result = parse(dialect.write_call(_NAME, _ARGUMENTS), dialects=[dialect], tools=_TOOLS)
    return [(call.name, call.arguments) for call in result.calls]


EXAMPLE = [(_NAME, _ARGUMENTS)]

if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(write_page(), encoding="utf-8")
    MODELS_PAGE.write_text(write_models(), encoding="utf-8")
