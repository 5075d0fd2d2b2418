"""`streamtools serve`: a page on this machine for talking to a model and watching what streams."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, TextIO

from streamtools.cli.complaints import Complaints, Refused
from streamtools.cli.named_model import NamedModel
from streamtools.cli.serve_arguments import Serve
from streamtools.cli.toolbox import import_tools
from streamtools.conversation import Message, User, chat

if TYPE_CHECKING:
    from streamtools.web import Answerer, Suggestion

_PATIENCE = 20  # seconds that answers may take to be left when the server ends


def run_serve(asked: Serve, output: TextIO, complaints: Complaints) -> int:
    """Serve the page until the process is told to end, and return the exit status."""
    try:
        import uvicorn

        from streamtools.web import make_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise Refused(f'the page needs {error.name}: pip install "streamtools[cli,web]"') from None
    answerer = _answerer(asked)
    listener = _listen(asked.host, asked.port)
    with listener:
        port = listener.getsockname()[1]
        name = f"[{asked.host}]" if ":" in asked.host else asked.host
        app = make_app(
            answerer, cookie=f"streamtools_{port}", hosts=[each.lower() for each in (asked.host, *asked.allowed)]
        )
        config = uvicorn.Config(
            app,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_PATIENCE,
        )
        if not _is_loopback(listener):
            complaints.write(f"whoever reaches {name} can talk to the model and run the tools")
        output.write(f"{answerer.told}: http://{name}:{port}/ (Ctrl-C ends it)\n")
        output.flush()
        uvicorn.Server(config).run(sockets=[listener])
    return 0


class _Model:
    """Answers by a model that the command line names."""

    note = ""
    suggestions: Sequence[Suggestion] = ()

    def __init__(self, asked: Serve) -> None:
        self._named = NamedModel(asked, import_tools(asked.tools) if asked.tools is not None else None)
        self.told = self._named.told

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> chat:
        """Return the answer, not yet entered."""
        named = self._named
        before = [*(history or named.beginning), User(question)]
        return named.chat(before, named.model(), ask="now", call_deltas=True)


def _answerer(asked: Serve) -> Answerer:
    if asked.model is not None:
        return _Model(asked)
    from streamtools.cli.recorded import Recorded

    return Recorded(speed=asked.speed)


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raise `Refused` if there is none to be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Refused(f"port {port} is taken: choose another with --port, or --port 0 for any", status=1) from error
        raise Refused(f"nothing can listen at {host}, port {port}: {error.strerror or error}", status=1) from error
    return listener


def _is_loopback(listener: socket.socket) -> bool:
    return ip_address(listener.getsockname()[0]).is_loopback
