"""A conversation in a file: as OpenAI's messages, which `/save` and `--continue` write, or as any provider's."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

from streamtools.apps.cli.complaints import one_line
from streamtools.history import Message, read_messages

_TEXT: Final[dict[str, Any]] = {"encoding": "utf-8", "errors": "surrogatepass"}
"""A model's half of a surrogate pair is kept as it is."""


class Unusable(Exception):
    """The file cannot be had; the message is a sentence without its end."""


def read_talk(path: str) -> tuple[list[Any], list[Message]]:
    """Return what stands in the file, and the messages that it means. Raises `Unusable`, and FileNotFoundError."""
    try:
        written = json.loads(Path(path).read_text(**_TEXT))
        if not isinstance(written, list):
            raise ValueError("a list of messages was expected")
        return written, read_messages(written, system=True)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unusable(f"it cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, no messages
        raise Unusable(f"it is no conversation: {one_line(str(error))}") from None


def write_talk(path: str, messages: list[Any], *, anew: bool) -> None:
    """Write the messages, for their owner alone: into a new file, or over what is there, whole or not at all.

    Raises OSError.
    """
    if anew:
        with open(path, "x", opener=partial(os.open, mode=0o600), **_TEXT) as file:
            json.dump(messages, file, ensure_ascii=False, indent=2)
        return
    where = Path(os.path.realpath(path))  # a symbolic link stays one
    with tempfile.NamedTemporaryFile("w", dir=where.parent, prefix=f".{where.name}.", delete=False, **_TEXT) as file:
        try:
            json.dump(messages, file, ensure_ascii=False, indent=2)
            file.flush()
            Path(file.name).replace(where)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(file.name).unlink()
            raise
