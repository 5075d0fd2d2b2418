"""Installs the peers in a separate environment.

Light packages come by pip from `requirements.txt`, those of Node by npm. Of an inference engine only the modules that
parse are wanted: its wheel is downloaded without what it depends on (torch, CUDA), and these modules are unpacked into
a folder of the environment; `stubs` answers for the rest of the engine. One that cannot be had does not keep the others
away.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

HERE = Path(__file__).parent
DEFAULT = HERE.parents[1] / ".venv-peers"

UNPACKED: dict[str, tuple[str, ...]] = {
    "sglang": (
        "sglang/srt/function_call/",
        "sglang/srt/environ.py",
        "sglang/srt/parser/harmony_parser.py",
        "sglang/srt/parser/inkling_tokenizer.py",
    ),
    "vllm": (
        "vllm/tool_parsers/",
        "vllm/parser/",
        "vllm/reasoning/",
        "vllm/entrypoints/generate/base/protocol.py",
        "vllm/entrypoints/serve/engine/protocol.py",
        "vllm/envs.py",
        "vllm/exceptions.py",
        "vllm/utils/collection_utils.py",
    ),
}
"""What is unpacked of a wheel: folders and files. Their `__init__` stay away, since they import the whole engine."""


def python_in(environment: Path) -> Path:
    """Return the interpreter of an environment."""
    return environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def parts_in(environment: Path) -> Path:
    """Return the folder with the modules of the inference engines."""
    return environment / "parts"


def node_in(environment: Path) -> Path:
    """Return the folder with Node's packages."""
    return environment / "node"


def install(environment: Path) -> list[str]:
    """Make the environment anew, and return what could not be installed, each with the last words of whoever refused.

    Raises FileExistsError for a folder that holds something else.
    """
    if environment.exists() and any(environment.iterdir()) and not (environment / "pyvenv.cfg").exists():
        raise FileExistsError(f"{environment} is no virtual environment, and not empty")
    venv.create(environment, with_pip=True, clear=True)
    pip = [str(python_in(environment)), "-m", "pip"]
    failed = _try("packages of Python", [*pip, "install", "-q", "-r", str(HERE / "requirements.txt")])
    for wheel in _names(HERE / "wheels.txt"):
        failed += _unpack(wheel, pip, parts_in(environment))
    folder = node_in(environment)
    folder.mkdir()
    shutil.copy(HERE / "node" / "package.json", folder)
    if npm := shutil.which("npm"):
        failed += _try("packages of Node", [npm, "install", "--no-audit", "--no-fund", "--silent"], folder)
    else:
        failed.append("packages of Node: there is no npm")
    return failed


def _unpack(requirement: str, pip: list[str], parts: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        command = [*pip, "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, requirement]
        if failed := _try(requirement, command):
            return failed
        name = requirement.partition("==")[0]
        wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            members = [member for member in archive.namelist() if is_wanted(member, UNPACKED[name])]
            archive.extractall(parts, members)
        (parts / f"{name}.version").write_text(wheel.name.split("-")[1], encoding="utf-8")
    return []


def is_wanted(member: str, wanted: tuple[str, ...]) -> bool:
    """Return whether a file of a wheel is a module to unpack."""
    path = PurePosixPath(member)
    return path.suffix == ".py" and path.name != "__init__.py" and member.startswith(wanted)


def _names(requirements: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in requirements.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def _try(what: str, command: list[str], folder: Path | None = None) -> list[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if not done.returncode:
        return []
    lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
    return [f"{what}: {lines[-1]}"]
