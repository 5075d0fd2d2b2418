"""Two hundred documents in which nothing is a call: all of them come out as they went in, however they are cut.

The documents stand in `tests/parsing/markdown/`: real answers of a small model (`answer-…`), one for each thing that
comes near to a call (`case-…`), and long ones put together of such things (`text-…`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamtools import Code, Parser, coalesce, parse
from streamtools.events import Text, Warning
from streamtools.testing.laws import cut

DOCUMENTS = sorted(Path(__file__).with_name("markdown").glob("*.md"))
LONG = 2000
"""Characters of a document that counts as long."""

ALL_CUTS = pytest.mark.parametrize("all_cuts", [150, pytest.param(500, marks=pytest.mark.deep)])
"""Up to so many characters a document is cut in two at every place; beyond, at twenty chosen ones."""


def read(path: Path) -> str:
    """Return a document to the character, line ends included."""
    return path.read_bytes().decode()


def ways(path: Path, text: str, all_cuts: int) -> Iterator[list[str]]:
    """Yield the document whole, one by one, and cut in two."""
    yield [text]
    yield list(text)
    places = range(1, len(text))
    chosen = places if len(text) <= all_cuts else sorted(random.Random(path.name).sample(places, 20))
    for place in chosen:
        yield cut(text, [place])


@ALL_CUTS
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_a_document_passes_unchanged(path: Path, all_cuts: int) -> None:
    """Nothing but text comes out, and it is the document; what comes near to a call is reported at the same places."""
    text = read(path)
    expected = coalesce(parse(text).events)
    assert {Code.NEAR_MISS} >= {event.code for event in expected if isinstance(event, Warning)}
    for deltas in ways(path, text, all_cuts):
        parser = Parser()
        events = [event for delta in deltas for event in parser.feed(delta)] + parser.close()
        assert {Text, Warning} >= {type(event) for event in events}
        assert text == "".join(event.text for event in events if isinstance(event, Text))
        assert expected == coalesce(events)


def test_there_are_two_hundred_documents() -> None:
    """At least fifty of them are answers of a real model or long."""
    real = [path for path in DOCUMENTS if path.stem.startswith("answer-") or len(read(path)) > LONG]

    assert len(DOCUMENTS) >= 200
    assert len(real) >= 50


def test_the_documents_hold_what_makes_them_worth_reading() -> None:
    """All heading levels, lists, tables, quotes, look-alikes, and fences that hold both markers."""
    everything = "\n".join(map(read, DOCUMENTS))

    for level in range(1, 7):
        assert f"\n{'#' * level} " in everything
    for what in ("\n- ", "\n1. ", "\n|", "\n> ", "\n```", "\n~~~", "###: ", "\r\n", "`###:", "###:{x}", "~~~tool_call"):
        assert what in everything
    unfenced = everything.replace("```", "").replace("~~~", "").replace("`", "").replace("\n>", "\n")
    assert len(parse(unfenced, dialects=["hash_marker"]).calls) >= 30
