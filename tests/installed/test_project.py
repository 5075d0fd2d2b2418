"""A user's project with the installed wheel works as `docs/testing.md` describes.

This is slow, because it installs packages. It runs with the tests of the SDKs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.readme import ROOT
from tests.support.testing_page import COMMANDS, SET_UP, provider, write_project

pytestmark = pytest.mark.sdk

PASSED = 11
"""Tests of the project."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the built wheel, and the packages that the page names."""
    folder = tmp_path_factory.mktemp("installed")
    _call([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)], folder)
    (wheel,) = folder.glob("streamtools-*.whl")
    _call([sys.executable, "-m", "venv", str(folder / "env")], folder)
    requirement, *others = SET_UP[0].partition(" -e ")[2].replace('"', "").split()
    pip = [str(folder / "env" / "bin" / "python"), "-m", "pip", "install", "-q"]
    _call([*pip, requirement.replace(".", str(wheel), 1), *others, "pytest-xdist"], folder)
    return folder / "env"


def _call(command: Sequence[str], folder: Path, *, expect: int = 0) -> str:
    """Return what a command prints; fail if it ends otherwise than expected."""
    hidden = re.compile("PYTHON|COV_|COVERAGE_|PYTEST_|VIRTUAL_ENV")
    clean = {name: value for name, value in os.environ.items() if not hidden.match(name)}
    done = subprocess.run(
        command, cwd=folder, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert expect == done.returncode, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_project_passes_its_tests(environment: Path, tmp_path: Path) -> None:
    """Recorded once, then replayed without the provider: with warnings as errors, and in several processes."""
    assert not tmp_path.is_relative_to(ROOT)

    def run(command: str, *more: str, expect: int = 0) -> str:
        return _call([str(environment / "bin" / "python"), "-m", *command.split(), *more], tmp_path, expect=expect)

    (once,) = COMMANDS
    plain, _, _ = once.partition(" --")
    with provider() as server:
        write_project(tmp_path, server.url)
        assert "--record-streams=once" in run(plain, expect=1)
        run(once)
    assert 1 == len(server.requests)

    assert f"{PASSED} passed" in run(plain, "--strict-config", "--strict-markers", "-W", "error")
    assert f"{PASSED} passed" in run(plain, "-n", "2")


def test_the_plugin_is_told_and_can_be_left_out(environment: Path, tmp_path: Path) -> None:
    """It comes with the wheel, and what it adds goes with it."""
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n", encoding="utf-8")
    python = str(environment / "bin" / "python")

    assert "streamtools-" in _call([python, "-m", "pytest"], tmp_path)
    assert "record-streams" not in _call([python, "-m", "pytest", "-p", "no:streamtools", "--help"], tmp_path)
