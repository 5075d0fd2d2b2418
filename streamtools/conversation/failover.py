"""Models of which each stands in for the one before it, and the answer that one of them begins and another ends.

A model that fails before anything of its answer was shown is replaced: the next is asked the same. In mid-stream the
policy decides what becomes of what was shown. A call that had begun is discarded whole, as is a complete native one: no
other provider goes on behind it. A call that has run is never run again: the step ends with it, and the next model is
sent its result.

A failure is a connection that cannot be made or breaks, a silence, an end without a terminator, the statuses 408, 429
and 5xx, and an error of the provider's in its stream. What a provider refuses with another status, it refuses because
of the request; another model is not asked that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Literal, Self, TypeAlias

import anyio

from streamtools import observing
from streamtools.conversation.continuation import Continuation
from streamtools.conversation.models.answer_format import in_words, prefill_of
from streamtools.conversation.models.http_model import Ask, Model, origin_of
from streamtools.conversation.reply import Reply
from streamtools.errors import Code, check_word
from streamtools.events import (
    ChainCompleted,
    ProviderCompleted,
    SourceError,
    SourceEvent,
    SourceUsage,
    SourceWarning,
    TextDelta,
)
from streamtools.history import Assistant, Origin, User
from streamtools.logs import Logger

log = Logger(__name__)

OnBreak: TypeAlias = Literal["continue", "restart_step", "fail"]
TakeBack: TypeAlias = Callable[[str, bool], str | None]
"""Takes back what cannot stand of an answer in which the model of this name broke off, the whole step if that is True;
returns the text of it that stays, with complete calls in it, or None if a call of it has run."""

GO_ON = (
    "Your last answer was interrupted by a technical fault, and the reader has already seen everything that you wrote. "
    "Go on exactly where it stops, in the middle of a word if need be. Repeat nothing, and do not mention this."
)
_ENDED = "the stream ended before it was complete"
AGAIN = (408, 429)
"""Statuses below 500 with which another may be asked the same."""


@dataclass
class Circuit:
    """What is known of one model: how it has failed lately. It is asked last while its circuit is open."""

    failures: int = 0
    """In a row."""
    open_until: float = 0.0
    """The time, of the clock, until which it rests."""


class Circuits:
    """The circuits of so many models: `failures` in a row open one for `rest` seconds of a clock."""

    def __init__(
        self, count: int, clock: Callable[[], float] = monotonic, *, failures: int = 5, rest: float = 30.0
    ) -> None:
        if failures < 1 or not rest > 0:
            raise ValueError(f"failures is at least 1 and rest a time above 0 seconds, not {failures!r} and {rest!r}")
        self.each = [Circuit() for _ in range(count)]
        self._clock = clock
        self._failures = failures
        self._rest = rest
        self._lock = threading.Lock()  # the gateway reads long answers in threads

    def order(self, failed: Collection[int] = ()) -> list[int]:
        """Return the places of the models in the order in which they are asked, where some have `failed` in a run."""
        now = self._clock()
        return sorted(range(len(self.each)), key=lambda at: (at in failed, self.each[at].open_until > now, at))

    def note(self, at: int, *, failed: bool) -> None:
        """Take note that a model has failed, or has given an answer."""
        circuit = self.each[at]
        with self._lock:
            circuit.failures = circuit.failures + 1 if failed else 0
            if not failed:
                circuit.open_until = 0.0
            elif circuit.failures >= self._failures:
                circuit.open_until = self._clock() + self._rest


class Fallback:
    """Models in the order in which they are asked; a model for `chat`.

    `on_break` says what follows where an answer breaks off in mid-stream: with `"continue"` the next model goes on
    behind what was shown; `"restart_step"` takes the step back, for which the interface gets `step-superseded`, and
    begins it anew; `"fail"` ends the run. `failures` in a row open the circuit of a model: for `rest` seconds the
    others are asked first. One `Fallback` may serve many chats, and knows of the failures in all of them.

    Each model has its own `retries` before it counts as failed. Where all say the same of `native_tool_calls`, so does
    this; otherwise each is asked in its own way. Raises ValueError for values that are not allowed.
    """

    def __init__(
        self,
        first: Model,
        *others: Model,
        on_break: OnBreak = "continue",
        failures: int = 5,
        rest: float = 30.0,
    ) -> None:
        check_word("on_break", on_break, ("continue", "restart_step", "fail"))
        self.models = (first, *others)
        self.on_break = on_break
        self.known = Circuits(1 + len(others), anyio.current_time, failures=failures, rest=rest)
        """How the models have failed lately."""

    @property
    def name(self) -> str:
        """The name of the first."""
        return self.models[0].name

    @property
    def origin(self) -> Origin:
        """That of the first."""
        return origin_of(self.models[0])

    @property
    def native_tool_calls(self) -> bool | None:
        """What all of the models say; None if they differ."""
        said = {model.native_tool_calls for model in self.models}
        return said.pop() if len(said) == 1 else None

    @property
    def is_mixed(self) -> bool:
        """Whether some of the models are declared to make native calls, and some to make none."""
        return {True, False} <= {model.native_tool_calls for model in self.models}

    def body(self, ask: Ask) -> dict[str, Any]:
        """Return the body of the first model's request."""
        return self.models[0].body(ask)

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Any]:
        """Give the answer of the first model that does not fail before it begins; outside of a chat, that is all."""
        return aclosing(FailoverReply(self, lambda model: ask))

    @property
    def circuits(self) -> list[Circuit]:
        """One for each of the models."""
        return self.known.each


