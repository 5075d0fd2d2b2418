"""The types of `@streamtools/client` match the events, and its version is that of the package."""

from __future__ import annotations

import json
from importlib.metadata import version

from tests.support.readme import ROOT
from tests.whole.event_types import PAGE, make_types


def test_the_types_are_current() -> None:
    """`python -m tests.whole.event_types` writes them."""
    assert make_types() == PAGE.read_text(encoding="utf-8")


def test_the_version_is_that_of_the_package() -> None:
    """The native format of a version is read by the client of that version."""
    package = json.loads((ROOT / "clients" / "typescript" / "package.json").read_text(encoding="utf-8"))
    assert version("streamtools") == package["version"]
