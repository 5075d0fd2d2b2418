"""`Reply`: a model's reply to one request, as a source of events.

The request is written and sent when the first event of the answer is read, so a reply that is never read sends nothing.
Writing a long history would block the event loop, so a worker thread does this. In the thread, only an `HTTPModel`
serializes its request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, Self, TypeAlias

import msgspec

from streamtools.conversation.models.http_model import HTTPModel
from streamtools.conversation.models.model import AnswerToolReader, Ask, Model, origin_of
from streamtools.events import SourceEvent
from streamtools.history import Message, Origin
from streamtools.history.calls_in_text import neutralize_quotations
from streamtools.history.pairing import pair_results
from streamtools.stream.long_work import IN_THREAD, in_thread_if

Write: TypeAlias = Callable[[Ask, Model], Ask]
"""A function that adapts a request to a model. It runs in a thread if the history is long."""


def paired(ask: Ask) -> Sequence[Message]:
    """Return the history of `ask` with a result for each call. Quotations of calls in it are neutralized."""
    return neutralize_quotations(pair_results(ask.history, "cancelled"), ask.dialects)


def _is_long(history: Sequence[Message]) -> bool:
    """Return whether it may take more than 50 ms to write a history. A character takes up to 0.1 µs, a part 25 µs."""
    sizes = accumulate(len(msgspec.json.encode(message)) for message in history)
    try:
        return any(size > IN_THREAD for size in sizes)
    except (TypeError, ValueError, OverflowError, RecursionError):  # for example a lone surrogate
        return True


class ModelSource:
    """A source of events from a model, as an asynchronous iterator of batches."""

    model: Model
    """The model that produces the next events."""

    def __aiter__(self) -> Self:
        return self

    @property
    def origin(self) -> Origin:
        """The format, host and model of the events."""
        return origin_of(self.model)

    @property
    def url(self) -> str | None:
        """The URL of the request; None if the model has none."""
        return getattr(self.model, "url", None)


class Reply(ModelSource):
    """A source of the events of the model's reply to `ask`, adapted by `write`."""

    def __init__(self, model: Model, ask: Ask, write: Write | None = None) -> None:
        self.model = model
        self.history: Sequence[Message] = ()
        """The history in the request. Empty before the request is written."""
        self.offers_tools = False
        """Whether the request offers native tools. False before the request is written."""
        self._ask = ask
        self._write = write
        self._answer_tool: AnswerToolReader | None = None
        self._stream_context: AbstractAsyncContextManager[Any] | None = None
        self._source: Any = None

    def _written(self) -> Ask:
        """Return the request, adapted to the model and without the values of a vault."""
        ask = self._ask if self._write is None else self._write(self._ask, self.model)
        return ask if ask.hide is None else replace(ask, history=tuple(ask.hide(ask.history)), hide=None)

    async def __anext__(self) -> Sequence[SourceEvent]:
        if self._source is None:
            model, hides = self.model, self._ask.hide is not None
            is_long = hides or _is_long(self._ask.history)  # hiding takes 0.1 s for 168 KB, and finders may be slow
            ask = await in_thread_if(is_long, self._written)
            self.history, self.offers_tools = ask.history, bool(ask.tools)
            self._answer_tool = AnswerToolReader() if ask.output is not None and not ask.tools else None
            stream_context = await in_thread_if(is_long and isinstance(model, HTTPModel), partial(model.stream, ask))
            self._source = await stream_context.__aenter__()
            self._stream_context = stream_context
        batch: Sequence[SourceEvent] = await anext(self._source)
        return batch if self._answer_tool is None else self._answer_tool.read(batch)

    async def aclose(self) -> None:
        stream_context, self._stream_context = self._stream_context, None
        if stream_context is not None:
            await stream_context.__aexit__(None, None, None)


class Replies(ModelSource):
    """A source of events that reads several replies in order."""

    _batches: AsyncGenerator[Sequence[SourceEvent]]  # yields the events
    _reply: Reply | None = None  # the current reply; None before the first request

    async def __anext__(self) -> Sequence[SourceEvent]:
        return await anext(self._batches)

    async def aclose(self) -> None:
        await self._batches.aclose()
        if self._reply is not None:
            await self._reply.aclose()
