"""A server for the ledgers that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresServer, postgres_server
from tests.support.redis_server import RedisServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """PostgreSQL on loopback, for all tests of this process."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """Redis on loopback, likewise."""
    with RedisServer() as server:
        yield server
