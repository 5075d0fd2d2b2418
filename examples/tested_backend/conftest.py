"""The event loop of the tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Use asyncio, like the server of the backend."""
    return "asyncio"
