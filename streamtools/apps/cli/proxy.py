"""`streamtools gateway`: a server in front of a model for clients of any language; see `gateway.service`."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal, TextIO

import msgspec

from streamtools.apps.cli.arguments import GATEWAY_PORT, Gateway
from streamtools.apps.cli.complaints import Complaints, Refused, reason_of
from streamtools.apps.cli.listening import is_here, listen, name_of, needing_a_server, run_server
from streamtools.conversation.prompts import Example


class Standby(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An upstream that is asked where those before it fail."""

    url: str
    model: str | None = None
    prefill: Literal["", "vllm", "sglang", "llama.cpp", "deepseek", "mistral"] = ""
    key_env: str | None = None
    key_file: str | None = None


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The file, and what the command line says over it; what is None is left to the gateway."""

    upstream: str = ""
    mode: Literal["text", "native", "auto"] | dict[str, Literal["text", "native", "auto"]] | None = None
    api: Literal["openai", "ollama", "llama.cpp", "vllm"] | None = None
    dialects: list[str] | None = None
    few_shot: bool | list[Example] | None = None
    on_malformed: Literal["text", "error"] | None = None
    ask_again: int | None = None
    fallbacks: list[Standby] = []
    hosts: list[str] = []
    origins: list[str] | None = None
    record: str | None = None
    max_body: int | None = None
    max_running: int | None = None
    timeout: float | None = None
    longest: float | None = None
    keep_alive: float | None = None
    send_timeout: float | None = None
    drain: float = 10.0
    host: str = "127.0.0.1"
    port: int = GATEWAY_PORT
    key_env: str | None = None
    key_file: str | None = None
    client_key_env: str | None = None
    client_key_file: str | None = None


_OURS = {"fallbacks", "host", "port", "key_env", "key_file", "client_key_env", "client_key_file"}
"""What is no parameter of the application's."""


def run_gateway(asked: Gateway, output: TextIO, complaints: Complaints) -> int:
    """Serve until the process gets a signal to end, and return the exit status."""
    with needing_a_server("the gateway"):
        from streamtools.gateway import FallbackUpstream
        from streamtools.gateway.service import app
    config = read_config(asked)
    key = _key(config.key_env, config.key_file)
    client_key = _key(config.client_key_env, config.client_key_file)
    given: dict[str, Any] = {
        name: value
        for name in config.__struct_fields__
        if name not in _OURS and (value := getattr(config, name)) is not None
    }
    keys = [_key(each.key_env, each.key_file) for each in config.fallbacks]
    given["hosts"] = [each.lower() for each in (config.host, *config.hosts)]
    with listen(config.host, config.port) as listener:
        if any([key, *keys]) and client_key is None and not is_here(listener):
            raise Refused(
                f"whoever reaches {name_of(config.host)} could use the key of the gateway: name the variable with a "
                "key for clients (--client-key-env), or listen at 127.0.0.1"
            )
        try:
            given["fallbacks"] = [
                FallbackUpstream(url=each.url, model=each.model, prefill=each.prefill, key=own)
                for each, own in zip(config.fallbacks, keys, strict=True)
            ]
            gateway = app(**given, key=key, client_key=client_key)
        except (ValueError, OSError) as error:
            raise Refused(str(error)) from None
        if client_key is None and not is_here(listener):
            complaints.write(f"whoever reaches {name_of(config.host)} can ask the model")
        url = f"http://{name_of(config.host)}:{listener.getsockname()[1]}/"
        banner = f"gateway to {config.upstream}: {url} (Ctrl-C ends it)"
        run_server(gateway, listener, banner, output, patience=config.drain + 10)
    return 0


def read_config(asked: Gateway) -> Config:
    """Return what the file says, and the command line over it. Raises `Refused`."""
    configured: dict[str, Any] = {}
    given = {name: value for name, value in vars(asked).items() if value is not None and name != "config"}
    if asked.config is not None:
        try:
            configured = tomllib.loads(Path(asked.config).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Refused(f"{asked.config} cannot be read: {reason_of(error)}") from None
    try:
        config = msgspec.convert(configured | given, Config)
    except msgspec.ValidationError as error:
        raise Refused(f"the configuration is of no use: {error}") from None
    if not config.upstream:
        raise Refused("the gateway needs an --upstream, such as http://127.0.0.1:8080/v1")
    return config


def _key(variable: str | None, file: str | None) -> str | None:
    """Return a key from where it is said to be. Raises `Refused` if it is not there."""
    if variable is not None:
        key = os.environ.get(variable, "").strip()
        if not key:
            raise Refused(f"the variable {variable} is not set")
        return key
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise Refused(f"the key cannot be read: {error}") from None
