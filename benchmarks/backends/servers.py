"""The servers of the rows in separate processes: Python, Node and nginx."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_NODE = Path(__file__).parent / "node"
_NODE_PACKAGES = _ROOT / ".cache" / "backends-node"
_INSTALL_SECONDS = 60  # for npm, which repeats its requests for minutes if there is no network

_NGINX = """\
daemon off;
master_process off;
pid pid;
error_log stderr error;
worker_rlimit_nofile 200000;
events {{ worker_connections 100000; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location = /nginx {{
            proxy_pass {url};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""


class Server:
    """A server in another process, of one process. It prints its port, or serves `port`."""

    def __init__(self, command: Sequence[str], port: int = 0) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT)
        self.port = port or self._read_port(command)
        clock = ctypes.c_int()
        if error := ctypes.CDLL(None).clock_getcpuclockid(self._process.pid, ctypes.byref(clock)):
            raise OSError(error, os.strerror(error))
        self._clock = clock.value

    def _read_port(self, command: Sequence[str]) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # libraries print other lines before it
            if line.strip().isdigit():
                return int(line)
        raise RuntimeError(f"{command[0]} does not serve")

    def time(self) -> float:
        """Return the processor time of all threads of the server, in seconds."""
        return time.clock_gettime(self._clock)

    def memory(self) -> int:
        """Return the memory that the server holds, in bytes."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.communicate()

    def kill(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.communicate()


class PythonServer(Server):
    """A server of `benchmarks.backends.served`. `options` are the event loop, uvicorn's protocol, and the client."""

    def __init__(self, python: str, provider: str, redis: str, options: Sequence[str], *, proxy: bool = False) -> None:
        super().__init__(
            [python, "-m", "benchmarks.backends.served", provider, redis, *options, "proxy" if proxy else ""]
        )


class NodeServer(Server):
    """A server of `node/server.mjs`."""

    def __init__(self, node: str, provider: str) -> None:
        server = _NODE_PACKAGES / "server.mjs"
        shutil.copy(_NODE / "server.mjs", server)
        super().__init__([node, str(server), provider])


class NginxServer(Server):
    """nginx as a proxy of the provider, without buffering."""

    def __init__(self, nginx: str, provider: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="streamtools-nginx-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        config = Path(self._folder.name) / "nginx.conf"
        config.write_text(_NGINX.format(port=port, url=f"{provider}/chat/completions"))
        super().__init__([nginx, "-p", self._folder.name, "-c", str(config), "-e", "stderr"], port)
        for _ in range(1000):
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                return
            time.sleep(0.01)
        raise RuntimeError("nginx does not serve")

    def close(self) -> None:
        """End the server."""
        super().close()
        self._folder.cleanup()

    def kill(self) -> None:
        """Kill the server."""
        super().kill()
        self._folder.cleanup()


def find_nginx() -> str | None:
    """Return the path of nginx, or None. Debian installs it in a folder that only the path of root has."""
    return shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


def install_node_packages() -> None:
    """Install the npm packages of the rows on Node, unless the cache has them. Prints why npm fails."""
    wanted, installed = _NODE / "package.json", _NODE_PACKAGES / "installed.json"
    if installed.exists() and installed.read_bytes() == wanted.read_bytes():
        return
    _NODE_PACKAGES.mkdir(parents=True, exist_ok=True)
    shutil.copy(wanted, _NODE_PACKAGES / "package.json")
    try:
        npm = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--no-package-lock"]
        subprocess.run(npm, cwd=_NODE_PACKAGES, check=True, stdin=subprocess.DEVNULL, timeout=_INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no rows of npm packages: {error}", file=sys.stderr)
    else:
        shutil.copy(wanted, installed)
