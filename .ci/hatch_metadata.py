"""Metadata of a release for the package index: project URLs, and the README with absolute links.

`STREAMTOOLS_REPOSITORY` is the address of the repository. The workflow `release` sets it, and `.ci/release --tagged`
requires it. If it is not set, as in an installation from a clone, there are no URLs, and the README is unchanged.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {
    "Documentation": "blob/{}/docs/index.md",
    "Changelog": "blob/{}/CHANGELOG.md",
    "Security": "blob/{}/SECURITY.md",
    "Issues": "issues",
    "Repository": "",
}


class Addresses(MetadataHookInterface):
    """Sets the metadata that depends on `STREAMTOOLS_REPOSITORY`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `urls` and `readme` in the project metadata."""
        root = Path(self.root)
        readme = (root / "README.md").read_text(encoding="utf-8")
        repository = os.environ.get("STREAMTOOLS_REPOSITORY", "").rstrip("/")
        metadata["urls"] = {}
        if repository:
            version = re.search(r'^__version__ = "(.*)"$', (root / "streamtools/__init__.py").read_text(), re.MULTILINE)
            tag = f"v{version[1] if version else 0}"
            metadata["urls"] = {name: f"{repository}/{page.format(tag)}".rstrip("/") for name, page in PAGES.items()}
            readme = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\g<1>{repository}/raw/{tag}/", readme)
            readme = re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:)", rf"\g<1>{repository}/blob/{tag}/", readme)
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
