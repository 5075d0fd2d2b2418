"""Tests of two hundred documents without a call: all text is shown unchanged, at any cuts.

The documents are in `tests/parsing/markdown/`: real answers of a small model (`answer-…`), single kinds of text that
resemble a call (`case-…`), and long documents of such texts (`text-…`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamtools import Code, Parser, coalesce, parse
from streamtools.events import Text, Warning
from streamtools.testing.laws import cut
from tests.support.cases import cases

DOCUMENTS = sorted(Path(__file__).with_name("markdown").glob("*.md"))
SHORT = 500
"""Characters of one that counts as short."""

KINDS = ("answer", "case", "text")


def read(path: Path) -> str:
    """Return a document unchanged, including its line ends."""
    return path.read_bytes().decode()


def ways(path: Path, text: str, share: int) -> Iterator[list[str]]:
    """Yield the document whole, character by character, and cut in two. A short document is cut at each position."""
    yield [text]
    yield list(text)
    places = range(1, len(text))
    chosen = places if len(text) <= SHORT else sorted(random.Random(path.name).sample(places, 20))
    for place in chosen[len(text) % share :: share]:
        yield cut(text, [place])


@pytest.mark.parametrize("share", [8, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_document_passes_unchanged(kind: str, share: int) -> None:
    """All events are text, and near misses are reported at the same positions."""
    with cases() as case:
        for path in DOCUMENTS:
            if path.stem.partition("-")[0] == kind:
                with case(path.stem):
                    text = read(path)
                    expected = coalesce(parse(text).events)
                    assert {Code.NEAR_MISS} >= {event.code for event in expected if isinstance(event, Warning)}
                    for deltas in ways(path, text, share):
                        parser = Parser()
                        events = [event for delta in deltas for event in parser.feed(delta)] + parser.close()
                        assert {Text, Warning} >= {type(event) for event in events}
                        assert text == "".join(event.text for event in events if isinstance(event, Text))
                        assert expected == coalesce(events)


def test_the_documents_cover_markdown() -> None:
    """All heading levels, lists, tables, quotes, text that resembles calls, and fences with both markers."""
    everything = "\n".join(map(read, DOCUMENTS))

    for level in range(1, 7):
        assert f"\n{'#' * level} " in everything
    for what in ("\n- ", "\n1. ", "\n|", "\n> ", "\n```", "\n~~~", "###: ", "\r\n", "`###:", "###:{x}", "~~~tool_call"):
        assert what in everything
    unfenced = everything.replace("```", "").replace("~~~", "").replace("`", "").replace("\n>", "\n")
    assert len(parse(unfenced, dialects=["hash_marker"]).calls) >= 30
