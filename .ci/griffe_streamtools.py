"""What Griffe has to be told for the pages of the API.

It reads files, and lets `tools/tool.py` stand for `streamtools.tools.tool`, of which the package's `__init__` makes a
function, as Python does. And the examples of our docstrings are `>>>` alone, which Markdown takes for quotes.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class StreamTools(griffe.Extension):
    """Puts what has the name of a module into its place, and examples into blocks of code."""

    def __init__(self) -> None:
        self._defined: list[griffe.Object] = []

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Keep what an `__init__` defines: its submodule is read later, and takes the place."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^>>> .*(?:\n.+)*", r"```pycon\n\g<0>\n```", obj.docstring.value)
        if not obj.is_module and obj.parent is not None and obj.parent.is_init_module:
            self._defined.append(obj)

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Look through the whole package for what it defines, and for what it imports."""
        loader.resolve_aliases()
        named: dict[str, griffe.Object | griffe.Alias] = {obj.path: obj for obj in self._defined}
        packages = [pkg]
        for package in packages:
            packages += [each for each in package.modules.values() if not each.is_alias]
            for name, path in package.imports.items():
                if name in package.modules and path not in package.modules:
                    named[f"{package.path}.{name}"] = loader.modules_collection[path]
        for package in packages:
            for name, member in list(package.members.items()):
                if isinstance(member, griffe.Alias):
                    path = member.target_path if member.resolved and member.is_module else ""
                else:
                    path = member.path if isinstance(member, griffe.Module) else ""
                if path in named:
                    is_here = path == named[path].path
                    package.members[name] = named[path] if is_here else griffe.Alias(name, named[path], parent=package)
