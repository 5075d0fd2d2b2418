"""Defines `FallbackUpstream`, and `Settings`, the base class of `Rewrite`. Sans-IO."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypedDict, get_args

from streamtools.calls import IdFactory
from streamtools.conversation.failover_rules import Circuits
from streamtools.errors import Checked, check_kind, check_word
from streamtools.gateway.http import Headers, may_return_text
from streamtools.gateway.upstream_requests import CallMode, CallModes, Upstream, teaching_plan
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.logs import Logger
from streamtools.parsing.dialects import Dialect, Dialects
from streamtools.parsing.options import Options
from streamtools.rules.rule import Rule
from streamtools.rules.vault import Vault

log = Logger(__name__)

_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?")
_MAX_MODELS = 256  # clients choose the names of models
_HEADERS_FOR_FALLBACKS = ("accept", "accept-encoding", "content-type", "traceparent", "user-agent", "x-request-id")

PrefillServer: TypeAlias = Literal["", "vllm", "sglang", "llama.cpp", "deepseek", "mistral"]
"""A server whose chat completions can continue the beginning of an answer. `""` means any other server."""


def check_address(name: str, url: str, **keys: str | None) -> None:
    """Raise ValueError if `url`, the value of the parameter `name`, or one of the `keys` is invalid."""
    if not _URL.fullmatch(url):
        raise ValueError(f"`{name}` must be a URL such as http://127.0.0.1:8080/v1, without a key or a query.")
    for parameter, key in keys.items():
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise ValueError(f"`{parameter}` is empty, or holds characters that a header cannot carry.")


@dataclass(frozen=True, kw_only=True)
class FallbackUpstream(Checked):
    """An upstream that gets a request if all upstreams before it fail. It must have the same API as the primary one.

    Requests are sent to `chat/completions` below `url`. They contain `key` and never a client's key. If `model` is set,
    it replaces the name of the model. `prefill` names a server that can continue the beginning of an answer: "vllm",
    "sglang", "llama.cpp", "deepseek" or "mistral". With any other server, the request contains an instruction to
    continue. Raises ValueError for a value that is not allowed.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    model: str | None = None
    prefill: PrefillServer = ""

    def __post_init__(self) -> None:
        check_address("url", self.url, key=self.key)

    def headers(self, given: Iterable[tuple[str, str]]) -> Headers:
        """Return the headers for a request to this upstream: some of the client's headers, and this upstream's key."""
        kept = [(name, value) for name, value in given if name.lower() in _HEADERS_FOR_FALLBACKS]
        return kept if self.key is None else [*kept, ("authorization", f"Bearer {self.key}")]


class RewriteOptions(TypedDict, total=False):
    """The parameters of `Rewrite` that `ToolCallTransport` and `app` also accept."""

    mode: CallModes
    dialects: Dialects
    on_malformed: Literal["text", "error"]
    api: Upstream
    text_rules: Sequence[Rule]
    vault: Vault | None
    fallbacks: Sequence[FallbackUpstream]


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """The settings that apply to all requests. The docstring of `Rewrite` describes them."""

    mode: CallModes = "text"
    dialects: Dialects = None
    on_malformed: Literal["text", "error"] = "error"
    api: Upstream = "openai"
    text_rules: Sequence[Rule] = ()
    vault: Vault | None = None
    fallbacks: Sequence[FallbackUpstream] = ()
    limits: Limits = DEFAULT_LIMITS
    new_id: IdFactory | None = None
    circuits: Circuits = field(init=False, repr=False, compare=False)
    """The circuits of the primary upstream and of the `fallbacks`, in this order."""
    used_dialects: dict[str, Dialect] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Maps the name of a model to the dialect in which the model made its last call."""
    _logged: set[tuple[str, ...]] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        modes = list(self.mode.values()) if isinstance(self.mode, Mapping) else [self.mode]
        for mode in modes:
            check_word("mode", mode, get_args(CallMode))
        for fallback in self.fallbacks:
            check_kind("each of `fallbacks`", fallback, FallbackUpstream)
        check_kind("vault", self.vault, Vault, optional=True)
        check_word("api", self.api, get_args(Upstream))
        Options(text_rules=self.text_rules)  # raises ValueError for invalid rules
        # Raises ValueError for a dialect that cannot be taught. A model that matches no pattern has the mode "text".
        if "text" in modes or (isinstance(self.mode, Mapping) and "*" not in self.mode):
            teaching_plan(self.dialects)
        object.__setattr__(self, "circuits", Circuits(1 + len(self.fallbacks)))

    def may_forward(self, method: str, path: str) -> bool:
        """Return whether a request may be forwarded unread, and its answer too.

        `text_rules` cannot check the answer, and the `vault` cannot replace values in the request.
        """
        return (self.vault is None or method == "GET") and not (self.text_rules and may_return_text(path))

    def record_dialect(self, model: str, taught: Dialect, used: Dialect) -> None:
        """Record that `model` made its last call in the dialect `used`. Logs a warning if another dialect was taught.

        Later requests to this model contain calls and results in this dialect.
        """
        self.used_dialects[model] = used
        if used.id != taught.id:
            advice = f"teach the dialect that the model uses: dialects=[{used.id!r}], or --dialect {used.id}"
            self.warn_once("other_dialect_used", taught=taught.id, used=used.id, advice=advice)
        if len(self.used_dialects) > _MAX_MODELS:
            del self.used_dialects[next(iter(self.used_dialects))]

    def warn_once(self, event: str, **fields: str) -> None:
        """Log a warning once for each combination of `event` and `fields`.

        Clients must not be able to choose the values freely, because all combinations are kept in memory.
        """
        if (key := (event, *fields.values())) not in self._logged:
            self._logged.add(key)
            log.warning(event, **fields)
