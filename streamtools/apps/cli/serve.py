"""The command `streamtools serve`. It runs the page of `streamtools.apps.web` with a model or with recorded answers."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO
from urllib.parse import urlencode

from streamtools.apps.cli.errors import ErrorOutput
from streamtools.apps.cli.servers import is_loopback, listen, require_web_extra, run_server, url_host


def run(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Run the server until a signal ends the process, and return the exit status."""
    with require_web_extra("the page"):
        from streamtools.apps.cli.answerers import ModelAnswerer, RecordedAnswers
        from streamtools.apps.web import make_app
    with TemporaryDirectory(prefix="streamtools-", ignore_cleanup_errors=True) as directory:
        recorded = RecordedAnswers(args.files, speed=args.speed) if args.model is None else None
        answerer = recorded or ModelAnswerer(args, Path(directory))
        with listen(args.host, args.port) as listener:
            port = listener.getsockname()[1]
            hosts = [host.lower() for host in (args.host, *args.allowed_hosts)]
            app = make_app(answerer, cookie=f"streamtools_{port}", hosts=hosts)
            if not is_loopback(listener):
                everyone = f"everyone who can connect to {url_host(args.host)}"
                errors.write(f"{everyone} can talk to the model and run the tools")
            page = f"debugger?{urlencode({'of': answerer.suggestions[0].name})}" if args.files else ""
            banner = f"{answerer.label}: http://{url_host(args.host)}:{port}/{page} (Ctrl-C ends it)"
            run_server(app, listener, banner, output)
    return 0
