"""`HTTPModel`, the base class of all models that are called over HTTP.

A model object holds no connection and no state between requests. It looks up the key for each request, and sends the
key in a header to the host of `base_url`. No log, error message or `repr` contains the key.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, get_args
from urllib.parse import urlsplit, urlunsplit

import msgspec

from streamtools.conversation.models.model import Ask, Body, merge
from streamtools.conversation.models.output_format import schema_fields
from streamtools.conversation.models.prefill import PREFILLS, known_prefill, prefill_of
from streamtools.conversation.models.sending import HTTPClient, ModelRequest, Sending, Timeouts
from streamtools.errors import check_word, did_you_mean
from streamtools.history import Assistant, Origin, ReasoningField, SendReasoning, write_messages
from streamtools.history.formats import write_continuation
from streamtools.sources import Source

DEFAULT_TIMEOUTS = Timeouts()

_NATIVE_HOSTS = {
    "api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "aiplatform.googleapis.com",
    "api.mistral.ai", "api.x.ai", "api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn", "api.cohere.ai",
    "api.cohere.com",
}  # fmt: skip
_NATIVE_HOST_ENDINGS = (".openai.azure.com", "-aiplatform.googleapis.com")

Key = str | Callable[[], str] | None


def calls_natively_at(host: str) -> bool:
    """Return whether `host` belongs to a company whose models all make native calls."""
    return host in _NATIVE_HOSTS or host.endswith(_NATIVE_HOST_ENDINGS)


class HTTPModel(ABC):
    """A model that is called over HTTP.

    `base_url` is the base URL of the API, or the whole URL of the endpoint. Its default is the provider's base URL.
    `api_key` is the key, or a function that returns the key. If it is None, the key is read from the provider's
    environment variable for each request. With `""`, no key is sent. `client` is an asynchronous client of httpx or
    httpx2, or any object with the same `stream` method. The model never closes `client`. If `client` is None, each
    request creates its own client. `headers` are sent with each request. They replace headers of the same name that the
    model sets. `native_tool_calls` says whether the model makes native calls. Its default is True if `base_url` belongs
    to a company whose models all make native calls. Otherwise its default is None, which means unknown. `timeout` is a
    `Timeouts`, a timeout of httpx, a number of seconds for each limit, or None for no limits. `retries` is the number
    of times that a failed request is sent again. It is not sent again once a byte of a successful answer has arrived.

    `send_reasoning` says which reasoning a request for chat completions includes: that of exchanges with calls
    (`"with_calls"`), all (`"always"`), that of the last exchange (`"since_user"`), or none (`"never"`). An exchange is
    a user message and all messages up to the next one. `reasoning_field` is the name of the message field in which the
    host expects reasoning. It is needed for a history from a front end, and for a host whose field is not known.
    `previous_id` is for providers that store responses. With it, a request names the last response in the history and
    contains only the messages after it. If the provider no longer has this response, the request is sent again with the
    whole history. `prefill` names a server that can continue the beginning of an answer: `"vllm"`, `"sglang"`,
    `"llama.cpp"` or another key of `PREFILLS`. By default, the URL decides. With `""`, no prefill is sent.
    `options` are merged into each body. An option of None removes the field from the body.
    """

    format: ClassVar[str]
    """The name of the format of messages and tool definitions, and usually of the adapter that reads answers."""
    _adapter: ClassVar[str] = ""  # the name of the adapter, if it differs from `format`
    _default_base_url: ClassVar[str]  # the provider's base URL
    _endpoint: ClassVar[str]  # the path of the endpoint below the base URL, with its query
    key_names: ClassVar[tuple[str, ...]]
    """Names of environment variables. The first variable that is set contains the key."""
    _key_header: ClassVar[str] = "Authorization"  # the header for the key; `Authorization` adds `Bearer` before the key
    _required_headers: ClassVar[Mapping[str, str]] = {}  # headers that the provider requires in every request
    _previous_id_field: ClassVar[str] = ""  # the field for the id of an earlier response; "" if there is none

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: Key = None,
        client: HTTPClient | None = None,
        headers: Mapping[str, str] | None = None,
        native_tool_calls: bool | None = None,
        timeout: Timeouts | float | Any = DEFAULT_TIMEOUTS,
        retries: int = 2,
        send_reasoning: SendReasoning = "with_calls",
        reasoning_field: ReasoningField | None = None,
        previous_id: bool = False,
        prefill: str | None = None,
        **options: Any,
    ) -> None:
        """Create a model. Raises ValueError for a value that is not allowed, and TypeError for a misspelled parameter.

        Without the TypeError, a misspelled parameter would be sent to the provider as one of the `options`.
        """
        parameters = HTTPModel.__init__.__annotations__.keys() - {"model", "prefill", "options", "return"}
        for name in options:  # no provider has an option with a name similar to a parameter
            if meant := did_you_mean(name, sorted(parameters)):
                hint = "pass fields of the request body as `request` of chat()"
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}{meant} {hint}")
        if prefill and (prefill not in PREFILLS or self.format not in ("openai", "anthropic")):
            raise ValueError(f"`prefill` must be '' or, for chat completions, {', '.join(PREFILLS)}; got {prefill!r}.")
        check_word("send_reasoning", send_reasoning, get_args(SendReasoning))
        if reasoning_field is not None:
            check_word("reasoning_field", reasoning_field, get_args(ReasoningField))
        if retries < 0:
            raise ValueError(f"`retries` must be 0 or more, got {retries}.")
        if previous_id and not self._previous_id_field:
            raise ValueError(f"{type(self).__name__} does not support `previous_id`. Leave it out.")
        if previous_id and options.get("store") is False:
            raise ValueError("With store=False the provider stores no response that `previous_id` could name.")
        self.name = model
        self.url = _join_url(base_url or self._default_base_url, self._path())
        """The URL of requests."""
        host = urlsplit(self.url).hostname or ""
        if native_tool_calls is None and calls_natively_at(host):
            native_tool_calls = True
        self.native_tool_calls = native_tool_calls
        self.send_reasoning = send_reasoning
        self.prefill = known_prefill(self.format, self.url, model) if prefill is None else prefill
        """The key in `PREFILLS` for the server; None or "" if no prefill is sent."""
        self.reasoning_field = reasoning_field
        self.previous_id = previous_id
        self.origin = Origin(self.format, host or None, model)
        """The origin of the model's turns. Parts of a history that only another origin accepts are not sent."""
        self.options = options
        self._key = api_key
        self._client = client
        self._given_headers = dict(headers or {})
        self._timeouts = Timeouts.of(timeout)
        self._retries = retries

    def __repr__(self) -> str:
        parts = urlsplit(self.url)  # user, password and query may be secret
        shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
        return f"<{type(self).__name__} {self.name!r} at {shown}>"

    @property
    def source(self) -> str:
        """The name of the adapter that reads the model's stream."""
        return self._adapter or self.format

    @abstractmethod
    def body(self, ask: Ask) -> Body:
        """Return the body of the request. Has no side effects."""

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Send the request on entry, and close the response on exit.

        An error status, a lost connection or a timeout is an error event of the source. Raises ValueError for a key
        that is missing or that a header cannot contain, and TypeError for options that are not JSON. The HTTP client
        may raise other exceptions if it is misused.
        """
        return Sending(self._request(ask), self._client)

    def _request(self, ask: Ask) -> ModelRequest:
        body = self.body(ask)
        if ask.output is not None:
            body = merge(dict(schema_fields(self.format, ask.output)), body)
        if ask.prefill and (prefill := prefill_of(self, ask.options)) is not None:
            body = prefill.write(body, ask.prefill)
        try:
            content = msgspec.json.encode(body)
        except UnicodeEncodeError:  # a string contains half of a surrogate pair
            content = json.dumps(body).encode()
        with_whole_history = (
            None if self._stored_turn(ask) is None else partial(self._request, replace(ask, whole_history=True))
        )
        return ModelRequest(
            self.url, self._headers(), content, self.source, self._timeouts, self._retries, with_whole_history
        )

    def _stored_turn(self, ask: Ask) -> int | None:
        """Return the index of the last turn that the provider stores; None if the whole history must be sent."""
        stores = {**self.options, **ask.options}.get("store") is not False
        if not self.previous_id or ask.whole_history or not stores:
            return None
        for index in reversed(range(len(ask.history) - 1)):  # at least one message must follow the turn
            turn = ask.history[index]
            if isinstance(turn, Assistant) and turn.response_id and turn.origin.is_same(self.origin):
                return index
        return None

    def _write_history(self, ask: Ask, **options: Any) -> tuple[Body, list[Body]]:
        """Return the field that names an earlier response, and the messages of a request.

        If the request names no earlier response, the first value is empty.
        """
        options = {"dialects": ask.dialects, "provider": self.origin, **options}
        if (index := self._stored_turn(ask)) is not None:
            turn = ask.history[index]
            assert isinstance(turn, Assistant)
            following = write_continuation(turn, ask.history[index + 1 :], self.format, **options)
            return {self._previous_id_field: turn.response_id}, following
        return {}, write_messages(ask.history, self.format, **options)

    def _path(self) -> str:
        return self._endpoint

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate", **self._required_headers}
        key = self._key() if callable(self._key) else self._key
        if key is None:
            key = next((found for name in self.key_names if (found := os.environ.get(name))), None)
        at_provider = self._default_base_url.startswith("https:") and self.url.startswith(self._default_base_url)
        if key is None and at_provider and self._client is None and not self._given_headers:  # these may add a key
            names = " or ".join(self.key_names)
            raise ValueError(f'{self!r} has no API key: set {names}, or pass api_key ("" sends none)')
        key = (key or "").strip()  # a key from a file may end with a line feed
        if not key.isascii() or not key.isprintable():
            raise ValueError(f"the API key of {self!r} contains characters that a header cannot contain")
        if key:
            headers[self._key_header] = f"Bearer {key}" if self._key_header == "Authorization" else key
        given = {name.lower() for name in self._given_headers}
        return {name: value for name, value in headers.items() if name.lower() not in given} | self._given_headers


def _join_url(base: str, path: str) -> str:
    """Return the URL of the endpoint `path` below `base`. The query of `base` is kept, because Azure needs it."""
    import httpx  # importing it takes longer than the rest of the package, and only models need it

    try:
        parts = urlsplit(base)
        valid = parts.scheme in ("http", "https") and parts.port != 0 and base.isprintable() and httpx.URL(base).host
    except (httpx.InvalidURL, ValueError):  # httpx raises these, also for host names that DNS does not allow
        valid = False
    if not valid:  # the message does not contain the URL, which may include a secret
        raise ValueError("`base_url` must begin with http:// or https:// and a host, without control characters.")
    path, _, query = path.partition("?")
    whole = parts.path.rstrip("/")
    if not whole.endswith(path):
        whole += path
    if query in parts.query.split("&"):
        query = ""
    return urlunsplit(parts._replace(path=whole, query="&".join(filter(None, [parts.query, query])), fragment=""))
