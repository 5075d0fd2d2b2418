"""`@streamtools/client` as users install it: npm builds and packs it, and the tests import the unpacked package.

    python -m tests.clients.typescript_package

builds it, and copies the modules for the page of `serve` into the Python package.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

from tests.clients.programs import install, npm, run_node
from tests.support.readme import ROOT

SOURCE = ROOT / "clients" / "typescript"
BUILT = ROOT / ".cache" / "typescript"
"""Where it is built, with the compiler installed."""
PAGE = ROOT / "streamtools" / "apps" / "web" / "client"
"""Modules of it on the page of `serve`: in Python's package, so that no one who runs it needs Node."""
LOADED = ("frames.js", "turn.js")


def pack() -> Path:
    """Build the package, and return its tarball."""
    install(SOURCE / "package.json", BUILT)
    for name in ("src", "dist"):
        shutil.rmtree(BUILT / name, ignore_errors=True)
    shutil.copytree(SOURCE / "src", BUILT / "src")
    for name in ("tsconfig.json", "README.md", "LICENSE"):
        shutil.copy(SOURCE / name, BUILT)
    for old in BUILT.glob("*.tgz"):
        old.unlink()
    run_node(BUILT, npm(), "pack", "--silent")
    (tarball,) = BUILT.glob("*.tgz")
    return tarball


def unpack(tarball: Path, folder: Path) -> Path:
    """Return a folder whose programs can import the package, with the programs of this one."""
    package = folder / "node_modules" / "@streamtools" / "client"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    with tarfile.open(tarball) as held:
        for member in held.getmembers():
            member.name = member.name.removeprefix("package/")
            held.extract(member, package, filter="data")
    (folder / "package.json").write_text(json.dumps({"private": True, "type": "module"}))
    for program in Path(__file__).parent.glob("*.mjs"):
        shutil.copy(program, folder)
    return folder


def check_types(folder: Path, program: str, resolution: str) -> None:
    """Type-check a program with the strictest options. Raises CalledProcessError for errors."""
    strict = {"strict": True, "exactOptionalPropertyTypes": True, "noUncheckedIndexedAccess": True, "noEmit": True}
    module = {"module": {"bundler": "esnext", "nodenext": "nodenext"}[resolution], "moduleResolution": resolution}
    target = {"target": "es2022", "lib": ["es2023", "dom"], "types": []}
    options = {"compilerOptions": strict | module | target, "files": ["checked.mts"]}
    (folder / "tsconfig.json").write_text(json.dumps(options), encoding="utf-8")
    (folder / "checked.mts").write_text(program, encoding="utf-8")
    run_node(folder, BUILT / "node_modules" / "typescript" / "bin" / "tsc", "--project", ".")


if __name__ == "__main__":
    pack()
    for each in LOADED:
        shutil.copy(BUILT / "dist" / each, PAGE)
