"""Tools for tests of streaming backends: replayed recordings, expected events, and laws for custom dialects.

Installing streamtools also installs a pytest plugin with the fixture and the marker `recording`. Tests import all
other tools from this package. It needs the extra `test` (pytest and hypothesis). Both are imported on first use.
"""

from __future__ import annotations

from streamtools.loading import check_calls
from streamtools.testing.expectations import Expected, assert_events, read_events
from streamtools.testing.laws import assert_laws
from streamtools.testing.recording_fixture import RecordingFixture, every_cut

__all__ = ["Expected", "RecordingFixture", "assert_events", "assert_laws", "every_cut", "read_events"]

check_calls(globals())
