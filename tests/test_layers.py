"""Who may import whom: the architecture as a table, held against the syntax trees of the package.

Read, not imported: importing any module runs `streamtools/__init__.py`, which imports nearly all of them. Imports count
wherever they stand, in a function or for types alone too, because a stage that names a type of a later one knows of it.
"""

from __future__ import annotations

import ast
import graphlib
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "streamtools"

VOCABULARY = {"errors", "calls", "events"}
VALUES = {"limits", "json_values"}
MAY_IMPORT: dict[str, Collection[str]] = {
    "errors": (),
    "limits": (),
    "surrogates": (),
    "json_values": {"errors", "limits", "surrogates"},
    "calls": {"errors", "limits", "json_values"},
    "events": {"errors", "calls", "surrogates"},
    "coalescing": {"calls", "events"},
    "grammar": {"errors", "events"},
    # four stages that do not know one another
    "sources": {*VOCABULARY, *VALUES, "surrogates"},
    "parsing": {*VOCABULARY, *VALUES, "parsing.repair"},
    "parsing.repair": VALUES,
    "tools": {*VOCABULARY, *VALUES, "surrogates", "tools.mcp"},
    "tools.mcp": {"tools"},
    "tools.guarded_http": (),
    "recording": {"errors"},
    # what is built of them
    "native": {*VOCABULARY, "json_values", "parsing"},
    "turn": {*VOCABULARY, "parsing", "native"},
    "ending": {"calls", "events"},
    "machine": {*VOCABULARY, "parsing", "turn", "ending"},
    "extracting": {"limits", "calls", "events", "sources", "parsing", "tools", "machine"},
    # what was said so far: read from anywhere, written for each provider
    "history": {"limits", "json_values", "calls", "surrogates", "parsing"},
    "result": {*VOCABULARY, "parsing", "tools", "history"},
    "handover": {"errors", "events", "parsing", "result"},
    "options": {"parsing", "tools"},
    "step": {"calls", "events", "parsing", "tools", "machine"},
    "stream": {*VOCABULARY, "parsing", "tools", "machine", "options", "handover", "step"},
    # the models that answer, and the loop around all of it
    "conversation.models": {"errors", "events", "sources", "parsing", "tools", "history"},
    "conversation": {
        *(*VOCABULARY, "json_values", "parsing", "tools", "machine", "history", "options", "stream"),
        "conversation.models",
    },
    "texts": {"errors", "events"},
    "replaying": {"errors", "events", "sources", "tools", "options", "stream", "recording"},
    "runs": {"errors", "events", "tools", "result"},
    # to front ends
    "outputs": {*VOCABULARY, "json_values", "surrogates", "grammar"},
    "outputs.asgi": {"errors", "events", "tools", "stream", "runs", "outputs"},
    "web": {"errors", "events", "history", "conversation", "runs", "outputs.asgi"},
    # the two doors
    "__init__": {
        *(*VOCABULARY, "limits", "sources", "parsing", "tools", "machine", "extracting", "options", "stream", "result"),
        *("conversation", "texts", "replaying", "coalescing", "outputs"),
    },
    "cli": {
        *(*VOCABULARY, "sources", "parsing", "tools", "recording", "stream", "result", "texts", "replaying"),
        *("conversation", "conversation.models", "web"),
    },
    "__main__": {"cli"},
    # for those who test what they build on it
    "testing": {
        *(
            "errors",
            "events",
            "limits",
            "coalescing",
            "grammar",
            "sources",
            "parsing",
            "tools",
            "recording",
            "machine",
            "replaying",
        ),
    },
}
"""For each module or folder, the others that it may import; the longest name that fits is a module's row."""

