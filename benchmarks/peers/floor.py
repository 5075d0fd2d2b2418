"""The reference: a method that stores the delta."""

from __future__ import annotations

import platform

from benchmarks.peers.adapting import Feed, Finish, Peer


class _Kept:
    def __init__(self) -> None:
        self.deltas: list[str] = []

    def feed(self, delta: str) -> None:
        self.deltas.append(delta)


def load(choice: str) -> Peer:
    """Return the reference."""

    def make() -> tuple[Feed, Finish]:
        return _Kept().feed, lambda: ()

    return Peer(f"{platform.python_implementation()} {platform.python_version()}", make, lambda _: ())
