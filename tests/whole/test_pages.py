"""Pages of the documentation: their programs print what the pages say, and their tables match the code."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import httpx
import pytest
from anyio import run, to_thread
from opentelemetry.metrics import NoOpMeter
from opentelemetry.trace import NoOpTracer

from streamtools import ApprovalOptions, RunnerOptions, TextOptions, chat, parse, rules, tool
from streamtools.conversation import OpenAIChat
from streamtools.conversation.failover import OnBreak
from streamtools.conversation.failover_rules import MIN_REPETITION, REPETITION_WINDOW
from streamtools.conversation.models.prefill_fields import PREFILLS
from streamtools.events import UIEvent
from streamtools.history import Format, SendReasoning
from streamtools.parsing import DIALECTS
from streamtools.recording import RecordingTransport
from streamtools.telemetry.spans_and_metrics import Instrumentation
from streamtools.tools import MemoryLedger
from tests.support.loops import OTHER_LOOP_DEEP
from tests.support.provider import Provider
from tests.support.readme import ROOT, Block, read_blocks
from tests.support.talks import calls, says
from tests.whole import dialects_page
from tests.whole.test_readme import names, normal, run_code, run_program

__all__ = ["names"]  # a fixture
pytest_plugins = ["pytester"]


def read(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def programs(page: str) -> Iterator[Block]:
    blocks = read_blocks(read(page))
    return (each for each in blocks if each.language == "python" and not {"app", "file"} & {*each.notes})


@OTHER_LOOP_DEEP
@pytest.mark.parametrize("page", ["rules", "permissions", "observability"])
async def test_asynchronous_code_prints_the_output_of_the_page(
    page: str, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Sections share one namespace. Code that starts an event loop runs in its own process."""
    for block in programs(page):
        if page == "observability" or "anyio.run(" in block.text:
            output = await run_program(f"from streamtools import rules\n{block.text}")
        else:
            await run_code(block, names)
            output = capsys.readouterr().out
        assert normal(block.output or "") == normal(output), f"{page}.md:{block.line}"
    if "ledger" in names:
        names["ledger"].close()


@pytest.mark.parametrize(
    ("page", "count", "is_one_program"),
    [("failover", 1, True), ("histories", 1, True), ("typed-values", 2, True), ("vault", 2, True)],
)
def test_programs_print_the_output_of_the_page(
    page: str, count: int, is_one_program: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = SimpleNamespace(ents=[SimpleNamespace(text="Ann Lee", label_="PERSON")])
    monkeypatch.setitem(sys.modules, "spacy", SimpleNamespace(load=lambda model: lambda text: names))
    namespace: dict[str, Any] = {}
    blocks = list(programs(page))
    assert count == len(blocks)
    for block in blocks:
        namespace = {**(namespace if is_one_program else {}), "__name__": page.replace("-", "_")}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.text, f"{page}.md", "exec", dont_inherit=True), namespace)
        lines = printed.getvalue().splitlines(keepends=True)
        assert (block.output or "") == "".join(line for line in lines if not line.startswith("20"))  # without log lines
        [run(each) for name, each in namespace.items() if name.startswith("test_")]


CONFTEST = """
import runpy, httpx, pytest
app = runpy.run_path("{}/examples/scripted_provider.py")["app"]
recording_options = pytest.fixture(scope="session")(lambda: {{"inner": lambda: httpx.ASGITransport(app)}})
anyio_backend = pytest.fixture(lambda: "asyncio")
"""


