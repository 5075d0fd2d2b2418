"""Imports the names of a package on first use."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pkgutil import iter_modules
from types import FunctionType
from typing import Any

from streamtools import errors
from streamtools.errors import checked, nearest

_ROOT = "streamtools"


def load_later(names: dict[str, Any], homes: dict[str, str] | None = None, **extras: str) -> None:
    """Let a module import names on first use, and let `dir` list only its public names.

    `names` are the `globals()` of the module. `homes` maps each name that is imported on first use to its module,
    relative to the package. If a name equals its module, it stands for the module itself. The other parameters map
    names to the module of another package that they need. Without it, `__all__` and `dir` leave the name out.

    The error message for an unknown name shows how to import the name or the most similar public name, if there is one.
    """
    package, public, later = names["__name__"], names.pop("__all__"), homes or {}

    def find(name: str) -> Any:
        if name == "__all__":
            return installed(public)
        if name not in later:
            is_module = "__path__" in names and PathFinder.find_spec(name, names["__path__"]) is not None
            advice = "" if is_module or name.startswith("_") else _import_of(name, package)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{advice}")
        home = import_module(f".{later[name]}", package)
        found = names[name] = home if name == later[name] else getattr(home, name)
        return found

    def installed(listed: Iterable[str]) -> list[str]:
        return [name for name in listed if name not in extras or find_spec(extras[name])]

    modules = [name for name in later if later[name] == name]
    names["__getattr__"] = find
    names["__dir__"] = lambda: sorted({*installed([*public, *modules])})


def check_calls(names: dict[str, Any]) -> None:
    """Replace the public functions among the `names` of a module by `checked` functions, and call `load_later`."""
    for name in names["__all__"]:
        if isinstance(names.get(name), FunctionType):
            names[name] = checked(names[name])
    load_later(names)


@contextmanager
def require_packages(user: str, extras: str, *packages: str) -> Iterator[None]:
    """Add advice to the ModuleNotFoundError for one of the `packages`, if the `with` block cannot import it.

    `user` begins the message, such as "this command". `extras` are the extras that install the packages.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in packages:
            raise
        raise ModuleNotFoundError(
            f'{user} needs {missing}: pip install "streamtools[{extras}]"', name=missing
        ) from None


class _ImportAdvice:
    """Adds advice to import errors. Python calls `find_spec` for each module that it has not found."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError if `_import_of` returns advice for a name or a module of this package."""
        package, _, last = name.rpartition(".")
        if package.partition(".")[0] == _ROOT and (advice := _import_of(last, package)):
            # `from package import last` ignores a ModuleNotFoundError whose `name` is the missing module.
            raise ModuleNotFoundError(f"cannot import name {last!r} from {package!r}{advice}", name=package)


sys.meta_path.append(_ImportAdvice)


def _import_of(name: str, package: str) -> str:
    """Return advice to import a public name, or the most similar public name. "" if no name is similar.

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
    own = [each for each in homes if homes[each] == package]
    longer = re.compile(rf"(?<![a-zA-Z]){re.escape(name)}(?![a-z])").search  # finds `OpenAIChat` for `OpenAI`
    listed = [*own, *homes] if len(name) > 4 else own  # a short name such as `json` is part of many names
    meant = name if name in homes else next(filter(longer, listed), None) or nearest(name, own) or nearest(name, homes)
    return f"; write `from {homes[meant]} import {meant}`" if meant else ""


load_later(vars(errors))
