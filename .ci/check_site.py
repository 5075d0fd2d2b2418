"""Fail if the API pages of the site lack a public name, or if a diagram is shown as code.

Run after `zensical build`, with the package installed.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
UNPACKED = {"streamtools.parsing.BROKEN", "streamtools.parsing.ENDED", "streamtools.parsing.OPEN"}
"""Enumeration members that the module assigns to names of their own. Griffe does not find them."""


def main() -> None:
    """Look for an HTML anchor of each public name, and for diagrams. Exit with status 1 if something is missing."""
    missing, checked = [], 0
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        html = (ROOT / ".cache" / "site" / "api" / page.stem / "index.html").read_text(encoding="utf-8")
        anchors = set(re.findall(r'id="(streamtools[^"]*)"', html))
        for module in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            found = importlib.import_module(module)
            names = [name for name in found.__all__ if not isinstance(getattr(found, name), ModuleType)]
            expected = {f"{module}.{name}" for name in names if not name.startswith("_")} - UNPACKED
            missing += sorted(expected - anchors)
            checked += len(expected)
    for page in sorted((ROOT / "docs").glob("*.md")):
        html = (ROOT / ".cache" / "site" / page.with_suffix("").name.replace("index", "") / "index.html").read_text()
        if html.count('class="mermaid"') < page.read_text(encoding="utf-8").count("```mermaid"):
            missing.append(f"a diagram of {page.name}")
    print(f"{checked} public names, {len(missing)} missing {missing or ''}")
    sys.exit(bool(missing) or not checked)


if __name__ == "__main__":
    main()
