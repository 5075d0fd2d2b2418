"""Runs one input against the laws of its target, reports on an engine, and stores findings.

A finding is any exception of `check`. An input that takes too long is a finding too. The limit of processor time is
generous and only stops endless inputs, because the laws count work themselves.
"""

from __future__ import annotations

import hashlib
import logging
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import structlog

from tests.fuzz.target import Input, Target

LONGEST = 2048
"""Bytes of an input that an engine makes."""

GROWTH = 64
"""MiB by which a process may grow while a target is fuzzed, after its seeds. The corpus of an engine is bounded."""

_PATIENCE = 40.0  # seconds of processor time for one input: thousands of times what one takes


class TooLong(Exception):
    """An input took too much processor time."""


@dataclass(frozen=True)
class Finding:
    """An input that breaks a law, with the error."""

    target: str
    data: bytes
    error: str

    @property
    def name(self) -> str:
        """The name of the input's file. It names the target."""
        return f"{self.target.replace(':', '.')}-{hashlib.sha256(self.data).hexdigest()[:12]}"

    def keep(self, folder: Path) -> Path:
        """Write the input to a file, and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.name
        path.write_bytes(self.data)
        return path

    def describe(self, path: Path, seed: int) -> str:
        """Return a description for a developer."""
        return (
            f"{self.error}\n"
            f"target: {self.target}, seed {seed}\n"
            f"input: {self.data!r}\n"
            f"repeat: python -m tests.fuzz --replay {path}"
        )


@dataclass
class Report:
    """The results for one target."""

    target: str
    executions: int = 0
    corpus: int = 0
    """Inputs that are kept, each for an outcome or code of its own."""
    seconds: float = 0.0
    """Of processor time."""
    peak: int = 0
    """MiB of the process at most."""
    growth: int = 0
    """Growth of the process after the seeds, in MiB."""
    path: str | None = None
    """Where the finding is, if there is one."""

    def row(self) -> str:
        """Return a row of the table."""
        found = f"FOUND {self.path}" if self.path else "-"
        return (
            f"{self.target:<34}{self.executions:>9}{self.corpus:>8}{self.seconds:>8.1f}"
            f"{self.peak:>7}{self.growth:>8}  {found}"
        )


HEADING = f"{'target':<34}{'inputs':>9}{'corpus':>8}{'CPU s':>8}{'MiB':>7}{'growth':>8}  findings"


def try_out(target: Target, data: bytes) -> tuple[frozenset[object], Finding | None]:
    """Return the kinds of outcome of an input, or a finding."""
    try:
        with _patience():
            return frozenset(target.check(Input(data))), None
    except Exception as error:
        return frozenset(), Finding(target.name, data, "".join(traceback.format_exception(error)))


def be_quiet() -> None:
    """Turn off logging, because faults of providers are logged."""
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
    """Return a shorter input that still fails. Parts of the input are removed."""
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
    """Return a finding with a shorter input that fails at the same position, if there is one."""
    shorter = shrink(finding, lambda data: _place(try_out(target, data)[1]) == _place(finding))
    return try_out(target, shorter)[1] or finding


def _place(finding: Finding | None) -> str:
    """Return the position in the code at which the error of a finding was raised."""
    lines = [line for line in finding.error.splitlines() if line.startswith('  File "')] if finding else []
    return lines[-1] if lines else ""


def peak() -> int:
    """Return the peak memory of the process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def grew_too_much(target: Target, growth: int) -> Finding | None:
    """Return a finding if the process has grown by more than `GROWTH`. No single input causes it."""
    error = f"the process grew by {growth} MiB after the seeds of {target.name}, more than the allowed {GROWTH}"
    return Finding(target.name, b"", error) if growth > GROWTH else None
