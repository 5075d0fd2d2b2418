"""The event loop of the tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as the server of the backend uses."""
    return "asyncio"
