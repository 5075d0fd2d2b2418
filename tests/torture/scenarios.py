"""All scenarios by name."""

from __future__ import annotations

from tests.torture.chats import CHATS
from tests.torture.held import RUNS
from tests.torture.rims import RIMS
from tests.torture.streams import STREAMS, Scenario

SCENARIOS: dict[str, Scenario] = {each.name: each for each in [*STREAMS, *CHATS, *RUNS, *RIMS]}
