"""The project in `docs/testing.md`. `<!-- file: NAME -->` above code blocks names their file, which joins them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from streamtools.recording import read_recording, shipped
from tests.support.loopback import Loopback
from tests.support.provider import Provider, serving
from tests.support.readme import ROOT, read_blocks

ADDRESS = "http://127.0.0.1:8080/v1/chat/completions"
BLOCKS = read_blocks((ROOT / "docs" / "testing.md").read_text(encoding="utf-8"))
COMMANDS = [block.text.removeprefix("$ ").strip() for block in BLOCKS if block.language == "console"]
SET_UP = [block.text.strip() for block in BLOCKS if block.language == "sh"]


def write_project(folder: Path, address: str) -> None:
    """Write the files of the page with another address of the provider, and the programs of other pages."""
    files: dict[str, list[str]] = {}
    for page, name in (("approvals", "app.py"), ("websockets", "socket_app.py")):
        blocks = read_blocks((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
        files[name] = [block.text for block in blocks if "app" in block.notes]
    for block in BLOCKS:
        if "file" in block.notes:
            files.setdefault(block.notes["file"], []).append(block.text)
    for name, parts in files.items():
        (folder / name).write_text("\n\n".join(parts).replace(ADDRESS, address), encoding="utf-8")


def provider() -> AbstractContextManager[Provider]:
    """Return a provider with the answers of the page."""
    return serving(Loopback(chunk.data for chunk in read_recording(shipped()["tilde-call"]).chunks))
