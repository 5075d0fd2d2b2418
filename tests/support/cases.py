"""Runs many cases in one test, and reports all that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar, cast

import pytest
from _pytest.mark import ParameterSet

F = TypeVar("F", bound=Callable[..., Any])


class Cases:
    """The cases of a test. Each runs in a `with` block."""

    def __init__(self) -> None:
        self.tried = 0
        self.failed: list[tuple[str, BaseException]] = []

    @contextmanager
    def __call__(self, *name: object) -> Iterator[None]:
        """Run one case. If it fails, continue with the next case."""
        self.tried += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # the second is raised by `pytest.raises`
            self.failed.append((", ".join(map(str, name)), _only(error)))


def _only(error: BaseException) -> BaseException:
    """Return the exception in nested exception groups that each hold one exception."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@contextmanager
def cases() -> Iterator[Cases]:
    """Provide the object for the cases. At the end, raise AssertionError with all failed cases."""
    case = Cases()
    yield case
    assert case.tried, "there was no case"
    if case.failed:
        said = [f"{name}: {type(error).__name__}: {error}" for name, error in case.failed]
        message = f"{len(said)} of {case.tried} cases failed:\n\n" + "\n\n".join(said)
        raise AssertionError(message) from case.failed[0][1]


def together(
    names: str | Sequence[str],
    values: Iterable[Any] | Mapping[str, Any],
    ids: Iterable[str] | Callable[[Any], object] | None = None,
) -> Callable[[F], F]:
    """Run all cases in one test. The arguments are those of `pytest.mark.parametrize`.

    If there are several names, `values` may map the id of each case to its values. Use this for short, independent
    cases, because pytest needs some milliseconds for each test.
    """
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    if isinstance(values, Mapping) and len(listed) > 1:
        ids = [*values]
        values = values.values()
    rows = [value if isinstance(value, ParameterSet) else pytest.param(value, id=None) for value in values]
    if any(row.marks for row in rows):
        raise TypeError("a case with a mark must be a separate test: use pytest.mark.parametrize")
    labels: list[Any] = [ids] * len(rows) if ids is None or callable(ids) else [*ids]
    tried: list[tuple[object, dict[str, Any]]] = []
    for row, label in zip(rows, labels, strict=True):
        whole: Any = row.values[0] if len(row.values) == 1 else row.values
        named = [whole] if len(listed) == 1 else list(whole)
        label = " ".join(str(label(value)) for value in named) if callable(label) else label
        tried.append((row.id or label or repr(whole), dict(zip(listed, named, strict=True))))

    def decorate(test: F) -> F:
        if iscoroutinefunction(test):

            async def wait_for_all(**others: Any) -> None:
                with cases() as case:
                    for name, values in tried:
                        with case(name):
                            await test(**values, **others)

            loop: Callable[..., Any] = wait_for_all
        else:

            def try_all(**others: Any) -> None:
                with cases() as case:
                    for name, values in tried:
                        with case(name):
                            test(**values, **others)

            loop = try_all
        original = signature(test)
        wraps(test)(loop)
        vars(loop)["__signature__"] = original.replace(
            parameters=[parameter for name, parameter in original.parameters.items() if name not in listed]
        )
        return cast("F", loop)

    return decorate
