"""Imports the names of a package on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def load_later(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package, which import names on first use.

    `homes` maps each such name to its module, relative to the package. If both are equal, the name stands
    for the module.
    """
    names = vars(import_module(package))

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(f".{homes[name]}", package)
        found = names[name] = home if name == homes[name] else getattr(home, name)
        return found

    return find, lambda: sorted({*names, *names["__all__"]})
