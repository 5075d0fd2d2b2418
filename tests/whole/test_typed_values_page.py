"""The page docs/typed-values.md: its program prints what it says."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from tests.support.readme import ROOT, read_blocks

PAGE = (ROOT / "docs" / "typed-values.md").read_text(encoding="utf-8")


def test_its_program_prints_what_it_says() -> None:
    """The program runs as it stands."""
    (block,) = [block for block in read_blocks(PAGE) if block.language == "python"]
    namespace: dict[str, Any] = {"__name__": "typed_values"}
    with contextlib.redirect_stdout(io.StringIO()) as told:
        exec(compile(block.text, "typed-values.md", "exec", dont_inherit=True), namespace)
    assert block.output == told.getvalue()