FLOORS: dict[str, Sequence[Collection[str]]] = {
    "parsing": (
        {"markers", "declared", "repair"},
        {"marker_sets"},
        {"closings", "near_misses", "options", "output"},
        {"reader", "drafts"},
        {"heads"},
        {"envelope", "json_tokens", "markdown", "raw_text", "reasoning", "visible"},
        {"json_text"},
        {"broken_json"},
        {"span"},
        {"bodies"},
        {"dialects"},
        {"armed", "suggestions"},
        {"prose"},
        {"parser"},
        {"result"},
        {"__init__"},
    ),
    "events": ({"base"}, {"source", "ui"}, {"__init__"}),
    "tools": (
        {
            "outcome",
            "context",
            "decisions",
            "failures",
            "finished",
            "refusals",
            "schemas",
            "docstrings",
            "guarded_http",
        },
        {"type_schemas", "extending", "hints", "tool_clients", "guards", "ledger", "decider", "threads"},
        {"returns", "signature", "suspension"},
        {"definition"},
        {"account", "invocation", "permissions", "formats", "mcp"},
        {"runner"},
        {"processing"},
        {"registry"},
        {"choice"},
        {"__init__"},
    ),
    "recording": (
        {"format", "lines", "key_formats", "library", "clients"},
        {"reading", "cutting", "matching", "credentials", "sieves"},
        {"captures", "deltas", "playback"},
        {"scrubbing", "pace", "faults"},
        {"redact", "replay"},
        {"writing", "exchanges", "response"},
        {"exchange_file", "replay_transport"},
        {"transport", "wrapping", "importing"},
        {"__init__"},
    ),
    "testing": (
        {"cuts", "feeding", "places", "beginnings", "stumbling", "matching", "network", "settings"},
        {"laws", "material", "expectations", "transport"},
        {"dialects", "recorded"},
        {"fixture", "__init__"},
    ),
    "outputs.asgi": (
        {"frames", "positions", "reading", "sending", "shutdown"},
        {"deciding", "responses", "sockets"},
        {"sessions", "websockets"},
        {"conversing"},
        {"__init__"},
    ),
    "outputs": (
        {"encoder", "sse", "moves", "white_space"},
        {"paired"},
        {"native", "ai_sdk", "ag_ui", "openai", "text"},
        {"__init__"},
        {"asgi"},
    ),
    "runs": ({"log", "mailbox"}, {"journal"}, {"attachment"}, {"run"}, {"runs"}, {"__init__"}),
    "web": ({"conversations", "guard", "page"}, {"app"}, {"__init__"}),
    "conversation.models": (
        {"base", "response"},
        {"body", "sending"},
        {"http"},
        {"openai", "responses", "anthropic", "gemini", "ollama", "latitude"},
        {"scripted"},
        {"__init__"},
    ),
    "history": ({"messages", "parts"}, {"formats", "reading"}, {"results_in_text"}, {"writing"}, {"__init__"}),
    "conversation": (
        {"models", "emulation", "samples", "decision"},
        {"prompts", "request", "inner_requests"},
        {"emulated"},
        {"chatting"},
        {"__init__"},
    ),
    "history.formats": (
        {"__init__", "plain"},
        {"turns"},
        {"openai", "responses", "anthropic", "gemini", "ollama"},
    ),
    "parsing.bodies": (  # what grammars share, and the grammars
        {"__init__", "syntax", "tags", "members", "endings"},
        {"literals", "forged_results", "json_calls", "json_holders", "named_json", "messages"},
        {"values", "pythonic", "chained_json"},
        {"elements", "pairs", "parameters", "xtml", "gemma_calls"},
        {"attributes"},
    ),
}
"""The modules inside a folder, from the ground up: each imports only what stands on a floor below its own."""

