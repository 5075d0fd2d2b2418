"""Writes the pages about dialects and models from their tables: `python -m tests.whole.dialects_page`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from streamtools import parse
from streamtools.parsing import DIALECTS, Dialect, Opener
from streamtools.parsing.dialects import MODELS, TAUGHT_DIALECTS
from tests.support.readme import ROOT

PAGE = ROOT / "docs" / "dialects.md"
MODELS_PAGE = ROOT / "docs" / "models.md"

_NAME, _ARGUMENTS = "get_weather", {"city": "Paris", "days": 3}
_PLACES = {"anywhere": "anywhere", "line_start": "at the start of a line", "start": "at the start of a message"}
_TOOLS = [
    {
        "name": _NAME,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    }
]

_INTRODUCTION = """\
# Dialects

A dialect is one way in which models write calls into their text. Search this page for a tag that your model writes, or
[the page of models](models.md) for its name. If you find neither, write [your own
dialect](parser.md#a-dialect-of-your-own).

Each section shows a call. Unless the section says otherwise:

- A call counts anywhere outside of Markdown code and quotes.
- `auto` enables the dialect.
- The dialect works without declared tools.
- A prompt can teach the dialect.

*Untyped values*: the schemas of the declared tools say whether `3` is a number or a text.

**Choosing dialects.** `dialects=["hermes_json", …]` enables the named dialects. `"auto"`, the default, enables all
whose marker hardly ever occurs by chance. For a model with native calls, the default is no dialect. A prompt teaches
the first dialect that you name. By default, it teaches the dialect of the model's name, or {default}. `instructions()`
of a dialect returns the text for the prompt.

**Tags in values.** A value may be a file that holds calls or tags of the dialect. A whole call in it belongs to the
value. A closing tag ends the value only if no nested tag is open and the text after it continues the call. Otherwise
the call is an error. If a value holds all closing tags of its call, the call is an error, too. In a few
[exceptions](api/parsing.md), the call runs with a shortened value.

**Calls in reasoning.** A model may forget to end its reasoning before a call. If the answer ends directly after calls
in reasoning, they count. Otherwise they are reasoning. Before the answer ends, no such call is reported or runs.

**White space.** Line feeds that a chat template writes beside calls and tags are hidden. A space before a call is
shown. [`keep_markup`](reference.md#options) reports what is hidden.
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
    found += {True: [], False: ["not in `auto`"], "marked": ["in `auto` only with its marker"]}[dialect.auto]
    calls = parse(dialect.write_call(_NAME, _ARGUMENTS), dialects=[dialect]).calls
    if [_ARGUMENTS] != [call.arguments for call in calls]:
        found.append("untyped values" if calls else "needs tools")
    text = ", ".join(found if dialect.teachable else [*found, "not taught"])
    return f"{text[0].upper()}{text[1:]}." if text else ""


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
        if notes := [note for note in (properties(dialect), dialect.notes) if note]:
            yield " ".join(notes) + "\n"
        yield fenced(dialect.write_call(_NAME, _ARGUMENTS))


_MODELS_INTRODUCTION = """\
# Your model and its dialect

Search this page for your model. `dialects_for(model_name)` returns the same dialects, the best first.

A name is known in any spelling: `Qwen/Qwen3-8B`, `qwen3:8b`, `unsloth/Qwen3-8B-bnb-4bit`, `Qwen3-8B-Q4_K_M.gguf`. A
fine-tune is known if its name contains the name of its base.

These models write calls into their text. A server with a parser for the dialect makes the calls native. Any other
server passes the text on. [Find out what yours does](calls.md#say-how-your-model-calls). A tag before names, such as
`<think>`, opens the reasoning of these models. *Inside*: the chat template writes this tag, so the answer begins inside
the reasoning. Then pass `parser=ParserOptions(in_reasoning=True)`. *Maybe inside*: this depends on the request.
"""

_BEGINS = {True: ", *inside*", False: "", None: ", *maybe inside*"}


def write_models() -> str:
    """Return the page about models. An item has all families with the same dialects, grouped by their reasoning."""
    rows: dict[str, dict[str, list[str]]] = {}
    for family in MODELS:
        if not family.native:
            dialects = ", ".join(f"[`{id}`](dialects.md#{id})" for id in family.dialects)
            reasoning = f"`{family.reasoning}`{_BEGINS[family.in_reasoning]}: " if family.reasoning else ""
            rows.setdefault(dialects, {}).setdefault(reasoning, []).append(family.name)
    items = ""
    for dialects, each in rows.items():
        items += f"- {dialects}: {'. '.join(head + '; '.join(names) for head, names in sorted(each.items()))}\n"
    native = [family.name for family in MODELS if family.native]
    served = textwrap.fill(f"Only their makers serve these models, with native calls: {'; '.join(native)}.", 120)
    return f"{_MODELS_INTRODUCTION}\n{items}\n{served}\n"


def read_example(dialect: Dialect) -> list[tuple[str, object]]:
    """Return the calls that are read from the example of a dialect, with its tool declared."""
    result = parse(dialect.write_call(_NAME, _ARGUMENTS), dialects=[dialect], tools=_TOOLS)
    return [(call.name, call.arguments) for call in result.calls]


EXAMPLE = [(_NAME, _ARGUMENTS)]

if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(write_page(), encoding="utf-8")
    MODELS_PAGE.write_text(write_models(), encoding="utf-8")
