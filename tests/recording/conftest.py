"""A clock for tests of recordings."""

from __future__ import annotations

import itertools

import pytest

from streamtools.recording import transports


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings then count one second for each look at the clock."""
    monkeypatch.setattr(transports, "perf_counter", itertools.count(0.0).__next__)
