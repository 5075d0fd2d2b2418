"""Runs the command in a separate process, with its exit status, signals and pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

COMMAND = (sys.executable, "-m", "streamtools")

# The terminal of the test run must not change colours or widths.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS")
} | {"PYTHONIOENCODING": "utf-8"}


def start(
    *arguments: str | Path, stdin: int | IO[bytes] = subprocess.DEVNULL, stdout: int | IO[bytes] = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """Start the command with pipes for output and errors, and an empty standard input."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE, stdin=stdin, env=ENVIRONMENT
    )


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """Return the exit status, the output, and the errors."""
    with start(*arguments) as process:
        output, complaints = process.communicate(timeout=120)
    return process.returncode, output.decode(), complaints.decode()
