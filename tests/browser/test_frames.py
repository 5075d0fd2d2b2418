"""The benchmark of the page's frames: both pages show the whole answer."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.browser


def test_both_pages_show_the_answer() -> None:
    """The benchmark runs in a separate process, without measurements."""
    command = [sys.executable, "-m", "benchmarks.frames", "--smoke"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "both pages show the answer of 2,000 characters\n" == told.stdout
