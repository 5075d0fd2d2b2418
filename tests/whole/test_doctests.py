"""The examples in the docstrings of the package print the stated output."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "streamtools"
WITH_EXAMPLES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text("utf-8"))


def test_examples_in_docstrings() -> None:
    """Only modules with an example are imported, because the search in all of them takes three seconds."""
    failed, tried = {}, 0
    for path in WITH_EXAMPLES:
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        outcome = doctest.testmod(import_module(name))  # which prints what failed
        tried += outcome.attempted
        if outcome.failed:
            failed[name] = outcome.failed

    assert {} == failed
    assert tried > len(WITH_EXAMPLES) > 20
