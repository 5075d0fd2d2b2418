"""Refuse a site whose API lacks a public name: run behind `zensical build`, where the package can be imported."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
UNPACKED = {"streamtools.parsing.BROKEN", "streamtools.parsing.ENDED"}
"""Members of an enumeration under names of their own, which Griffe does not see."""


def main() -> None:
    """Look for the anchor of each name."""
    missing, seen = [], 0
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        html = (ROOT / ".cache" / "site" / "api" / page.stem / "index.html").read_text(encoding="utf-8")
        anchors = set(re.findall(r'id="(streamtools[^"]*)"', html))
        for module in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            members = vars(importlib.import_module(module))
            own = [name for name, each in members.items() if getattr(each, "__module__", "") == module]
            names = [name for name in members.get("__all__", own) if not isinstance(members.get(name), ModuleType)]
            wanted = {f"{module}.{name}" for name in names if not name.startswith("_")} - UNPACKED
            missing += sorted(wanted - anchors)
            seen += len(wanted)
    print(f"{seen} public names, {len(missing)} without an anchor {missing or ''}")
    sys.exit(bool(missing) or not seen)


if __name__ == "__main__":
    main()
