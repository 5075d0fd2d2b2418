"""Parses the README and the pages of docs: their code, the output that they state, and their tables.

HTML comments directly above a block state its needs. `<!-- sdk: NAME -->` is a package (`tests/sdks` runs it),
`<!-- app: NAME -->` a program that a server runs, `<!-- shows: NAME -->` the output of a client of this program,
`<!-- text: NAME -->` the recording that it quotes, and `<!-- table: NAME -->` a generated table or list. The functions
below make them from docstrings.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, is_typeddict

from streamtools import (
    ApprovalOptions,
    Code,
    Limits,
    OutputOptions,
    ParserOptions,
    RunnerOptions,
    TextOptions,
    ToolStream,
)
from streamtools.conversation import RequestOptions
from streamtools.events import UI_EVENTS
from streamtools.tools import ToolOptions
from streamtools.tools.guards import Guards
from streamtools.tools.invocation import TIMEOUT
from streamtools.tools.runner import RESULT_LIMIT

ROOT = Path(__file__).parents[2]
GUIDES = (
    *("quickstart", "providers", "tools", "conversations", "front-end", "serving", "recordings", "parser"),
    *("troubleshooting", "production", "reference", "calls", "laws", "wire-formats"),
)
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in GUIDES))
"""The README, and the pages whose code needs the same imports and variables."""

_FENCE = re.compile(r"(`{3,})(\w*)$")
_NOTE = re.compile(r"<!-- (\w+): (\S+) -->$")


@dataclass
class Block:
    """A fenced block with its section, its heading (possibly below `###`), the comments above it, and its output."""

    section: str
    heading: str
    language: str
    text: str
    line: int
    notes: dict[str, str] = field(default_factory=dict)
    output: str | None = None


@contextmanager
def running(code: str) -> Iterator[dict[str, Any]]:
    """Run a program as the module `app`, in which its annotations are resolved. Yield its names."""
    module = sys.modules["app"] = ModuleType("app")
    try:
        exec(compile(code, "app.py", "exec", dont_inherit=True), vars(module))  # without our `annotations`
        yield vars(module)
    finally:
        del sys.modules["app"]


def read_blocks(text: str) -> list[Block]:
    """Return the fenced blocks. A block of text directly after code is the output of this code."""
    found: list[Block] = []
    section, heading, notes, follows = "", "", dict[str, str](), False
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        if fence := _FENCE.match(line):
            body: list[str] = []
            for _, inner in lines:
                if inner == fence[1]:
                    break
                body.append(inner + "\n")
            if fence[2] == "text" and follows and not notes:
                found[-1].output = "".join(body)
            else:
                found.append(Block(section, heading, fence[2], "".join(body), number, notes))
            notes, follows = {}, True
        elif note := _NOTE.match(line):
            notes[note[1]] = note[2]
        elif line.strip():
            heading = line.lstrip("# ") if line.startswith("#") else heading
            section = heading if line.startswith(("# ", "## ")) else section
            notes, follows = {}, False
    return found


def read_tables(text: str) -> dict[str, str]:
    """Return the tables and lists that have a comment above them, by name."""
    return dict(re.findall(r"<!-- table: (\S+) -->\n((?:[|-] .*\n)+)", text))


def write_table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    head = list(titles)
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def write_list(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return a list of names, each with what is in brackets after it and its meaning."""
    return "".join(f"- {name}{f' ({more})' if more else ''}: {meaning}\n" for name, more, meaning in rows)


def attributes(kind: type) -> dict[str, tuple[str, str, str]]:
    """Return annotation, value and meaning of each attribute in the source of a class.

    The meaning is the docstring of the attribute, or its item of the list in the docstring of the class.
    """
    items = re.findall(r"^- `(\w+)`: (.*(?:\n  .*)*)", inspect.cleandoc(kind.__doc__ or ""), re.MULTILINE)
    listed = {name: doc[0].upper() + doc[1:] for name, doc in items}
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found, is_typed_dict = {}, is_typeddict(kind)
    for statement, doc in zip(body.body, [*body.body[1:], None], strict=True):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value) if value or is_typed_dict:
                written = ast.unparse(annotation)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                written = ""
            case _:
                continue
        said = isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str)
        default = ast.unparse(value).replace("'", '"') if value else ""
        found[name] = (written, default, doc.value.value if said else listed.get(name, ""))  # type: ignore[union-attr]
    return {name: (written, value, " ".join(doc.split())) for name, (written, value, doc) in found.items()}


def first_paragraph(kind: type) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join(inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].split())


def options_table(*kinds: type) -> str:
    """Return the list of options, with the allowed values of those that have a choice."""
    rows = []
    fields = {name: said for kind in kinds for name, said in attributes(kind).items()}
    for name, (annotation, default, doc) in fields.items():
        choices = [f"`{each}`" for each in re.findall(r"'\w+'", annotation) if each.replace("'", '"') != default]
        others = f", or {', '.join(choices)}".replace("'", '"') if choices else ""
        numbers = {"RESULT_LIMIT": f"{RESULT_LIMIT}", "TIMEOUT": f"{TIMEOUT}"}
        shown = {"DEFAULT_LIMITS": "Limits()", "new_call_id": ""} | numbers
        value = shown.get(default, "{}" if "default_factory=dict" in default else default)
        rows.append((f"`{name}`", (f"`{value}`" if value else "") + others, doc))
    return write_list(rows)


def limits_table() -> str:
    """Return the list of the limits."""
    return write_list(
        (f"`{name}`", f"{getattr(Limits(), name):,}", doc) for name, (_, _, doc) in attributes(Limits).items()
    )


def guards_table() -> str:
    """Return the list of the guards."""
    return write_list((f"`{name}`", f"`{default}`", doc) for name, (_, default, doc) in attributes(Guards).items())


def codes_table(codes: Iterable[Code]) -> str:
    """Return the list of some codes."""
    documented = attributes(Code)
    return write_list((f"`{code.value}`", "", documented[code.name][2]) for code in codes)


def events_table(events: Iterable[Any]) -> str:
    """Return the list of some events with their fields, without `seq`."""
    rows = []
    for event in events:
        fields = ", ".join(name for name in event.__struct_fields__ if name != "seq")
        rows.append((f"`{event.__struct_config__.tag}`", f"`{event.__name__}({fields})`", first_paragraph(event)))
    return write_list(rows)


def stream_parameters() -> dict[str, str]:
    """Return the parameters of `ToolStream` with their defaults, without its source and the options."""
    parameters = list(inspect.signature(ToolStream).parameters.values())[1:-1]
    return {each.name: _default(each.default) for each in parameters}


def _default(value: Any) -> str:
    return f"{type(value).__name__}()" if is_dataclass(value) else repr(value).replace("'", '"')


_WARNINGS = list(Code)[list(Code).index(Code.FORGED_RESULT) :]

TABLES: dict[str, Callable[[], str]] = {
    "options": lambda: options_table(ParserOptions),
    "runner": lambda: options_table(RunnerOptions),
    "approvals": lambda: options_table(ApprovalOptions),
    "text": lambda: options_table(TextOptions),
    "tool": lambda: options_table(ToolOptions),
    "output": lambda: options_table(OutputOptions),
    "request": lambda: options_table(RequestOptions),
    "limits": limits_table,
    "guards": guards_table,
    "events": lambda: events_table(UI_EVENTS),
    "errors": lambda: codes_table(code for code in Code if code not in _WARNINGS),
    "warnings": lambda: codes_table(_WARNINGS),
}
"""The generated tables and lists of the README and the docs, with the functions that make them."""
