"""One input held to its target's laws, whatever happens; what a run of an engine has come to; how a finding is kept.

A finding is anything that `check` raises. An input that takes too long is one too: the bound is processor time and
generous, because work is counted by the laws themselves; it is there for what never ends.
"""

from __future__ import annotations

import hashlib
import logging
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

from tests.fuzz.target import Input, Target

LONGEST = 2048
"""Bytes of an input that an engine makes."""

GROWTH = 64
"""MiB by which a process may grow while a target is fuzzed, behind its seeds; what an engine keeps is bounded."""

_PATIENCE = 40.0  # seconds of processor time for one input: thousands of times what one takes


class TooLong(Exception):
    """An input took more processor time than any may take."""


@dataclass(frozen=True)
class Finding:
    """An input that breaks a law, and how."""

    target: str
    data: bytes
    error: str

    @property
    def name(self) -> str:
        """What the input's file is named, so that it says which target reads it."""
        return f"{self.target.replace(':', '.')}-{hashlib.sha256(self.data).hexdigest()[:12]}"

    def keep(self, folder: Path) -> Path:
        """Write the input to a file, and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.name
        path.write_bytes(self.data)
        return path

    def describe(self, path: Path, seed: int) -> str:
        """Return what a person needs to fix it."""
        return (
            f"{self.error}\n"
            f"target: {self.target}, seed {seed}\n"
            f"input: {self.data!r}\n"
            f"repeat: python -m tests.fuzz --replay {path}"
        )


@dataclass
class Report:
    """What has been done for one target."""

    target: str
    executions: int = 0
    corpus: int = 0
    """Inputs that are kept, each for an outcome or code of its own."""
    seconds: float = 0.0
    """Of processor time."""
    peak: int = 0
    """MiB of the process at most."""
    growth: int = 0
    """MiB that it grew by behind the seeds."""
    path: str | None = None
    """Where the finding is, if there is one."""

    def row(self) -> str:
        """Return a line of a table."""
        found = f"FOUND {self.path}" if self.path else "-"
        return (
            f"{self.target:<34}{self.executions:>9}{self.corpus:>8}{self.seconds:>8.1f}"
            f"{self.peak:>7}{self.growth:>8}  {found}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


HEADING = f"{'target':<34}{'inputs':>9}{'corpus':>8}{'CPU s':>8}{'MiB':>7}{'growth':>8}  findings"


def try_out(target: Target, data: bytes) -> tuple[frozenset[object], Finding | None]:
    """Return the kinds of outcome that an input has, or what it breaks."""
    try:
        with _patience():
            return frozenset(target.check(Input(data))), None
    except Exception as error:
        return frozenset(), Finding(target.name, data, "".join(traceback.format_exception(error)))


def be_quiet() -> None:
    """Log nothing: what providers do wrong is what is fuzzed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@contextmanager
def _patience() -> Iterator[None]:
    """Raise `TooLong` in a block that takes too much processor time."""

    def give_up(signum: int, frame: FrameType | None) -> None:
        raise TooLong(f"more than {_PATIENCE} s of processor time")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, _PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def shrink(finding: Finding, fails: Callable[[bytes], bool], tries: int = 400) -> bytes:
    """Return an input that fails as well, and is shorter where that was found by leaving out stretches."""
    data = finding.data
    size = max(1, len(data) // 2)
    while size and tries > 0:
        at = 0
        while at < len(data) and tries > 0:
            shorter = data[:at] + data[at + size :]
            tries -= 1
            if fails(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data


def shorten(target: Target, finding: Finding) -> Finding:
    """Return a finding with a shorter input that fails in the same place, where there is one."""
    shorter = shrink(finding, lambda data: _place(try_out(target, data)[1]) == _place(finding))
    return try_out(target, shorter)[1] or finding


def _place(finding: Finding | None) -> str:
    """Return where a finding's error was raised."""
    lines = [line for line in finding.error.splitlines() if line.startswith('  File "')] if finding else []
    return lines[-1] if lines else ""


def peak() -> int:
    """Return how many MiB the process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def grew_too_much(target: Target, growth: int) -> Finding | None:
    """Return the finding that it is if a process has grown by more than `GROWTH`; it is of no input alone."""
    error = f"the process has grown by {growth} MiB behind the seeds of {target.name}, and {GROWTH} are allowed"
    return Finding(target.name, b"", error) if growth > GROWTH else None