def test_the_recorded_test_of_the_failover_page(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAY", "0")
    (test,) = [block.text for block in read_blocks(read("failover")) if "file" in block.notes]
    pytester.makepyfile(test)
    pytester.makeconftest(CONFTEST.format(ROOT))
    pytester.runpytest_subprocess("--record-streams=once").assert_outcomes(failed=1)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize("column", range(4))
async def test_the_vault_page_says_who_sees_what(column: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Judges, waiting runs and spans have tests of their own."""
    value, found, file = "ann@example.org", [rules.email()], tmp_path / "r.jsonl"
    page, sent = list[UIEvent](), list[str]()
    more: Any = {"rules": found, "rules_in_reasoning": True, "rules_in_arguments": True, "history": "as_shown"}
    vault = {"vault": rules.Vault(found)}
    text = TextOptions(**[{"rules": found}, more, vault, more | vault][column])

    @tool(requires_approval=True)
    async def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    async def fail() -> str:
        raise ValueError(value)

    word = "<EMAIL_1>" if column >= 2 else value
    answers = calls(("send", {"to": word}), ("fail", {}), text=f"<think>Ask {word}.</think>I ask {word}."), says(word)
    transport = RecordingTransport(httpx.AsyncHTTPTransport(), file, source="openai", record_body=True)
    async with Provider(*answers) as server, httpx.AsyncClient(transport=transport) as client, MemoryLedger() as ledger:
        model = OpenAIChat("m", base_url=server.url, client=client, native_tool_calls=True)
        asked = [{"role": "user", "content": f"Write to {value}."}]
        more = {"runner": RunnerOptions(ledger=ledger), "approvals": ApprovalOptions(ask="now")}
        async with chat(model, asked, tools=[send, fail], text=text, **more) as events:
            async for event in events:
                page.append(event)
                if event.type == "approval-requested":
                    events.approve(event.call.id)
        kept = await ledger.entries()
    asked, stored = server.bodies[1]["messages"], events.messages("openai")
    answer = [{key: each[key] for key in ("content", "tool_calls")} for each in (asked[1], stored[1])]
    seen: list[list[object]] = [
        [[each for each in page if each.type == "text"], events.result.text],
        [[each for each in page if each.type == kind] for kind in ("call", "reasoning", "approval-requested")],
        [kept, sent, [each.result for each in page if each.type == "executed"], stored[0], stored[2]],
        [asked[0], asked[2]],
        [answer[0]],
        [answer[1]],
        [caplog.text, file.read_text("utf-8")],
        [],
    ]
    rows = [row.split(" | ") for row in read("vault").partition("| --- |\n")[2].partition("\n\n")[0].splitlines()]
    words = {value: "value", "<EMAIL_1>": "`<EMAIL_1>`", "[email]": "`[email]`"}
    for row, things in zip(rows, seen, strict=True):
        for thing in things:
            assert row[column + 1].strip(" |") == next(words[word] for word in words if word in str(thing)), row


def test_the_rules_page_lists_each_rule() -> None:
    hidden = ("Action", "Finder", "Vault", "shown")
    assert [] == [name for name in rules.__all__ if name not in hidden and f"rules.{name}(" not in read("rules")]


def test_the_failover_page_lists_policies_servers_and_bounds() -> None:
    page = read("failover")
    for word in (*get_args(OnBreak), *PREFILLS):
        assert f'`"{word}"`' in page
    assert f"{MIN_REPETITION} characters" in page
    assert f"{REPETITION_WINDOW:,} characters" in page


def test_the_histories_page_lists_formats_and_choices() -> None:
    page = read("histories")
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    assert len(get_args(Format)) + 2 + 2 == len(rows)  # two front ends; the head and its rule
    for word in get_args(SendReasoning):
        assert f'`"{word}"`' in page


@OTHER_LOOP_DEEP
async def test_the_recipes_print_the_output_of_the_page(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each recipe links to pages with more. It is a program, or the part of one, after the first lines of the page."""
    for block in read_blocks(read("recipes")):
        if block.language != "python" or "file" in block.notes:  # tests.whole.test_server_programs runs the test
            continue
        if "asyncio.run(" in block.text:
            await to_thread.run_sync(exec, block.text, {**names})
        else:
            await run_code(block, names)
        assert normal(block.output or "") == normal(capsys.readouterr().out), f"recipes.md:{block.line}"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"]), base_url="http://app") as client:
        for _ in range(2):
            await client.post("/conversations/c1", json={"text": "Hi"})
    assert ["user", "assistant"] * 2 == [each["role"] for each in names["database"]["c1"]["messages"]]
    assert 10 == read("recipes").count("\n## ") - 1 == len(re.findall(r"(?:\n| )More:\s", read("recipes")))


def test_the_messages_of_the_troubleshooting_page_exist() -> None:
    package = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "streamtools").rglob("*.py"))
    for message in (
        *("a stream can be entered only once", "enter the stream before you read it", "Invalid request body."),
        *("the script has no answer for request", "the provider could not be reached", "check the URL"),
    ):
        assert message in read("troubleshooting")
        assert message in package


class Naming(NoOpMeter):
    """A meter that records the names of its instruments."""

    def __init__(self) -> None:
        super().__init__("naming")
        self.names: set[str] = set()

    def _record(self, name: str, *rest: object, **more: object) -> SimpleNamespace:
        self.names.add(name)
        return SimpleNamespace(add=None, record=None)

    create_histogram = create_counter = create_up_down_counter = create_observable_gauge = _record  # type: ignore[assignment]


def test_the_observability_page_lists_each_metric() -> None:
    meter = Naming()
    Instrumentation(NoOpTracer(), meter, None, False)
    assert meter.names == set(re.findall(r"^- `([\w.]+\.[\w.]+)`: ", read("observability"), re.MULTILINE))


def test_the_pages_of_dialects_and_models_are_current() -> None:
    """`python -m tests.whole.dialects_page` writes them. A model that repeats them calls no tool."""
    assert dialects_page.write_page() == read("dialects")
    assert dialects_page.write_models() == read("models")
    for page in ("dialects", "models"):
        assert [] == parse(read(page), dialects="auto").calls
    for dialect in DIALECTS.values():
        assert dialects_page.EXAMPLE == dialects_page.read_example(dialect)


_CLIENT_OF_A_SERVER = re.compile(r"OpenAIChat\((?=[^()]*(?:\([^()]*\)[^()]*)*base_url)(?:[^()]|\([^()]*\))*\)")


def test_each_example_says_how_its_model_calls() -> None:
    """Without `native_tool_calls`, markup that a local model quotes from a page may run."""
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.py")]
    made = [(file.name, found[0]) for file in files for found in _CLIENT_OF_A_SERVER.finditer(file.read_text("utf-8"))]
    assert len(made) > 20
    assert [] == [each for each in made if "native_tool_calls" not in each[1]]
