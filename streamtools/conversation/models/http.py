"""What the clients of all providers share: where a request goes, with which key, and how long it may take.

A client is a description; it holds no connection. The key is looked up when a request is sent, goes into a header of
that request, to the host of `base_url` and nowhere else, and stands in no log, no message and no `repr`.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from streamtools.conversation.models.base import Ask
from streamtools.conversation.models.response import Timeouts
from streamtools.conversation.models.sending import Client, Request, Sending
from streamtools.sources import Source

DEFAULT_TIMEOUTS = Timeouts()

Key = str | Callable[[], str] | None


class HTTPModel(ABC):
    """A model behind HTTP.

    `base_url` is the provider's unless given; a whole address of the endpoint is taken too. `api_key` is the key, or
    what returns it; without it the provider's usual environment variable is read with each request, and `""` sends
    none. `client` is an asynchronous client of httpx or httpx2, or anything with its `stream`; it is left open. Without
    one, each request makes its own. `headers` come on top of ours. `retries` is how often a request is sent again, for
    as long as nothing of its answer has come. `options` are merged into each body; None takes out what would be sent.
    """

    format: ClassVar[str]
    """The name of its messages, tool definitions and stream."""
    _home: ClassVar[str]  # the provider's own address
    _key_names: ClassVar[tuple[str, ...]]  # environment variables

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: Key = None,
        client: Client | None = None,
        headers: Mapping[str, str] | None = None,
        native_tool_calls: bool | None = None,
        timeout: Timeouts = DEFAULT_TIMEOUTS,
        retries: int = 2,
        **options: Any,
    ) -> None:
        """Raises ValueError for an address that is none, and for less than no retries."""
        if retries < 0:
            raise ValueError(f"a request is sent again 0 times or more, not {retries}")
        self.name = model
        self.native_tool_calls = native_tool_calls
        self.url = _join(base_url or self._home, self._path())
        """Where requests go."""
        self.options = options
        self._key = api_key
        self._client = client
        self._headers = dict(headers or {})
        self._timeouts = timeout
        self._retries = retries

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} at {_shown(self.url)}>"

    @abstractmethod
    def body(self, ask: Ask) -> dict[str, Any]:
        """Return the body of the request. Pure."""

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Send the request on entry, and close the response on exit.

        Statuses, broken connections and times that ran out are errors of the source. Raises ValueError for a key that
        no header can hold, TypeError for options that are no JSON, and what the client raises for its own misuse.
        """
        content = _write(self.body(ask))
        return Sending(
            Request(self.url, self._all_headers(), content, self.format, self._timeouts, self._retries), self._client
        )

    @abstractmethod
    def _path(self) -> str:
        """Return the endpoint below the base URL, with its query."""

    def _authorise(self, key: str) -> dict[str, str]:
        """Return the header that holds the key."""
        return {"Authorization": f"Bearer {key}"}

    def _all_headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"} | self._extra_headers()
        key = self._read_key()
        if key:
            headers |= self._authorise(key)
        own = {name.lower() for name in self._headers}
        return {name: value for name, value in headers.items() if name.lower() not in own} | self._headers

    def _extra_headers(self) -> dict[str, str]:
        return {}

    def _read_key(self) -> str:
        key = self._key() if callable(self._key) else self._key
        if key is None:
            key = next((found for name in self._key_names if (found := os.environ.get(name))), "")
        key = key.strip()  # a line feed from the file that it stood in
        if not key.isascii() or not key.isprintable():
            raise ValueError(f"the API key of {self!r} holds characters that no header can")
        return key


def _join(base: str, path: str) -> str:
    """Return the address of the endpoint `path` below `base`, whose query stays; Azure needs one."""
    import httpx  # takes longer than all the rest of the package, and is wanted where somebody is asked

    try:
        parts = urlsplit(base)
        known = parts.scheme in ("http", "https") and parts.port != 0 and base.isprintable() and httpx.URL(base).host
    except (httpx.InvalidURL, ValueError):  # of names that no DNS knows, too: they may hold a secret, and are not told
        known = False
    if not known:
        raise ValueError("a base URL begins with http:// or https:// and a host, and holds no control characters")
    path, _, query = path.partition("?")
    whole = parts.path.rstrip("/")
    if not whole.endswith(path):
        whole += path
    missing = [each for each in (query,) if each and each not in parts.query.split("&")]
    return urlunsplit(parts._replace(path=whole, query="&".join(filter(None, [parts.query, *missing])), fragment=""))


def _shown(url: str) -> str:
    """Return an address without what may be secret: user, password and query."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _write(body: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(body).encode()
