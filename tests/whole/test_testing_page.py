"""The page docs/testing.md: its project passes its tests as the page says."""

from __future__ import annotations

import pytest

from tests.support.testing_page import BLOCKS, COMMANDS, SET_UP, provider, write_project

pytest_plugins = ["pytester"]


@pytest.mark.deep
def test_the_project_of_the_page_passes_its_tests(pytester: pytest.Pytester) -> None:
    """Without a recording, it says what is missing. Then it records one, and then it calls no model."""
    with provider() as server:
        write_project(pytester.path, server.url)
        missing = pytester.runpytest_subprocess("-p", "no:cacheprovider")
        recorded = pytester.runpytest_subprocess("-p", "no:cacheprovider", *COMMANDS[0].split()[1:])
        replayed = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-v")

    assert 1 == len(server.requests)
    missing.assert_outcomes(passed=2, errors=1 + 7 + 1)
    recorded.assert_outcomes(passed=11)
    replayed.assert_outcomes(passed=11)
    replayed.stdout.fnmatch_lines(["*test_no_cut_matters[[]cut=byte[]] PASSED*"])
    assert ["recordings/test_backend/test_weather.jsonl"] == [
        str(path.relative_to(pytester.path)) for path in pytester.path.rglob("*.jsonl")
    ]


def test_every_block_of_code_is_run() -> None:
    """Each block belongs to the project or is one of its commands."""
    assert all("file" in block.notes for block in BLOCKS if block.language == "python")
    assert ["pytest --record-streams=once"] == COMMANDS
    assert ['source .venv/bin/activate && pip install -e ".[web,test]" fastapi httpx2'] == SET_UP
