"""Test a backend that streams: replayed recordings, expected events, and laws for custom dialects.

Installing streamtools gives pytest the fixture and the marker `recording`. This package is what tests import. It needs
the extra `test` (pytest and hypothesis), which is imported when it is used.
"""

from __future__ import annotations

from streamtools.testing.expectations import Expected, assert_events, read_events
from streamtools.testing.fixture import RecordingFixture, every_cut
from streamtools.testing.laws import assert_laws
from streamtools.testing.network import NetworkBlocked

__all__ = [
    "Expected",
    "NetworkBlocked",
    "RecordingFixture",
    "assert_events",
    "assert_laws",
    "every_cut",
    "read_events",
]
