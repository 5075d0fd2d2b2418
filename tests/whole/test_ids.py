"""The ids of tests are the same in every process, or those who share the work could not name them to one another."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.readme import ROOT


@pytest.mark.deep
def test_ids_are_stable() -> None:
    """In whatever order sets stand, and wherever objects lie; and each test has one of its own."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", ""]
    first, second = (
        re.findall(r"^\S+::.*$", each.stdout, re.MULTILINE)
        for each in (
            subprocess.run(
                command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
            )
            for seed in ("1", "2")
        )
    )
    assert len(first) > 1000
    assert first == second
    assert len(first) == len(set(first))
    assert [] == [each for each in first if re.search(r"object at 0x", each)]
