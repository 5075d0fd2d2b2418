"""Many cases in one test: each is tried, and those that fail are named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Cases:
    """The cases of a test, each tried in a `with` of its own."""

    def __init__(self) -> None:
        self.tried = 0
        self.failed: list[tuple[str, BaseException]] = []

    @contextmanager
    def __call__(self, *name: object) -> Iterator[None]:
        """Try one case, and go on with the next if it fails."""
        self.tried += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # the second is what `pytest.raises` raises
            self.failed.append((", ".join(map(str, name)), _only(error)))


def _only(error: BaseException) -> BaseException:
    """Return what stands alone in groups, as task groups raise it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@contextmanager
def cases() -> Iterator[Cases]:
    """Give what each case is tried with; at the end AssertionError names all that have failed."""
    case = Cases()
    yield case
    assert case.tried, "there was no case"
    if case.failed:
        said = [f"{name}: {type(error).__name__}: {error}" for name, error in case.failed]
        message = f"{len(said)} of {case.tried} cases failed:\n\n" + "\n\n".join(said)
        raise AssertionError(message) from case.failed[0][1]
