"""The layers: which module may import which others, as a table that is compared with the syntax trees of the package.

Modules are parsed, not imported: importing one runs `streamtools/__init__.py`, which imports nearly all others. Imports
in functions and for types count too, because such a stage depends on the types of a later one.
"""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[2] / "streamtools"

VALUES = {"errors", "limits", "json_values"}
VOCABULARY = {*VALUES, "calls", "events"}
MAY_IMPORT: dict[str, Collection[str]] = {
    # vocabulary
    "errors": (),
    "limits": {"errors"},
    "loading": {"errors"},
    "logs": (),
    "observing": {"calls"},
    "json_values": {"errors", "limits"},
    "calls": VALUES,
    "events": {"errors", "json_values", "loading", "calls"},
    "rules": {"errors", "loading", "logs"},
    # stages without imports of each other
    "sources": {*VOCABULARY, "loading", "logs", "sources.read_pace"},
    "sources.read_pace": (),
    "typed": {"logs"},
    "parsing": {*VOCABULARY, "loading", "logs", "rules"},
    "tools": {*VOCABULARY, "loading", "logs", "observing"},
    "recording": {"errors", "json_values", "loading", "logs", "rules"},
    # modules that build on them, each on those above
    "machine": {*VOCABULARY, "logs", "parsing", "typed"},
    "history": {"errors", "limits", "loading", "logs", "json_values", "calls", "parsing"},
    "stream": {
        *VOCABULARY,
        *("logs", "observing", "sources", "sources.read_pace", "parsing", "tools", "machine", "history", "rules"),
        "typed",
    },
    "recording.event_replay": {"errors", "events", "sources", "tools", "stream", "recording"},
    "conversation.models": {"errors", "loading", "logs", "events", "sources", "parsing", "tools", "history", "typed"},
    "conversation": {
        *("errors", "json_values", "logs", "calls", "events", "parsing", "tools", "machine", "history", "stream"),
        *("conversation.models", "loading", "observing", "sources"),
    },
    # to front ends
    "outputs": {"errors", "json_values", "calls", "events", "loading", "machine"},
    "serving": {
        *("errors", "logs", "observing", "events", "json_values", "rules", "tools", "stream", "outputs"),
        "sources.read_pace",
    },
    "outputs.asgi": {"loading", "serving"},
    "gateway": {
        *("errors", "limits", "json_values", "calls", "events", "sources", "parsing", "tools", "machine", "history"),
        *("loading", "logs", "rules", "conversation", "conversation.models", "outputs", "recording", "stream"),
        "gateway.service",  # `gateway/__init__.py` exports `app`
    },
    "gateway.metrics": {"errors", "events"},
    "gateway.delivery": {"gateway", "outputs", "serving", "sources.read_pace", "stream"},
    "gateway.service": {
        *("errors", "events", "outputs", "recording", "serving", "gateway", "gateway.metrics", "gateway.delivery")
    },
    "runs": {"loading", "serving", "stream"},
    "telemetry": {"errors", "loading", "logs", "observing", "json_values", "calls", "events", "history", "recording"},
    # programs, and help for tests of applications
    "apps.web": {
        "tools",
        *("errors", "events", "history", "conversation", "outputs.asgi", "runs", "serving"),
        *("machine", "recording", "recording.event_replay"),  # for the debugger
    },
    "apps.cli": {
        *("errors", "calls", "events", "sources", "parsing", "tools", "stream", "recording", "recording.event_replay"),
        *("conversation", "history", "loading", "outputs", "apps.web"),
        *("gateway", "gateway.service"),
        "__init__",  # has the version
    },
    "apps": (),
    "testing": {
        *("errors", "limits", "json_values", "calls", "events", "loading", "sources", "parsing", "tools"),
        *("machine", "recording", "recording.event_replay"),
    },
    # the public package
    "__init__": {
        *("errors", "limits", "calls", "events", "rules", "sources", "parsing", "tools", "machine", "stream"),
        *("conversation", "loading", "outputs", "recording.event_replay"),
    },
    "__main__": {"apps.cli"},
}
"""For each module or folder, the others that it may import; the longest name that fits is a module's row."""

