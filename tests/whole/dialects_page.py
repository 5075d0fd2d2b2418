"""Writes the tables of the pages about dialects and models: `python -m tests.whole.dialects_page`.

The rest of these pages is kept: the text before the first dialect, and around the list of models.
"""

from __future__ import annotations

import re
import textwrap

from streamtools import parse
from streamtools.parsing import DIALECTS, Dialect, Opener
from streamtools.parsing.dialects import MODELS
from tests.support.readme import ROOT

PAGE = ROOT / "docs" / "dialects.md"
MODELS_PAGE = ROOT / "docs" / "models.md"

_NAME, _ARGUMENTS = "get_weather", {"city": "Paris", "days": 3}
_PLACES = {"line_start": "at the start of a line", "start": "at the start"}
_VALUES = {"city": {"type": "string"}, "days": {"type": "integer"}}
_TOOLS = [{"name": _NAME, "parameters": {"type": "object", "properties": _VALUES}}]


def openers(dialect: Dialect) -> list[Opener]:
    """Return the openers of calls, with one tool declared."""
    named = dialect.openers_for((_NAME,)) if dialect.openers_for is not None else ()
    made = dialect.openers_of(_NAME, tuple(_ARGUMENTS)) if dialect.openers_of is not None else ()
    return [opener for opener in (*dialect.openers, *named, *made) if opener.kind == "call"]


def properties(dialect: Dialect) -> str:
    """Return the properties that most dialects do not have."""
    places = {opener.where for opener in openers(dialect)}
    also = "also " if "anywhere" in places else ""
    found = [also + text for place, text in _PLACES.items() if place in places]
    found += ["in code too"] if dialect.in_code == "call" else []
    found += {True: [], False: ["not in `auto`"], "marked": ["in `auto` only with its marker"]}[dialect.auto]
    if not parse(dialect.write_call(_NAME, _ARGUMENTS), dialects=[dialect]).calls:
        found.append("needs tools")
    text = ", ".join(found if dialect.teachable else [*found, "not taught"])
    return f"{text[0].upper()}{text[1:]}." if text else ""


def fenced(text: str) -> str:
    """Return a text in a code fence."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`{3,}", text)), default=2))
    return f"{fence}text\n{text}\n{fence}\n"


def write_page() -> str:
    """Return the page."""
    parts = [PAGE.read_text(encoding="utf-8").partition("\n## ")[0]]
    for dialect in DIALECTS.values():
        parts += [f"## {dialect.id}\n", *(f"{each}\n" for each in [properties(dialect)] if each)]
        parts.append(fenced(dialect.write_call(_NAME, _ARGUMENTS)))
    return "\n".join(parts)


_BEGINS = {True: ", *inside*", False: "", None: ", *maybe*"}


def write_models() -> str:
    """Return the page about models. An item has all families with the same dialects, grouped by their reasoning."""
    rows: dict[str, dict[str, list[str]]] = {}
    for family in MODELS:
        if not family.native:
            dialects = ", ".join(f"[`{id}`](dialects.md#{id})" for id in family.dialects)
            head = f"`{family.reasoning}`{_BEGINS[family.in_reasoning]}: " if family.reasoning else ""
            rows.setdefault(dialects, {}).setdefault(head.replace("`<think>`, ", ""), []).append(family.name)
    told = {key: ". ".join(head + "; ".join(names) for head, names in sorted(rows[key].items())) for key in rows}
    items = "".join(f"- {dialects}: {each}\n" for dialects, each in told.items())
    native = [family.name for family in MODELS if family.native]
    served = textwrap.fill(f"Only their makers serve these models, with native calls: {'; '.join(native)}.", 120)
    before, _, rest = MODELS_PAGE.read_text(encoding="utf-8").partition("\n- [")
    return f"{before}\n{items}\n{served}\n\n## " + rest.partition("\n## ")[2]


def read_example(dialect: Dialect) -> list[tuple[str, object]]:
    """Return the calls that are read from the example of a dialect, with its tool declared."""
    result = parse(dialect.write_call(_NAME, _ARGUMENTS), dialects=[dialect], tools=_TOOLS)
    return [(call.name, call.arguments) for call in result.calls]


EXAMPLE = [(_NAME, _ARGUMENTS)]

if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
    MODELS_PAGE.write_text(write_models(), encoding="utf-8")
