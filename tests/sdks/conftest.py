"""Fixtures of the SDK tests: a local provider that also answers clients that block the event loop."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from anyio.from_thread import start_blocking_portal

from tests.support.loopback import Loopback

_PIECE = 61  # bytes; it divides neither frames nor characters

Serve = Callable[..., str]

MARKS = [
    pytest.mark.sdk,
    # The SDKs stop at a sentinel or an error and leave the generators of their HTTP client as they are.
    pytest.mark.filterwarnings("ignore:Async generator '.*' was garbage collected:ResourceWarning"),
]
"""The marks of tests that read streams with the SDKs."""


@pytest.fixture(autouse=True)
def without_earlier_clients() -> None:
    """Delete the clients of earlier tests. Inside a loop, they would try to close connections of an earlier loop."""
    gc.collect()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that serves a body, in small pieces and from another thread, and returns the address.

    With `drop`, the connection is closed after the body without a proper end.
    """
    with start_blocking_portal() as portal, ExitStack() as servers:

        def start(body: bytes, declared: str, *, drop: bool = False) -> str:
            pieces = [body[at : at + _PIECE] for at in range(0, len(body), _PIECE)]
            server = Loopback(pieces, declared=declared, drop=drop)
            return servers.enter_context(portal.wrap_async_context_manager(server)).url.rstrip("/")

        yield start
