"""What goes wrong, one line each on standard error: refusals, failed streams, and what the library logs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO

import structlog

from streamtools.cli.printable import one_line
from streamtools.result import TurnResult


class Refused(Exception):
    """What was asked for cannot be done; the message is one line for the user, `status` that of the process."""

    def __init__(self, message: str, *, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


class Complaints:
    """Writes lines to `stream`, standard error. Nobody may be left to read them, which is no fault of its own."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream  # None if the process was started without one
        self._cause: str | None = None
        self.make_room: Callable[[], object] | None = None
        """Called before a line, by whoever has an unfinished one on the same terminal."""

    @property
    def on_terminal(self) -> bool:
        """Whether the lines are read where they are written."""
        return self._stream is not None and self._stream.isatty()

    def write(self, text: str) -> None:
        """Write one line, whatever `text` contains."""
        if self._stream is None:
            return
        if self.make_room is not None:
            with contextlib.suppress(OSError):
                self.make_room()
        with contextlib.suppress(OSError):
            self._stream.write(f"streamtools: {one_line(text)}\n")
            self._stream.flush()

    def write_failure(self, name: str, result: TurnResult) -> None:
        """Write why the stream `name` failed: what the interface was told, and the cause that the library logged."""
        fault = next((error for error in reversed(result.errors) if error.call_id is None), None)
        reasons = [fault.message if fault else "for no reason that is known", self._cause]
        self.write(f"{name}: the stream failed: {': '.join(reason for reason in reasons if reason)}")

    @contextlib.contextmanager
    def logs(self) -> Iterator[None]:
        """Write what the library logs from warnings on, as long as the block lasts."""
        before = structlog.get_config() if structlog.is_configured() else None
        structlog.configure(
            processors=[self._take],
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.ReturnLoggerFactory(),
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.reset_defaults()
            if before is not None:
                structlog.configure(**before)

    def _take(self, logger: object, level: str, fields: Any) -> NoReturn:
        """Write one log entry, as the last of structlog's processors."""
        event = fields.pop("event")
        if event == "stream_failed":  # is told once, at the end
            self._cause = fields.get("cause")
        else:
            told = "".join(f" {key}={value}" for key, value in fields.items() if value is not None)
            self.write(f"{level}: {event}{told}")
        raise structlog.DropEvent
