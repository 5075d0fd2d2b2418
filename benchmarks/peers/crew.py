"""The workers, one process for each row. Only one works at a time, so that it has the machine to itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from select import select
from signal import SIGPROF
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from benchmarks.peers.installing import HERE, node_in, parts_in, python_in
from benchmarks.peers.rows import Row

_STARTING = 120.0  # seconds; importing takes one
_BUSY = 10  # how much longer than its processor time a worker may take on a machine that others use, too


class Missing(Exception):
    """The peer cannot run on this machine."""


class Crew:
    """Starts workers on first use, and ends all of them at its exit. `environment` is that of the peers."""

    def __init__(self, environment: Path) -> None:
        self._environment = environment
        self._workers: dict[tuple[str, str], subprocess.Popen[str]] = {}
        self.versions: dict[tuple[str, str], str] = {}

    def __enter__(self) -> Crew:
        self._folder = TemporaryDirectory()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in list(self._workers):
            self._end(worker)
        self._folder.cleanup()

    def start(self, row: Row) -> None:
        """Start the worker of a row, unless it runs. Raises Missing with the reason if that fails."""
        key = (row.kind, row.choice)
        if key in self._workers:
            return
        try:
            self._workers[key] = subprocess.Popen(
                self._command(row), cwd=HERE.parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise Missing(str(error)) from None
        ready = self._reply(key, _STARTING)
        if "version" not in ready:
            self._end(key)
            reason = ready.get("missing") or ready["raised"]
            raise Missing(f"{reason}: `python -m benchmarks.peers install`")
        self.versions[key] = ready["version"]

    def ask(self, row: Row, request: dict[str, Any], patience: float) -> dict[str, Any]:
        """Return the worker's answer. It is `dnf` after more than `patience` seconds of processor time."""
        self.start(row)
        key = (row.kind, row.choice)
        path = Path(self._folder.name) / "request.json"
        path.write_text(json.dumps(request | {"patience": patience}), encoding="utf-8")
        pipe = self._workers[key].stdin
        assert pipe is not None
        print(json.dumps(str(path)), file=pipe, flush=True)
        return self._reply(key, patience * _BUSY)

    def _command(self, row: Row) -> list[str]:
        if row.on_node:
            node = shutil.which("node")
            if node is None:
                raise Missing("there is no node")
            return [node, str(HERE / "node" / "worker.mjs"), row.choice, str(node_in(self._environment))]
        python = Path(sys.executable)
        if row.group in ("peer", "json"):
            python = python_in(self._environment)
            if not python.exists():
                raise Missing(f"there is no environment {self._environment}: `python -m benchmarks.peers install`")
        return [str(python), "-m", "benchmarks.peers.worker", row.kind, row.choice, str(parts_in(self._environment))]

    def _reply(self, key: tuple[str, str], patience: float) -> dict[str, Any]:
        pipe = self._workers[key].stdout
        assert pipe is not None
        if not select([pipe], [], [], patience)[0]:
            self._end(key)
            return {"dnf": f"no answer in {patience:.0f} s", "raised": "no answer"}
        line = pipe.readline()
        if line:
            reply: dict[str, Any] = json.loads(line)
            return reply
        status = self._workers[key].wait()
        self._end(key)
        if status == -SIGPROF:
            return {"dnf": "no answer in time", "raised": "no answer in time"}
        return {"raised": f"the process ended, {status}"}

    def _end(self, key: tuple[str, str]) -> None:
        if worker := self._workers.pop(key, None):
            worker.kill()
            worker.communicate()
