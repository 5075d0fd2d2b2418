"""The types of `@streamtools/client` are those of the events, and its version is the package's."""

from __future__ import annotations

import json
from importlib.metadata import version

from tests.support.readme import ROOT
from tests.whole.event_types import PAGE, make_types


def test_they_are_current() -> None:
    """`python -m tests.whole.event_types` writes them."""
    assert make_types() == PAGE.read_text(encoding="utf-8")


def test_the_version() -> None:
    """The native format of one version is read by the client of the same."""
    package = json.loads((ROOT / "clients" / "typescript" / "package.json").read_text(encoding="utf-8"))
    assert version("streamtools") == package["version"]
