"""Measures the import time of the package relative to the import of its dependencies.

    python benchmarks/bench_imports.py
    python benchmarks/bench_imports.py --only "import streamtools" --profile    # which modules take the time

Each measurement is a fresh interpreter, and the figure is the processor time of the import alone. Subject and reference
take turns. A first import writes the bytecode of both to a separate folder, so no measurement includes compilation,
whatever the bytecode settings of the environment are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Case, Result, Work, interleave, main

ROOT = Path(__file__).resolve().parents[1]
CORE = "import anyio, httpx, httpx_sse, pydantic, msgspec"
MODELS = f"{CORE}; pydantic.BaseModel, pydantic.TypeAdapter"
TOOL = "@streamtools.tool\ndef forecast(city: str, days: int = 3) -> str: ...\n"
ROWS = [
    ("import streamtools", "import streamtools", CORE, 0.5),
    ("a stream and its source", "from streamtools import ToolStream, sources", CORE, 1.3),
    (
        "a tool is defined, beside pydantic's models",
        f"from streamtools import ToolStream, sources; import streamtools\n{TOOL}",
        MODELS,
        None,
    ),
    ("all dialects are made", "from streamtools.parsing import DIALECTS; [*DIALECTS.values()]", CORE, None),
    ("encoders and endpoints", "import streamtools, streamtools.outputs, streamtools.outputs.asgi", CORE, None),
]
CLOCKED = """
from time import process_time
started = process_time()
{code}
took = process_time() - started
import sys
print(took, len(sys.modules))
"""


@cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="streamtools-imports-")


def run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": _bytecode().name}
    return subprocess.run(
        [sys.executable, *options, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def clocked(code: str) -> tuple[float, int]:
    """Return the processor time of `code` in seconds, and the number of loaded modules."""
    ran = run(CLOCKED.format(code=code))
    assert ran.returncode == 0, ran.stderr[-200:]
    took, modules = ran.stdout.split()
    return float(took), int(modules)


@dataclass(frozen=True)
class Import:
    """The time that one import takes, as a multiple of another."""

    section: str
    name: str
    code: str
    beside: str
    target: float | None

    @property
    def subject(self) -> Work:
        return partial(self._seconds, self.code)

    def check(self) -> None:
        for code in (self.code, self.beside):
            clocked(code)

    def measure(self, repeats: int) -> Result:
        times = interleave([self.subject, partial(self._seconds, self.beside)], repeats)
        ours, theirs = (min(each) for each in times)
        details = {
            "ms": ours * 1e3,
            "beside": theirs * 1e3,
            "spread %": max(median(each) / min(each) - 1 for each in times) * 100,
            "modules": clocked(self.code)[1],
        }
        return Result(self.section, self.name, ours / theirs, "× core", self.target, details)

    def profile(self) -> None:
        """Print the modules that take the most time, from the interpreter's own report:

        alone, and with their imports.
        """
        lines = [line for line in run(self.code, "-X", "importtime").stderr.splitlines() if line.count("|") == 2]
        told = [line.removeprefix("import time:").split("|") for line in lines[1:]]
        for own, total, module in sorted(told, key=lambda each: -int(each[0]))[:30]:
            print(f"{int(own) / 1e3:8.1f} ms {int(total) / 1e3:8.1f} ms {module.strip()}", file=sys.stderr)

    @staticmethod
    def _seconds(code: str) -> float:
        return clocked(code)[0]


def cases(smoke: bool) -> Iterator[Case]:
    """Yield all rows."""
    for name, code, beside, target in ROWS:
        yield Import("in a fresh interpreter", name, code, beside, target)


if __name__ == "__main__":
    main("imports", cases)
