"""The tools that a user names on the command line."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from streamtools.cli.complaints import Refused
from streamtools.tools import Tool, ToolRegistry


def import_tools(where: str) -> ToolRegistry:
    """Return the tools that `where` names, as `MODULE:NAME`; raise `Refused` with what is wrong.

    The current directory comes first, as it does for a script that is run there.
    """
    module_name, _, name = where.partition(":")
    if not (module_name and name):
        raise Refused(f"--tools takes MODULE:NAME, such as weather:tools, and not {where!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    found = _attribute(_module(module_name), name)
    try:
        if found is None:
            raise TypeError("it is None")
        return ToolRegistry.of(found)
    except Exception as error:
        raise Refused(f"--tools {where}: these are no tools: {error}") from error


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise Refused(f"--tools: the module {name!r} cannot be imported: {error}") from error
        hint = f"; a module is named without its .py: {name[:-3]}" if name.endswith(".py") else ""
        raise Refused(
            f"--tools: there is no module {name!r}, neither in the current directory nor installed{hint}"
        ) from None
    except (Exception, SystemExit) as error:
        raise Refused(f"--tools: the module {name!r} cannot be imported: {type(error).__name__}: {error}") from error


def _attribute(module: ModuleType, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            tools = [key for key, value in vars(module).items() if isinstance(value, Tool | ToolRegistry)]
            there_are = f"; there are {', '.join(tools)}" if tools else ""
            raise Refused(f"--tools: the module {module.__name__!r} has no {path!r}{there_are}") from None
    return found