MAY_USE: dict[str, Collection[str]] = {
    "errors": {"msgspec"},
    "limits": (),
    "loading": (),
    "logs": {"pydantic_core"},
    "observing": (),
    "json_values": {"msgspec"},
    "calls": {"msgspec"},
    "events": {"msgspec"},
    "rules": (),
    "sources": {"anyio", "msgspec"},
    "sources.read_pace": {"anyio"},
    "typed": {"pydantic"},
    "parsing": {"json_repair", "msgspec"},
    "tools": {
        *("anyio", "mcp", "msgspec", "psycopg", "pydantic", "pydantic_core", "redis", "tenacity", "typing_extensions")
    },
    "recording": {"anyio", "msgspec"},
    "recording.event_replay": (),
    "machine": {"msgspec"},
    "history": {"msgspec", "pydantic"},
    "stream": {"anyio", "msgspec"},
    "conversation.models": {"anyio", "botocore", "httpx", "msgspec"},
    "conversation": {"msgspec"},
    "outputs": {"msgspec"},
    "outputs.asgi": (),
    "serving": {"anyio", "msgspec", "starlette"},
    "gateway": {"msgspec"},
    "gateway.metrics": (),
    "gateway.delivery": {"anyio", "httpx", "starlette"},
    "gateway.service": {"httpx", "starlette"},
    "runs": (),
    "telemetry": {"msgspec", "opentelemetry"},
    "apps": (),
    "apps.web": {"msgspec", "starlette"},
    "apps.cli": {*("anyio", "httpx", "msgspec", "rich", "uvicorn")},
    "testing": {"httpx", "hypothesis", "msgspec", "pytest"},
    "__init__": (),
    "__main__": (),
}
"""For each row, the packages of others that it may import."""

LOOSE = {
    *("__init__", "__main__", "errors", "calls", "events", "json_values", "limits"),
    *("loading", "logs", "observing"),
}
"""The files of the top floor: the two doors and the vocabulary."""


RIM = {
    *("__main__", "apps", "outputs.asgi", "recording", "serving", "testing"),
    *("conversation.chat_stream", "conversation.emulation", "conversation.failover", "conversation.models"),
    "conversation.failover_rules",
    "conversation.reply",
    "loading",  # explains wrong imports
    "logs",  # finds the structlog that the application has imported
    "rules.vault",  # has a lock, because a chat replaces values in a thread
    *("outputs.openai_chunks", "outputs.responses_events"),  # read the clock for the time of a response
    "sources.adapter",
    *("sources.transport", "sources.read_pace"),
    *("gateway.delivery", "gateway.service", "gateway.tool_call_transport"),
    *("stream.event_buffer", "stream.text_judge", "stream.long_work"),
    "stream.reading",
    *("stream.step_runner", "stream.tool_stream", "stream.typed_items", "telemetry.spans_and_metrics"),
    *(f"tools.{each}" for each in ("approvals", "cancellation", "context", "invocation", "ledger")),
    *(f"tools.{each}" for each in ("mcp", "redis_client", "registry", "runner", "signature")),
    *("tools.postgres_ledger", "tools.redis_ledger", "tools.sql_ledger"),
}
"""Modules and folders that may wait, read, write or ask a clock. All others are sans-IO."""

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
    # their dependencies:
    *("annotated_types", "idna", "pydantic_core", "sniffio", "typing_extensions", "typing_inspection"),
}
"""Packages that `import streamtools` may load. The HTTP clients are dependencies, and load when they are used."""


class Module(NamedTuple):
    """One file of the package. `name` and `path` are relative to the package, whose own file is `__init__`."""

    name: str
    path: Path
    tree: ast.Module


