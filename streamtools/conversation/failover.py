"""`Fallback`: several models as one, of which each replaces the one before it when that fails.

A model that fails before any of its answer was shown is replaced: the next model gets the same request. After that, the
policy `on_break` decides about the text that was shown. A call that was being written is discarded, and so is a
complete native call, because no other provider can continue it. A call that has run never runs again: the step ends
with it, and the next model gets its result.

Failures are lost connections, silence, an end without a terminator, errors in the stream, and the statuses 408, 429 and
5xx. With any other status the provider refuses the request itself, and
no other model gets it.
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
from streamtools.conversation.models.model import Ask, Model, origin_of
from streamtools.conversation.models.output_format import in_words
from streamtools.conversation.models.prefill import prefill_of
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
"""Takes back the invalid part of an answer in which a model broke off, or with True the whole step.

It gets the model's name. It returns the text that stays, with complete calls in it, or None if a call has run."""

GO_ON = (
    "Your last answer was interrupted by a technical fault, and the reader has already seen everything that you wrote. "
    "Go on exactly where it stops, in the middle of a word if need be. Repeat nothing, and do not mention this."
)
_NO_TERMINATOR = "the stream ended before it was complete"
AGAIN = (408, 429)
"""Statuses below 500 after which another model gets the request."""


@dataclass
class Circuit:
    """The recent failures of one model. While its circuit is open, the model is asked last."""

    failures: int = 0
    """The number of consecutive failures."""
    open_until: float = 0.0
    """The time of the clock at which the circuit closes."""


class Circuits:
    """The circuits of `count` models: `failures` consecutive failures open one for `rest` seconds of the clock."""

    def __init__(
        self, count: int, clock: Callable[[], float] = monotonic, *, failures: int = 5, rest: float = 30.0
    ) -> None:
        if failures < 1 or not rest > 0:
            raise ValueError(
                f"`failures` must be at least 1 and `rest` above 0 seconds, got {failures!r} and {rest!r}."
            )
        self.each = [Circuit() for _ in range(count)]
        self._clock = clock
        self._failures = failures
        self._rest = rest
        self._lock = threading.Lock()  # the gateway reads long answers in threads

    def order(self, failed: Collection[int] = ()) -> list[int]:
        """Return the indexes of the models in the order in which they are asked; models that `failed` come last."""
        now = self._clock()
        return sorted(range(len(self.each)), key=lambda at: (at in failed, self.each[at].open_until > now, at))

    def note(self, at: int, *, failed: bool) -> None:
        """Record that a model has failed or has answered."""
        circuit = self.each[at]
        with self._lock:
            circuit.failures = circuit.failures + 1 if failed else 0
            if not failed:
                circuit.open_until = 0.0
            elif circuit.failures >= self._failures:
                circuit.open_until = self._clock() + self._rest


class Fallback:
    """Several models as one model for `chat`, in the order in which they are asked.

    `on_break` decides what follows when an answer breaks off in mid-stream. With `"continue"` the next model continues
    the text that was shown. `"restart_step"` takes the step back, which `step-superseded` reports to the interface, and
    starts it again. `"fail"` ends the run. `failures` consecutive failures open the circuit of a model: for `rest`
    seconds the others are asked first. One `Fallback` can serve many chats, and counts the failures of all.

    Each model uses up its own `retries` before it counts as failed. If all models agree about `native_tool_calls`, the
    `Fallback` has the same value. Otherwise each model is asked in its own way. Raises ValueError for values that are
    not allowed.
    """

    def __init__(
        self, first: Model, *others: Model, on_break: OnBreak = "continue", failures: int = 5, rest: float = 30.0
    ) -> None:
        check_word("on_break", on_break, ("continue", "restart_step", "fail"))
        self.models = (first, *others)
        self.on_break = on_break
        self.known = Circuits(1 + len(others), anyio.current_time, failures=failures, rest=rest)

    @property
    def name(self) -> str:
        """The name of the first model."""
        return self.models[0].name

    @property
    def origin(self) -> Origin:
        """The origin of the first model's answers."""
        return origin_of(self.models[0])

    @property
    def native_tool_calls(self) -> bool | None:
        """The value that all models agree about; None if they differ."""
        values = {model.native_tool_calls for model in self.models}
        return values.pop() if len(values) == 1 else None

    @property
    def is_mixed(self) -> bool:
        """Whether some of the models make native calls, and others do not."""
        return {True, False} <= {model.native_tool_calls for model in self.models}

    @property
    def circuits(self) -> list[Circuit]:
        """The circuits of the models, in the same order."""
        return self.known.each

    def body(self, ask: Ask) -> dict[str, Any]:
        """Return the body of the first model's request."""
        return self.models[0].body(ask)

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Any]:
        """Return the answer of the first model that does not fail before it begins.

        Outside a chat, no other model continues an answer.
        """
        return aclosing(FailoverReply(self, lambda model: ask))


