"""The upstreams of a gateway that stand in for another. Sans-IO."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from streamtools.gateway.addresses import Headers

_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?")
_PASSED = ("accept", "accept-encoding", "content-type", "traceparent", "user-agent", "x-request-id")
"""Headers that every upstream is sent."""

Server: TypeAlias = Literal["", "vllm", "sglang", "llama.cpp", "deepseek", "mistral"]
"""Whose chat completions go on with an answer; "" is any other."""


@dataclass(frozen=True, kw_only=True)
class FallbackUpstream:
    """An upstream that is asked where those before it fail; it speaks what the first does.

    `url` is that below which it has `chat/completions`. It is sent its own `key` and no client's, and asked for its own
    `model`, if it has another name there. `prefill` is how its server goes on with an answer: "vllm", "sglang",
    "llama.cpp", "deepseek" or "mistral"; without it, the model is told to. Raises ValueError for other values.
    """

    url: str
    key: str | None = None
    model: str | None = None
    prefill: Server = ""

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.url):
            raise ValueError("url is one such as http://127.0.0.1:8080/v1, without a key or a query")
        if self.key is not None and not (self.key and self.key.isascii() and self.key.isprintable()):
            raise ValueError("key is empty, or holds what no header takes")
        if self.prefill not in get_args(Server):
            raise ValueError(f"prefill is one of {', '.join(filter(None, get_args(Server)))}, not {self.prefill!r}")

    def headers(self, given: Iterable[tuple[str, str]]) -> Headers:
        """Return the headers of a request as this upstream is sent them: with its own key, and no client's."""
        kept = [each for each in given if each[0].lower() in _PASSED]
        return kept if self.key is None else [*kept, ("authorization", f"Bearer {self.key}")]

    def __repr__(self) -> str:
        return f"FallbackUpstream(url={self.url!r})"
