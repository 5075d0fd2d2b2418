"""Every async test runs on both event loops; the properties run in one of two profiles.

`ci` is the same hundred examples each time; `HYPOTHESIS_PROFILE=laws` is two thousand new ones for every property.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

_UNTIMED = [HealthCheck.too_slow]  # a busy machine makes no test fail

settings.register_profile("ci", max_examples=100, derandomize=True, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("laws", max_examples=2000, deadline=None, suppress_health_check=_UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of an async test."""
    return str(request.param)
