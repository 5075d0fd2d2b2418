"""The version, the workflow and the sdist of a release."""

from __future__ import annotations

import importlib.metadata
import tomllib

import streamtools
from tests.support.readme import ROOT


def test_the_version_is_that_of_the_package() -> None:
    """The build reads `__version__`."""
    assert importlib.metadata.version("streamtools") == streamtools.__version__


def test_the_workflow_runs_the_commands_of_the_readme() -> None:
    """The quick tests run on each Python. `.ci/run` runs all others."""
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = [line for line in readme.splitlines() if line.endswith("&& .venv/bin/pytest")]

    assert f"- run: {command}\n" in workflow
    assert "- run: bash .ci/run\n" in workflow


def test_the_sdist_contains_the_files_of_the_tests() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert ".ci/hatch_metadata.py" == settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["path"]
    packed = settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]

    assert {"/zensical.toml", "/.ci", "/.github", "/tests", "/docs"} <= set(packed)
