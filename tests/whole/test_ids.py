"""The ids of tests are the same in each process. Otherwise processes could not share the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.readme import ROOT


@pytest.mark.deep
def test_ids_are_stable() -> None:
    """They do not depend on the order of sets or on addresses of objects, and are unique."""
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