MAY_USE: dict[str, Collection[str]] = {
    "errors": (),
    "limits": {"msgspec"},
    "surrogates": (),
    "json_values": {"msgspec"},
    "calls": {"msgspec"},
    "events": {"msgspec", "pydantic", "pydantic_core"},
    "coalescing": {"msgspec"},
    "grammar": (),
    "sources": {"anyio", "msgspec"},
    "parsing": (),
    "parsing.repair": {"json_repair"},
    "tools": {"anyio", "msgspec", "pydantic", "pydantic_core", "structlog", "typing_extensions"},
    "tools.mcp": {"mcp", "structlog"},
    "tools.guarded_http": {"anyio", "httpx"},
    "recording": {"anyio", "msgspec"},
    "native": {"msgspec"},
    "turn": {"msgspec"},
    "ending": (),
    "machine": {"structlog"},
    "extracting": (),
    "history": {"msgspec"},
    "conversation": {"anyio", "msgspec"},
    "conversation.models": {"anyio", "httpx", "msgspec", "structlog", "tenacity"},
    "result": (),
    "handover": {"anyio"},
    "options": (),
    "step": {"anyio"},
    "stream": {"anyio", "structlog"},
    "texts": (),
    "replaying": (),
    "runs": {"anyio", "msgspec", "structlog"},
    "outputs": {"msgspec"},
    "outputs.asgi": {"anyio", "msgspec", "starlette", "structlog"},
    "web": {"msgspec", "starlette"},
    "__init__": (),
    "cli": {"anyio", "httpx", "httpx_sse", "rich", "structlog", "uvicorn"},
    "__main__": (),
    "testing": {"httpx", "hypothesis", "msgspec", "pytest"},
}
"""For each row, the packages of others that it may import."""

SEAM = {
    "overrides": {"_resume", "_follow"},
    "sets": {"_watch", "_wish"},
    "uses": {"_close_source", "_executes", "_hand_out", "_machine", "_resumed", "_watch", "_wish"},
}
"""What a subclass of `ToolStream` in the package does with private members of it and of `Handover`; the section "The
seam" in `stream.py` has what it owes for that."""

SANS_IO = (
    "errors",
    "limits",
    "surrogates",
    "json_values",
    "calls",
    "events",
    "coalescing",
    "grammar",
    "parsing",
    "native",
    "turn",
    "ending",
    "machine",
    "extracting",
    *(f"outputs.{each.stem}" for each in sorted((PACKAGE / "outputs").glob("[!_]*.py"))),  # but not the rim, nor the
    # functions that make encoders, of which one asks the clock when an answer was made
    "history",
    "conversation.samples",
    "conversation.prompts",
    "conversation.decision",
    "conversation.inner_requests",
    "conversation.models.base",
    "conversation.models.body",
    "conversation.models.latitude",
    "result",
    "options",
    "texts",
    "sources.frames",
    "sources.adapter",
    "sources.brackets",
    "sources.chat_calls",
    "sources.detecting",
    "sources.finished",
    "sources.text",
    "sources.objects",
    "sources.openai",
    "sources.responses",
    "sources.output_items",
    "sources.response_calls",
    "sources.anthropic",
    "sources.latitude",
    "sources.gemini",
    "sources.interactions",
    "sources.partial_args",
    "sources.ollama",
    "sources.ai_sdk",
    "sources.held_calls",
    "sources.pairs",
    "sources.words",
    *(f"tools.{name}" for name in ("choice", "extending", "finished", "formats", "guards", "outcome", "schemas")),
    "outputs.asgi.frames",
    *(f"recording.{name}" for name in ("deltas", "format", "matching", "scrubbing", "sieves")),
)
"""Modules that neither wait nor read nor write: no `async`, no clock, no file, no network."""

STANDARD = sys.stdlib_module_names | {"_typeshed"}  # a module that only type checkers know

OUTER_WORLD = {
    *("asyncio", "datetime", "http", "os", "pathlib", "random", "selectors", "socket", "ssl", "subprocess", "sys"),
    *("tempfile", "threading", "time", "urllib"),
}
LOGGING = {"logging", "structlog"}
IO_FUNCTIONS = {"open", "print", "input", "breakpoint"}

NEVER = {"eval", "exec", "compile", "__import__"}
"""What runs text as code; and below, modules that do so or that make objects out of bytes. Model output is data."""
NEVER_IMPORTED = {"ast", "dill", "marshal", "pickle", "shelve", "yaml"}

CORE = {
    *("anyio", "msgspec", "pydantic", "structlog"),
    *("annotated_types", "idna", "pydantic_core", "sniffio", "typing_extensions", "typing_inspection"),  # of theirs
}
"""Packages that `import streamtools` may load. The HTTP clients are dependencies, and load when they are used."""


class Module(NamedTuple):
    """One file of the package; `name` is dotted and begins below the package, whose own file is `__init__`."""

    name: str
    path: Path
    tree: ast.Module


