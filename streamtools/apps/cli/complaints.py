"""What goes wrong, one line each on standard error: refusals, failed streams, and what the library logs.

Text of others is shown on a terminal to the last character, and none is obeyed: a model can be made to write escape
sequences that rename the window, hide text or type into the shell, or to turn the order in which text is read. Control
characters are replaced with pictures of themselves, so that one sees what was sent; line feeds and tabs stay.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO

import structlog

from streamtools.stream.result import TurnResult

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Printable:
    """Makes a stream of texts printable. A carriage return before a line feed is part of the line's end.

    >>> text = Printable()
    >>> text.feed("red: \\x1b[31m\\r"), text.feed("\\nnext"), text.close()
    ('red: ␛[31m', '\\nnext', '')
    """

    def __init__(self) -> None:
        self._held = ""  # a carriage return whose line feed may be yet to come

    def feed(self, text: str) -> str:
        """Return what can be printed now."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        return printable(text[:-1] if self._held else text)

    def close(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return printable(held)


def printable(text: str) -> str:
    """Return `text` with pictures in place of its control characters."""
    return _CONTROL.sub(_picture, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return `text` printable and on one line, with single spaces."""
    return printable(" ".join(text.split()))


def crop(text: str, length: int) -> str:
    """Return `text`, or its beginning and an ellipsis if it is longer than `length` characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def reason_of(error: Exception) -> object:
    """Return why something failed, in the words of the system if it was that which failed."""
    return getattr(error, "strerror", None) or error


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
        """Called before a line is written; set by a writer that may have an unfinished line on the same terminal."""

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

    def status_of(self, name: str, result: TurnResult) -> int:
        """Return the exit status of a run; write why it failed: the errors in its events, and what was logged."""
        if result.reason != "failed":
            return 0
        fault = next((error for error in reversed(result.errors) if error.call_id is None), None)
        reasons = [fault.message if fault else "for no reason that is known", self._cause]
        self.write(f"{name}: the stream failed: {': '.join(reason for reason in reasons if reason)}")
        return 1

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
        if event == "stream_failed":  # is reported once, at the end
            self._cause = fields.get("cause")
        else:
            shown = {key: value for key, value in fields.items() if key not in ("logger", "exception")}  # in one line
            details = "".join(f" {key}={value}" for key, value in shown.items() if value is not None)
            self.write(f"{level}: {event}{details}")
        raise structlog.DropEvent
