"""The modules that importing the package imports. The tests run fresh interpreters."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CORE = "anyio, httpx, httpx_sse, msgspec, pydantic, structlog"
EXTRAS = {
    *("json_repair", "mcp", "psycopg", "redis", "rich", "starlette", "uvicorn", "hypothesis", "pytest", "trio"),
    "_streamtools_pytest",
}
LATER = ("cli", "web", "testing", "outputs", "__main__")
"""Modules and packages of ours that only those import who use them."""

LAZY = {
    "streamtools": {"conversation", "outputs", "chat", "UiTexts", "replay"},
    "streamtools.history": {"Format", "calls_as_text", "read_messages", "write_messages"},
    "streamtools.tools": {"PostgresLedger", "RedisLedger", "SQLiteLedger"},
}
"""Public names that are loaded when they are used, by their packages."""


COMPILED = """
import re
from streamtools import Parser
from streamtools.parsing.bodies import nesting
from streamtools.parsing.dialects import choose_dialects

compile, made = re._compiler.compile, []
re._compiler.compile = lambda *given: made.append(given) or compile(*given)
parser = Parser()
parser.feed("Hello, ")
assert 0 < len(made) <= len(choose_dialects("auto")), len(made)
made.clear()
for delta in ("a", " <", " b and ", "`", "x < y", "`", "."):
    parser.feed(delta)
written = sum(len(str(pattern)) for pattern, *_ in made)
assert written < 4000, written
"""
"""Fails if the first parser of a process compiles more patterns than it enables dialects, or many for a `<`."""


def modules_after(code: str) -> set[str]:
    """Return the names of all modules that are imported after `code` has run."""
    told = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout))


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules that a stream imports in addition to the core dependencies."""
    return modules_after("from streamtools import ToolStream, sources, tool") - modules_after(f"import {CORE}")


def test_the_package_alone_imports_almost_nothing() -> None:
    """It imports only what is needed to import names on first use."""
    found = modules_after("import streamtools")
    assert {"streamtools", "streamtools.errors", "streamtools.loading"} == {
        name for name in found if name.partition(".")[0] == "streamtools"
    }
    assert not {"anyio", "httpx", "pydantic", "structlog"} & found


def test_no_extra_is_imported(imported: set[str]) -> None:
    """No module of an extra is, except for those that a core dependency imports (structlog: `rich`)."""
    assert set() == EXTRAS & {name.partition(".")[0] for name in imported}


def test_rare_modules_are_imported_on_first_use(imported: set[str]) -> None:
    """The command line, the page, the helpers for tests, and the endpoints."""
    assert [] == [name for name in imported if name.removeprefix("streamtools.").startswith(LATER)]


def test_a_stream_loads_no_rare_module(imported: set[str]) -> None:
    """Each costs part of a millisecond in every process."""
    ours = [name for name in imported if name.partition(".")[0] == "streamtools"]
    for later in ("history.formats", "history.ai_sdk_messages", "tools.mcp", "tools.sql_ledger"):
        assert f"streamtools.{later}" not in ours


def test_names_that_are_loaded_later_exist() -> None:
    """All public names are listed and found. Other names raise AttributeError."""
    told = f"""
from importlib import import_module
modules = {{import_module(package): names for package, names in {LAZY}.items()}}
for module, names in modules.items():
    assert not names & vars(module).keys(), names & vars(module).keys()
    assert {{*module.__all__}} <= {{*dir(module)}}
    assert not hasattr(module, "nothing")
assert [] == [name for module in modules for name in module.__all__ if getattr(module, name, None) is None]
"""
    modules_after(told)


def test_completion_lists_only_public_names() -> None:
    """`dir` lists `__all__` and the public submodules, without names that need an extra that is not installed."""
    modules_after("""
import streamtools, sys
assert {*dir(streamtools)} - {*streamtools.__all__} == {
    "errors", "gateway", "history", "parsing", "recording", "runs", "telemetry", "testing", "tools"
}
assert {*dir(streamtools.outputs)} - {*streamtools.outputs.__all__} == {"asgi"}
for module in ("events", "errors", "parsing", "recording", "rules", "sources", "tools", "runs"):
    names = {*dir(getattr(streamtools, module))}
    assert not names & {"annotations", "load_later", "check_calls", "check_word", "msgspec", "Any"}, (module, names)
assert "Runs" in dir(streamtools.runs) and streamtools.outputs.asgi.read_body
sys.modules["psycopg"] = sys.modules["starlette"] = None
from streamtools.tools import *
assert "MemoryLedger" in vars() and "PostgresLedger" not in {*vars(), *dir(streamtools.tools)}
assert "asgi" not in dir(streamtools.outputs)
""")


def test_the_first_tool_imports_models_of_pydantic(imported: set[str]) -> None:
    """A stream needs none of them."""
    assert "pydantic.main" not in imported
    assert "pydantic.main" in modules_after("import streamtools\n@streamtools.tool\ndef f() -> None: ...")


def test_the_first_parser_imports_the_dialects(imported: set[str]) -> None:
    """A stream without a parser imports only the two dialects that it teaches."""
    dialects = "streamtools.parsing.dialects."
    alone = modules_after("from streamtools import Parser; Parser(())") - imported
    forms = ("attribute_xml", "json_after_name", "json_with_name", "message_headers", "parameter_xml", "pythonic")

    assert f"{dialects}hash_and_tilde" in imported
    assert not {f"{dialects}{each}" for each in forms} & imported
    assert [] == sorted(name for name in alone if name.startswith(dialects))


def test_the_first_parser_compiles_few_patterns() -> None:
    """Most patterns of a dialect are compiled at its first match."""
    modules_after(COMPILED)
