"""`Fallback`: a list of models. If a model fails, the next one replaces it.

If a model fails before any part of its answer was shown, the next model gets the same request. If a part of the answer
was shown, the policy `on_break` decides what happens. An incomplete call is discarded. A complete native call is also
discarded, because another provider cannot continue it. A call that has run never runs again: the step ends with this
call, and the next model gets its result.

A model fails in these cases: the connection is lost, no bytes arrive before the timeout, the stream ends without its
terminator, the stream contains an error, or the status is 5xx or one of `STATUSES`. Any other error status, also in the
stream, means that the provider refuses the request itself. Then no other model is called. Some providers send an error
with the model's text if they cannot parse a call in it. After such an error, no other model is called either.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

from streamtools import observing
from streamtools.conversation.failover_rules import (
    CONTINUE_PROMPT,
    MODEL_STATUSES,
    RETRYABLE_STATUSES,
    Circuits,
    SharedAnswer,
)
from streamtools.conversation.models.model import Ask, Model, check_model, with_type_in_prompt
from streamtools.conversation.models.prefill_fields import prefill_of
from streamtools.conversation.reply import Replies, Reply, Write
from streamtools.errors import Checked, Code
from streamtools.events import ProviderCompleted, SourceError, SourceEvent, SourceWarning
from streamtools.history import Assistant, User
from streamtools.logs import Logger

log = Logger(__name__)

STATUSES = RETRYABLE_STATUSES + MODEL_STATUSES

OnBreak: TypeAlias = Literal["continue", "restart_step", "fail"]
DiscardAnswer: TypeAlias = Callable[[str, bool], str | None]
"""A function that discards the part of a failed model's answer that no other model can continue.

The arguments are the name of the failed model, and True if the whole step must be discarded. The function returns the
remaining text, which includes complete calls in text. It returns None if a call of the answer has run."""


class Fallback(Checked):
    """A model for `chat` that consists of several models: `first` and, if it fails, `others` in this order.

    `on_break` is the policy for a model that fails after a part of its answer was shown. With `"continue"`, the next
    model continues the shown text. With `"restart_step"`, the next model answers the request again, and the event
    `step-superseded` tells the user interface to remove the failed step. With `"fail"`, the run ends with an error.

    After `failures` consecutive failures, the circuit of a model opens. For the next `rest` seconds, that model is
    called after all others. A `Fallback` can serve several chats, which then share the counts of failures. A model
    fails only after all its `retries` have failed.

    If all models have the same `native_tool_calls`, the `Fallback` has that value. Otherwise each model gets a request
    that fits its own value. Raises ValueError for values that are not allowed, and TypeError for a wrong model.
    """

    def __init__(
        self, first: Model, *others: Model, on_break: OnBreak = "continue", failures: int = 5, rest: float = 30.0
    ) -> None:
        self.models = (first, *others)
        for model in self.models:
            check_model(model)
        self.on_break = on_break
        self.circuits = Circuits(1 + len(others), failures=failures, rest=rest)
        """The circuits of the models, in the order of the models."""

    @property
    def name(self) -> str:
        """The name of the first model."""
        return self.models[0].name

    @property
    def native_tool_calls(self) -> bool | None:
        """The value that all models have; None if their values differ."""
        values = {model.native_tool_calls for model in self.models}
        return values.pop() if len(values) == 1 else None

    def body(self, ask: Ask) -> dict[str, Any]:
        """Return the body of the first model's request."""
        return self.models[0].body(ask)

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Any]:
        """Return the answer of the first model that does not fail before its answer begins.

        If that model fails later, the answer ends with an error. Only a chat lets another model continue an answer.
        """
        return aclosing(FailoverReply(self, ask))


@dataclass(eq=False, repr=False)
class FailoverReply(Replies):
    """The answer to one request, as a source of events. Several models may contribute to it in order.

    `_write` adapts `_ask` to a model. If `_discard_answer` is None, no other model continues an answer that has
    begun. A failure then ends the answer with an error.
    """

    _fallback: Fallback
    _ask: Ask
    _write: Write | None = None
    _discard_answer: DiscardAnswer | None = None
    _failed: set[int] = field(default_factory=set)
    """The indexes of the models that have failed in the run. All answers of the run share this set."""
    _shown: str = ""
    """The text that a lost process has shown of this answer. The first model continues it."""

    def __post_init__(self) -> None:
        self._batches = self._run()
        self._answer = SharedAnswer(self._fallback.circuits, self._failed, statuses=STATUSES)
        self.model = self._fallback.models[self._answer.index]

    async def _run(self) -> AsyncGenerator[Sequence[SourceEvent]]:
        """Yield the events of the models, until an answer is complete or no other model can answer.

        If a model fails after a call of the answer has run, the last events are the end of the turn and a warning. The
        next request tries the failed models last.
        """
        fallback, answer = self._fallback, self._answer
        self._reply = reply = Reply(self.model, self._ask, partial(self._continue, self._shown))
        answer.begun = bool(self._shown)
        while True:
            async for batch in reply:
                yield answer.read(batch)
                if answer.fault is not None:
                    break
            if answer.complete:
                return
            fault = answer.fault or SourceError("the stream ended before it was complete", Code.STREAM_INTERRUPTED)
            fallback.circuits.record(answer.index, failed=True)
            self._failed.add(answer.index)
            may_continue = fallback.on_break != "fail" and self._discard_answer is not None
            if answer.next is None or (answer.begun and not may_continue):
                yield [*answer.take_pending_text(), fault]
                return
            await reply.aclose()
            if pending := answer.take_pending_text():  # yielded first, because the next model must continue after it
                yield pending
            name, other = self.model.name, fallback.models[answer.next].name
            shown: str | None = ""
            if self._discard_answer is not None:
                shown = self._discard_answer(name, answer.begun and fallback.on_break == "restart_step")
            advice = {"advice": "check the key, the account and the name"} if fault.status in MODEL_STATUSES else {}
            place = {"status": fault.status, "url": fault.url}
            log.warning("failed_over", model=name, next=other, begun=answer.begun, **place, **advice)
            warning = SourceWarning(Code.FAILED_OVER, f"{name} failed, and {other} follows: {fault.message}")
            if shown is None:  # a call has run, so the step ends here and the next request contains the call's result
                yield [ProviderCompleted(finish_reason="tool_calls", model=name), warning]
                return
            answer.move_on()
            self.model = fallback.models[answer.index]
            self._reply = reply = Reply(self.model, self._ask, partial(self._continue, shown))
            if (observed := observing.observed_run()) is not None:
                observed.model_failed(fault.cause or fault.code.value)
                observed.request_started(self.origin, reply)
            yield [warning]

    def _continue(self, shown: str, ask: Ask, model: Model) -> Ask:
        """Return the request that makes the current `model` continue the text `shown`."""
        ask = ask if self._write is None else self._write(ask, model)
        if not shown.strip():
            return ask
        if ask.output is not None:  # with a schema, the provider would start a new JSON value
            ask = replace(ask, output=None, history=with_type_in_prompt(ask.history, ask.output))
        prefill = prefill_of(model, ask.options)
        self._answer.continue_text(shown, prefill)
        if prefill is not None:
            return replace(ask, prefill=shown.rstrip())
        return replace(ask, history=(*ask.history, Assistant(shown), User(CONTINUE_PROMPT)))