@dataclass
class Failures:
    """What one run knows of its models: those that failed, and what is still to be said of that."""

    failed: set[int] = field(default_factory=set)
    unsent: list[SourceEvent] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class FailoverReply:
    """The answer to one request, from the first of the models that gives it, or from several of them.

    `write` gives the request as each model is sent it. Without `take_back`, only what fails before it begins is asked
    of another model.
    """

    _fallback: Fallback
    _write: Callable[[Model], Ask]
    _take_back: TakeBack | None = None
    _failures: Failures = field(default_factory=Failures)

    def __post_init__(self) -> None:
        self._left: list[int] | None = None  # places of the models that have not been asked
        self._at = 0  # the place of the one that is asked
        self._reply: Reply | None = None
        self._continuation: Continuation | None = None
        self._begun = False  # something of the answer has been handed on
        self._ended = False  # the answer, or a turn of it, is complete: nothing can follow
        self._over = False
        self._fault: SourceError | None = None

    def __aiter__(self) -> Self:
        return self

    @property
    def origin(self) -> Origin:
        """Whose answer it is: that of the model that was asked last, or is asked first."""
        return origin_of(self._next)

    @property
    def url(self) -> str | None:
        """Where the request goes, if it goes anywhere."""
        return getattr(self._next, "url", None)

    @property
    def _next(self) -> Model:
        """The model that was asked last, or is asked first."""
        first = self._fallback.known.order(self._failures.failed)[0] if self._left is None else self._at
        return self._fallback.models[first]

    @property
    def _model(self) -> Model:
        return self._fallback.models[self._at]

    async def __anext__(self) -> Sequence[SourceEvent]:
        if self._over:
            raise StopAsyncIteration
        if self._left is None:
            self._left = self._fallback.known.order(self._failures.failed)
            unsent, self._failures.unsent = self._failures.unsent, []
            self._ask_next()
            if unsent:
                return unsent
        if self._fault is not None:
            fault, self._fault = self._fault, None
            return await self._fail(fault)
        assert self._reply is not None
        try:
            batch = await anext(self._reply)
        except StopAsyncIteration:
            if self._ended:
                self._over = True
                raise
            return await self._fail(SourceError(_ENDED, Code.STREAM_INTERRUPTED))
        return self._read(batch)

    async def aclose(self) -> None:
        self._over = True
        if self._reply is not None:
            await self._reply.aclose()

    def _read(self, batch: Sequence[SourceEvent]) -> Sequence[SourceEvent]:
        """Return what is handed on of a batch: what comes before a fault."""
        out: list[SourceEvent] = []
        for event in batch:
            if not self._ended and (fault := failure_of(event)) is not None:
                self._fault = fault
                break
            if isinstance(event, ProviderCompleted | ChainCompleted):
                self._ended = True
                self._fallback.known.note(self._at, failed=False)
            elif isinstance(event, SourceError):
                self._ended = True
            elif not isinstance(event, SourceUsage | SourceWarning):
                self._begun = True
            if self._continuation is not None:
                self._continuation.read(event, out)
            else:
                out.append(event)
        return out

    async def _fail(self, fault: SourceError) -> Sequence[SourceEvent]:
        """Return what follows a fault of the model that was asked: the fault itself where no other takes over."""
        fallback, policy = self._fallback, self._fallback.on_break
        fallback.known.note(self._at, failed=True)
        self._failures.failed.add(self._at)
        if not self._left or (self._begun and (policy == "fail" or self._take_back is None)):
            self._over = True
            return [*self._rest(), fault]
        assert self._reply is not None
        await self._reply.aclose()
        name = self._model.name
        if rest := self._rest():  # it is shown first, so that it is a part of what the next goes on with
            self._fault = fault
            return rest
        shown = self._take_back(name, self._begun and policy == "restart_step") if self._take_back is not None else ""
        next_name = fallback.models[self._left[0]].name
        log.warning("failed_over", model=name, next=next_name, begun=self._begun, status=fault.status, url=fault.url)
        warning = SourceWarning(Code.FAILED_OVER, f"{name} failed, and {next_name} follows: {fault.message}")
        if shown is None:  # a call has run, which only its results can follow
            self._over = True
            self._failures.unsent.append(warning)
            return [ProviderCompleted(finish_reason="tool_calls", model=name)]
        self._ask_next(shown)
        if (observed := observing.observed()) is not None:
            observed.failed(fault.cause or fault.code.value)
            observed.asked(self.origin, self._reply)
        return [warning]

    def _rest(self) -> list[SourceEvent]:
        """Return the text that is held back of an answer that broke off."""
        continuation, self._continuation = self._continuation, None
        rest = continuation.close() if continuation is not None else ""
        return [TextDelta(rest)] if rest else []

    def _ask_next(self, shown: str = "") -> None:
        """Ask the next model, to go on behind a text if something was `shown`."""
        assert self._left
        self._at = self._left.pop(0)
        ask = self._write(self._model)
        if shown.strip():
            if ask.output is not None:  # a provider that keeps its model to a schema begins with the value
                ask = replace(ask, output=None, history=in_words(ask.history, ask.output))
            if (how := prefill_of(self._model, ask.options)) is not None:
                ask = replace(ask, prefill=shown.rstrip())
                self._continuation = Continuation(shown, "echoed" if how.echoes else "prefilled")
            else:
                ask = replace(ask, history=(*ask.history, Assistant(shown), User(GO_ON)))
                self._continuation = Continuation(shown, "instructed")
        self._reply = Reply(self._model, ask)


def failure_of(event: SourceEvent) -> SourceError | None:
    """Return the fault that an event is, if another model may be asked instead."""
    if isinstance(event, ProviderCompleted) and event.finish_reason == "error":
        return SourceError("the provider ended the turn with an error")
    if not isinstance(event, SourceError) or event.failed_generation:
        return None
    status = event.status
    return event if status is None or status in AGAIN or status >= 500 or 200 <= status < 300 else None
