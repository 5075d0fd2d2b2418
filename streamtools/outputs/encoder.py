"""The interface of all encoders, which convert UI events to the bytes of a response. Sans-IO.

An encoder serves one response. The server sends the `headers` of the encoder, then the result of `encode` for each
event, and finally the result of `close`. Some clients fail if a message, a call or a step has no end. So the encoder
closes open items: `encode(done)` writes the end of the body that fits the run, and `close` ends a body without `done`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from streamtools.errors import ClosedError
from streamtools.events import UIEvent


class Encoder(Protocol):
    """Writes the events of one run for one client. The properties may be plain attributes.

    Set the attribute `replaces = True` if the format can report that a step is superseded.
    """

    @property
    def content_type(self) -> str:
        """The content type of the response."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response other than the content type. Their names are in lower case."""

    @property
    def keep_alive(self) -> bytes:
        """Bytes that clients ignore. The server sends them when no event arrives, so that proxies keep the connection.

        They are `b""` if the format has no such bytes.
        """

    @property
    def resumable(self) -> bool:
        """Whether a client that reconnects can continue after the last event that it received.

        Then the bytes of an event contain its `seq` and do not depend on other events. With False, a client that
        reconnects needs all events from the start.
        """

    def encode(self, event: UIEvent) -> bytes:
        """Return the bytes for `event`, which may be `b""`. The bytes for `done` complete the body.

        Raises `ClosedError` after `done` and after `close`.
        """

    def close(self) -> bytes:
        """Return the bytes that end a body without `done`. Returns `b""` if the body has already ended."""


def closed_error() -> ClosedError:
    return ClosedError("The body has ended. Make a new encoder for another response.")
