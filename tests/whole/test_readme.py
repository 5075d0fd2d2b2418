"""The README and the guides in docs: their code runs and prints the output that they show.

The code of one section runs in one namespace, on both event loops. The names that the pages use exist: a `client`,
`url` (a local server that responds with a recording), `body`, `tools`, a `websocket`, and the file `weather.jsonl`.
Ids, times and durations are treated as equal.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import logging
import re
import shutil
import sys
import time
from collections.abc import Iterator
from inspect import CO_COROUTINE
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import structlog
from structlog.testing import ReturnLoggerFactory

from streamtools import Code, ToolStream, chat, parse
from streamtools.outputs import asgi
from streamtools.recording import read_recording, shipped
from streamtools.runs import Runs
from tests.support.cases import together
from tests.support.loopback import Loopback
from tests.support.loops import OTHER_LOOP_DEEP
from tests.support.readme import PAGES, ROOT, TABLES, Block, read_blocks, read_tables, stream_parameters

TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
BLOCKS = read_blocks(TEXT)
SECTIONS = {
    section: list(blocks)
    for section, blocks in itertools.groupby(
        (block for block in BLOCKS if block.language == "python" and not {"sdk", "app", "program"} & set(block.notes)),
        lambda block: block.section,
    )
}
SET_UP = [block.text.strip() for block in BLOCKS if block.language == "sh"]
ADDRESS = "http://127.0.0.1:8080/v1/chat/completions"
ANSWER = [chunk.data for chunk in read_recording(shipped()["tilde-call"]).chunks]


class WebSocket:
    """A websocket like that of a web framework."""

    async def send_text(self, text: str) -> None:
        """Take one message, if it is one."""
        assert "type" in json.loads(text)


def normal(text: str) -> str:
    """Return text without the parts that differ between runs."""
    text = re.sub(r"\b(call|run)_(?:…|[\w-]{12,16})(?![\w-])", r"\1_…", text)
    text = re.sub(r"\bemulated_\d+_", "emulated_…_", text)
    text = re.sub(r"\b\d+(\.\d+)? (ms|s)\b", "… s", text)
    text = re.sub(r"\belapsed(\W+)\d[\d.e-]*", r"elapsed\1…", text)
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the README's code uses, in a temporary directory and without logs."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(shipped()["tilde-call"], "weather.jsonl")
    found: dict[str, Any] = {"__name__": "readme", "body": {}, "websocket": WebSocket()}
    exec("async def get_weather(city: str) -> dict[str, str]:\n return {'message': f'18 °C in {city}'}", found)
    found["tools"] = [found["get_weather"]]
    structlog.configure(logger_factory=ReturnLoggerFactory())
    yield found
    structlog.reset_defaults()
    logging.getLogger("streamtools.conversation").setLevel(logging.NOTSET)


@OTHER_LOOP_DEEP
@pytest.mark.parametrize("section", SECTIONS)
async def test_code_prints_the_output_of_the_pages(
    section: str, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each block runs, over HTTP if it calls a provider, and prints the text block after it."""
    for block in SECTIONS[section]:
        async with Loopback(ANSWER) as server, httpx.AsyncClient(trust_env=False) as names["client"]:
            names["url"] = server.url
            if re.search(r"^(anyio|asyncio)\.run\(", block.text, re.MULTILINE):
                printed = await run_program(block.text.replace(ADDRESS, server.url))
                assert server.requests or ADDRESS not in block.text
            else:
                await run_code(block, names)
                printed = capsys.readouterr().out
        assert normal(block.output or "") == normal(printed), f"{section}: {block.line}"


async def run_program(code: str) -> str:
    """Run a program in a separate process and return its output."""
    done = await anyio.run_process([sys.executable, "-W", "error", "-c", code], check=False)
    assert b"" == done.stderr
    return done.stdout.decode()


