"""The page docs/rules.md: its code runs, from the top to the bottom, and prints what it says."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import rules
from tests.support.loops import OTHER_LOOP_DEEP
from tests.support.readme import ROOT, read_blocks
from tests.whole.test_readme import names, normal, run_code, run_program

__all__ = ["names"]  # a fixture

PAGE = ROOT / "docs" / "rules.md"
BLOCKS = read_blocks(PAGE.read_text())


@pytest.mark.anyio
@OTHER_LOOP_DEEP
async def test_code_prints_what_the_page_says(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """One section uses what another has defined, as a reader would; what starts an event loop is a program."""
    for block in BLOCKS:
        if "anyio.run(" in block.text:
            said = await run_program(f"from streamtools import rules\n{block.text}")
        else:
            await run_code(block, names)
            said = capsys.readouterr().out
        assert normal(block.output or "") == normal(said), f"{PAGE.name}:{block.line}"


def test_each_rule_is_on_the_page() -> None:
    """And so is what becomes of a match."""
    text = PAGE.read_text()

    assert [] == [name for name in rules.__all__ if name not in ("Action", "shown") and f"rules.{name}(" not in text]
