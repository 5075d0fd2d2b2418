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
from traceback import walk_stack
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
    names.setdefault("__path__", [])  # Python then calls `_ImportAdvice` also for an unknown name in a module

    def find(name: str) -> Any:
        if name == "__all__":
            return installed(public)
        if name not in later:
            is_module = PathFinder.find_spec(name, names["__path__"]) is not None
            advice = "" if is_module or name.startswith("_") else _import_of(name, package)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{advice}")
        with require_packages(f"{package}.{name}"):
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


_EXTRAS = {
    "botocore": "bedrock", "hypothesis": "test", "json_repair": "repair", "opentelemetry": "otel",
    "psycopg": "postgres", "redis": "redis", "rich": "cli", "starlette": "web", "uvicorn": "cli,web",
}  # fmt: skip
"""Maps each optional package to the extras that install it."""


@contextmanager
def require_packages(user: str) -> Iterator[None]:
    """Add advice to the ModuleNotFoundError for an optional package that the `with` block cannot import.

    `user` begins the message, such as "this command".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRAS or "pip install" in str(error):
            raise
        advice = f'pip install "streamtools[{_EXTRAS[missing]}]"'
        raise ModuleNotFoundError(f"{user} needs {missing}: {advice}", name=missing) from None


class _ImportAdvice:
    """Adds advice to import errors. Python calls `find_spec` for each module that it has not found."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise ImportError if `_import_of` returns advice for a name or a module of this package."""
        package, _, last = name.rpartition(".")
        if package.partition(".")[0] == _ROOT and (advice := _import_of(last, package)):
            # Python calls this function for `from package import last`.
            if any(frame.f_code.co_name == "_handle_fromlist" for frame, _ in walk_stack(sys._getframe())):
                raise ImportError(f"cannot import name {last!r} from {package!r}{advice}", name=package)
            raise ModuleNotFoundError(f"No module named {name!r}{advice}", name=name)


sys.meta_path.append(_ImportAdvice)


def _import_of(name: str, package: str) -> str:
    """Return advice to import a public name, or the most similar public name. "" if no name is similar.

    If several modules have the name, `package` is preferred. The source files are read, because importing all modules
    takes long.
    """
    homes = dict[str, str]()
    modules = [f"{_ROOT}.{module.name}" for module in iter_modules(import_module(_ROOT).__path__)]
    for module in (package, _ROOT, *modules, f"{_ROOT}.outputs.asgi"):
        spec: Any = find_spec(module)
        source = spec.loader.get_source(module)
        exports = "".join(re.findall(r"^__all__ = \[([^\]]*)", source, re.MULTILINE))
        names = re.findall(r'"(\w+)"', exports) + re.findall(r"^class ([A-Z]\w+)", source, re.MULTILINE)
        parent, _, own_name = module.rpartition(".")
        homes = {own_name: parent} | dict.fromkeys(names, module) | homes
    del homes[_ROOT]  # the package has no parent to import it from
    if name not in homes:
        name = next((ours for ours, others in _OTHER_NAMES.items() if name.lower() in others.split()), name)
    own = [each for each in homes if homes[each] == package]
    listed = [*own, *homes] if len(name) > 4 else own  # a short name such as `json` is part of many names
    # `AnthropicMessages` for `AnthropicChat`
    words = _words_of(re.sub("(?<=.)(Chat|Model|Client|Store|Message)$", "", name))
    similar = [each for each in listed if words <= _words_of(each)]  # `OpenAIChat` for `OpenAI`, `Text` for `TextEvent`
    similar.sort(key=lambda each: (each[0].isupper() is not name[0].isupper(), words != _words_of(each)))
    meant = next(iter([name] if name in homes else similar), None) or nearest(name, own) or nearest(name, homes)
    return f"; write `from {homes[meant]} import {meant}`" if meant else ""


def _words_of(name: str) -> set[str]:
    """Return the words of a name without plurals, and without words that name the kind of an object."""
    words = {word.lower().removesuffix("s") for word in re.findall("[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return words - {"event", "stream", "function", "async"} or words


_OTHER_NAMES = {
    "AnthropicMessages": "claude claudechat chatanthropic",
    "Done": "finished runfinished end streamend messageend",
    "GeminiChat": "google googlechat googlemodel",
    "Guards": "guardrails usagelimits",
    "OpenAIChat": "llm llms model models providers",
    "RedisStore": "redis store runstore",
    "SQLiteLedger": "ledger ledgers",
    "ScriptedModel": "fakemodel mockmodel testmodel",
    "ToolContext": "runcontext",
    "ToolError": "modelretry toolexception",
    "chat": "agent agents",
    "errors": "exceptions",
    "event_stream_response": "fastapi starlette streamingresponse",
    "telemetry": "otel",
    "replace": "regex regexp pattern",
    "tool": "function_tool",
}
"""Maps our names to names of other libraries, in lower case."""


load_later(vars(errors))
