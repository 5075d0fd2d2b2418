"""The page docs/observability.md: its program prints what it says, and its tables are those of the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.metrics import NoOpMeter

from streamtools.errors import Code
from streamtools.events import Error
from streamtools.recording import shipped
from streamtools.telemetry import CONVENTIONS
from streamtools.telemetry.instruments import Instruments
from tests.support.readme import ROOT, read_blocks
from tests.whole.test_readme import normal, run_program

PAGE = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")


@pytest.mark.anyio
async def test_its_programs_print_what_they_say() -> None:
    for block in read_blocks(PAGE):
        if block.language == "python":
            assert normal(block.output or "") == normal(await run_program(block.text))


def test_its_command_writes_a_page(tmp_path: Path) -> None:
    (command,) = [block.text.removeprefix("$ ") for block in read_blocks(PAGE) if block.language == "console"]
    (tmp_path / "recordings").mkdir()
    for path in shipped().values():
        shutil.copy(path, tmp_path / "recordings")
    (tmp_path / "app.log").write_text(Error(Code.UPSTREAM_ERROR, "no").to_json() + "\n")
    command = command.replace("streamtools", f"{sys.executable} -m streamtools", 1)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert "Calls by dialect" in (tmp_path / "report.html").read_text(encoding="utf-8")


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
    Instruments(meter, CONVENTIONS["1.41"], lambda: 0)
    assert meter.names == set(re.findall(r"^\| `([\w.]+)` \| [^`]", PAGE, re.MULTILINE))


def test_the_names_are_those_of_the_table() -> None:
    for before, now in zip(
        CONVENTIONS["1.41"].__dict__.values(), CONVENTIONS["1.42-dev"].__dict__.values(), strict=True
    ):
        if isinstance(now, str) and not now.startswith("https:"):
            assert f"| `{before}` | `{now}` |" in PAGE
    assert CONVENTIONS["1.42-dev"].tokens_by_kind["input"] in PAGE
    assert 5 == len(CONVENTIONS["1.42-dev"].tokens_by_kind)
