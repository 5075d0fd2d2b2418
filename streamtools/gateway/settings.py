"""What is the same for all requests of a gateway: how they are rewritten, and which upstreams stand in. Sans-IO."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args

from streamtools.calls import IdFactory
from streamtools.conversation.failover import Circuits
from streamtools.conversation.prompts import Example
from streamtools.errors import check_word
from streamtools.gateway.addresses import Headers
from streamtools.gateway.plan import Mode, Modes, teaching
from streamtools.gateway.upstream_requests import Upstream
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.logs import Logger
from streamtools.parsing.dialects import Dialects
from streamtools.parsing.policies import Options
from streamtools.rules.rule import Rule

if TYPE_CHECKING:
    from streamtools.stream.judging import TextJudge

log = Logger(__name__)

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
        check_word("prefill", self.prefill, get_args(Server))

    def headers(self, given: Iterable[tuple[str, str]]) -> Headers:
        """Return the headers of a request as this upstream is sent them: with its own key, and no client's."""
        kept = [each for each in given if each[0].lower() in _PASSED]
        return kept if self.key is None else [*kept, ("authorization", f"Bearer {self.key}")]

    def __repr__(self) -> str:
        return f"FallbackUpstream(url={self.url!r})"


class RewriteOptions(TypedDict, total=False):
    """The parameters of `Rewrite` that say how requests are rewritten, as keywords."""

    mode: Modes
    dialects: Dialects
    few_shot: bool | Sequence[Example]
    on_malformed: Literal["text", "error"]
    ask_again: int
    text_rules: Sequence[Rule]
    text_judge: TextJudge | None
    fallbacks: Sequence[FallbackUpstream]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What holds for all requests; see `Rewrite`."""

    mode: Modes = "text"
    dialects: Dialects = None
    few_shot: bool | Sequence[Example] = False
    on_malformed: Literal["text", "error"] = "error"
    ask_again: int = 0
    upstream: Upstream = "openai"
    text_rules: Sequence[Rule] = ()
    text_judge: TextJudge | None = None
    fallbacks: Sequence[FallbackUpstream] = ()
    limits: Limits = DEFAULT_LIMITS
    new_id: IdFactory | None = None
    new_answer_id: IdFactory | None = None
    now: Callable[[], int] | None = None
    parsing: Mapping[str, Any] = field(default_factory=dict)
    circuits: Circuits = field(init=False, repr=False, compare=False)
    """Of the upstream, and of its `fallbacks`."""
    _told: set[tuple[str, ...]] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        modes = list(self.mode.values()) if isinstance(self.mode, Mapping) else [self.mode]
        for name, kinds, given in (("mode", Mode, modes), ("upstream", Upstream, [self.upstream])):
            for each in given:
                check_word(name, each, get_args(kinds))
        check_word("on_malformed", self.on_malformed, ("text", "error"))
        Options(text_rules=self.text_rules)
        if self.text_judge is not None:
            from streamtools.stream.judging import TextJudge  # loaded when it is used

            if not isinstance(self.text_judge, TextJudge):
                raise ValueError(f"text_judge is a TextJudge, not {self.text_judge!r}")
            if self.ask_again or self.fallbacks:
                raise ValueError("text_judge: what is said once more is not judged: leave out ask_again and fallbacks")
        if "text" in modes or (isinstance(self.mode, Mapping) and "*" not in self.mode):
            teaching(self.dialects)
        object.__setattr__(self, "circuits", Circuits(1 + len(self.fallbacks)))

    def tell_once(self, event: str, **about: str) -> None:
        """Log a warning, once for each of these; values that a client chooses have no end."""
        if (told := (event, *about.values())) not in self._told:
            self._told.add(told)
            log.warning(event, **about)