class Import(NamedTuple):
    """One imported name: of the package, then dotted as above, or of elsewhere."""

    line: int
    name: str
    own: bool


def modules(root: Path) -> list[Module]:
    """Return the files of a package."""
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)
        found.append(Module(name, path, _parse(path.read_text())))
    return found


@cache
def _parse(source: str) -> ast.Module:
    return ast.parse(source)


def imports(module: Module, names: Collection[str], *, types: bool = True) -> Iterator[Import]:
    """Yield what a module imports, out of packages the modules themselves; without those for types alone, if asked."""
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    for node in _nodes(module.tree, types=types):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:  # `from ..x import y`, seen from `package`
                above = ["streamtools", *filter(None, package.removeprefix("__init__").split("."))]
                start = ".".join([*above[: len(above) - node.level + 1], *filter(None, [start])])
            inner = start.removeprefix("streamtools").lstrip(".")
            below = [alias.name for alias in node.names if start.partition(".")[0] == "streamtools"]
            below = [each for each in below if ".".join(filter(None, (inner, each))) in names]
            wanted = [f"{start}.{each}" for each in below] + ([start] if len(below) < len(node.names) else [])
        else:
            continue
        for each in wanted:
            top, _, rest = each.partition(".")
            yield Import(node.lineno, rest or "__init__" if top == "streamtools" else each, top == "streamtools")


def _nodes(tree: ast.AST, *, types: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not types:
            continue
        yield node
        yield from _nodes(node, types=types)


def row_of(name: str) -> str | None:
    """Return the row of the table that a module belongs to."""
    while name and name not in MAY_IMPORT:
        name = name.rpartition(".")[0]
    return name or None


def breaches(root: Path) -> list[str]:
    """Return what breaks the rules of this file, a sentence each with its place."""
    every = modules(root)
    names = frozenset(module.name for module in every)
    found: list[str] = []
    for module in every:
        place = module.path.relative_to(root)
        found += [f"{place}:{told}" for told in _breaches_in(module.name, module.path.name, module.tree, names)]
    return found


@cache
def _breaches_in(module: str, file: str, tree: ast.Module, names: frozenset[str]) -> list[str]:
    """Return what breaks the rules in one file; each sentence begins with its line."""
    row = row_of(module)
    if row is None:
        return [" has no row in the table"]
    sans_io = any(module == each or module.startswith(each + ".") for each in SANS_IO)
    found: list[str] = []

    def report(line: int, what: str) -> None:
        found.append(f"{line}: {what}")

    for line, name, own in imports(Module(module, Path(file), tree), names):
        top = name.partition(".")[0]
        if own:
            target = row_of(name)
            if target != row and target not in MAY_IMPORT[row]:
                report(line, f"{row} does not import {name}")
            elif (rooms := _against_the_floors(module, name)) is not None:
                report(line, f"{rooms[0]} does not import {rooms[1]}")
        elif top in NEVER_IMPORTED:
            report(line, f"nobody imports {name}")
        elif top not in STANDARD and top not in MAY_USE[row]:
            report(line, f"{row} does not use {name}")
        elif (sans_io and top in OUTER_WORLD) or (row == "parsing" and top in LOGGING):
            report(line, f"{module} is sans-IO and does not use {name}")
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=called) if called in NEVER:
                report(node.lineno, f"nobody calls {called}")
            case ast.Call(func=ast.Name(id=called)) if called in IO_FUNCTIONS and sans_io:
                report(node.lineno, f"{module} is sans-IO and does not call {called}")
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith() if sans_io:
                report(node.lineno, f"{module} is sans-IO and does not wait")
    return found


def _against_the_floors(importer: str, imported: str) -> tuple[str, str] | None:
    """Return the two rooms of a folder of which the first imports the second, and must not."""
    for folder, floors in FLOORS.items():
        one, other = (_room(folder, name) for name in (importer, imported))
        heights = {name: height for height, floor in enumerate(floors) for name in floor}
        if one and other and one != other and heights.get(one, 0) <= heights.get(other, 0):
            return one, other
    return None


