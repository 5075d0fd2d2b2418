"""The page docs/observability.md: its program prints what it says, and its tables are those of the code."""

from __future__ import annotations

import re

import pytest
from opentelemetry.metrics import NoOpMeter

from streamtools.telemetry.instruments import Instruments
from tests.support.readme import ROOT, read_blocks
from tests.whole.test_readme import normal, run_program

PAGE = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")


@pytest.mark.anyio
async def test_its_programs_print_what_they_say() -> None:
    for block in read_blocks(PAGE):
        if block.language == "python":
            assert normal(block.output or "") == normal(await run_program(block.text))


class Naming(NoOpMeter):
    """A meter that remembers names alone."""

    def __init__(self) -> None:
        super().__init__("naming")
        self.names: set[str] = set()

    def _remember(self, name: str, *rest: object, **more: object) -> None:
        self.names.add(name)

    create_histogram = create_counter = create_up_down_counter = create_observable_gauge = _remember  # type: ignore[assignment]


def test_each_metric_has_a_row() -> None:
    meter = Naming()
    Instruments(meter, lambda: 0)
    assert meter.names == set(re.findall(r"^\| `([\w.]+)` \| [^`]", PAGE, re.MULTILINE))
