"""The Markdown corpus is what it is said to be; that no call is found in it is tested with the parser."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

from tests.support.cases import together

TESTS = Path(__file__).parent
CORPUS = {path.name: path.read_bytes().decode() for path in sorted((TESTS / "markdown").glob("*.md"))}


def test_there_are_enough_documents() -> None:
    """There are 200 documents, at least 50 of them real answers of a model, and 50 of more than 2,000 characters."""
    assert len(CORPUS) >= 200
    assert sum(name.startswith("answer-") for name in CORPUS) >= 50
    assert sum(len(text) > 2000 for text in CORPUS.values()) >= 50


def test_generated_documents_are_up_to_date() -> None:
    """What a script has written is what the script writes."""
    made = runpy.run_path(str(TESTS / "make_markdown.py"))["documents"]()

    assert made == {name: text.encode() for name, text in CORPUS.items() if not name.startswith("answer-")}


def test_every_question_has_its_answer() -> None:
    """Each question to the model has one answer in the corpus."""
    asked = tomllib.loads((TESTS / "answers.toml").read_text(encoding="utf-8"))
    names = {f"answer-{group['name']}-{n}.md" for group in asked["group"] for n, _ in enumerate(group["questions"], 1)}
    names |= {
        f"answer-{group['name']}-{n:02}.md" for group in asked["prose"] for n, _ in enumerate(group["prompts"], 1)
    }

    assert names == {name for name in CORPUS if name.startswith("answer-")}


@together(
    "piece",
    [
        *("\n" + "#" * level + " " for level in range(1, 7)),
        "\n###\n",
        "\n### ",
        " ###\n",
        "###:note",
        '### : {"name"',
        "###:{x}",
        "###:{}",
        'f"### result###:{x}"',
        "####ID########:{}",
        "```\n~~~tool_call\n{",
        '```json\n###:{"',
        "````",
        "~~~~\n~~~tool_call",
        "~~~tool_caller",
        "~~~ tool_call",
        "> ~~~tool_call\n> {",
        '> ###:{"',
        '`###:{"name": "x"',
        '``###:{"name": "x"',
        '```###:{"name": "x"',
        "\\`",
        "- [ ] ",
        "|---|",
        "\r\n### ",
        "[^1]",
        "$$",
        "<br>",
        "\u200d",
        "\u2028",
        "ש",
        "\ufeff",
        "東京",
    ],
)
def test_what_the_corpus_holds(piece: str) -> None:
    """Everything that comes near to a call, or has misled other parsers, is in some document."""
    assert any(piece in text for text in CORPUS.values())


def test_complete_calls_are_quoted() -> None:
    """Many documents hold complete calls of both kinds: in code and in quotes."""
    assert sum("~~~tool_call\n{" in text.replace("> ", "") for text in CORPUS.values()) >= 50
    assert sum('###:{"' in text for text in CORPUS.values()) >= 50
