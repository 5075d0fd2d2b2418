"""The model that a command line names, its tools, and how it is reached: what `chat` and `serve` have in common."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from streamtools.apps.cli.arguments import ModelArguments
from streamtools.apps.cli.complaints import Refused
from streamtools.conversation import Message, RequestOptions, System, chat, models
from streamtools.conversation.models import HTTPModel
from streamtools.recording.redact import redact_url
from streamtools.tools import Tool, ToolRegistry
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
_WITHOUT_KEY = ("ollama", "bedrock")  # on this machine; or signed, with credentials that others look up


class NamedModel:
    """The model that a command line names. Raises `Refused` at once for what is of no use."""

    def __init__(self, asked: ModelArguments, tools: ToolRegistry | None) -> None:
        self._asked = asked
        self._tools = tools
        regions = ("AWS_REGION", "AWS_DEFAULT_REGION")
        known = asked.url is not None or (asked.model or "").startswith("arn:") or any(map(os.environ.get, regions))
        if asked.api == "bedrock" and not known:
            raise Refused("--api bedrock needs a region: set AWS_REGION, or name the model by an ARN, which has one")
        with refusals():
            model = self.model()
            self.chat(self.beginning, model)
        if asked.url is None and asked.api not in _WITHOUT_KEY and not any(map(os.environ.get, model.key_names)):
            names = " or ".join(model.key_names)
            raise Refused(
                f"--api {asked.api} needs a key: set {names}, or give the address of another server with --url"
            )

    @property
    def beginning(self) -> list[Message]:
        """What stands before the first question."""
        return [System(self._asked.system)] if self._asked.system else []

    @property
    def label(self) -> str:
        return f"{self._asked.model} at {redact_url(self.model().url)}"

    def model(self, client: httpx.AsyncClient | None = None) -> HTTPModel:
        """Return who answers. Raises ValueError for an address that is none."""
        asked = self._asked
        native = None if asked.dialect is None else False
        return _CLIENTS[asked.api](asked.model or "", base_url=asked.url, client=client, native_tool_calls=native)

    def chat(
        self, history: Sequence[Message], model: HTTPModel, *, request: Mapping[str, Any] | None = None, **options: Any
    ) -> chat:
        """Return the answer to a history, not yet entered. What the command line says of a `request` comes first."""
        asked = self._asked
        taught = asked.dialect is not None and self._tools is not None
        return chat(
            model,
            history,
            tools=self._tools,
            dialects=None if asked.dialect is None else (asked.dialect,),
            request=RequestOptions(
                body={**(request or {}), **asked.options},
                teach="always" if taught else "auto",
                few_shot=asked.few_shot,
                emulation=asked.emulate,
            ),
            **options,
        )


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Refuse what the library refuses: addresses, keys and choices that are of no use, proxies that need a package."""
    try:
        yield
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise Refused(str(error)) from error


def import_tools(where: str) -> ToolRegistry:
    """Return the tools that `where` names, as `MODULE:NAME`; raise `Refused` with what is wrong.

    The current directory comes first, as it does for a script that is run there.
    """
    module_name, _, name = where.partition(":")
    if not (module_name and name):
        raise Refused(f"--tools takes MODULE:NAME, such as weather:tools, and not {where!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    found = _attribute(_module(module_name), name)
    try:
        if found is None:
            raise TypeError("it is None")
        return ToolRegistry.of(found)
    except Exception as error:
        raise Refused(f"--tools {where}: these are no tools: {error}") from error


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise Refused(f"--tools: the module {name!r} cannot be imported: {error}") from error
        hint = f"; a module is named without its .py: {name[:-3]}" if name.endswith(".py") else ""
        raise Refused(
            f"--tools: there is no module {name!r}, neither in the current directory nor installed{hint}"
        ) from None
    except (Exception, SystemExit) as error:
        raise Refused(f"--tools: the module {name!r} cannot be imported: {type(error).__name__}: {error}") from error


def _attribute(module: ModuleType, path: str) -> Any:
    try:
        return attrgetter(path)(module)
    except AttributeError:
        tools = [key for key, value in vars(module).items() if isinstance(value, Tool | ToolRegistry)]
        there_are = f"; there are {', '.join(tools)}" if tools else ""
        raise Refused(f"--tools: the module {module.__name__!r} has no {path!r}{there_are}") from None


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for `url`, if any; httpx asks it only for transports of its own."""
    parts = urlsplit(url)
    proxies: dict[str, Any] = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
