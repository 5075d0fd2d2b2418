"""The commands `streamtools serve` and `streamtools gateway`, which run an application with uvicorn.

`serve` runs the page of `streamtools.apps.web` with a model or with recorded answers. `gateway` runs the application in
`streamtools.gateway.service`.
"""

from __future__ import annotations

import errno
import os
import socket
import tomllib
from argparse import Namespace
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TextIO
from urllib.parse import urlencode

import msgspec

from streamtools.apps.cli.arguments import GATEWAY_PORT
from streamtools.apps.cli.errors import CommandError, ErrorOutput, reason_of
from streamtools.loading import require_packages

with require_packages("this command"):
    import uvicorn

    from streamtools.apps.cli.answerers import ModelAnswerer, RecordedAnswers
    from streamtools.apps.web import make_app
    from streamtools.gateway import FallbackUpstream
    from streamtools.gateway.service import app


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises CommandError if that fails."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        dual_stack = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, dualstack_ipv6=dual_stack)
    except OSError as error:
        taken = "the port is in use; choose another port with --port, or --port 0 for any free port"
        reason = taken if error.errno == errno.EADDRINUSE else error.strerror or error
        message = f"cannot listen on {host}, port {port}: {reason}"
        raise CommandError(message, status=1) from error


def is_loopback(listener: socket.socket) -> bool:
    """Return True if only the local machine can connect to the socket."""
    return ip_address(listener.getsockname()[0]).is_loopback


def url_host(host: str) -> str:
    """Return a host in the form for URLs. IPv6 addresses are enclosed in brackets."""
    return f"[{host}]" if ":" in host else host


def run_server(app: Any, listener: socket.socket, banner: str, output: TextIO, *, shutdown_timeout: float) -> None:
    """Print the banner, and run the server until a signal ends the process.

    After the signal, open requests have `shutdown_timeout` seconds to end.
    """
    config = uvicorn.Config(app, lifespan="on", log_config=None, access_log=False, server_header=False)
    config.timeout_graceful_shutdown = int(shutdown_timeout)
    output.write(f"{banner}\n")
    output.flush()
    uvicorn.Server(config).run(sockets=[listener])


def run_serve(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Run the server until a signal ends the process, and return the exit status."""
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
            run_server(app, listener, banner, output, shutdown_timeout=20)
    return 0


class FallbackConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A fallback upstream. It is called if the upstream and the fallbacks before it fail."""

    url: str
    model: str | None = None
    prefill: Literal["", "vllm", "sglang", "llama.cpp", "deepseek", "mistral"] = ""
    key_env: str | None = None


class GatewayConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The options of the gateway from the TOML file and the command line. None means the default of the gateway."""

    upstream: str = ""
    mode: Literal["text", "native", "auto"] | dict[str, Literal["text", "native", "auto"]] | None = None
    api: Literal["openai", "ollama", "llama.cpp", "vllm"] | None = None
    dialects: list[str] | None = None
    on_malformed: Literal["text", "error"] | None = None
    fallbacks: list[FallbackConfig] = []
    hosts: list[str] = []
    """The host names under which clients may reach the gateway, in addition to `host`."""
    origins: list[str] | None = None
    record: str | None = None
    max_body: int | None = None
    max_running: int | None = None
    timeout: float | None = None
    longest: float | None = None
    """The maximum time for a whole answer, in seconds."""
    keep_alive: float | None = None
    send_timeout: float | None = None
    max_rate: float | None = None
    drain: float = 10.0
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = GATEWAY_PORT
    key_env: str | None = None
    client_key_env: str | None = None


_COMMAND_FIELDS = {"fallbacks", "host", "port", "key_env", "client_key_env"}
"""The fields of `GatewayConfig` that `run_gateway` uses or converts. The others are parameters of the application."""


def run_gateway(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Run the gateway until a signal ends the process, and return the exit status."""
    config = read_config(args)
    key = _read_key(config.key_env)
    client_key = _read_key(config.client_key_env)
    fallback_keys = [_read_key(fallback.key_env) for fallback in config.fallbacks]
    options: dict[str, Any] = {
        name: value
        for name in config.__struct_fields__
        if name not in _COMMAND_FIELDS and (value := getattr(config, name)) is not None
    }
    options["hosts"] = [host.lower() for host in (config.host, *config.hosts)]
    with listen(config.host, config.port) as listener:
        is_open = client_key is None and not is_loopback(listener)
        if is_open and any([key, *fallback_keys]):
            raise CommandError(
                f"everyone who can connect to {url_host(config.host)} could use the gateway's key: set a key for "
                "clients with --client-key-env, or listen on 127.0.0.1"
            )
        try:
            options["fallbacks"] = [
                FallbackUpstream(url=fallback.url, model=fallback.model, prefill=fallback.prefill, key=fallback_key)
                for fallback, fallback_key in zip(config.fallbacks, fallback_keys, strict=True)
            ]
            gateway = app(**options, key=key, client_key=client_key)
        except (ValueError, OSError) as error:
            raise CommandError(str(error)) from None
        if is_open:
            errors.write(f"everyone who can connect to {url_host(config.host)} can use the model")
        url = f"http://{url_host(config.host)}:{listener.getsockname()[1]}/"
        banner = f"gateway to {config.upstream}: {url} (Ctrl-C ends it)"
        run_server(gateway, listener, banner, output, shutdown_timeout=config.drain + 10)
    return 0


def read_config(args: Namespace) -> GatewayConfig:
    """Read the configuration file. Options of the command line take precedence.

    Raises CommandError for an invalid configuration.
    """
    from_file: dict[str, Any] = {}
    from_args = {
        name: value for name, value in vars(args).items() if value is not None and name not in ("command", "config")
    }
    if args.config is not None:
        try:
            from_file = tomllib.loads(Path(args.config).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CommandError(f"{args.config} cannot be read: {reason_of(error)}") from None
    try:
        config = msgspec.convert(from_file | from_args, GatewayConfig)
    except msgspec.ValidationError as error:
        raise CommandError(f"invalid configuration: {error}") from None
    if not config.upstream:
        raise CommandError("the gateway needs an --upstream, such as http://127.0.0.1:8080/v1")
    return config


def _read_key(variable: str | None) -> str | None:
    """Read the key from an environment variable. Returns None if `variable` is None.

    Raises CommandError if the variable is not set.
    """
    key = None if variable is None else os.environ.get(variable, "").strip()
    if key == "":
        raise CommandError(f"the environment variable {variable} is not set")
    return key
