"""The soak by numbers: a few dozen streams with every fault, over real connections, and nothing is lost or left."""

from __future__ import annotations

import pytest

from benchmarks.soaking.plans import FAULTS
from benchmarks.soaking.soak import Report, Settings, soak
from benchmarks.soaking.verdict import judge

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn, and a process of asyncio's, run on asyncio alone."""
    return "asyncio"


@pytest.fixture
async def report() -> Report:
    return await soak(SETTINGS)


SETTINGS = Settings(30, count=70, pace=0.002, idle=1.0)


async def test_a_few_dozen_streams(report: Report) -> None:
    """Each event is as the seed of its stream says, each fault was met, and no object of the package is left."""
    assert [] == report.here.problems + report.browsers["problems"]
    assert set(FAULTS) <= set(report.sent)
    assert {} == report.left
    assert 70 == report.here.streams + report.browsers["streams"]
    assert all(finding.holds for finding in judge(report, SETTINGS))
