"""Changes of functions that plant faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def before(patch: pytest.MonkeyPatch, owner: Any, name: str, first: Callable[..., object]) -> None:
    """Call `first` before each call of a function, with the same arguments."""
    original = getattr(owner, name)

    def changed(*given: Any, **options: Any) -> Any:
        first(*given, **options)
        return original(*given, **options)

    patch.setattr(owner, name, changed)


def after(patch: pytest.MonkeyPatch, owner: Any, name: str, then: Callable[..., object]) -> None:
    """Call `then` after each call of a function, with the same arguments."""
    original = getattr(owner, name)

    def changed(*given: Any, **options: Any) -> Any:
        result = original(*given, **options)
        then(*given, **options)
        return result

    patch.setattr(owner, name, changed)


def with_clock(ledger: Any, clock: Callable[[], float]) -> Any:
    """Return a ledger of this package, which reads `clock` from now on. It returns seconds since 1970."""
    ledger._clock = clock
    return ledger
