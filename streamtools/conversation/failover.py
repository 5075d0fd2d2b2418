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

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

import anyio

from streamtools import observing
from streamtools.conversation.models.model import Ask, Model, origin_of
from streamtools.conversation.models.output_format import in_words
from streamtools.conversation.models.prefill import prefill_of
from streamtools.conversation.reply import Reply
from streamtools.conversation.shared_answer import GO_ON, Circuit, Circuits, SharedAnswer
from streamtools.errors import Code, check_word
from streamtools.events import ProviderCompleted, SourceError, SourceEvent, SourceWarning
from streamtools.history import Assistant, Origin, User
from streamtools.logs import Logger

log = Logger(__name__)

OnBreak: TypeAlias = Literal["continue", "restart_step", "fail"]
TakeBack: TypeAlias = Callable[[str, bool], str | None]
"""Takes back the invalid part of an answer in which a model broke off, or with True the whole step.

It gets the model's name. It returns the text that stays, with complete calls in it, or None if a call has run."""

_NO_TERMINATOR = "the stream ended before it was complete"


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
        self._answer: SharedAnswer | None = None  # None before the first request
        self._reply: Reply | None = None
        self._over = False

    def __aiter__(self) -> Self:
        return self

    @property
    def origin(self) -> Origin:
        """The origin of the model that was asked last, or is asked first."""
        return origin_of(self._model)

    @property
    def url(self) -> str | None:
        """The URL of the request; None if the model has none."""
        return getattr(self._model, "url", None)

    @property
    def _model(self) -> Model:
        """The model that was asked last, or is asked first."""
        first = self._fallback.known.order(self._failures.failed)[0] if self._answer is None else self._answer.at
        return self._fallback.models[first]

    async def __anext__(self) -> Sequence[SourceEvent]:
        if self._over:
            raise StopAsyncIteration
        if self._answer is None:
            self._answer = SharedAnswer(self._fallback.known, self._failures.failed)
            self._reply = Reply(self._model, self._write(self._model))
            unsent, self._failures.unsent = self._failures.unsent, []
            if unsent:
                return unsent
        answer = self._answer
        if answer.fault is not None:
            return await self._fail(answer, answer.fault)
        assert self._reply is not None
        try:
            batch = await anext(self._reply)
        except StopAsyncIteration:
            if answer.complete:
                self._over = True
                raise
            return await self._fail(answer, SourceError(_NO_TERMINATOR, Code.STREAM_INTERRUPTED))
        return answer.read(batch)

    async def aclose(self) -> None:
        self._over = True
        if self._reply is not None:
            await self._reply.aclose()

    async def _fail(self, answer: SharedAnswer, fault: SourceError) -> Sequence[SourceEvent]:
        """Return what follows a failure of the current model: the failure itself if no other model follows."""
        fallback, policy = self._fallback, self._fallback.on_break
        fallback.known.note(answer.at, failed=True)
        self._failures.failed.add(answer.at)
        if answer.next is None or (answer.begun and (policy == "fail" or self._take_back is None)):
            self._over = True
            return [*answer.take_pending_text(), fault]
        assert self._reply is not None
        await self._reply.aclose()
        if pending := answer.take_pending_text():  # shown first, because the next model continues after it
            answer.fault = fault
            return pending
        name, next_name = self._model.name, fallback.models[answer.next].name
        shown = self._take_back(name, answer.begun and policy == "restart_step") if self._take_back is not None else ""
        log.warning("failed_over", model=name, next=next_name, begun=answer.begun, status=fault.status, url=fault.url)
        warning = SourceWarning(Code.FAILED_OVER, f"{name} failed, and {next_name} follows: {fault.message}")
        if shown is None:  # a call has run, and only its result can follow
            self._over = True
            self._failures.unsent.append(warning)
            return [ProviderCompleted(finish_reason="tool_calls", model=name)]
        answer.move_on()
        self._reply = Reply(self._model, self._continue(answer, shown))
        if (observed := observing.observed_run()) is not None:
            observed.model_failed(fault.cause or fault.code.value)
            observed.request_started(self.origin, self._reply)
        return [warning]

    def _continue(self, answer: SharedAnswer, shown: str) -> Ask:
        """Return the request with which the current model continues the text that was `shown`."""
        ask = self._write(self._model)
        if not shown.strip():
            return ask
        if ask.output is not None:  # a schema would make the provider begin the value again
            ask = replace(ask, output=None, history=in_words(ask.history, ask.output))
        prefill = prefill_of(self._model, ask.options)
        answer.continue_text(shown, prefill)
        if prefill is not None:
            return replace(ask, prefill=shown.rstrip())
        return replace(ask, history=(*ask.history, Assistant(shown), User(GO_ON)))
