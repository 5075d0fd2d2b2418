"""Creates the model client of `streamtools serve`, and imports the tools that `serve` and `replay` use."""

from __future__ import annotations

import importlib
import os
import sys
from argparse import Namespace
from operator import attrgetter

import httpx

from streamtools import conversation
from streamtools.apps.cli.errors import CommandError
from streamtools.conversation import HTTPModel
from streamtools.tools import ToolRegistry
from streamtools.tools.definitions import ProviderFormat

_CLIENTS: dict[ProviderFormat, type[HTTPModel]] = {
    "openai": conversation.OpenAIChat,
    "responses": conversation.OpenAIResponses,
    "anthropic": conversation.AnthropicMessages,
    "gemini": conversation.GeminiChat,
    "interactions": conversation.GeminiInteractions,
    "ollama": conversation.OllamaChat,
    "bedrock": conversation.BedrockConverse,
    "cohere": conversation.CohereChat,
}
_WITHOUT_KEY = ("ollama", "bedrock")  # Ollama is a local server; botocore finds the credentials of Bedrock


def make_client(args: Namespace, http_client: httpx.AsyncClient | None = None) -> HTTPModel:
    """Create a client for the model that the options name.

    Raises CommandError if a key is missing, and ValueError, ImportError or httpx.InvalidURL for other invalid options.
    """
    api: ProviderFormat = args.api
    key_names = _CLIENTS[api].key_names
    if args.url is None and api not in _WITHOUT_KEY and not any(map(os.environ.get, key_names)):
        names = " or ".join(key_names)
        raise CommandError(f"--api {api} needs a key: set {names}, or pass another server with --url")
    # A model that is taught a dialect makes no native calls. None means that this is not known.
    native = None if args.dialect is None else False
    return _CLIENTS[api](args.model, base_url=args.url, client=http_client, native_tool_calls=native)


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
