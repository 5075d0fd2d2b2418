"""All scenarios, by their names."""

from __future__ import annotations

from tests.torture.streams import STREAMS, Scenario

SCENARIOS: dict[str, Scenario] = {each.name: each for each in STREAMS}
