"""The event loops of async tests. By default each runs on both; see `anyio_backend` in `tests/conftest.py`."""

from __future__ import annotations

import pytest

ONE_LOOP = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For tests whose result does not depend on the event loop."""

OTHER_LOOP_DEEP = pytest.mark.parametrize("anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.deep)])
"""For many similar tests: the quick tests run on asyncio, the deep tests also on trio."""
