"""The errors of the command line. Each error is one line on standard error.

`CommandError` ends a command. `ErrorOutput` writes its message. It also writes the reason of a failed stream, and the
log of the library.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any, TextIO

from streamtools.apps.cli.printable import one_line
from streamtools.stream.result import TurnResult


class CommandError(Exception):
    """An error that ends the command. It has a message of one line, and the exit status of the command."""

    def __init__(self, message: str, *, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


def reason_of(error: Exception) -> object:
    """Return the message of the operating system for an error. Without one, return the error."""
    return getattr(error, "strerror", None) or error


def discard(stream: Any) -> None:
    """Redirect a closed stream to the null device, so that Python reports no error when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # AttributeError: there is no stream
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


class ErrorOutput:
    """Writes lines to `stream`, which is standard error. If the stream is closed, lines are dropped."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream  # None if the process was started without standard error
        self._cause: str | None = None  # the cause of a failed stream, from the log

    def write(self, text: str) -> None:
        """Write `text` as one line."""
        if self._stream is None:
            return
        try:
            self._stream.write(f"streamtools: {one_line(text)}\n")
            self._stream.flush()
        except OSError:
            discard(self._stream)

    def report_result(self, name: str, result: TurnResult) -> int:
        """Return the exit status of a run. If the run failed, write the reason, with the cause from the log.

        `name` names the recording or the model in the message.
        """
        if result.reason != "failed":
            return 0
        failure = next((error for error in reversed(result.errors) if error.call_id is None), None)
        reasons = [failure.message if failure else "unknown reason", self._cause]
        self.write(f"{name}: the stream failed: {': '.join(reason for reason in reasons if reason)}")
        return 1

    @contextlib.contextmanager
    def capture_logs(self) -> Iterator[None]:
        """Write the warnings and errors that the library logs in a `with` block."""
        logger, handler = logging.getLogger("streamtools"), logging.Handler(logging.WARNING)
        handler.emit = self._write_log  # type: ignore[method-assign]
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)

    def _write_log(self, record: logging.LogRecord) -> None:
        """Write one log record of `streamtools.logs`."""
        event, values = record.getMessage().partition(" ")[0], getattr(record, "streamtools", {})
        if event == "stream_failed":  # `report_result` writes it after the run
            self._cause = values.get("cause")
        else:
            details = "".join(f" {key}={value}" for key, value in values.items() if value is not None)
            self.write(f"{record.levelname.lower()}: {event}{details}")
