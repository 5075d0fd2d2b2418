"""Creates the model client and the tools from the options of `streamtools serve`."""

from __future__ import annotations

import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from operator import attrgetter
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from streamtools.apps.cli.errors import CommandError
from streamtools.conversation import RequestOptions, chat, models
from streamtools.conversation.models import HTTPModel
from streamtools.history import Message, System
from streamtools.recording.redaction import redact_url
from streamtools.tools import ToolRegistry
from streamtools.tools.definitions import ProviderFormat

_CLIENTS: dict[ProviderFormat, type[HTTPModel]] = {
    "openai": models.OpenAIChat,
    "responses": models.OpenAIResponses,
    "anthropic": models.AnthropicMessages,
    "gemini": models.GeminiChat,
    "interactions": models.GeminiInteractions,
    "ollama": models.OllamaChat,
    "bedrock": models.BedrockConverse,
    "cohere": models.CohereChat,
}
_WITHOUT_KEY = ("ollama", "bedrock")  # Ollama is a local server; botocore finds the credentials of Bedrock


class CommandModel:
    """Creates model clients and chats from the options in `args`. Raises CommandError for invalid options."""

    def __init__(self, args: Namespace, tools: ToolRegistry | None) -> None:
        self._args = args
        self._tools = tools
        regions = ("AWS_REGION", "AWS_DEFAULT_REGION")
        has_region = args.url is not None or args.model.startswith("arn:") or any(map(os.environ.get, regions))
        if args.api == "bedrock" and not has_region:
            raise CommandError("--api bedrock needs a region: set AWS_REGION, or pass the ARN of the model")
        try:
            model = self.make_client()
            self.chat(self.system_messages, model)
        except (ValueError, ImportError, httpx.InvalidURL) as error:  # about URLs, keys, options and missing packages
            raise CommandError(str(error)) from error
        if args.url is None and args.api not in _WITHOUT_KEY and not any(map(os.environ.get, model.key_names)):
            names = " or ".join(model.key_names)
            raise CommandError(f"--api {args.api} needs a key: set {names}, or pass another server with --url")

    @property
    def system_messages(self) -> list[Message]:
        return [System(self._args.system)] if self._args.system else []

    @property
    def label(self) -> str:
        return f"{self._args.model} at {redact_url(self.make_client().url)}"

    def make_client(self, http_client: httpx.AsyncClient | None = None) -> HTTPModel:
        """Create a client for the model. Raises ValueError for an invalid URL."""
        args = self._args
        api: ProviderFormat = args.api
        # A model that is taught a dialect makes no native calls. None means that this is not known.
        native = None if args.dialect is None else False
        return _CLIENTS[api](args.model, base_url=args.url, client=http_client, native_tool_calls=native)

    def chat(self, history: Sequence[Message], model: HTTPModel, **options: Any) -> chat:
        """Return a chat that answers `history`. It is not entered yet."""
        args = self._args
        taught = args.dialect is not None and self._tools is not None
        return chat(
            model,
            history,
            tools=self._tools,
            dialects=None if args.dialect is None else (args.dialect,),
            request=RequestOptions(
                body=dict(args.options),
                teach="always" if taught else "auto",
                few_shot=args.few_shot,
                emulation=args.emulate,
            ),
            **options,
        )


def import_tools(path: str) -> ToolRegistry:
    """Import the tools at `path`, which has the form `MODULE:NAME`. Raises CommandError if that fails.

    The current directory is searched first, as for a script in this directory.
    """
    module, _, name = path.partition(":")
    if not (module and name):
        raise CommandError(f"--tools must be MODULE:NAME, such as weather:tools, got {path!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = attrgetter(name)(importlib.import_module(module))
        if found is None:
            raise TypeError("it is None")
        return ToolRegistry.of(found)
    except (Exception, SystemExit) as error:
        raise CommandError(f"--tools {path} cannot be used: {type(error).__name__}: {error}") from error


def describe_tools(tools: ToolRegistry | None) -> list[dict[str, str]]:
    """Return the names and descriptions of the tools for the first screen of the web page."""
    return [
        {
            "name": tool.name,
            "about": tool.description.partition("\n")[0] + (" It asks you first." if tool.requires_approval else ""),
        }
        for tool in tools or ()
    ]


def proxy_for(url: str) -> str | None:
    """Return the proxy for `url` from the environment. Returns None without a proxy.

    httpx reads the environment only for transports that the client creates, so other transports need this function.
    """
    parts = urlsplit(url)
    proxies: dict[str, Any] = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
