"""The interface of all encoders: UI events in, the bytes of a response out. Sans-IO.

An encoder serves one response. The server sends its `headers`, then the result of `encode` for each event, and at the
end the result of `close`. Clients that need an end for everything that starts always get it: `done` ends the body as
the run ended, and `close` ends a body without `done`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from streamtools.errors import ClosedError
from streamtools.events import UIEvent


class Encoder(Protocol):
    """Writes the events of one run for one reader. The properties may be plain attributes.

    An encoder with `replaces = True` can tell its reader that a step is superseded.
    """

    @property
    def content_type(self) -> str:
        """The content type of the response."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The other headers of the protocol, with names in lower case."""

    @property
    def keep_alive(self) -> bytes:
        """Bytes to send between two events while nothing happens, so that proxies keep the connection open.

        `b""` if the format has no such bytes.
        """

    @property
    def resumable(self) -> bool:
        """Whether a reader can continue after the last event that it saw.

        If so, each event carries its `seq`, and its bytes depend on nothing else. Otherwise a reader that reconnects
        needs all events from the start.
        """

    def encode(self, event: UIEvent) -> bytes:
        """Return the bytes for `event`, possibly `b""`. `done` completes the body.

        Raises `ClosedError` after `done` and after `close`.
        """

    def close(self) -> bytes:
        """Return the end of a body whose run did not reach `done`; `b""` if the body has ended."""


def closed_error() -> ClosedError:
    return ClosedError("The body has ended. Make a new encoder for another response.")