class Import(NamedTuple):
    """One imported name. A name of the package is relative to it; `own` is True for such a name."""

    line: int
    name: str
    own: bool


def modules(planted: Mapping[str, str] | None = None) -> list[Module]:
    """Return the files of the package, with `planted` lines at the end of some."""
    found = []
    for file in sorted({*_files(), *(planted or ())}):
        path = Path(file)
        parts = path.with_suffix("").parts
        name = ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)
        source = _files().get(file, "") + (f"\n{planted[file]}\n" if planted and file in planted else "")
        found.append(Module(name, path, _parse(source)))
    return found


@cache
def _files() -> dict[str, str]:
    return {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}


@cache
def _parse(source: str) -> ast.Module:
    return ast.parse(source)


def imports(module: Module, names: Collection[str], *, types: bool = True) -> Iterator[Import]:
    """Yield the imports of a module. Names in packages are resolved. Optionally omit imports for types."""
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    for node in _nodes(module.tree, types=types):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if all(alias.asname == alias.name for alias in node.names):
                continue  # it tells type checkers which modules `load_later` imports
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


def breaches(planted: Mapping[str, str] | None = None) -> list[str]:
    """Return the violations of the rules of this file: one sentence each, with its place."""
    every = modules(planted)
    names = frozenset(module.name for module in every)
    found: list[str] = []
    for module in every:
        found += [f"{module.path}:{told}" for told in _breaches_in(module.name, module.path.name, module.tree, names)]
    return found


@cache
def _breaches_in(module: str, file: str, tree: ast.Module, names: frozenset[str]) -> list[str]:
    """Return the violations in one file. Each sentence begins with its line."""
    row = row_of(module)
    if row is None:
        return [" has no row in the table"]
    inside = f"{module}.__init__" if file == "__init__.py" else module
    sans_io = not any(inside == each or inside.startswith(each + ".") for each in RIM)
    found: list[str] = []

    def report(line: int, what: str) -> None:
        found.append(f"{line}: {what}")

    for line, name, own in imports(Module(module, Path(file), tree), names):
        top = name.partition(".")[0]
        if own:
            target = row_of(name)
            if target != row and target not in MAY_IMPORT[row]:
                report(line, f"{row} does not import {name}")
        elif top in NEVER_IMPORTED:
            report(line, f"no module may import {name}")
        elif top not in STANDARD and top not in MAY_USE[row]:
            report(line, f"{row} does not use {name}")
        elif (sans_io and top in OUTER_WORLD) or (row == "parsing" and top in LOGGING):
            report(line, f"{module} is sans-IO and does not use {name}")
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=called) if called in NEVER:
                report(node.lineno, f"no module may call {called}")
            case ast.Call(func=ast.Name(id=called)) if called in IO_FUNCTIONS and sans_io:
                report(node.lineno, f"{module} is sans-IO and does not call {called}")
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith() if sans_io:
                report(node.lineno, f"{module} is sans-IO and does not wait")
    return found


@pytest.fixture(scope="module")
def known() -> list[str]:
    """The violations in the unchanged package."""
    return breaches()


def test_each_module_imports_only_what_its_row_allows(known: list[str]) -> None:
    """Sans-IO modules do no I/O, and no module runs text as code."""
    assert [] == known


def test_each_row_names_a_module() -> None:
    names = {module.name for module in modules()}

    assert [] == [row for row in MAY_IMPORT if row not in names]
    assert MAY_IMPORT.keys() == MAY_USE.keys()
    assert [] == [each for each in RIM if each.removesuffix(".__init__") not in names]


def test_each_allowed_import_is_used() -> None:
    """The table shows the actual imports."""
    every = modules()
    names = {module.name for module in every}
    made = {(row_of(module.name), each) for module in every for each in imports(module, names)}

    used = {(row, row_of(each.name) if each.own else each.name.partition(".")[0]) for row, each in made}

    granted = {(row, each) for table in (MAY_IMPORT, MAY_USE) for row, grants in table.items() for each in grants}
    assert set() == granted - used


