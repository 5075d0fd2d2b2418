"""S2: text of a model is never run as code, and never read by a loader that could run it.

The first tests search the package for such functions. The last one runs in a process whose audit hook raises when
anything is compiled, imported, run or opened. There, hostile text is read as text.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamtools
from tests.support.cases import cases, together

PACKAGE = Path(streamtools.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

FUNCTIONS = {"eval", "exec", "compile", "__import__"}
"""Built-in functions that run text."""
MODULES = {
    *("ast", "code", "codeop", "runpy", "imp", "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal"),
    *("shelve", "jsonpickle", "yaml", "ruamel", "toml", "subprocess", "ctypes", "cffi", "pty", "joblib", "pandas"),
    *("xmlrpc", "lxml", "xml.etree", "xml.dom", "xml.sax.handler"),
}
"""Modules that run text, that build any object which a text names, or that expand entities."""
OF_OS = ("system", "popen", "spawn", "exec", "posix_spawn", "fork", "startfile")
"""How functions of `os` begin that run something."""


def forbidden(tree: ast.AST) -> Iterator[str]:
    """Yield the forbidden functions and modules that a module names."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(name) if name in FUNCTIONS:
                yield f"{name} in line {node.lineno}"
            case ast.Attribute(ast.Name("os"), name) if name.startswith(OF_OS):
                yield f"os.{name} in line {node.lineno}"
            case ast.Import(names) | ast.ImportFrom(names=names):
                module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                for each in (*(alias.name for alias in names), module, *(f"{module}.{alias.name}" for alias in names)):
                    if any(each == one or each.startswith(f"{one}.") for one in MODULES):
                        yield f"{each} in line {node.lineno}"


def test_no_module_can_run_text() -> None:
    with cases() as case:
        for file in FILES:
            with case(file.relative_to(PACKAGE)):
                assert [] == list(forbidden(ast.parse(file.read_bytes())))


@together(
    "line",
    ["eval(text)", "exec(text)", "from ast import literal_eval", "import pickle", "import yaml", "os.system(text)",
     "__import__(text)", "from xml.etree import ElementTree", "import subprocess as s"],
)  # fmt: skip
def test_forbidden_names_are_found(line: str) -> None:
    assert 1 <= len(list(forbidden(ast.parse(f"def f(text):\n    {line}\n"))))


def test_lint_forbids_running_text() -> None:
    """Ruff's security rules apply to the package. Only tests and benchmarks are exempt."""
    lint = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]

    assert "S" in lint["select"]
    assert not [rule for rule in lint["ignore"] if rule.startswith("S") and rule != "S101"]
    assert {"tests/**", "benchmarks/**"} == {
        path for path, rules in lint["per-file-ignores"].items() if any(rule.startswith("S") for rule in rules)
    }


PAYLOADS = [
    "__import__('os').system('touch pwned')",
    "().__class__.__base__.__subclasses__()",
    '!!python/object/apply:os.system ["touch pwned"]',
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "${jndi:ldap://127.0.0.1/a}",
    "%(name)s {0.__class__} {call.__init__.__globals__}",
    '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "cos\nsystem\n(S'touch pwned'\ntR.",
    "(lambda: exec('raise SystemExit'))()",
    "[x for x in ().__class__.__mro__]",
    "f(*[1] * 10 ** 10)",
    "9 ** 9 ** 9",
    "'a' * 10 ** 12",
]
"""Texts that run or expand when they are evaluated."""

PROBE = """
import json, sys
from streamtools import UiTexts, outputs, parse, tool
from streamtools.events import Call, Executing
from streamtools.parsing.dialects import DIALECTS

PAYLOADS, share = json.loads(sys.argv[1]), int(sys.argv[2])

@tool
def f(a: str = "", b: int = 0) -> str:
    return a

def watch(event, args):
    if event.split(".")[0] in ("compile", "exec", "import", "open", "os", "subprocess", "socket", "pickle", "ctypes"):
        raise RuntimeError(f"{event} {args!r:.200}")

def texts(dialect, payload):
    call = dialect.write_call("f", {"a": "\\0"})
    quoted = json.dumps(payload)[1:-1]
    yield dialect.write_call("f", {"a": payload})
    yield call.replace("\\\\u0000", quoted).replace("\\0", payload)  # as a model writes it that escapes nothing
    yield call.replace('"\\\\u0000"', payload).replace("\\0", payload)  # in the place of a value
    yield dialect.write_call("f", {"b": 1}).replace("1", payload)
    yield dialect.write_call("f", {payload: "x"})
    yield call.replace("f", payload)

def told(dialect, payload, text):
    result = parse(text, dialects=[dialect], tools=[f])
    for call in result.calls:
        UiTexts().render(Executing(call))
        for value in call.arguments.values():
            assert isinstance(value, str | int | float | bool | list | dict | None), value
            assert not (isinstance(value, int) and len(str(value)) > 300)
    for encoder in (outputs.native(),):
        for event in result.events:
            encoder.encode(event)
    return sum(payload in map(str, call.arguments.values()) for call in result.calls)

for dialect in DIALECTS.values():  # load all modules before the hook
    for text in texts(dialect, "x"):
        told(dialect, "x", text)
cases = [(dialect, payload, text) for at, dialect in enumerate(DIALECTS.values())
         for payload in PAYLOADS[at % share :: share] for text in texts(dialect, payload)]
sys.addaudithook(watch)
try:
    eval("1")
except RuntimeError:
    pass
else:
    raise AssertionError("the hook sees nothing")
print(sum(told(*case) for case in cases))
"""


@pytest.mark.parametrize("share", [10, pytest.param(1, marks=pytest.mark.deep)])
def test_hostile_payloads_are_text(share: int) -> None:
    """In each dialect and each part of a call, the text is read, and has no effect."""
    command = [sys.executable, "-W", "error", "-c", PROBE, json.dumps(PAYLOADS), str(share)]
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    probe = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=unmeasured)

    assert "" == probe.stderr
    assert int(probe.stdout) > 50 * len(PAYLOADS) // share
