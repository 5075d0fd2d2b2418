"""Griffe extension for the API pages.

It fixes two things:

- A package exports a function with the name of a submodule, such as `streamtools.tools.tool`. In Python the name is the
  function; Griffe documents the module `tools/tool.py`.
- Examples in docstrings start with `>>>` and have no fence. Markdown reads them as quotes.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class StreamTools(griffe.Extension):
    """Documents functions instead of modules of the same name, and puts examples into code blocks."""

    def __init__(self) -> None:
        self._defined: list[griffe.Object] = []

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence examples, and record the objects that an `__init__` defines before submodules replace them."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^>>> .*(?:\n.+)*", r"```pycon\n\g<0>\n```", obj.docstring.value)
        if not obj.is_module and obj.parent is not None and obj.parent.is_init_module:
            self._defined.append(obj)

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Replace modules by the object of the same name that their package defines or imports."""
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
