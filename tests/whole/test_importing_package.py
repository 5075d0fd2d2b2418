"""What importing the package brings with it. A fresh interpreter is asked, as this one has imported everything."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CORE = "anyio, httpx, httpx_sse, msgspec, pydantic, structlog"
EXTRAS = {
    "json_repair",
    "mcp",
    "psycopg",
    "redis",
    "rich",
    "starlette",
    "uvicorn",
    "hypothesis",
    "pytest",
    "trio",
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
"""What fails if the first parser of a process compiles more patterns than it enables dialects, or many for a `<`."""


def modules_behind(code: str) -> set[str]:
    """Return the names of all modules that are there once `code` has run."""
    told = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout))


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """What `import streamtools` brings beyond what the core dependencies bring by themselves."""
    return modules_behind("import streamtools") - modules_behind(f"import {CORE}")


def test_no_extra_is_imported(imported: set[str]) -> None:
    """None of what an extra installs, but for what a core dependency looks for itself (structlog's `rich`)."""
    assert set() == EXTRAS & {name.partition(".")[0] for name in imported}


def test_no_module_is_imported_that_few_use(imported: set[str]) -> None:
    """Not the command line, the page, the helpers for tests, the endpoints; each is imported by who asks for it."""
    assert [] == [name for name in imported if name.removeprefix("streamtools.").startswith(LATER)]


def test_a_stream_loads_no_rare_module(imported: set[str]) -> None:
    """Each costs its part of a millisecond, in every process that begins."""
    ours = [name for name in imported if name.partition(".")[0] == "streamtools"]
    for later in ("history.formats", "history.ai_sdk_messages", "tools.mcp", "tools.sql_ledger"):
        assert f"streamtools.{later}" not in ours


def test_what_is_loaded_later_is_there() -> None:
    """Its names are told and found, all that are public; another one is no name of the package's."""
    told = f"""
from importlib import import_module
modules = {{import_module(package): names for package, names in {LAZY}.items()}}
for module, names in modules.items():
    assert not names & vars(module).keys(), names & vars(module).keys()
    assert {{*module.__all__, "__all__"}} <= {{*dir(module)}}
    assert not hasattr(module, "nothing")
assert [] == [name for module in modules for name in module.__all__ if getattr(module, name, None) is None]
"""
    modules_behind(told)


def test_pydantic_s_models_come_with_the_first_tool(imported: set[str]) -> None:
    """Reading a stream needs none of them; defining a tool does."""
    assert "pydantic.main" not in imported
    assert "pydantic.main" in modules_behind("import streamtools\n@streamtools.tool\ndef f() -> None: ...")


def test_dialects_are_imported_when_they_are_asked_for(imported: set[str]) -> None:
    """Only the two that are taught come with the package; the first parser brings the others, unless it has none."""
    dialects = "streamtools.parsing.dialects."
    alone = modules_behind("from streamtools import Parser; Parser(())") - imported
    forms = ("attribute_xml", "json_after_name", "json_with_name", "message_headers", "parameter_xml", "pythonic")

    assert f"{dialects}hash_and_tilde" in imported
    assert not {f"{dialects}{each}" for each in forms} & imported
    assert [] == sorted(name for name in alone if name.startswith(dialects))


def test_what_the_first_parser_compiles() -> None:
    """Few patterns: most of those of a dialect are compiled when it has found something, and it has over five."""
    modules_behind(COMPILED)