def _room(folder: str, name: str) -> str:
    """Return where in a folder a module stands, or "" if it does not stand there."""
    if name == folder:
        return "__init__"
    return name.removeprefix(folder + ".").partition(".")[0] if name.startswith(folder + ".") else ""


@pytest.fixture(scope="module")
def known() -> list[str]:
    """What breaks the rules as things are."""
    return breaches(PACKAGE)


def test_each_module_imports_only_what_its_row_allows(known: list[str]) -> None:
    """The package keeps to the table, its sans-IO modules to theirs, and nothing in it runs text as code."""
    assert [] == known


def test_each_row_is_there() -> None:
    """No row of the table speaks of a module that does not exist."""
    names = {module.name for module in modules(PACKAGE)}

    assert [] == [row for row in MAY_IMPORT if row not in names]
    assert MAY_IMPORT.keys() == MAY_USE.keys()
    assert [] == [each for each in SANS_IO if each not in names]
    for folder, floors in FLOORS.items():
        assert {room for each in names if (room := _room(folder, each))} == {room for floor in floors for room in floor}


def test_each_grant_is_used() -> None:
    """No row allows an import that nobody makes: the table tells who knows whom, and not who might."""
    every = modules(PACKAGE)
    names = {module.name for module in every}
    made = {(row_of(module.name), each) for module in every for each in imports(module, names)}

    used = {(row, row_of(each.name) if each.own else each.name.partition(".")[0]) for row, each in made}

    granted = {(row, each) for table in (MAY_IMPORT, MAY_USE) for row, grants in table.items() for each in grants}
    assert set() == granted - used


def test_modules_are_loaded_in_one_direction() -> None:
    """No module needs, while it is loaded, one that needs it."""
    every = modules(PACKAGE)
    names = {module.name for module in every}
    graph = {
        module.name: {each.name for each in imports(module, names, types=False) if each.own} & names - {module.name}
        for module in every
    }

    order = list(graphlib.TopologicalSorter(graph).static_order())

    assert order.index("errors") < order.index("events") < order.index("machine") < order.index("stream")


@pytest.mark.parametrize(
    ("file", "line", "breach"),
    [
        ("parsing/markers.py", "from streamtools.tools import Tool", "parsing does not import tools"),
        ("parsing/parser.py", "import streamtools.machine", "parsing does not import machine"),
        ("parsing/dialects/base.py", "from ...sources import text", "parsing does not import sources.text"),
        ("parsing/reader.py", "from streamtools.parsing.span import Span", "reader does not import span"),
        ("parsing/bodies/json_calls.py", "from ..dialects import base", "bodies does not import dialects"),
        ("parsing/bodies/values.py", "from .elements import Elements", "values does not import elements"),
        ("parsing/bodies/pairs.py", "from .xtml import xtml_call", "pairs does not import xtml"),
        ("sources/frames.py", "from streamtools import parsing", "sources does not import parsing"),
        ("sources/text.py", "if TYPE_CHECKING:\n    from streamtools.stream import ToolStream", "not import stream"),
        ("tools/runner.py", "from .registry import ToolRegistry", "runner does not import registry"),
        ("tools/runner.py", "def later():\n    from streamtools.machine import StreamMachine", "not import machine"),
        ("recording/format.py", "from .. import replaying", "recording does not import replaying"),
        ("recording/format.py", "from streamtools.events import Text", "recording does not import events"),
        ("events/ui.py", "from streamtools import ToolStream", "events does not import __init__"),
        ("errors.py", "from . import calls", "errors does not import calls"),
        ("machine.py", "from streamtools import cli", "machine does not import cli"),
        ("sources/reading.py", "import httpx", "sources does not use httpx"),
        ("stream.py", "from trio import sleep", "stream does not use trio"),
        ("parsing/span.py", "import structlog", "parsing does not use structlog"),
        ("parsing/span.py", "import logging", "parsing.span is sans-IO and does not use logging"),
        ("parsing/reader.py", "from time import monotonic", "parsing.reader is sans-IO and does not use time"),
        ("parsing/reader.py", "async def read(): ...", "parsing.reader is sans-IO and does not wait"),
        ("machine.py", "print('hello')", "machine is sans-IO and does not call print"),
        ("sources/openai.py", "import asyncio", "sources.openai is sans-IO and does not use asyncio"),
        ("tools/signature.py", "eval('1')", "nobody calls eval"),
        ("tools/signature.py", "from ast import literal_eval", "nobody imports ast"),
        ("recording/reading.py", "import pickle", "nobody imports pickle"),
        ("helpers.py", "", "helpers.py: has no row in the table"),
    ],
)
def test_a_wrong_line_is_reported(tmp_path: Path, known: list[str], file: str, line: str, breach: str) -> None:
    """A line that breaks the rules, planted into a copy of the package, is the one thing that is reported anew."""
    copy = shutil.copytree(PACKAGE, tmp_path / "streamtools", ignore=shutil.ignore_patterns("shipped", "__pycache__"))
    with (copy / file).open("a") as opened:
        opened.write(f"\n{line}\n")

    found = [each for each in breaches(copy) if each not in known]

    assert 1 == len(found)
    assert file in found[0]
    assert breach in found[0]