@dataclass
class Failures:
    """The failures in one run: the indexes of the failed models, and events that are sent with the next answer."""

    failed: set[int] = field(default_factory=set)
    unsent: list[SourceEvent] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class FailoverReply:
    """The answer to one request, from one model or from several in order.

    `write` returns the request for a model. Without `take_back`, an answer that has begun is not continued.
    """

    _fallback: Fallback
    _write: Callable[[Model], Ask]
    _take_back: TakeBack | None = None
    _failures: Failures = field(default_factory=Failures)

    def __post_init__(self) -> None:
        self._untried: list[int] | None = None  # indexes of models; None before the first request
        self._at = 0  # the index of the current model
        self._reply: Reply | None = None
        self._continuation: Continuation | None = None
        self._begun = False  # a part of the answer was returned
        self._complete = False  # the answer, or a turn of it, is complete
        self._over = False
        self._fault: SourceError | None = None

    def __aiter__(self) -> Self:
        return self

    @property
    def origin(self) -> Origin:
        """The origin of the model that was asked last, or is asked first."""
        return origin_of(self._next)

    @property
    def url(self) -> str | None:
        """The URL of the request; None if the model has none."""
        return getattr(self._next, "url", None)

    @property
    def _next(self) -> Model:
        """The model that was asked last, or is asked first."""
        at = self._fallback.known.order(self._failures.failed)[0] if self._untried is None else self._at
        return self._fallback.models[at]

    @property
    def _model(self) -> Model:
        return self._fallback.models[self._at]

    async def __anext__(self) -> Sequence[SourceEvent]:
        if self._over:
            raise StopAsyncIteration
        if self._untried is None:
            self._untried = self._fallback.known.order(self._failures.failed)
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
            if self._complete:
                self._over = True
                raise
            return await self._fail(SourceError(_NO_TERMINATOR, Code.STREAM_INTERRUPTED))
        return self._read(batch)

    async def aclose(self) -> None:
        self._over = True
        if self._reply is not None:
            await self._reply.aclose()

    def _read(self, batch: Sequence[SourceEvent]) -> Sequence[SourceEvent]:
        """Return the events of a batch before a failure."""
        read: list[SourceEvent] = []
        for event in batch:
            if not self._complete and (fault := failure_of(event)) is not None:
                self._fault = fault
                break
            if isinstance(event, ProviderCompleted | ChainCompleted):
                self._complete = True
                self._fallback.known.note(self._at, failed=False)
            elif isinstance(event, SourceError):
                self._complete = True
            elif not isinstance(event, SourceUsage | SourceWarning):
                self._begun = True
            if self._continuation is not None:
                self._continuation.read(event, read)
            else:
                read.append(event)
        return read

    async def _fail(self, fault: SourceError) -> Sequence[SourceEvent]:
        """Return what follows a failure of the current model: the failure itself if no other model follows."""
        fallback, policy = self._fallback, self._fallback.on_break
        fallback.known.note(self._at, failed=True)
        self._failures.failed.add(self._at)
        if not self._untried or (self._begun and (policy == "fail" or self._take_back is None)):
            self._over = True
            return [*self._take_pending_text(), fault]
        assert self._reply is not None
        await self._reply.aclose()
        name = self._model.name
        if pending := self._take_pending_text():  # shown first, because the next model continues after it
            self._fault = fault
            return pending
        shown = self._take_back(name, self._begun and policy == "restart_step") if self._take_back is not None else ""
        next_name = fallback.models[self._untried[0]].name
        log.warning("failed_over", model=name, next=next_name, begun=self._begun, status=fault.status, url=fault.url)
        warning = SourceWarning(Code.FAILED_OVER, f"{name} failed, and {next_name} follows: {fault.message}")
        if shown is None:  # a call has run, and only its result can follow
            self._over = True
            self._failures.unsent.append(warning)
            return [ProviderCompleted(finish_reason="tool_calls", model=name)]
        self._ask_next(shown)
        if (observed := observing.observed()) is not None:
            observed.failed(fault.cause or fault.code.value)
            observed.asked(self.origin, self._reply)
        return [warning]

    def _take_pending_text(self) -> list[SourceEvent]:
        """Return text of the failed answer that was kept back as a possible repetition."""
        continuation, self._continuation = self._continuation, None
        pending = continuation.close() if continuation is not None else ""
        return [TextDelta(pending)] if pending else []

    def _ask_next(self, shown: str = "") -> None:
        """Ask the next model, which continues the text that was `shown`."""
        assert self._untried
        self._at = self._untried.pop(0)
        ask = self._write(self._model)
        if shown.strip():
            if ask.output is not None:  # a schema would make the provider begin the value again
                ask = replace(ask, output=None, history=in_words(ask.history, ask.output))
            if (prefill := prefill_of(self._model, ask.options)) is not None:
                ask = replace(ask, prefill=shown.rstrip())
                self._continuation = Continuation(shown, "echoed" if prefill.echoes else "prefilled")
            else:
                ask = replace(ask, history=(*ask.history, Assistant(shown), User(GO_ON)))
                self._continuation = Continuation(shown, "instructed")
        self._reply = Reply(self._model, ask)


def failure_of(event: SourceEvent) -> SourceError | None:
    """Return the failure that an event reports, if another model can get the request."""
    if isinstance(event, ProviderCompleted) and event.finish_reason == "error":
        return SourceError("the provider ended the turn with an error")
    if not isinstance(event, SourceError) or event.failed_generation:
        return None
    status = event.status
    return event if status is None or status in AGAIN or status >= 500 or 200 <= status < 300 else None
