"""The page docs/permissions.md: its code runs, from the top to the bottom of each section, and prints what it says."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from tests.support.readme import ROOT, Block, read_blocks
from tests.whole.test_readme import names, normal, run_code

__all__ = ["names"]  # a fixture

PAGE = ROOT / "docs" / "permissions.md"
BLOCKS = read_blocks(PAGE.read_text())


@pytest.mark.anyio
async def test_code_prints_what_the_page_says(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """One section uses what another has defined, as a reader would."""
    for block in BLOCKS:
        await run_code(block, names)
        assert normal(block.output or "") == normal(capsys.readouterr().out), f"{PAGE.name}:{block.line}"
    names["ledger"].close()


def test_each_section_has_code() -> None:
    """It can be tried as it is read."""
    sections: dict[str, list[Block]] = defaultdict(list)
    for block in BLOCKS:
        assert "python" == block.language
        sections[block.heading].append(block)
    assert 7 == len(sections)
