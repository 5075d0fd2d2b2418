"""Test a backend that streams: recordings replayed for ever, events expected, laws for what is one's own.

Installing streamtools gives pytest the fixture and the marker `recording`; what is here is for tests to import. Needs
the extra `test`, which is pytest and hypothesis, where it is used: nothing here loads them before.
"""

from __future__ import annotations

from streamtools.testing.expectations import Expected, assert_events, read_events
from streamtools.testing.fixture import RecordingFixture, every_cut
from streamtools.testing.laws import assert_laws
from streamtools.testing.ledger_laws import assert_ledger_laws
from streamtools.testing.log_laws import assert_log_laws
from streamtools.testing.network import NetworkBlocked

__all__ = [
    "Expected", "NetworkBlocked", "RecordingFixture", "assert_events", "assert_laws", "assert_ledger_laws",
    "assert_log_laws", "every_cut", "read_events",
]  # fmt: skip
