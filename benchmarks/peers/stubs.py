"""Replaces the modules of SGLang and vLLM that their parsers import.

Their modules are the published ones. What they import of the rest of the engine is answered here: by a real object
where the parser uses it (a tool's definition, a logger, a new id), and by an empty class where it is only named, in an
annotation or on a way that parsing does not take.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import sys
import types
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Answers = Mapping[str, Mapping[str, object]]


class _Named(type):
    """The metaclass of empty classes. Their attributes are empty classes too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _empty(name)

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls


def _empty(name: str) -> type:
    def ignore(self: object, *_: object, **__: object) -> None: ...

    return _Named(name, (), {"__init__": ignore, "__class_getitem__": classmethod(lambda cls, _: cls)})


class _Stub(types.ModuleType):
    """A module in which every other name is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _empty(name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of these packages that no other finder has found."""

    def __init__(self, packages: Iterable[str], answers: Answers) -> None:
        self._packages = frozenset(packages)
        self._answers = answers

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self._packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        for name, value in self._answers.get(module.__name__, {}).items():
            setattr(module, name, value)


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """A logger with the additional methods of vLLM's logger."""

    debug_once = info_once = warning_once = lambda self, *_, **__: None


class Bare:
    """An object with the given attributes."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def stand_in(parts: Path, packages: Iterable[str], answers: Answers) -> None:
    """Make the modules under `parts` importable, and replace the rest of `packages`."""
    logging.disable(logging.CRITICAL)
    sys.path.append(str(parts))
    sys.meta_path.append(_Finder(packages, answers))


def logger(name: str, *_: object) -> _Logger:
    """Return a logger that prints nothing."""
    return _Logger(logging.getLogger(name), {})


def new_id(*_: object, **__: object) -> str:
    """Return a call id in the format of vLLM."""
    return f"chatcmpl-tool-{uuid.uuid4().hex}"
