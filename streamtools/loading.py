"""Imports the names of a package on first use."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import FunctionType
from typing import Any

from streamtools.errors import checked, nearest

_ROOT = "streamtools"


def load_later(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a `__getattr__` that imports the names of a package on first use, and a `__dir__` that lists them.

    `homes` maps each such name to its module, relative to the package. If a name equals its module, it stands for the
    module itself. The error message for an unknown name shows how to import the name or the most similar public name,
    if there is one.
    """
    names = vars(import_module(package))

    def find(name: str) -> Any:
        if name not in homes:
            is_module = "__path__" in names and find_spec(f"{package}.{name}") is not None
            advice = None if is_module or name.startswith("_") else _import_of(name, package)
            missing = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(f"{missing}; write `{advice}`" if advice else missing)
        home = import_module(f".{homes[name]}", package)
        found = names[name] = home if name == homes[name] else getattr(home, name)
        return found

    return find, lambda: sorted({*names, *names["__all__"]})


def check_calls(names: dict[str, Any]) -> None:
    """Replace the public functions among the `names` of a module by `checked` functions.

    The error for a name that the module does not have shows how to import this name or a similar name.
    """
    for name in names["__all__"]:
        if isinstance(names.get(name), FunctionType):
            names[name] = checked(names[name])
    names["__getattr__"], _ = load_later(names["__name__"], {})


class _ImportAdvice:
    """Adds advice to import errors. Python calls `find_spec` for each module that it has not found."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError if `_import_of` returns advice for a module that is being imported.

        A mere search for the module, such as `importlib.util.find_spec`, does not raise.
        """
        package, _, last = name.rpartition(".")
        is_import = sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap"
        if is_import and package.partition(".")[0] == _ROOT and (advice := _import_of(last, package)):
            raise ModuleNotFoundError(f"No module named {name!r}; write `{advice}`")


sys.meta_path.append(_ImportAdvice)


def _import_of(name: str, package: str) -> str | None:
    """Return the statement that imports a public name, or the most similar public name. None if no name is similar.

    If several modules have the name, `package` is preferred. The source files are read, because importing all modules
    takes long.
    """
    homes = {"models": f"{_ROOT}.conversation"}
    modules = [f"{_ROOT}.{module.name}" for module in iter_modules(import_module(_ROOT).__path__)]
    for module in (package, _ROOT, *modules, f"{_ROOT}.outputs.asgi"):
        spec: Any = find_spec(module)
        source = spec.loader.get_source(module)
        exports = "".join(re.findall(r"^__all__ = \[([^\]]*)", source, re.MULTILINE))
        names = re.findall(r'"(\w+)"', exports) + re.findall(r"^class ([A-Z]\w+)", source, re.MULTILINE)
        parent, _, own_name = module.rpartition(".")
        homes = {own_name: parent} | dict.fromkeys(names, module) | homes
    del homes[_ROOT]  # the package has no parent to import it from
    meant = name if name in homes else nearest(name, homes)
    return f"from {homes[meant]} import {meant}" if meant else None
