"""The file of `--continue`. OpenAI's messages are written, and messages of any provider are read."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from streamtools.apps.cli.errors import CommandError, reason_of
from streamtools.apps.cli.printable import one_line
from streamtools.conversation import Message
from streamtools.history import read_messages

_ENCODING: Final[dict[str, Any]] = {"encoding": "utf-8", "errors": "surrogatepass"}
"""A model may write half of a surrogate pair, which is kept."""


def read_conversation(path: str) -> tuple[list[Any], list[Message]]:
    """Return the messages as they are in the file, and parsed. Raises CommandError and FileNotFoundError."""
    try:
        messages = json.loads(Path(path).read_text(**_ENCODING))
        if not isinstance(messages, list):
            raise ValueError("expected a list of messages")
        return messages, read_messages(messages, system=True)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CommandError(f"--continue: {path}: it cannot be read: {reason_of(error)}") from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"--continue: {path}: it is not a conversation: {one_line(str(error))}") from None


def replace_conversation(path: str, messages: list[Any]) -> None:
    """Write the messages atomically to a file that only its owner can read. Raises OSError."""
    target = Path(os.path.realpath(path))  # a symbolic link stays a link
    with tempfile.NamedTemporaryFile(
        "w", dir=target.parent, prefix=f".{target.name}.", delete=False, **_ENCODING
    ) as file:
        try:
            json.dump(messages, file, ensure_ascii=False, indent=2)
            file.flush()
            Path(file.name).replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(file.name).unlink()
            raise
