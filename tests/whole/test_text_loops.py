"""The samples of the pages and examples: a loop that joins texts separates the texts of two steps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.readme import ROOT, read_blocks

_TEXT_EVENT = re.compile(r"""(?<!part\.)type === "text"|case "text"|Listener\("text"|\[[^\]\n]*"text"[^\]\n]*\]""")
_STEP_START = re.compile(r"""["']step-start["']|\bStepStart\b|case Executed\(""")  # a line for a call separates, too


def ignores_steps(sample: str, language: str) -> bool:
    """Return whether a program or a page joins the texts of two steps without a separator."""
    joins = _joins_texts(ast.parse(sample)) if language == "python" else bool(_TEXT_EVENT.search(sample))
    return joins and not _STEP_START.search(sample)


def _joins_texts(program: ast.AST) -> bool:
    """Return whether a loop reads `event.text`, or the field of `case Text(text)`. `print` without `end` separates."""
    events: set[str] = set()
    texts: set[str] = set()
    separated: set[ast.AST] = set()
    for node in ast.walk(program):
        match node:
            case ast.For(ast.Name(name)) | ast.AsyncFor(ast.Name(name)) | ast.comprehension(ast.Name(name), is_async=1):
                events.add(name)
            case ast.MatchClass(ast.Name("Text"), [ast.MatchAs(name=str() as name)]):
                texts.add(name)
            case ast.Call(ast.Name("print"), keywords=[]):
                separated.update(ast.walk(node))
    for node in ast.walk(program):
        match node:
            case ast.Attribute(ast.Name(name), "text") if name in events and node not in separated:
                return True
            case ast.Name(name, ast.Load()) if name in texts and node not in separated:
                return True
    return False


def samples() -> Iterator[tuple[str, str, str]]:
    """Yield the place, the text and the language of each sample."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "clients" / "typescript" / "README.md"):
        for block in read_blocks(page.read_text("utf-8")):
            if block.language in ("python", "js", "jsx", "ts", "tsx", "html"):
                yield f"{page.name}:{block.line}", block.text, block.language
    for file in (ROOT / "examples").rglob("*.*"):
        text = file.read_text("utf-8")
        if file.suffix == ".py":
            yield file.name, text, "python"
        if file.suffix in (".html", ".js", ".jsx") or "<script" in text:
            yield file.name, text, "js"


def test_each_sample_separates_the_texts_of_two_steps() -> None:
    """`Let me look.I have looked.` is what a reader sees otherwise."""
    found = list(samples())
    assert len([place for place, text, _ in found if _STEP_START.search(text)]) > 8
    assert [] == [place for place, text, language in found if ignores_steps(text, language)]


def test_the_first_list_of_events_begins_with_the_start_of_a_step() -> None:
    page = (ROOT / "docs" / "front-end.md").read_text("utf-8")
    assert page.partition("## What the browser receives")[2].partition("\n- ")[2].startswith("`step-start`: ")


PYTHON = "async for event in events:\n    "
JOINING = [
    (f"{PYTHON}if event.type == 'text': print(event.text, end='')", "python"),
    (f"{PYTHON}if isinstance(event, Text): answer += event.text", "python"),
    (f"{PYTHON}match event:\n        case Text(text): print(text, end='')", "python"),
    (f"{PYTHON}match event.type:\n        case 'text': yield event.text", "python"),
    ("text = ''.join([event.text async for event in events if event.type == 'text'])", "python"),
    ('for await (const event of answer) if (event.type === "text") said += event.text;', "ts"),
    ('source.addEventListener("text", ({ data }) => show(JSON.parse(data)));', "js"),
    ('for (const type of ["text", "done"]) source.addEventListener(type, show);', "html"),
    ('switch (event.type) { case "text": said += event.text; }', "js"),
]


@pytest.mark.parametrize(("sample", "language"), JOINING)
def test_a_loop_that_ignores_steps_is_found(sample: str, language: str) -> None:
    """With `step-start` in it, it is not."""
    comment = "#" if language == "python" else "//"
    assert ignores_steps(sample, language)
    assert not ignores_steps(f'{comment} "step-start"\n{sample}', language)


@pytest.mark.parametrize("shown", ["event", "event.text", "repr(event.text)", "event.to_json()"])
def test_a_loop_that_prints_lines_is_not_found(shown: str) -> None:
    assert not ignores_steps(f"{PYTHON}if event.type == 'text':\n        print({shown})", "python")
