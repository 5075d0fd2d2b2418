"""What is asked of a model, and what a model is: something that makes a request of it and streams the answer.

The request is one value for all providers, so that whoever asks, asks again and emulates knows none of them; the class
of each writes it in the provider's form. A client is a description; it holds no connection. The key is looked up when a
request is sent, goes into a header of that request, to the host of `base_url` and nowhere else, and is in no log, no
message and no `repr`.
"""

from __future__ import annotations

import copy
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, get_args
from urllib.parse import urlsplit, urlunsplit

import msgspec

from streamtools.conversation.models.answer_format import PREFILLS, known_prefill, native_format, prefill_of
from streamtools.conversation.models.sending import Client, Request, Sending, Timeouts
from streamtools.errors import check_word, did_you_mean
from streamtools.history import (
    Assistant,
    Message,
    Origin,
    ReasoningField,
    SendReasoning,
    write_continuation,
    write_messages,
)
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.neutralising import neutralise_all
from streamtools.sources import Source
from streamtools.tools import Tool, ToolChoice, ToolRegistry
from streamtools.tools.definitions import ProviderFormat
from streamtools.typed import OutputType

AUTO = ToolChoice()

Body = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """One request.

    `tools` are the native definitions to send; without them there is no `tool_choice` either. `options` are merged into
    the body, after the model's own: a value of None takes out what would be sent. `dialects` write the results of calls
    that the history holds as text. `whole`: all of the history is sent, whatever the provider has kept of it. A model
    whose server goes on with an answer is made to begin with `prefill`. `output` is the type of which
    the answer is to be, for a provider that takes its schema.
    """

    history: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)
    dialects: tuple[Dialect, ...] = ()
    whole: bool = False
    prefill: str = ""
    output: OutputType | None = None


def origin_of(model: object) -> Origin:
    """Return what is known of whose answers a model gives."""
    known = getattr(model, "origin", None)
    return known if isinstance(known, Origin) else Origin(model=getattr(model, "name", None))