async def run_code(block: Block, names: dict[str, Any]) -> None:
    """Run code that may await outside of functions, and the tests that it defines."""
    source = "\n" * block.line + block.text
    code = compile(source, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    result = eval(code, names)
    if code.co_flags & CO_COROUTINE:
        await result
    for name in [name for name in names if name.startswith("test_")]:
        await names.pop(name)()


def test_every_block_is_tested() -> None:
    """Each language of a block has a test, and the other blocks are plain text."""
    assert {"python", "sh", "js", "text", "mermaid", ""} >= {block.language for block in BLOCKS}
    assert [] == [block.line for block in BLOCKS if block.language == "text" and "shows" not in block.notes]
    run = [block for block in BLOCKS if block.language == "python" and not {"sdk", "app", "program"} & set(block.notes)]
    assert len(SECTIONS) == len({block.section for block in run})


def test_ci_runs_the_set_up_commands() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    demo, tests = SET_UP

    assert demo in script
    assert tests.endswith(" && .venv/bin/pytest")
    assert tests.removesuffix(" && .venv/bin/pytest") in script
    assert ".venv/bin/coverage run -m pytest\n" in script  # the same tests, with their coverage


@together("name", TABLES)
def test_tables_match_the_docstrings(name: str) -> None:
    assert TABLES[name]() == read_tables(TEXT)[name]


def test_every_parameter_of_a_stream_is_listed() -> None:
    """The list has each parameter of `ToolStream` with its default."""
    rows = re.findall(r"- `(\w+)` \(`(.+?)`\): ", read_tables(TEXT)["stream"])

    assert stream_parameters() == dict(rows)


def test_every_parameter_of_a_chat_is_listed() -> None:
    """The list has each parameter of `chat` that `ToolStream` does not have."""
    rows = re.findall(r"- `(\w+)` \(`(.+?)`\): ", read_tables(TEXT)["chat"])
    known = inspect.signature(ToolStream).parameters
    own = [each for name, each in inspect.signature(chat).parameters.items() if name not in {*known, "options"}]

    assert {each.name: repr(each.default).replace("'", '"') for each in own[2:]} == dict(rows)


FUNCTIONS: dict[str, dict[str, Any]] = {
    "runs": {"": Runs},
    "responses": {
        "response": asgi.event_stream_response,
        "send": asgi.send_events,
        "serve": asgi.serve_websocket,
        "read": asgi.read_body,
    },
}


@pytest.mark.parametrize("table", FUNCTIONS)
def test_parameters_and_defaults_are_listed(table: str) -> None:
    """A list has each parameter with its default, and the functions that have it."""
    _, _, rest = TEXT.partition(f"<!-- parameters: {table} -->")
    rows = re.findall(r"- `(\w+)` \(`(.+?)`(?:, (.+?))?\): ", rest.partition("\n\n")[0])
    for of, function in FUNCTIONS[table].items():
        parameters = inspect.signature(function).parameters.values()
        known = {each.name: each.default for each in parameters if each.default is not each.empty}
        listed = [(name, text) for name, text, functions in rows if not of or of in functions.split(", ")]
        assert known == {name: eval(text, {"time": time}) for name, text in listed}


def test_every_code_is_used() -> None:
    package = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "streamtools").rglob("*.py"))

    assert [] == [code.value for code in Code if not re.search(rf"\bCode\.{code.name}\b", package)]


def test_links_have_a_target() -> None:
    """Holds for headings and files, in the README and in docs."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    headings = {page: {_anchor(line) for line in _headings(page)} for page in pages}
    for page in pages:
        for link in re.findall(r"\]\((?!https://)([^)\s]+)\)", page.read_text(encoding="utf-8")):
            file, _, heading = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            assert target.exists(), link
            assert not heading or heading in headings[target], link


def _headings(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    fenced = {line for block in read_blocks(text) for line in block.text.splitlines()}
    lines = text.splitlines()
    return [line for line in lines if re.match(r"#{1,4} ", line) and line not in fenced]


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lstrip("# ").lower()).replace(" ", "-")


def test_the_readme_contains_no_call() -> None:
    """A model that repeats it calls nothing, because each call in it is quoted as code."""
    assert [] == parse(TEXT).calls
