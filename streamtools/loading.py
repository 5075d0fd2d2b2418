"""Imports the names of a package on first use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent


def load_later(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package, which import names on first use.

    `homes` maps each such name to its module, relative to the package. If both are equal, the name stands
    for the module. `__getattr__` raises ImportError for a name of another module, and AttributeError for other names.
    """
    names = vars(import_module(package))

    def find(name: str) -> Any:
        if name not in homes:
            if not name.startswith("_") and find_spec(f"{package}.{name}") is None and (advice := _import_of(name)):
                # The import statement drops the message of an AttributeError.
                raise ImportError(f"{package} has no {name!r}; write `{advice}`", name=package)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(f".{homes[name]}", package)
        found = names[name] = home if name == homes[name] else getattr(home, name)
        return found

    return find, lambda: sorted({*names, *names["__all__"]})


def _import_of(name: str) -> str | None:
    """Return the statement that imports a public name, or None. It reads the sources: importing them all takes long."""
    exports = re.compile(rf'^__all__ = \[[^\]]*"{re.escape(name)}"|^class {re.escape(name)}\b', re.MULTILINE)
    for path in (*_ROOT.glob("*.py"), *_ROOT.glob("*/__init__.py"), _ROOT / "outputs" / "asgi.py"):
        parts = [part for part in path.relative_to(_ROOT.parent).with_suffix("").parts if part != "__init__"]
        if parts[-1] == name:
            return f"from {'.'.join(parts[:-1])} import {name}"
        if exports.search(path.read_text("utf-8")):
            return f"from {'.'.join(parts)} import {name}"
    return None
