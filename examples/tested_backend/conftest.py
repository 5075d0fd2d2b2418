"""On which event loop the tests run."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """asyncio alone, as the backend's server."""
    return "asyncio"
