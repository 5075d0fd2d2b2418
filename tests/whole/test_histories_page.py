"""The page docs/histories.md: its code prints what it says, and its table names every format."""

from __future__ import annotations

import contextlib
import io
from typing import Any, get_args

from streamtools.history import Format, SendReasoning
from tests.support.readme import ROOT, read_blocks

PAGE = (ROOT / "docs" / "histories.md").read_text(encoding="utf-8")


def test_its_code_prints_what_it_says() -> None:
    """Its blocks are one program."""
    namespace: dict[str, Any] = {}
    blocks = [block for block in read_blocks(PAGE) if block.language == "python"]
    assert 3 == len(blocks)
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as told:
            exec(compile(block.text, "histories.md", "exec"), namespace)
        assert block.output == told.getvalue()


def test_its_words_are_those_of_the_code() -> None:
    """Each format has a row, and each choice is named."""
    rows = [line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| ")]
    assert len(get_args(Format)) + 2 + 2 == len(rows)  # two front ends; the head and its rule
    for word in get_args(SendReasoning):
        assert f'`"{word}"`' in PAGE
