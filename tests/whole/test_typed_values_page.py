"""The page docs/typed-values.md: its programs print what it says."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from tests.support.readme import ROOT, read_blocks

PAGE = (ROOT / "docs" / "typed-values.md").read_text(encoding="utf-8")


def test_its_programs_print_what_it_says() -> None:
    """They run in order, in one namespace."""
    programs = [block for block in read_blocks(PAGE) if block.language == "python"]
    assert len(programs) == 3
    namespace: dict[str, Any] = {"__name__": "typed_values"}
    for block in programs:
        with contextlib.redirect_stdout(io.StringIO()) as told:
            exec(compile(block.text, "typed-values.md", "exec", dont_inherit=True), namespace)
        assert block.output == told.getvalue()
