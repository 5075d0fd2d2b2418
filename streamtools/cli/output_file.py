"""The file that a command was told to write a recording into."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import BinaryIO

from streamtools.cli.complaints import Refused
from streamtools.recording.writing import open_anew


@contextlib.contextmanager
def open_output(path: str, option: str) -> Iterator[BinaryIO]:
    """Give the file, emptied, which `option` has named. Raises `Refused`."""
    try:
        file = open_anew(path)
    except (OSError, ValueError) as error:  # ValueError: a null character
        reason = error.strerror if isinstance(error, OSError) else None
        raise Refused(f"{option}: {path} cannot be written: {reason or error}") from None
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # is known already
            file.close()
