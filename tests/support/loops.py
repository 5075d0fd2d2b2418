"""The event loops of async tests. By default each runs on both; see `anyio_backend` in `tests/conftest.py`."""

from __future__ import annotations

import pytest

ONE_LOOP = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For tests of what is not async itself and is reached through something that is, which others hold on both loops."""

OTHER_LOOP_DEEP = pytest.mark.parametrize("anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.deep)])
"""For many runs of what a few tests hold on both loops: on one in the quick tests, on the other in the deep ones."""


@pytest.fixture(name="anyio_backend", params=["asyncio", pytest.param("trio", marks=pytest.mark.deep)])
def other_loop_deep(request: pytest.FixtureRequest) -> str:
    """The fixture `anyio_backend` for all tests of a module."""
    return str(request.param)