def trespasses(inner: ast.Module, *bases: ast.Module) -> dict[str, set[str]]:
    """Return what the classes of one module do with private members of the `bases`, by the rows of `SEAM`."""
    theirs = {name for base in bases for row in _members(base).values() for name in row}
    return {row: names & theirs for row, names in _members(inner).items()}


def _members(tree: ast.Module) -> dict[str, set[str]]:
    """Return the private members of the classes in a module: what they define, set and use."""
    nodes = [node for each in tree.body if isinstance(each, ast.ClassDef) for node in ast.walk(each)]
    own = [
        node
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    ]
    methods = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    found = {
        "overrides": methods | {node.id for node in nodes if isinstance(node, ast.Name) and _is_set(node)},
        "sets": {node.attr for node in own if _is_set(node)},
        "uses": {node.attr for node in own if not _is_set(node)},
    }
    return {row: {name for name in names if re.match("_(?!_)", name)} for row, names in found.items()}


def _is_set(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _parsed(name: str) -> ast.Module:
    return _parse((PACKAGE / name).read_text())


def test_a_chat_keeps_to_the_seam() -> None:
    """Of what is private to the stream that it is, a chat overrides, sets and uses what the seam names, and no more."""
    found = trespasses(_parsed("conversation/chatting.py"), _parsed("stream.py"), _parsed("handover.py"))

    assert SEAM == found
    heirs = {
        module.name
        for module in modules(PACKAGE)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        if {"ToolStream", "Chat"} & {base.id for base in node.bases if isinstance(base, ast.Name)}
    }
    assert heirs == {"conversation.chatting"}


@pytest.mark.parametrize(
    ("line", "row", "name"),
    [
        ("async def _read(self, tools): ...", "overrides", "_read"),
        ("_tell = None", "overrides", "_tell"),
        ("def method(self): self._ready = []", "sets", "_ready"),
        ("def method(self): self._step += 1", "sets", "_step"),
        ("def method(self): return self._collector", "uses", "_collector"),
    ],
)
def test_a_trespass_is_found(line: str, row: str, name: str) -> None:
    """A chat that reaches past the seam is reported, whether it overrides, sets or uses what is not its own."""
    found = trespasses(_parse(f"class Chat(ToolStream):\n    {line}"), _parsed("stream.py"), _parsed("handover.py"))

    assert {row: {name}} == {each: names for each, names in found.items() if names}


PROBE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import streamtools
print(*{name.partition(".")[0] for name in sys.modules})
"""
"""Imports the package as if the packages that it is given were not installed, and prints what was loaded."""


def test_the_core_dependencies_are_enough() -> None:
    """`import streamtools` works where only the core dependencies are installed, and loads nothing else."""
    others = packages_distributions().keys() - CORE - {"streamtools"}
    command = [sys.executable, "-W", "error", "-c", PROBE, *others]
    probe = subprocess.run(command, check=False, capture_output=True, text=True)

    assert "" == probe.stderr
    assert {"httpx", "rich", "trio"} <= others
    assert {"streamtools", "anyio"} <= set(probe.stdout.split())