def test_imports_have_no_cycle() -> None:
    """Not even for types."""
    every = modules()
    names = {module.name for module in every}
    graph = {
        module.name: {each.name for each in imports(module, names) if each.own} - {module.name} for module in every
    }

    order = list(graphlib.TopologicalSorter(graph).static_order())

    stages = (
        *("errors", "events", "parsing", "machine.state_machine", "stream.tool_stream", "serving.event_response"),
        "apps.cli",
    )
    assert [*stages] == sorted(stages, key=order.index)


def test_only_the_vocabulary_is_outside_of_folders() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == LOOSE


@pytest.mark.parametrize(
    ("file", "line", "breach"),
    [
        ("parsing/markers.py", "from streamtools.tools import Tool", "parsing does not import tools"),
        ("parsing/parser.py", "import streamtools.machine", "parsing does not import machine"),
        ("parsing/dialects/base.py", "from ...sources import openai", "parsing does not import sources"),
        ("sources/detection.py", "from streamtools import parsing", "sources does not import parsing"),
        (
            "sources/detection.py",
            "if TYPE_CHECKING:\n    from streamtools.stream import ToolStream",
            "not import stream",
        ),
        ("tools/runner.py", "def later():\n    from streamtools.machine import StreamMachine", "not import machine"),
        ("recording/format.py", "from . import event_replay", "recording does not import recording.event_replay"),
        ("recording/format.py", "from streamtools.events import Text", "recording does not import events"),
        ("events.py", "from streamtools import ToolStream", "events does not import __init__"),
        ("errors.py", "from . import calls", "errors does not import calls"),
        ("machine/turn.py", "from streamtools.apps import cli", "machine does not import apps.cli"),
        ("sources/adapter.py", "import httpx", "sources does not use httpx"),
        ("stream/tool_stream.py", "from trio import sleep", "stream does not use trio"),
        ("parsing/span.py", "import structlog", "parsing does not use structlog"),
        ("parsing/span.py", "import logging", "parsing.span is sans-IO and does not use logging"),
        ("parsing/reader.py", "from time import monotonic", "parsing.reader is sans-IO and does not use time"),
        ("parsing/reader.py", "async def read(): ...", "parsing.reader is sans-IO and does not wait"),
        ("machine/turn.py", "print('hello')", "machine.turn is sans-IO and does not call print"),
        ("sources/wire_formats/openai.py", "import asyncio", "openai is sans-IO and does not use asyncio"),
        ("tools/signature.py", "eval('1')", "no module may call eval"),
        ("tools/signature.py", "from ast import literal_eval", "no module may import ast"),
        ("recording/file_reader.py", "import pickle", "no module may import pickle"),
        ("helpers.py", "", "helpers.py: has no row in the table"),
    ],
)
def test_each_planted_violation_is_reported(known: list[str], file: str, line: str, breach: str) -> None:
    """It is the only new violation."""
    found = [each for each in breaches({file: line}) if each not in known]

    assert 1 == len(found)
    assert file in found[0]
    assert breach in found[0]


PROBE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from streamtools import *
print(*{name.partition(".")[0] for name in sys.modules})
"""
"""Imports the package as if the given packages were not installed, and prints the loaded modules."""


def test_the_core_dependencies_are_enough() -> None:
    """All names can be imported with only the core dependencies installed."""
    others = packages_distributions().keys() - CORE - {"streamtools"}
    command = [sys.executable, "-W", "error", "-c", PROBE, *others]
    probe = subprocess.run(command, check=False, capture_output=True, text=True)

    assert "" == probe.stderr
    assert {"httpx", "rich", "trio"} <= others
    assert {"streamtools", "anyio"} <= set(probe.stdout.split())
