"""The engine that is guided by coverage: atheris, in a process of its own for each target, because it never returns.

Run as a module it is that process; `run` starts it and reads what it says. Only the package is instrumented, and not
its laws. libFuzzer counts time by the wall; here it stops when the processor time is spent.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.fuzz.running import LONGEST, Finding, Report, be_quiet, grew_too_much, peak, try_out
from tests.fuzz.target import Target

_STATUS = re.compile(r"corp: (\d+)")
_ARTIFACTS = ("crash-*", "timeout-*", "oom-*")
_SPAN = 2_000  # inputs between two looks at the memory


def is_there() -> bool:
    """Return whether atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


def run(
    target: str,
    *,
    seed: int,
    seconds: float | None = None,
    runs: int | None = None,
    corpus: Path | None = None,
) -> tuple[Report, Finding | None]:
    """Fuzz a target until it breaks, or the budget is spent. Raises RuntimeError if the process fails by itself."""
    with tempfile.TemporaryDirectory() as folder:
        job = {"target": target, "seconds": seconds, "runs": runs, "seed": seed, "folder": folder}
        job["corpus"] = str(corpus) if corpus is not None else folder + "/corpus"
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "tests.fuzz.guided", json.dumps(job)]
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, errors="replace")
        told = Path(folder, "report.json")
        if not told.exists():
            error = f"atheris failed for {target} ({done.returncode}):\n{done.stderr[-4000:]}"
            for artifact in _ARTIFACTS:  # the interpreter itself has failed
                for path in Path(folder).glob(artifact):
                    return Report(target, "guided"), Finding(target, path.read_bytes(), error)
            raise RuntimeError(error)
        said: dict[str, Any] = json.loads(told.read_text())
        corpora = _STATUS.findall(done.stderr)
        report = Report(**said["report"] | {"corpus": int(corpora[-1]) if corpora else 0})
        data = Path(folder, "finding")
        finding = Finding(target, data.read_bytes(), said["error"]) if said["error"] else None
    return report, finding


class _Job:
    """What one process does."""

    def __init__(self, target: Target, job: dict[str, Any], first: int) -> None:
        self._target = target
        self._job = job
        self._first = first
        self._report = Report(target.name, "guided")
        self._beginning = time.process_time()
        self._before: int | None = None

    def take(self, data: bytes) -> None:
        """Try an input out; the process ends here when something is found, and when the budget is spent."""
        report = self._report
        report.executions += 1
        finding = try_out(self._target, data)[1]
        report.seconds = time.process_time() - self._beginning
        spent = self._job["seconds"] is not None and report.seconds >= self._job["seconds"]
        last = finding is not None or spent or report.executions == self._job["runs"]
        if last or report.executions % _SPAN == 0:
            gc.collect()
            report.peak = peak()
            if report.executions >= self._first + _SPAN:
                self._before = self._before or report.peak
                report.growth = report.peak - self._before
            finding = finding or grew_too_much(self._target, report.growth)
        if last or finding is not None:
            self._end(finding)

    def _end(self, finding: Finding | None) -> None:
        folder = Path(self._job["folder"])
        if finding is not None:
            folder.joinpath("finding").write_bytes(finding.data)
        said = {"report": self._report.as_dict(), "error": finding.error if finding else None}
        folder.joinpath("report.json").write_text(json.dumps(said))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _main() -> None:
    atheris: Any = importlib.import_module("atheris")  # not on all platforms that the tests run on
    job = json.loads(sys.argv[1])
    laws = Path(__file__).parents[2] / "streamtools" / "testing"
    apart = ["streamtools.testing", *(f"streamtools.testing.{path.stem}" for path in laws.glob("*.py"))]
    with atheris.instrument_imports(include=["streamtools"], exclude=apart):
        from tests.fuzz.targets import TARGETS
    be_quiet()

    target = TARGETS[job["target"]]()
    first = target.seeds()
    folder, corpus = Path(job["folder"]), Path(job["corpus"])
    seeds = folder / "seeds"
    for each in (seeds, corpus):
        each.mkdir(parents=True, exist_ok=True)
    for at, data in enumerate(first):
        seeds.joinpath(f"{at:05}").write_bytes(data)
    words = folder / "words"
    words.write_text("".join(f'"{_quoted(word)}"\n' for word in target.words if len(word) <= 64))
    arguments = [
        f"-seed={job['seed'] or 1}",
        f"-max_len={LONGEST}",
        "-len_control=0",
        "-timeout=300",
        "-rss_limit_mb=2048",
    ]
    arguments += [f"-dict={words}", f"-artifact_prefix={folder}/", str(corpus), str(seeds)]
    atheris.Setup([sys.argv[0], *arguments], _Job(target, job, len(first)).take)
    atheris.Fuzz()


def _quoted(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    _main()
