"""The command `streamtools`.

Standard output belongs to what was asked for and to nothing else: whatever a user's tools print goes to standard error
while a command runs. What goes wrong is one line on standard error and an exit status, which each `--help` lists, never
a traceback.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TextIO

from streamtools.apps.cli.arguments import Chat, Record, Replay, parse
from streamtools.apps.cli.complaints import Complaints, Refused, reason_of

_PATIENCE = 0.5
"""Seconds that a thread may take to end when everything else has."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments and return its exit status.

    Without arguments it is the process that is run, with its own: it ends even if a tool in a thread does not.
    """
    status = _answer(argv)
    if argv is None:
        _leave_behind_threads(status)
    return status


def _answer(argv: Sequence[str] | None) -> int:
    complaints = Complaints(sys.stderr)
    output: TextIO | None = sys.stdout  # None if the process was started without one
    try:
        status = _run(argv, output, complaints)
        if output is not None:
            output.flush()
        return status
    except Refused as refusal:
        complaints.write(str(refusal))
        return refusal.status
    except KeyboardInterrupt:
        complaints.write("interrupted")
        return 130
    except OSError as error:  # of all files and connections that are open, only our output is not looked after
        _discard(output)
        complaints.write(f"the output cannot be written: {reason_of(error)}")
        return 1


def _run(argv: Sequence[str] | None, output: TextIO | None, complaints: Complaints) -> int:
    try:
        asked = parse(argv)
    except SystemExit as answered:  # --help, --version
        return int(answered.code or 0)
    if output is None:
        raise Refused("standard output is closed", status=1)
    if isinstance(output, io.TextIOWrapper):
        if isinstance(asked, Replay | Chat | Record) and asked.json:
            output.reconfigure(encoding="utf-8", newline="\n")  # which JSON always is
        else:
            output.reconfigure(errors="replace")
    with contextlib.redirect_stdout(sys.stderr), complaints.logs():
        name = type(asked).__name__.lower()
        homes = {"replay": "recordings", "record": "recordings", "gateway": "proxy"}
        home = homes.get(name, name)  # imported for its own commands alone
        run: Callable[..., int] = getattr(importlib.import_module(f"{__name__}.{home}"), f"run_{name}")
        return run(asked, output, complaints)


def _leave_behind_threads(status: int) -> None:
    """End the process now if it would wait for threads that should have stopped and did not."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(_PATIENCE)
            if thread.is_alive():
                os._exit(status)


def _discard(output: TextIO | None) -> None:
    """Discard what is left in the buffers of a closed output, so that Python does not complain at its exit."""
    assert output is not None  # it could be written to before
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, output.fileno())
        finally:
            os.close(nowhere)
