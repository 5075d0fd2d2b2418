"""What a release says of itself is said once."""

from __future__ import annotations

import importlib.metadata
import tomllib

import streamtools
from tests.support.readme import ROOT


def test_the_version_is_that_of_the_package() -> None:
    """`__version__`, which the build reads."""
    assert importlib.metadata.version("streamtools") == streamtools.__version__


def test_the_workflow_runs_what_the_readme_says() -> None:
    """The quick tests on each Python are those of the README; all of the rest is `.ci/run`."""
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = [line for line in readme.splitlines() if line.endswith("&& .venv/bin/pytest")]

    assert f"- run: {command}\n" in workflow
    assert "- run: bash .ci/run\n" in workflow


def test_the_source_holds_what_its_tests_need() -> None:
    """What the tests read is packed into the sdist."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert ".ci/hatch_metadata.py" == settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["path"]
    packed = settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]

    assert {"/zensical.toml", "/.ci", "/.github", "/tests", "/docs"} <= set(packed)
