"""Pushes the events of a run to where they are sent, in the task that reads its source.

The reading is shielded while a push waits. Lifting a shield costs more than a push, so as a rule it stays until the
reading is to be cancelled. A push that need not wait costs no change of coroutine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from types import coroutine
from typing import Any, TypeAlias

import anyio

from streamtools.events import UIEvent

Push: TypeAlias = Callable[[Sequence[UIEvent]], Coroutine[Any, Any, object] | None]
"""Takes events, at once or when what it returns is awaited."""


class Pushing:
    """What pushes, and the shield around the reading."""

    __slots__ = ("_fault", "_waits", "push", "shielded")

    def __init__(self, push: Push) -> None:
        self.push: Push | None = push
        self._fault: Exception | None = None  # what a push has raised, for the consumer
        self.shielded: anyio.CancelScope | None = None
        self._waits = False

    async def wait_for(self, pushed: Awaitable[object], reading: anyio.CancelScope | None) -> None:
        """Await what is left of a push, shielded, unless pushing has been stopped."""
        if self.push is not None:
            self._waits = True
            if reading is not None and self.shielded is not reading:
                reading.shield, self.shielded = True, reading
        try:
            await pushed
        finally:
            self._waits = False

    def raise_fault(self) -> None:
        """Raise what a push has raised, once."""
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault

    def stop(self, fault: Exception | None = None) -> None:
        """Push nothing more, and let a push be cancelled with the run."""
        self.push, self._waits, self._fault = None, False, fault or self._fault
        self.let_go()

    def let_go(self) -> None:
        """Let the reading be cancelled, unless a push waits."""
        if self.shielded is not None and not self._waits:
            self.shielded.shield, self.shielded = False, None


def begun(work: Coroutine[Any, Any, object]) -> Awaitable[object] | None:
    """Do work up to where it waits; return what is left of it, or None. Raises what it raises.

    What is left is awaited next, in the same task and the same cancel scopes.
    """
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None
    return _rest(work, waits_for)


@coroutine
def _rest(work: Coroutine[Any, Any, object], waits_for: Any) -> Generator[Any, Any, None]:
    while True:
        try:
            came = yield waits_for
        except BaseException as error:
            proceed: Callable[[], Any] = partial(work.throw, error)
        else:
            proceed = partial(work.send, came)
        try:
            waits_for = proceed()
        except StopIteration:
            return