class Model(Protocol):
    """Something that answers. It keeps nothing of one request for the next."""

    @property
    def name(self) -> str:
        """What its provider calls it."""

    @property
    def native_tool_calls(self) -> bool | None:
        """Whether it makes calls in its provider's own form; None where nobody knows."""

    def body(self, ask: Ask) -> Body:
        """Return the body of the request. Pure."""

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Send the request on entry, and close the response on exit.

        What provider and network do is an event of the source; what is raised is the caller's fault.
        """


DEFAULT_TIMEOUTS = Timeouts()

_MAKERS = {
    *("api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
    *("api.mistral.ai", "api.x.ai", "api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn"),
    *("api.cohere.ai", "api.cohere.com"),
}
_OF_REGIONS = (".openai.azure.com", "-aiplatform.googleapis.com")
"""Hosts of those who make the models that answer there, all of which make native calls."""


def calls_natively_at(host: str) -> bool:
    """Return whether the models at an address are asked where they are made, and all make native calls."""
    return host in _MAKERS or host.endswith(_OF_REGIONS)


Key = str | Callable[[], str] | None


class HTTPModel(ABC):
    """A model behind HTTP.

    `base_url` is the provider's unless given; a whole address of the endpoint is taken too. `api_key` is the key, or
    what returns it; without it the provider's usual environment variable is read with each request, and `""` sends
    none. `client` is an asynchronous client of httpx or httpx2, or anything with its `stream`; it is left open. Without
    one, each request makes its own. `headers` come on top of ours. `native_tool_calls` says whether the model makes
    native calls; without it, one at its maker's own address counts as one that does. `timeout` is a `Timeouts`, one of
    httpx, or seconds for each step. `retries` is how often a request is sent again, for as long as nothing of its
    answer has come. `send_reasoning` says in which turns reasoning goes
    back in chat completions: `"with_calls"`, `"always"`, `"since_user"` or `"never"`; `reasoning_field` in which field,
    where a front end has kept the history and the host is not one that is known to want it. `previous_id`, for
    providers that keep their responses: a request names the last one that the history holds and sends what came after
    it; if the provider no longer knows it, the whole history is sent, once. `prefill` names the server, for those that
    go on with an answer whose beginning they are given (`"vllm"`, `"sglang"`, `"llama.cpp"`); known providers need
    none, and `""` says that it is not done. `options` are merged into each body; None takes out what would be sent.
    """

    format: ClassVar[str]
    """The name of its messages, tool definitions and stream."""
    _stream: ClassVar[str] = ""  # the adapter of its stream, where that has another name
    _home: ClassVar[str]  # the provider's own address
    _endpoint: ClassVar[str]  # below the base URL, with its query
    key_names: ClassVar[tuple[str, ...]]
    """The environment variables of which the first that is set holds the key, unless one is given."""
    _key_header: ClassVar[str] = "Authorization"  # whose value is `Bearer` and the key; that of others is the key
    _own_headers: ClassVar[Mapping[str, str]] = {}
    _previous: ClassVar[str] = ""  # where a request names an earlier response, if its provider keeps them

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: Key = None,
        client: Client | None = None,
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
        """Raises ValueError for an address that is none, less than no retries, another `send_reasoning`,
        `reasoning_field` or `prefill`, and for `previous_id` where nothing is kept, and TypeError for an option that is
        spelled almost like a parameter: sent in the body, it would leave the parameter at its default.
        """
        parameters = HTTPModel.__init__.__annotations__.keys() - {"model", "prefill", "options", "return"}
        for name in options:  # no field of a provider's is spelled like one
            if meant := did_you_mean(name, sorted(parameters)):
                hint = "what is meant for the body of each request goes into `request` of chat()"
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}{meant} {hint}")
        if prefill and (prefill not in PREFILLS or self.format not in ("openai", "anthropic")):
            raise ValueError(f"prefill is one of {', '.join(PREFILLS)}, for chat completions, or '', not {prefill!r}")
        check_word("send_reasoning", send_reasoning, get_args(SendReasoning))
        if reasoning_field is not None:
            check_word("reasoning_field", reasoning_field, get_args(ReasoningField))
        if retries < 0:
            raise ValueError(f"a request is sent again 0 times or more, not {retries}")
        if previous_id and not self._previous:
            raise ValueError(f"{type(self).__name__} names no earlier responses: leave previous_id out")
        if previous_id and options.get("store") is False:
            raise ValueError("with store=False the provider keeps no response that previous_id could name")
        self.name = model
        self.url = _join(base_url or self._home, self._path())
        """Where requests go."""
        host = urlsplit(self.url).hostname or ""
        if native_tool_calls is None and calls_natively_at(host):
            native_tool_calls = True
        self.native_tool_calls = native_tool_calls
        self.send_reasoning = send_reasoning
        self.prefill = known_prefill(self.format, self.url, model) if prefill is None else prefill
        """The row of `PREFILLS` by which it goes on with an answer of which it is given the beginning, if any."""
        self.reasoning_field = reasoning_field
        self.previous_id = previous_id
        self.origin = Origin(self.format, host or None, model)
        """What its turns remember, and what decides which of a history's parts it is sent."""
        self.options = options
        self._key = api_key
        self._client = client
        self._given_headers = dict(headers or {})
        self._timeouts = Timeouts.of(timeout)
        self._retries = retries

    def __repr__(self) -> str:
        parts = urlsplit(self.url)  # whose user, password and query may be secret
        shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
        return f"<{type(self).__name__} {self.name!r} at {shown}>"

    @property
    def source(self) -> str:
        """The name of the adapter that reads its stream."""
        return self._stream or self.format

    @abstractmethod
    def body(self, ask: Ask) -> Body:
        """Return the body of the request. Pure."""

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Send the request on entry, and close the response on exit.

        Statuses, broken connections and times that ran out are errors of the source. Raises ValueError for a key that
        no header can hold, TypeError for options that are no JSON, and what the client raises for its own misuse.
        """
        return Sending(self._request(ask), self._client)

    def _request(self, ask: Ask) -> Request:
        body = self.body(ask)
        if ask.output is not None:
            body = merge(dict(native_format(self.format, ask.output)), body)
        if ask.prefill and (how := prefill_of(self, ask.options)) is not None:
            body = how.write(body, ask.prefill)
        try:
            content = msgspec.json.encode(body)
        except UnicodeEncodeError:  # half of a surrogate pair
            content = json.dumps(body).encode()
        whole = None if self._known(ask) is None else partial(self._request, replace(ask, whole=True))
        return Request(self.url, self._headers(), content, self.source, self._timeouts, self._retries, whole)

    def _known(self, ask: Ask) -> int | None:
        """Return the place in the history of the last response that a request may name; None if it has to hold all."""
        stores = {**self.options, **ask.options}.get("store") is not False
        if not self.previous_id or ask.whole or not stores:
            return None
        for place in reversed(range(len(ask.history) - 1)):  # behind the last there is nothing to be said
            said = ask.history[place]
            if isinstance(said, Assistant) and said.response_id and said.origin.is_same(self.origin):
                return place
        return None

    def _write(self, ask: Ask, **how: Any) -> tuple[Body, list[Body]]:
        """Return the messages of a request, behind what names an earlier response where they go on with one."""
        how = {"dialects": ask.dialects, "provider": self.origin, **how}
        if (place := self._known(ask)) is not None:
            said = ask.history[place]
            assert isinstance(said, Assistant)
            return {self._previous: said.response_id}, write_continuation(
                said, ask.history[place + 1 :], self.format, **how
            )
        return {}, write_messages(ask.history, self.format, **how)

    def _path(self) -> str:
        return self._endpoint

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate", **self._own_headers}
        key = self._key() if callable(self._key) else self._key
        if key is None:
            key = next((found for name in self.key_names if (found := os.environ.get(name))), None)
        is_hosted = self._home.startswith("https:") and self.url.startswith(self._home)
        if key is None and is_hosted and self._client is None and not self._given_headers:
            names = " or ".join(self.key_names)
            raise ValueError(f'{self!r} has no API key: set {names}, or pass api_key ("" sends none)')
        key = key or ""
        key = key.strip()  # a line feed from the file that it stood in
        if not key.isascii() or not key.isprintable():
            raise ValueError(f"the API key of {self!r} holds characters that no header can")
        if key:
            headers[self._key_header] = f"Bearer {key}" if self._key_header == "Authorization" else key
        given = {name.lower() for name in self._given_headers}
        return {name: value for name, value in headers.items() if name.lower() not in given} | self._given_headers


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
    if query in parts.query.split("&"):
        query = ""
    return urlunsplit(parts._replace(path=whole, query="&".join(filter(None, [parts.query, query])), fragment=""))


# Options of a request are a provider's own, spelled as it spells them. The few that every provider has are also
# understood in OpenAI's spelling, and put where the provider looks for them.


def offer(body: Body, ask: Ask, format: ProviderFormat, choose: Callable[[ToolChoice], Body]) -> Body:
    """Return `body` with the tools of a request in a provider's form, and what `choose` makes of their choice."""
    if not ask.tools:
        return body
    choice = choose(ask.tool_choice) if ask.tool_choice.mode != "auto" else {}
    return body | {"tools": define(ask, format)} | choice


