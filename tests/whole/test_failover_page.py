"""The page docs/failover.md: its programs print what it says, and its tables name every policy and every server."""

from __future__ import annotations

import contextlib
import io
from typing import Any, get_args

from streamtools.conversation.continuation import SHORTEST, WINDOW
from streamtools.conversation.failover import OnBreak
from streamtools.conversation.models.prefill import PREFILLS
from tests.support.readme import ROOT, read_blocks

PAGE = (ROOT / "docs" / "failover.md").read_text(encoding="utf-8")


def test_its_programs_print_what_it_says() -> None:
    """Each runs as it stands."""
    programs = [block for block in read_blocks(PAGE) if block.language == "python"]
    assert len(programs) == 2
    for block in programs:
        namespace: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()) as told:
            exec(compile(block.text, "failover.md", "exec", dont_inherit=True), namespace)
        said = "".join(line + "\n" for line in told.getvalue().splitlines() if not line.startswith("20"))  # the log
        assert block.output == said


def test_its_words_are_those_of_the_code() -> None:
    """Each policy has a row, each server is named, and the bounds are those of the code."""
    for word in (*get_args(OnBreak), *PREFILLS):
        assert f'`"{word}"`' in PAGE
    assert f"{SHORTEST} characters" in PAGE
    assert f"{WINDOW:,} characters" in PAGE
