"""Fixtures of the tests of the examples."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of uvicorn."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.startswith("example_")]:
        del sys.modules[name]