def define(ask: Ask, format: ProviderFormat) -> list[Body]:
    """Return the tools of a request in a provider's form; what they say of themselves is no call if it is repeated."""
    defined = ToolRegistry(*ask.tools).accepted_by(format).definitions(format)
    return neutralise_all(defined, ask.dialects) if ask.dialects else defined


def merge(body: Body, *options: Mapping[str, Any]) -> Body:
    """Return `body` with `options`, of which the later count: objects are merged, tools added, None takes a member out.

    >>> merge({"stream": True, "stream_options": {"include_usage": True}}, {"stream_options": None, "seed": 1})
    {'stream': True, 'seed': 1}
    """
    merged = dict(body)
    for each in options:
        for key, value in each.items():
            present = merged.get(key)
            if value is None:
                merged.pop(key, None)
            elif isinstance(value, Mapping):
                merged[key] = merge(present if isinstance(present, dict) else {}, value)
            elif key == "tools" and isinstance(present, list):
                merged[key] = [*present, *copy.deepcopy(value)]
            else:
                merged[key] = copy.deepcopy(value)
    return merged


def place(options: Mapping[str, Any], inside: str, names: Mapping[str, str]) -> Body:
    """Return `options` with those that `names` lists under their names of this provider, in the object `inside`.

    Without `inside` they stay where they are. None stays None, so that it takes out what is merged before it.

    >>> place({"max_tokens": 9, "think": True}, "options", {"max_tokens": "num_predict"})
    {'options': {'num_predict': 9}, 'think': True}
    """
    placed: Body = {}
    for key, value in options.items():
        if inside and (key in names or (key == inside and isinstance(value, Mapping))):
            placed[inside] = {**(placed.get(inside) or {}), **({names[key]: value} if key in names else value)}
        else:
            placed[names.get(key, key)] = value
    return placed


def complete(
    body: Body, *options: Mapping[str, Any], inside: str = "", names: Mapping[str, str] = MappingProxyType({})
) -> Body:
    """Return `body` with `options`, each in its place; one stop word becomes a list, where OpenAI takes either.

    >>> complete({"model": "m"}, {"stop": "END", "seed": 1}, {"seed": None}, names={"stop": "stop_sequences"})
    {'model': 'm', 'stop_sequences': ['END']}
    """
    merged = merge(body, *(place(each, inside, names) for each in options))
    home = merged.get(inside, {}) if inside else merged
    stop = names.get("stop", "")
    if isinstance(home.get(stop), str):
        home[stop] = [home[stop]]
    if inside in merged and not home:
        del merged[inside]
    return merged
