"""The command `streamtools`.

Standard output contains only the output of the command. Text that the user's tools print is written to standard error.
An error is reported as one line on standard error and an exit status, without a traceback.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import threading
from argparse import Namespace
from collections.abc import Sequence
from typing import TextIO

from streamtools.apps.cli.arguments import parse
from streamtools.apps.cli.errors import CommandError, ErrorOutput, discard, reason_of

_MODULES = {"serve": "servers", "gateway": "servers"}
"""Maps a command to its module. A command that is missing here has the name of its module."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments `argv`, and return its exit status.

    None means the arguments of the process. In this case, the process ends even if the thread of a tool still runs.
    """
    output: TextIO | None = sys.stdout  # None if the process was started without standard output
    errors = ErrorOutput(sys.stderr)
    try:
        status = _run_reporting_errors(argv, output, errors)
        if output is not None:
            output.flush()
    except OSError as error:  # an error of standard output; commands handle all other OSErrors
        discard(output)
        if not isinstance(error, BrokenPipeError):  # the reader, such as `head`, needs no more output
            errors.write(f"the output cannot be written: {reason_of(error)}")
        status = 1
    if argv is None and threading.active_count() > 1:
        os._exit(status)
    return status


def _run_reporting_errors(argv: Sequence[str] | None, output: TextIO | None, errors: ErrorOutput) -> int:
    try:
        return _run(argv, output, errors)
    except (CommandError, ModuleNotFoundError) as error:
        errors.write(str(error))
        return getattr(error, "status", 2)
    except KeyboardInterrupt:
        errors.write("interrupted")
        return 130


def _run(argv: Sequence[str] | None, output: TextIO | None, errors: ErrorOutput) -> int:
    try:
        args: Namespace = parse(argv)
    except SystemExit as exit:  # argparse exits after --help and --version
        return int(exit.code or 0)
    if output is None:
        raise CommandError("standard output is closed", status=1)
    if isinstance(output, io.TextIOWrapper):
        if getattr(args, "json", False):
            output.reconfigure(encoding="utf-8", newline="\n")
        else:
            output.reconfigure(errors="replace")
    with contextlib.redirect_stdout(sys.stderr), errors.capture_logs():
        # Import only the module of this command, because modules need different optional packages.
        module = importlib.import_module(f"{__name__}.{_MODULES.get(args.command, args.command)}")
        status: int = getattr(module, f"run_{args.command}")(args, output, errors)
        return status
