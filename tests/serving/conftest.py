"""A Redis server for the runs that several processes share."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.redis_server import RedisServer


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One server for tests that do not stop it; each has its own keys."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """The prefix of a test's keys, which a pattern of Redis may contain."""
    return re.sub(r"\W", "-", request.node.name)
