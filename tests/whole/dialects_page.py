"""The pages about dialects and models, made from their tables: `python -m tests.whole.dialects_page` writes them."""

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

A dialect is one way in which models write calls into their text. These are the dialects that `streamtools` reads and
writes, by their ids. What writes this page is `python -m tests.whole.dialects_page`.

Does your model write a form that is known? Search the table for its tag (⏎ is a line feed). If it is not
there, make [a dialect of your own](parser.md#a-dialect-of-your-own).

A dialect is *enabled* if its markers are looked for. `dialects=["hermes_json", …]` enables some, `dialects="auto"` all
that have a marker which is hardly ever written by chance. `dialects_for(model_name)` names those that a model is known
to write; [models.md](models.md) lists the models. Where nobody chooses, `"auto"` is what is enabled, but nothing for a
model that makes native calls: from its first one on, text that looks like a call is a near miss. A prompt teaches
{default} then, or what models of that name write.

A call counts outside of Markdown code and quotes; in them too, if that is said here and the dialect is enabled by its
id. Values that are no JSON by themselves are read by the JSON schemas of the declared tools. A prompt can teach those
dialects that hold no tokens of a chat template; `instructions()` of a dialect writes what to say.

Where an answer ends with a complete tag that begins a call, the call was cut off: it is an error, `truncated`, and the
tag is not shown. A closing tag ends a value that stands between tags only where structure follows it, since files that
a model writes hold such tags, too; behind text it is a part of the value. If none is ever found, the call is an error
up to the last of them, and what follows that is text once the answer has ended. Where the tags are the names of values,
as in `morph_xml`, the first one ends it. A closing tag that comes once more behind a call is not shown.

Some models forget to end their reasoning. In their dialects a run of calls in reasoning is decided by what follows its
last call: where the answer ends there, they are calls, and else reasoning. Until then none is told, and nothing runs.

White space that the templates write is markup, and not shown: a line feed inside each end of reasoning and, at the
start of an answer, before it; up to two behind it; and what is said of each dialect. A space before a call is shown.
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


def white_space(dialect: Dialect) -> Iterator[str]:
    """Yield what white space belongs to the tags of a dialect."""
    for count in {opener.line_feeds for opener in openers(dialect)} - {0}:
        yield (
            "A line feed before a call is markup."
            if count == 1
            else f"Up to {count} line feeds before a call are markup."
        )
    for tag in dialect.tags:
        first, *others = tag.parts
        if tag.line_feeds:
            stray = "a stray " * (tag.where == "behind_call")
            yield f"A line feed before {stray}`{first}` is markup{', and one behind it' * bool(others)}."
        elif OneOf(("\n", "")) in others:
            yield f"A line feed behind `{first}` is markup."
    if dialect.space_at_start:
        yield "A space before the first header of an answer is markup."


def beginning(dialect: Dialect) -> str:
    """Return what the example of a call begins with, up to the name of its tool."""
    text = dialect.write_call(_NAME, _ARGUMENTS).strip().partition(_NAME)[0].replace("\n", "⏎")
    if not text:
        return "the tool's name"
    return f"`` {text} ``" if "`" in text else f"`{text[:40]}`"


def fenced(text: str) -> str:
    """Return a text as a block of code."""
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
            {True: "yes", False: "no", "marked": "behind its marker"}[dialect.auto],
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
        if said := [each for each in (dialect.notes, *white_space(dialect)) if each]:
            yield " ".join(said) + "\n"
        yield "A call, and a result:\n"
        yield fenced(dialect.write_call(_NAME, _ARGUMENTS))
        yield fenced(dialect.write_result(_NAME, _RESULT))


_MODELS_INTRODUCTION = """\
# Your model and its dialect

These are the families of models that `dialects_for(model_name)` and `families_for(model_name)` know: the dialects that
they write, the best first, and where that was looked up. What writes this page is
`python -m tests.whole.dialects_page`.

A name is known in any spelling: `Qwen/Qwen3-8B`, `qwen3:8b`, `unsloth/Qwen3-8B-bnb-4bit`, `Qwen3-8B-Q4_K_M.gguf`. A
fine-tune is known by the name of its base, where its own holds that.

**Reasoning** is what opens it. **Begins inside** says whether the chat template writes that, so that an answer holds
only its end: a parser takes `in_reasoning=True` then. It is "maybe" where the request switches thinking on or off.
**Calls** are "text" where the model writes them into its answer: a server with a parser for the dialect makes them
native, any other one hands them on. They are "native" where only the maker serves the model.

Two forms are left out. TeleChat 4: no chat template and no server's parser of its calls could be looked up. YAML in
tags that have the name of a tool (`yaml_xml` of the AI SDK's tool parser): it takes a loader of YAML on what a model
writes, and a small subset of it would read other values than the model meant.
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
        ", ".join(f"[`{each}`](dialects.md#{each})" for each in family.dialects) or "none",
        f"`{family.reasoning}`" if family.reasoning else "none",
        _BEGINS[family.in_reasoning],
        "native" if family.native else "text",
        family.source,
    ]


def read_example(dialect: Dialect) -> list[tuple[str, object]]:
    """Return what the example of a dialect is read as, where its tool is declared."""
    answer = parse(dialect.write_call(_NAME, _ARGUMENTS), dialects=[dialect], tools=_TOOLS)
    return [(call.name, call.arguments) for call in answer.calls]


EXAMPLE = [(_NAME, _ARGUMENTS)]

if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(write_page(), encoding="utf-8")
    MODELS_PAGE.write_text(write_models(), encoding="utf-8")
